package sim

import (
	"flag"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	flagCuts     = flag.Int("sim.cuts", 1000, "how many times TestCuts cuts the power at least, unless -sim.rounds is given")
	flagParallel = flag.Int("sim.parallel", 0, "runs of TestCuts at once; 0: one for each processor")
)

// everyPlace is from how many cuts on every place must have been cut, at least
// once in so many.
const (
	everyPlaceFrom = 50_000
	everyPlace     = 2_000
)

// campaign is many runs with cuts.
type campaign struct {
	steps int

	mu      sync.Mutex
	next    uint64 // seed
	rounds  uint64 // seeds left to start
	wanted  int    // cuts
	runs    int
	crashes int
	stats   cutStats
	failure *Failure
}

// seed returns the next seed to run, if more is wanted.
func (c *campaign) seed() (uint64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil || c.rounds == 0 || c.stats.total() >= c.wanted {
		return 0, false
	}
	c.rounds--
	c.next++
	return c.next - 1, true
}

func (c *campaign) ran(w *World, f *Failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs++
	c.stats.add(w.cuts.took(nil))
	for _, n := range w.crashes {
		c.crashes += n
	}
	if c.failure == nil {
		c.failure = f
	}
}

// run makes runs until there is enough, and logs how far it is every minute.
func (c *campaign) run(t *testing.T, parallel int) {
	start, said := time.Now(), time.Now()
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(func() {
			for {
				seed, more := c.seed()
				if !more {
					return
				}
				w, f := run(Config{Seed: seed, Steps: c.steps, Skip: skipAllBut(*flagOnly, c.steps), Cuts: true, Small: true})
				c.ran(w, f)
				c.mu.Lock()
				if time.Since(said) > time.Minute {
					said = time.Now()
					t.Logf("%v: seed %d, %d cuts", time.Since(start).Round(time.Second), seed, c.stats.total())
				}
				c.mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// report says what was cut.
func (c *campaign) report(took, cpu time.Duration) string {
	var b strings.Builder
	s := &c.stats
	fmt.Fprintf(&b, "%d cuts in %v (%v of processor time), with seeds %d to %d, %d steps each; %d of them in the recovery of a cut\n",
		s.total(), took.Round(time.Second/10), cpu.Round(time.Second/10), *flagSeed, c.next-1, c.steps, s.Deep)
	fmt.Fprintf(&b, "%d crashes from which the runs went on\n", c.crashes)
	fmt.Fprintf(&b, "after %d cuts all counts were made anew; after %d all background work was done; %d were opened twice\n", s.Audited, s.Tidied, s.Reopened)
	fmt.Fprintf(&b, "%-22s %8s %8s\n", "place", "cuts", "passed")
	for p := range numPlaces {
		fmt.Fprintf(&b, "%-22s %8d %8d\n", p, s.Cuts[p], s.Passes[p])
	}
	return b.String()
}

// processorTime returns what this process has used.
func processorTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestCuts cuts the power at every named point and at writes, flushes and
// changes of names, many times in one run, and checks what each cut leaves. Its
// long form, make prove-crash, does so 100,000 times.
func TestCuts(t *testing.T) {
	c := &campaign{steps: 300, next: *flagSeed, rounds: math.MaxUint64, wanted: *flagCuts}
	if *flagSteps > 0 {
		c.steps = *flagSteps
	}
	if *flagRounds > 0 {
		c.rounds, c.wanted = uint64(*flagRounds), math.MaxInt
	}
	parallel := *flagParallel
	if parallel <= 0 {
		parallel = runtime.GOMAXPROCS(0)
	}
	t.Logf("seeds from %d on, %d steps each, %d at once", *flagSeed, c.steps, parallel)
	start, cpu := time.Now(), processorTime(t)
	c.run(t, parallel)
	t.Log(c.report(time.Since(start), processorTime(t)-cpu))
	if c.failure != nil {
		failed(t, c.failure)
	}
	if c.wanted >= everyPlaceFrom && c.wanted < math.MaxInt {
		for p := range numPlaces {
			if least := c.wanted / everyPlace; c.stats.Cuts[p] < least {
				t.Errorf("%s was cut %d times; it should be %d", p, c.stats.Cuts[p], least)
			}
		}
	}
}
