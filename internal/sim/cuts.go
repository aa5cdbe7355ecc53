package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/crashpoint"
)

// A cut is a crash from which the run does not go on: a clone of the file
// system, and what was known to be durable when it was taken. So one run gives
// as many crashes as it passes places, and each costs no more than opening the
// clone and reading it. What a cut may show is told by the history, as for
// any crash; it is checked before the history is forgotten.
type cut struct {
	place  place
	loss   int // percent of what was not flushed that is lost
	step   int
	depth  int // 0: of the run; 1: of the recovery of a cut; and so on
	fs     *vfs.MemFS
	rnd    *rand.Rand
	floors *floors // nil: taken while the run recovered; only what it came to show is right
}

func (c *cut) String() string {
	s := fmt.Sprintf("at %s of step %d, with %d%% of what was not flushed lost", c.place, c.step, c.loss)
	for range c.depth {
		s = "in the recovery of a cut: " + s
	}
	return s
}

// cutStats counts cuts.
type cutStats struct {
	Cuts     [numPlaces]int // taken and checked
	Passes   [numPlaces]int // of the place, by runs and by recoveries that may be cut
	Deep     int            // of them, cuts of the recovery of a cut
	Audited  int            // of which every count was made anew from the rows
	Tidied   int            // after which all background work was done and everything read again
	Reopened int            // which were closed and opened once more
}

func (s *cutStats) add(o cutStats) {
	for p := range s.Cuts {
		s.Cuts[p] += o.Cuts[p]
		s.Passes[p] += o.Passes[p]
	}
	s.Deep += o.Deep
	s.Audited += o.Audited
	s.Tidied += o.Tidied
	s.Reopened += o.Reopened
}

// total returns the number of all cuts.
func (s *cutStats) total() int {
	n := 0
	for _, c := range s.Cuts {
		n += c
	}
	return n
}

// cutter decides where cuts are taken, and keeps them until they are checked.
// A nil cutter takes none. Its lock comes after that of crash. Safe for
// concurrent use.
type cutter struct {
	depth int
	stats cutStats // of the run's own goroutine; without Passes

	mu      sync.Mutex
	passes  [numPlaces]int
	rnd     *rand.Rand
	step    int
	pending []*cut
	floors  *floors
}

// maxPending bounds the clones in memory.
const maxPending = 64

// stepsAtOnce is how many steps are taken before what was cut in them is checked:
// while cuts are checked the engine comes to rest.
const stepsAtOnce = 8

// due reports whether it is time to check cuts.
func (k *cutter) due() bool {
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.step%stepsAtOnce == 0 || len(k.pending) > maxPending/2
}

func newCutter() *cutter {
	return &cutter{rnd: rand.New(rand.NewPCG(0, 0)), floors: &floors{}}
}

// begin makes what is cut in a step depend on the seed and the step alone.
func (k *cutter) begin(seed uint64, step int) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.step, k.rnd = step, rand.New(rand.NewPCG(seed, 1<<61+uint64(step)))
}

// know notes what is durable in the world; nil: that is not known.
func (k *cutter) know(w *World) {
	if k == nil {
		return
	}
	var f *floors
	if w != nil {
		f = w.floors()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.floors = f
}

// share of the passes of a place that are cut, in thousandths: all of what few
// steps pass, little of what every step passes. A recovery that is cut is cut in
// few of the places that every recovery passes, so that cuts of cuts stay fewer
// than cuts.
func (k *cutter) share(p place) int {
	n := 1000
	switch p {
	case place(crashpoint.SegmentWritten), place(crashpoint.SegmentSynced), place(crashpoint.AbsorbApplied), place(crashpoint.FoldStep),
		place(crashpoint.RepackWritten), place(crashpoint.RepackApplied):
		return n
	case place(crashpoint.BatchBuilt), place(crashpoint.BatchApplied):
		n = 700
	case placeWrite, placeSync, placeName:
		n = 200
	}
	if k.depth > 0 {
		n /= 8
	}
	return n
}

// holdUpMax is how long a step of the engine is held up at most.
const holdUpMax = 3 * time.Millisecond

// pass is told of a place by the hook of c, whose lock is held. What is durable
// is asked before the clone is made: what becomes durable meanwhile is not
// expected of it. A flush in memory takes no time, so that little would happen
// between a record or batch and its flush: now and then it is to be held up
// there, for the time that is returned.
func (k *cutter) pass(c *crash, p place) (holdUp time.Duration) {
	if k == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.passes[p]++
	if k.depth == 0 && (p == place(crashpoint.RecordBuilt) || p == place(crashpoint.BatchBuilt)) && k.rnd.IntN(6) == 0 {
		holdUp = time.Duration(k.rnd.Int64N(int64(holdUpMax)))
	}
	if k.rnd.IntN(1000) >= k.share(p) || len(k.pending) >= maxPending {
		return holdUp
	}
	x := &cut{place: p, loss: pick(k.rnd, []int{100, 100, 90, 50, 50, 10, 0, 0}), step: k.step, depth: k.depth,
		rnd: rand.New(rand.NewPCG(k.rnd.Uint64(), k.rnd.Uint64())), floors: k.floors}
	x.fs = c.take(x.loss, x.rnd)
	k.pending = append(k.pending, x)
	return holdUp
}

// took returns what was counted. What a recovery counted is added first.
func (k *cutter) took(deeper *cutter) cutStats {
	k.mu.Lock()
	defer k.mu.Unlock()
	if deeper != nil {
		for p, n := range deeper.took(nil).Passes {
			k.passes[p] += n
		}
	}
	s := k.stats
	s.Passes = k.passes
	return s
}

// drain returns the cuts that wait to be checked.
func (k *cutter) drain() []*cut {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	xs := k.pending
	k.pending = nil
	return xs
}
