package sim

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/crashpoint"
)

var (
	flagSeed   = flag.Uint64("sim.seed", 1, "first seed")
	flagSteps  = flag.Int("sim.steps", 0, "steps of a round; 0: the test's own number")
	flagRounds = flag.Int("sim.rounds", 0, "rounds, each with the next seed; 0: the test's own number")
	flagOnly   = flag.String("sim.only", "", "the only steps to take, separated by commas")
	flagShrink = flag.Duration("sim.shrink", 20*time.Second, "how long to look for a shorter failing run")
)

// rounds runs a configuration with one seed after another.
func rounds(t *testing.T, cfg Config, steps, n int) {
	cfg.Steps = steps
	if *flagSteps > 0 {
		cfg.Steps = *flagSteps
	}
	if *flagRounds > 0 {
		n = *flagRounds
	}
	t.Logf("seeds %d to %d, %d steps each", *flagSeed, *flagSeed+uint64(n)-1, cfg.Steps)
	crashes := map[string]int{}
	for i := range n {
		cfg.Seed = *flagSeed + uint64(i)
		cfg.Skip = skipAllBut(*flagOnly, cfg.Steps)
		w, f := run(cfg)
		for where, n := range w.crashes {
			crashes[where] += n
		}
		if f == nil {
			continue
		}
		failed(t, f)
	}
	if cfg.Crashes {
		t.Logf("crashes: %v", crashes)
	}
}

// failed looks for a shorter run that fails in the same way, and ends the test.
func failed(t *testing.T, f *Failure) {
	t.Helper()
	t.Logf("seed %d fails at step %d: %v", f.Config.Seed, f.Step, f.Err)
	f = Shrink(f, *flagShrink)
	t.Fatalf("%v\nreplay: go test ./internal/sim -count=1 -run '%s$' -sim.seed=%d -sim.steps=%d -sim.rounds=1 -sim.only=%s",
		f, t.Name(), f.Config.Seed, f.Config.Steps, join(f.steps()))
}

func skipAllBut(only string, steps int) map[int]bool {
	if only == "" {
		return nil
	}
	skip := map[int]bool{}
	for i := 1; i <= steps; i++ {
		skip[i] = true
	}
	for _, s := range strings.Split(only, ",") {
		n, err := strconv.Atoi(s)
		if err != nil {
			panic(fmt.Sprintf("-sim.only: %v", err))
		}
		delete(skip, n)
	}
	return skip
}

func join(steps []int) string {
	if len(steps) == 0 {
		return "0" // there is no such step
	}
	var s []string
	for _, i := range steps {
		s = append(s, strconv.Itoa(i))
	}
	return strings.Join(s, ",")
}

// TestFiles compares one disk with the model.
func TestFiles(t *testing.T) { rounds(t, Config{FilesOnly: true}, 1500, 3) }

// TestModel compares disks, forks and checkpoints with the model, and looks
// for leaks at the end.
func TestModel(t *testing.T) { rounds(t, Config{Drain: true}, 1500, 4) }

// TestCrash does so with crashes.
func TestCrash(t *testing.T) { rounds(t, Config{Crashes: true, Drain: true}, 1500, 4) }

func TestShrinkKeepsAFailure(t *testing.T) {
	f := &Failure{Config: Config{Steps: 8, Skip: map[int]bool{2: true}}, Step: 5}
	if got := join(f.steps()); got != "1,3,4,5,6,7,8" {
		t.Errorf("steps are %s", got)
	}
}

func TestEveryPointHasAName(t *testing.T) {
	seen := map[string]bool{}
	for p := range crashpoint.NumPoints {
		if seen[p.String()] || p.String() == "unknown" {
			t.Errorf("point %d is named %q", p, p)
		}
		seen[p.String()] = true
	}
}
