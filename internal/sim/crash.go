package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"tine.dev/tine/internal/fs/crashpoint"
)

// crash cuts the power: it takes a clone of the file system at a chosen
// moment. The Host runs on, on the file system that it has; what it does from
// then on is without consequence. Safe for concurrent use.
type crash struct {
	mem *vfs.MemFS

	mu     sync.Mutex
	armed  bool
	point  crashpoint.Point // NumPoints: at any write
	count  int              // passes to let by
	loss   int              // percent of what was not flushed that is lost
	rnd    *rand.Rand
	clone  *vfs.MemFS
	where  string
	passed [crashpoint.NumPoints]int
}

func newCrash(mem *vfs.MemFS) *crash { return &crash{mem: mem} }

// fs returns the file system for the Host.
func (c *crash) fs() vfs.FS {
	return errorfs.Wrap(c.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			c.pass(crashpoint.NumPoints, "a write")
		}
		return nil
	}))
}

// at is the hook for the engine.
func (c *crash) at(p crashpoint.Point) { c.pass(p, p.String()) }

func (c *crash) pass(p crashpoint.Point, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p < crashpoint.NumPoints {
		c.passed[p]++
	}
	if !c.armed || p != c.point {
		return
	}
	if c.count--; c.count > 0 {
		return
	}
	c.armed = false
	c.where = fmt.Sprintf("at %s, with %d%% of what was not flushed lost", name, c.loss)
	c.clone = c.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100 - c.loss, RNG: c.rnd})
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
	c.point, c.count = crashpoint.Point(r.IntN(int(crashpoint.NumPoints)+4)), 1+r.IntN(3)
	if c.point >= crashpoint.NumPoints {
		c.point, c.count = crashpoint.NumPoints, 1+r.IntN(60)
	}
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
