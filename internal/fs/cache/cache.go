package cache

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/tine"
)

// Options say where the cache lies and how large it may be.
type Options struct {
	FS  vfs.FS // default vfs.Default
	Dir string // made if missing, and the cache's alone; "" keeps frames in memory only
	// MaxBytes is what the files may have together, counting each as 16 KiB at
	// least. 0 keeps frames in memory only.
	MaxBytes int64
	// MemoryBytes is what the frames in memory may have together, besides those
	// that are on their way. 0: 64 MiB. Negative: none.
	MemoryBytes int64
	Logger      *slog.Logger     // default: nothing is logged
	Now         func() time.Time // default time.Now
}

const (
	defaultMemory = 64 << 20
	// memoryOverhead is about what a frame in memory costs besides its bytes.
	memoryOverhead = 256
	// maxAhead is how many frames may be fetched that nobody waits for.
	maxAhead = 128
	// maxPending is how many frames may wait to be written. Past it a frame is
	// not kept: a device that is slower than the store is no help.
	maxPending = 64
)

// Key names a frame. Object is any text that is never used for other bytes.
type Key struct {
	Object string
	Frame  int64
}

type objectID [16]byte

type frameID struct {
	object objectID
	frame  int64
}

// idOf makes the name fit for a file: two objects with one id will not be met.
func idOf(object string) objectID {
	sum := sha256.Sum256([]byte(object))
	return objectID(sum[:16])
}

// Fetch gets a frame's bytes from where they come from. It is called at most
// once at a time for a frame; ctx ends when nobody waits any more, or at Close.
// The bytes are the cache's from then on: a slice of a larger array would keep
// all of that in memory.
type Fetch func(ctx context.Context) ([]byte, error)

// Cache holds frames. It is safe for concurrent use, in one process.
type Cache struct {
	o    Options
	life context.Context // ends at Close
	end  context.CancelCauseFunc
	work sync.WaitGroup // everything that runs in the background

	listed chan struct{} // closed when the files from before are known

	roomMu sync.Mutex // before mu

	mu       sync.Mutex // guards all below
	closed   bool
	flights  map[frameID]*flight
	ahead    int // flights that nobody waits for
	pending  int // frames that wait to be written, or are being written
	memory   *policy[[]byte]
	files    *policy[struct{}]
	reserved int64     // bytes of files being written, and of those that could not be removed
	off      bool      // there is no device part
	quiet    bool      // trouble with the device was logged and has not ended
	resume   time.Time // no write to the device before
	stats    Stats
}

// Stats tells what the cache has done since it was opened, and what it holds.
type Stats struct {
	MemoryHits int64 // frames that were in memory
	DeviceHits int64 // frames that were read from the device
	Shared     int64 // frames that another had asked for already
	Misses     int64 // frames that were fetched, those asked for ahead included
	Damaged    int64 // files that did not hold what they should
	Skipped    int64 // frames fetched and not kept on the device: full, failing or slow
	Evictions  int64 // frames that went from the device for others to come
	Frames     int64 // on the device now
	Bytes      int64 // on the device now, as MaxBytes counts them
	Memory     int64 // bytes in memory now
}

// Open opens the cache in o.Dir. Files from before are found in the background;
// until they are, frames are looked for by name and none is written. A
// directory that cannot be made or listed leaves a cache in memory, and a line
// in the log. Errors: KindInvalid.
func Open(o Options) (*Cache, error) {
	if o.MaxBytes < 0 {
		return nil, tine.Errorf(tine.KindInvalid, "a cache of %d bytes", o.MaxBytes)
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = defaultMemory
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &Cache{
		o: o, listed: make(chan struct{}), flights: map[frameID]*flight{},
		memory: newPolicy[[]byte](max(0, o.MemoryBytes)), files: newPolicy[struct{}](o.MaxBytes),
	}
	c.life, c.end = context.WithCancelCause(context.Background())
	c.off = o.Dir == "" || o.MaxBytes == 0
	if c.off {
		close(c.listed)
		return c, nil
	}
	c.work.Go(func() {
		defer close(c.listed)
		c.list()
	})
	return c, nil
}

// Get returns the frame, from memory, from the device, or by fetch. The bytes
// are shared and must not be changed. Who comes while the frame is on its way
// waits for it, and gets the error of that one fetch.
// Errors: those of fetch; KindInterrupted when ctx ends first; KindUnavailable
// after Close.
func (c *Cache) Get(ctx context.Context, k Key, fetch Fetch) ([]byte, error) {
	id := frameID{idOf(k.Object), k.Frame}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errClosed()
	}
	if n := c.memory.get(id); n != nil {
		data := n.value
		c.files.get(id) // what is read from memory is in use on the device too
		c.stats.MemoryHits++
		c.mu.Unlock()
		return data, nil
	}
	f := c.flights[id]
	switch {
	case f == nil:
		f = c.start(id, fetch, false)
	case f.landed:
		c.stats.Shared++
		c.mu.Unlock()
		return f.data, nil
	default:
		c.stats.Shared++
	}
	f.waiters++
	c.mu.Unlock()
	select {
	case <-f.done:
		return f.data, f.err
	case <-ctx.Done():
		c.leave(id, f)
		return nil, tine.Errorf(tine.KindInterrupted, "frame %d of %s: %w", k.Frame, k.Object, context.Cause(ctx))
	}
}

// Prefetch gets the frame in the background if it is neither there nor on its
// way. It reports false if too many are on their way already for which nobody
// waits, or the cache is closed. An error of fetch is forgotten: who reads the
// frame will meet it.
func (c *Cache) Prefetch(k Key, fetch Fetch) bool {
	id := frameID{idOf(k.Object), k.Frame}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return false
	case c.has(id):
		return true
	case c.ahead >= maxAhead:
		return false
	}
	c.start(id, fetch, true)
	return true
}

// Has reports whether the frame is there or on its way. It may be gone a moment later.
func (c *Cache) Has(k Key) bool {
	id := frameID{idOf(k.Object), k.Frame}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.has(id)
}

func (c *Cache) has(id frameID) bool {
	return c.memory.find(id) != nil || c.flights[id] != nil || c.files.find(id) != nil
}

// Drop forgets all frames of an object. One that is on its way still reaches
// those who ask for it until it would have arrived. Files from before that are not yet found stay; they
// go when room is needed.
func (c *Cache) Drop(object string) {
	id := idOf(object)
	c.roomMu.Lock()
	defer c.roomMu.Unlock()
	c.mu.Lock()
	c.memory.drop(id)
	gone := c.files.drop(id)
	for k, f := range c.flights {
		if k.object == id {
			f.unwanted = true
		}
	}
	c.mu.Unlock()
	for _, n := range gone {
		c.remove(n.id, n.cost)
	}
}

// Stats returns the counts.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Frames, s.Bytes, s.Memory = int64(c.files.count), c.files.used+c.reserved, c.memory.used
	return s
}

// Close ends all fetches, which fail with KindUnavailable, and waits for them.
// The files stay for the next Open. It always returns nil.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end(errClosed())
	c.work.Wait()
	return nil
}

func errClosed() error {
	return tine.Errorf(tine.KindUnavailable, "the cache is closed: the server is stopping")
}
