package cache

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/tine"
)

// await returns once so many wait for the frame.
func (c *Cache) await(id frameID, n int) {
	for {
		c.mu.Lock()
		f := c.flights[id]
		ok := f != nil && f.waiters == n
		c.mu.Unlock()
		if ok {
			return
		}
	}
}

// TestOneFetch has many readers of one frame, of whom some give up.
func TestOneFetch(t *testing.T) {
	c := open(t, Options{FS: vfs.NewMem(), Dir: "d", MaxBytes: 1 << 20})
	k := Key{"a", 1}
	id := frameID{idOf("a"), 1}
	release := make(chan struct{})
	var fetched atomic.Int64
	fetch := func(ctx context.Context) ([]byte, error) {
		fetched.Add(1)
		select {
		case <-release:
			return content(k, 100), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	impatient, giveUp := context.WithCancel(context.Background())
	var left, stayed sync.WaitGroup
	for i := range 10 {
		ctx, wg := context.Background(), &stayed
		if i%2 == 0 {
			ctx, wg = impatient, &left
		}
		wg.Go(func() {
			b, err := c.Get(ctx, k, fetch)
			switch {
			case ctx == impatient && !errors.Is(err, tine.ErrInterrupted):
				t.Errorf("who gave up got %v", err)
			case ctx != impatient && (err != nil || !bytes.Equal(b, content(k, 100))):
				t.Errorf("who waited got %v", err)
			}
		})
	}
	c.await(id, 10)
	giveUp()
	left.Wait()
	close(release)
	stayed.Wait()
	if fetched.Load() != 1 {
		t.Fatalf("%d fetches", fetched.Load())
	}
}

// TestNobodyWaits ends a fetch when the last one leaves; the next one starts
// another and is not given the end of the first.
func TestNobodyWaits(t *testing.T) {
	c := open(t, Options{FS: vfs.NewMem(), Dir: "d", MaxBytes: 1 << 20})
	k := Key{"a", 1}
	id := frameID{idOf("a"), 1}
	ctx, giveUp := context.WithCancel(context.Background())
	ended, linger := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := c.Get(ctx, k, func(ctx context.Context) ([]byte, error) {
			<-ctx.Done()
			close(ended)
			<-linger
			return []byte("too late"), nil
		})
		done <- err
	}()
	c.await(id, 1)
	giveUp()
	wantKind(t, <-done, tine.KindInterrupted)
	<-ended
	// The next one is still on its way when the first comes to its end.
	release := make(chan struct{})
	var fetched atomic.Int64
	go func() {
		_, err := c.Get(context.Background(), k, func(context.Context) ([]byte, error) {
			fetched.Add(1)
			<-release
			return content(k, 100), nil
		})
		done <- err
	}()
	c.await(id, 1)
	close(linger)
	for c.Stats().Misses == 0 {
		runtime.Gosched()
	}
	if !c.Has(k) {
		t.Fatal("the end of one fetch has ended another")
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	c.settle()
	get(t, c, k, 100, &fetched)
	if fetched.Load() != 1 {
		t.Fatalf("%d fetches", fetched.Load())
	}
}

func TestFailedFetchIsNotKept(t *testing.T) {
	c := open(t, Options{FS: vfs.NewMem(), Dir: "d", MaxBytes: 1 << 20})
	k := Key{"a", 1}
	_, err := c.Get(context.Background(), k, func(context.Context) ([]byte, error) {
		return nil, tine.Errorf(tine.KindUnavailable, "no answer")
	})
	wantKind(t, err, tine.KindUnavailable)
	var fetched atomic.Int64
	get(t, c, k, 10, &fetched)
}

// TestPrefetch gets frames ahead up to a bound, and a reader joins.
func TestPrefetch(t *testing.T) {
	c := open(t, Options{FS: vfs.NewMem(), Dir: "d", MaxBytes: 1 << 30})
	release := make(chan struct{})
	var fetched atomic.Int64
	slow := func(k Key) Fetch {
		return func(context.Context) ([]byte, error) {
			fetched.Add(1)
			<-release
			return content(k, 100), nil
		}
	}
	accepted := 0
	for i := range int64(maxAhead + 10) {
		if c.Prefetch(Key{"a", i}, slow(Key{"a", i})) {
			accepted++
		}
	}
	if accepted != maxAhead || !c.Prefetch(Key{"a", 3}, nil) {
		t.Fatalf("%d accepted", accepted)
	}
	var wg sync.WaitGroup
	wg.Go(func() { get(t, c, Key{"a", 3}, 100, &fetched) })
	c.await(frameID{idOf("a"), 3}, 1)
	ctx, giveUp := context.WithCancel(context.Background())
	giveUp()
	_, err := c.Get(ctx, Key{"a", 4}, nil) // which does not stop it
	wantKind(t, err, tine.KindInterrupted)
	if !c.Has(Key{"a", 4}) {
		t.Fatal("one who gave up stopped what was to be fetched ahead")
	}
	close(release)
	wg.Wait()
	c.settle()
	if fetched.Load() != maxAhead || !c.Prefetch(Key{"a", maxAhead}, slow(Key{"a", maxAhead})) {
		t.Fatalf("%d fetches", fetched.Load())
	}
}

// TestCloseEndsFetches fails who waits, and keeps nothing of it.
func TestCloseEndsFetches(t *testing.T) {
	c := open(t, Options{FS: vfs.NewMem(), Dir: "d", MaxBytes: 1 << 20})
	done := make(chan error, 1)
	go func() {
		_, err := c.Get(context.Background(), Key{"a", 1}, func(ctx context.Context) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		done <- err
	}()
	c.await(frameID{idOf("a"), 1}, 1)
	c.Close()
	wantKind(t, <-done, tine.KindUnavailable)
}

// TestManyAtOnce is readers, droppers, people who give up and fetches that
// fail, on a cache that is too small. Run it with -race.
func TestManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	r := newRand(t)
	for range 2 {
		c := open(t, Options{Dir: dir, MaxBytes: 20 * minCost, MemoryBytes: 10 << 10})
		var wg sync.WaitGroup
		for range 8 {
			seed := r.Uint64()
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, 1))
				for range 300 {
					c.oneOfMany(t, r)
				}
			})
		}
		wg.Wait()
		c.settle()
		s := c.Stats()
		if n, files := deviceBytes(t, dir); int64(len(files)) != s.Frames || n > s.Bytes || s.Bytes > 20*minCost || s.Damaged != 0 {
			t.Fatalf("%d files of %d bytes; %+v", len(files), n, s)
		}
		c.mu.Lock()
		if len(c.flights) != 0 || c.ahead != 0 || c.pending != 0 || c.reserved != 0 {
			t.Fatalf("left over: %d flights, %d ahead, %d pending, %d bytes", len(c.flights), c.ahead, c.pending, c.reserved)
		}
		c.mu.Unlock()
		c.Close()
	}
}

