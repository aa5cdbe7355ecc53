package timeline

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tine.dev/tine/internal/fs/crashpoint"
	"tine.dev/tine/internal/fs/flight"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/room"
	"tine.dev/tine/internal/fs/rounds"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/fs/stray"
	"tine.dev/tine/internal/tine"
)

// Options are what an engine is made from. Rows and Segments stay the
// caller's to close, after the engine.
type Options struct {
	Rows           kv.Store
	Segments       *segment.Store
	Clock          func() time.Time
	Logger         *slog.Logger
	Crash          crashpoint.Hook
	CommitInterval time.Duration // what has reached the engine is committed after this long; 0: 1 s; negative: only when asked
	UndoKeep       int           // automatic checkpoints kept per disk; 0: 3
	SegmentBytes   int64         // a segment is sealed at this size; 0: 64 MiB
	TailBytes      int64         // an unsynced tail of at most this rides in the commit; 0: 64 KiB
	LayerBytes     int           // an open layer of this size is committed; 0: 8 MiB
	// Reap removes a part of one unlinked file that nothing has open, if there
	// is one; more asks to be called again. It is the file system's own.
	Reap     func(*Txn) (more bool, err error)
	Away     Away         // where trees with a store are kept besides; nil: there is no store
	Room     *room.Device // of the device under Rows and Segments; nil: no limit is known
	Manual   bool         // no background work but by ReclaimIdle: for the simulator
	Mutation Mutation     // deliberate faults, for tests that must catch them
}

// Mutation is a deliberate fault. Tests set one and must then fail.
type Mutation uint8

// The mutations.
const (
	MutateNothing          Mutation = iota
	MutateFreeForeign               // free extents without regard to the line that wrote them
	MutateIgnoreNeighbours          // free a version's extents though a neighbouring version names them
	MutateNeverAbsorb               // leave lines that one child could continue
)

func (o *Options) setDefaults() {
	if o.Room == nil {
		o.Room = room.New(o.Rows, room.Options{})
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.CommitInterval = cmp.Or(o.CommitInterval, time.Second)
	o.UndoKeep = cmp.Or(o.UndoKeep, 3)
	o.SegmentBytes = cmp.Or(o.SegmentBytes, 64<<20)
	o.TailBytes = cmp.Or(o.TailBytes, 64<<10)
	o.LayerBytes = cmp.Or(o.LayerBytes, 8<<20)
}

// Engine is all the trees of one data directory.
type Engine struct {
	Options
	mu      sync.Mutex // guards the maps; see the package comment for the order
	trees   map[tine.TreeID]*tree
	disks   map[tine.DiskID]*Disk
	names   map[diskName]*Disk   // living disks, and names reserved by operations under way (nil)
	trash   map[diskName][]*Disk // removed disks, in the order of their removal
	closed  bool
	poison  atomic.Pointer[tine.Error]
	janitor janitor
	strays  *stray.Files // looked for by the janitor
	seed    maphash.Seed // of the strata's filters
	flights flight.Group // records, and what follows them, also those of trees that are gone
}

type diskName struct {
	tenant tine.TenantID
	name   string
}

// Open reads the names of the disks and prepares the trees; each tree is
// loaded when it is first used. What that takes grows with the number of disks,
// slowly, and with nothing else.
func Open(o Options) (*Engine, error) {
	o.setDefaults()
	e := &Engine{Options: o, trees: map[tine.TreeID]*tree{}, disks: map[tine.DiskID]*Disk{}, names: map[diskName]*Disk{}, trash: map[diskName][]*Disk{}}
	e.seed = maphash.MakeSeed()
	e.janitor = janitor{Rounds: rounds.New(), engine: e}
	if err := e.loadCatalog(); err != nil {
		return nil, err
	}
	var err error
	if e.strays, err = stray.Note(e.Segments, e.Rows, stray.NamedBy(slices.Collect(maps.Keys(e.trees)), e.janitor.Quit())); err != nil {
		return nil, err
	}
	if o.Manual {
		return e, e.RemoveStrays()
	}
	e.janitor.start()
	return e, nil
}

// RemoveStrays removes the segment files that no row named at open (I18), once; a
// later call waits for the first.
func (e *Engine) RemoveStrays() error { return e.strays.Remove(e.Logger) }

// fail poisons the engine: something durable can no longer be trusted to
// happen. Every operation fails from then on, until the data directory is
// opened again, which recovers the last durable state.
func (e *Engine) fail(err error) {
	p := &tine.Error{Kind: tine.KindUnavailable, Msg: "the data directory failed", Err: err,
		Hint: "look at the device, then restart the server: it opens at the last durable state"}
	if e.poison.CompareAndSwap(nil, p) {
		e.Logger.Error("the data directory failed; all disks answer EIO until the server is restarted", "error", err)
	}
}

// check returns the poison, if there is any.
func (e *Engine) check() error {
	if p := e.poison.Load(); p != nil {
		return p
	}
	return nil
}

// Close commits everything, stops background work and seals open segments.
// Background work that is left is taken up at the next Open.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closed = true
	trees := slices.Collect(maps.Values(e.trees))
	e.mu.Unlock()
	e.janitor.Stop()
	var first error
	for _, t := range trees {
		if err := t.close(ctx); err != nil && first == nil && !errors.Is(err, tine.ErrStale) { // not of a tree that is another server's
			first = err
		}
	}
	e.flights.Wait()
	e.strays.Forget()
	return first
}

func (e *Engine) now() int64 { return e.Clock().UnixNano() }
