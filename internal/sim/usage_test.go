package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/tine"
)

// usageEvery is how many steps there are between two disks whose usage is
// checked by removing them.
const usageEvery = 60

// TestUsage removes disks in the middle of a run and compares what that frees
// with what was said. Others are attached meanwhile, with files open.
func TestUsage(t *testing.T) {
	rounds, steps := 4, 1000
	if *flagRounds > 0 {
		rounds = *flagRounds
	}
	if *flagSteps > 0 {
		steps = *flagSteps
	}
	t.Logf("seeds %d to %d, %d steps each", *flagSeed, *flagSeed+uint64(rounds)-1, steps)
	checked := 0
	for i := range rounds {
		w := &World{cfg: Config{Seed: *flagSeed + uint64(i), Steps: steps, Drain: true}, clock: NewClock(), mem: vfs.NewCrashableMem(),
			groves: map[tine.TreeID]*grove{}, crashes: map[string]int{}}
		n, err := w.usages()
		checked += n
		w.abandon()
		if err != nil {
			f := &Failure{w.cfg, w.seq, w.log, err}
			t.Fatalf("%v\nreplay: go test ./internal/sim -count=1 -run 'TestUsage$' -sim.seed=%d -sim.steps=%d -sim.rounds=1", f, w.cfg.Seed, steps)
		}
	}
	if checked < rounds {
		t.Errorf("only %d disks were removed: the test does not test", checked)
	}
}

// usages runs the world and removes a disk now and then; it returns how many.
func (w *World) usages() (checked int, err error) {
	if err := w.open(); err != nil {
		return 0, err
	}
	if err := w.createDisk(rand.New(rand.NewPCG(w.cfg.Seed, 0))); err != nil {
		return 0, err
	}
	for w.seq < w.cfg.Steps {
		w.seq++
		r := rand.New(rand.NewPCG(w.cfg.Seed, uint64(w.seq)))
		if err := w.step(r); err != nil {
			return checked, err
		}
		if w.seq%usageEvery != 0 || len(w.disks) < 2 {
			continue
		}
		var n int
		if r.IntN(4) > 0 {
			n, err = w.purgeSome(r, pick(r, w.disks))
		} else {
			n, err = w.purgeTree(r)
		}
		if checked += n; err != nil {
			return checked, err
		}
	}
	w.seq++
	return checked, w.finish()
}

// purgeSome purges disks, one after another.
func (w *World) purgeSome(r *rand.Rand, some ...*disk) (checked int, err error) {
	r.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	for _, d := range some {
		w.note("purge %s and compare its usage", d.name)
		if err := w.letGo(d); err != nil {
			return checked, err
		}
		if err := w.purge(d); err != nil {
			return checked, fmt.Errorf("removing %s: %w", d.name, err)
		}
		checked++
		w.disks = slices.DeleteFunc(w.disks, func(x *disk) bool { return x == d })
		w.recorded(d.tree, true)
	}
	return checked, nil
}

// purgeTree purges all disks of a tree, those in the trash too: the last one
// takes all that is left with it.
func (w *World) purgeTree(r *rand.Rand) (checked int, err error) {
	tree := pick(r, w.disks).tree
	if err := w.createDisk(rand.New(rand.NewPCG(r.Uint64()|1, r.Uint64()))); err != nil {
		return 0, err
	}
	stays := w.disks[len(w.disks)-1]
	if stays.tree == tree {
		return 0, nil // the name was taken
	}
	of := func(ds []*disk) (some []*disk) {
		for _, d := range ds {
			if d.tree == tree {
				some = append(some, d)
			}
		}
		return some
	}
	for _, x := range slices.Backward(of(w.trash)) {
		w.note("purge %s out of the trash", x.name)
		if err := w.purgeTrash(stays, x); err != nil {
			return 0, err
		}
		w.trash = slices.DeleteFunc(w.trash, func(y *disk) bool { return x == y })
		w.recorded(tree, true)
	}
	return w.purgeSome(r, of(w.disks)...)
}