func (c *Cache) oneOfMany(t *testing.T, r *rand.Rand) {
	k := Key{string(rune('a' + r.IntN(3))), r.Int64N(30)}
	n := 100 + int(k.Frame)
	fails := r.IntN(10) == 0
	fetch := func(context.Context) ([]byte, error) {
		if fails {
			return nil, tine.Errorf(tine.KindUnavailable, "no answer")
		}
		return content(k, n), nil
	}
	switch r.IntN(20) {
	case 0:
		c.Drop(k.Object)
	case 1, 2:
		c.Prefetch(k, fetch)
	case 3:
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if b, err := c.Get(ctx, k, fetch); err == nil && !bytes.Equal(b, content(k, n)) {
			t.Error("wrong bytes")
		}
	default:
		b, err := c.Get(context.Background(), k, fetch)
		if err == nil && !bytes.Equal(b, content(k, n)) || err != nil && tine.KindOf(err) != tine.KindUnavailable {
			t.Errorf("%v: %v", k, err)
		}
	}
}

// creating calls hook before each file is made.
type creating struct {
	vfs.FS
	hook func()
}

func (f creating) Create(name string, cat vfs.DiskWriteCategory) (vfs.File, error) {
	f.hook()
	return f.FS.Create(name, cat)
}

// TestWhileItIsWritten drops a frame, and has somebody give up on it, while its
// file is made: it is gone, and no second flight is there to make the file.
func TestWhileItIsWritten(t *testing.T) {
	mem := vfs.NewMem()
	k := Key{"a", 1}
	id := frameID{idOf("a"), 1}
	var c *Cache
	drop := false
	c = open(t, Options{MaxBytes: 1 << 20, MemoryBytes: -1, Dir: "d", FS: creating{mem, func() {
		if drop {
			c.Drop("a")
		}
		c.mu.Lock()
		f := c.flights[id]
		f.waiters++
		c.mu.Unlock()
		c.leave(id, f) // as who is given the frame at the moment at which he gives up
		if !c.Has(k) {
			t.Error("a frame that is being written may be fetched again")
		}
	}}})
	var fetched atomic.Int64
	get(t, c, k, 100, &fetched)
	c.settle()
	if !c.Has(k) {
		t.Fatal("the frame was not kept")
	}
	drop = true
	c.Drop("a")
	get(t, c, k, 100, &fetched)
	c.settle()
	if _, err := mem.Stat(c.path(id)); err == nil || c.Has(k) || c.Stats().Bytes != 0 {
		t.Fatalf("a dropped frame was kept: %v, %+v", err, c.Stats())
	}
}
