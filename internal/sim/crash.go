package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"tine.dev/tine/internal/fs/crashpoint"
)

// place is where power can be cut: a named point, or a kind of change of the
// file system, just before it.
type place uint8

const (
	placeWrite place = place(crashpoint.NumPoints) + iota // a write to a file
	placeSync                                             // a flush of a file or directory
	placeName                                             // a name that comes, goes or changes
	numPlaces
)

func (p place) String() string {
	switch p {
	case placeWrite:
		return "a write"
	case placeSync:
		return "a flush"
	case placeName:
		return "a change of names"
	}
	return crashpoint.Point(p).String()
}

// placeOf returns the place before an operation, if it changes anything.
func placeOf(k errorfs.OpKind) (place, bool) {
	switch k {
	case errorfs.OpFileWrite, errorfs.OpFileWriteAt:
		return placeWrite, true
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		return placeSync, true
	case errorfs.OpCreate, errorfs.OpLink, errorfs.OpRemove, errorfs.OpRemoveAll, errorfs.OpRename, errorfs.OpReuseForWrite, errorfs.OpMkdirAll:
		return placeName, true
	}
	return 0, false
}

// crash cuts the power: it takes a clone of the file system at a chosen
// moment. The Host runs on, on the file system that it has; what it does from
// then on is without consequence. Safe for concurrent use.
type crash struct {
	mem  *vfs.MemFS
	cuts *cutter // told of every place that is passed; nil for none

	mu      sync.Mutex
	armed   bool
	place   place // placeWrite: any change of the file system
	count   int   // passes to let by
	loss    int   // percent of what was not flushed that is lost
	rnd     *rand.Rand
	clone   *vfs.MemFS
	where   string
	removed map[string]bool // names whose removal may not be durable yet
}

func newCrash(mem *vfs.MemFS, cuts *cutter) *crash {
	return &crash{mem: mem, cuts: cuts, removed: map[string]bool{}}
}

// fs returns the file system for the Host.
func (c *crash) fs() vfs.FS {
	return errorfs.Wrap(c.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if p, ok := placeOf(op.Kind); ok {
			c.pass(p)
		}
		if op.Kind == errorfs.OpRemove {
			c.mu.Lock()
			c.removed[op.Path] = true
			c.mu.Unlock()
		}
		return nil
	}))
}

// at is the hook for the engine.
func (c *crash) at(p crashpoint.Point) {
	if d := c.pass(place(p)); d > 0 {
		time.Sleep(d) // not to wait for anything: to let others overtake
	}
}

// pass returns how long whoever passes is to be held up.
func (c *crash) pass(p place) (holdUp time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	holdUp = c.cuts.pass(c, p)
	if !c.armed || min(p, placeWrite) != c.place {
		return holdUp
	}
	if c.count--; c.count > 0 {
		return holdUp
	}
	c.armed = false
	c.where = fmt.Sprintf("at %s, with %d%% of what was not flushed lost", p, c.loss)
	c.clone = c.take(c.loss, c.rnd)
	return holdUp
}

// take clones the file system as it could be after a loss of power now; mu is
// held. The clone of the file system in memory takes a name's removal for lost
// until the directory is flushed; here it is lost as a new name is, by chance.
// With no loss this is what the death of the process leaves.
func (c *crash) take(loss int, rnd *rand.Rand) *vfs.MemFS {
	names := slices.Sorted(maps.Keys(c.removed))
	clone := c.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100 - loss, RNG: rnd})
	dirs := map[string]bool{}
	for _, name := range names {
		_, lives := c.mem.Stat(name)
		_, there := clone.Stat(name)
		switch {
		case lives == nil: // not removed yet, or made again
		case there != nil:
			delete(c.removed, name)
		case rnd.IntN(100) >= loss:
			if clone.Remove(name) == nil {
				dirs[path.Dir(name)] = true
			}
		}
	}
	for dir := range dirs {
		if d, err := clone.OpenDir(dir); err == nil {
			_ = d.Sync()
			_ = d.Close()
		}
	}
	return clone
}

// arm chooses a moment soon.
func (c *crash) arm(r *rand.Rand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.armed || c.clone != nil {
		return
	}
	c.armed = true
	c.rnd = rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
	c.loss = pick(r, []int{100, 100, 50, 10, 0})
	c.place, c.count = place(r.IntN(int(placeWrite)+4)), 1+r.IntN(3)
	if c.place >= placeWrite {
		c.place, c.count = placeWrite, 1+r.IntN(60)
	}
}

// over lets no cut happen any more: the Host is closed, or given up.
func (c *crash) over() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cuts = nil
}

// disarm lets no crash happen that has not.
func (c *crash) disarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = false
}

// happened returns what is left after the crash, or nil if there was none.
func (c *crash) happened() (*vfs.MemFS, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clone, c.where
}

func (w *World) crashed() bool {
	clone, _ := w.crash.happened()
	return clone != nil
}
