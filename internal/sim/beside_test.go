package sim

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/sim/posix"
	"tine.dev/tine/internal/tine"
)

// keeper makes and removes checkpoints and forks of a disk while somebody else
// writes to it. It remembers what each showed when it was made.
type keeper struct {
	w      *World
	disk   string
	r      *rand.Rand
	n      int
	shown  map[volume.Ref]posix.Tree // what is sure to exist
	unsure map[volume.Ref]posix.Tree // what a crash may leave or take
	err    error
}

// run works until a crash has happened or it is told to stop.
func (k *keeper) run(stop <-chan struct{}) {
	for k.err == nil && !k.w.crashed() {
		select {
		case <-stop:
			return
		default:
		}
		k.err = k.step()
	}
	if k.w.crashed() {
		k.err = nil // what fails after the crash does not count
	}
}

func (k *keeper) step() error {
	ctx := context.Background()
	h := k.w.host
	refs := slices.SortedFunc(maps.Keys(k.shown), func(a, b volume.Ref) int { return len(a.String()) - len(b.String()) })
	if len(refs) > 3 {
		ref := pick(k.r, refs)
		k.unsure[ref] = k.shown[ref]
		delete(k.shown, ref)
		var err error
		if ref.Checkpoint != "" {
			err = h.RemoveCheckpoint(ctx, caller, ref.Disk, ref.Checkpoint)
		} else {
			_, err = h.RemoveDisk(ctx, caller, ref.Disk, true)
		}
		if err == nil && !k.w.crashed() {
			delete(k.unsure, ref)
		}
		return err
	}
	k.n++
	ref := volume.Ref{Disk: k.disk, Checkpoint: fmt.Sprintf("cp%d", k.n)}
	wait := pick(k.r, []volume.Wait{volume.WaitRunnable, volume.WaitDurable})
	var err error
	if k.r.IntN(2) == 0 {
		_, err = h.Checkpoint(ctx, caller, k.disk, ref.Checkpoint, "", wait)
	} else {
		ref = volume.Ref{Disk: fmt.Sprintf("fork%d", k.n)}
		_, err = h.Fork(ctx, caller, volume.Ref{Disk: k.disk}, []string{ref.Disk}, wait)
	}
	sure := wait == volume.WaitDurable && !k.w.crashed()
	if err != nil {
		return err
	}
	tree, err := k.w.read(ref)
	if err != nil {
		return err
	}
	if sure {
		k.shown[ref] = tree
	} else {
		k.unsure[ref] = tree
	}
	return nil
}

// judge checks that what was sure is there, and that all that is there shows
// what it showed.
func (k *keeper) judge() error {
	ctx := context.Background()
	there := map[volume.Ref]bool{}
	disks, err := k.w.host.Disks(ctx, caller, false)
	if err != nil {
		return err
	}
	for _, d := range disks {
		there[volume.Ref{Disk: d.Name}] = d.Name != k.disk
	}
	cps, err := k.w.host.Checkpoints(ctx, caller, k.disk)
	if err != nil {
		return err
	}
	for _, c := range cps {
		there[volume.Ref{Disk: k.disk, Checkpoint: c.Name}] = true
	}
	for ref := range k.shown {
		if !there[ref] {
			return fmt.Errorf("%s was durable and is gone", ref)
		}
	}
	maps.Copy(k.shown, k.unsure)
	clear(k.unsure)
	for ref, want := range k.shown {
		if !there[ref] {
			delete(k.shown, ref)
			continue
		}
		got, err := k.w.read(ref)
		if err == nil {
			err = difference(want, got)
		}
		if err != nil {
			return fmt.Errorf("%s, which must not change: %w", ref, err)
		}
	}
	return nil
}

// beside runs a writer and a keeper beside each other through some crashes.
func beside(seed uint64, crashes, steps int) error {
	w := &World{cfg: Config{Seed: seed, FilesOnly: true}, clock: NewClock(), mem: vfs.NewCrashableMem(),
		groves: map[tine.TreeID]*grove{}, crashes: map[string]int{}}
	defer w.abandon()
	r := rand.New(rand.NewPCG(seed, 0))
	if err := w.open(); err != nil {
		return err
	}
	w.named = 1 // the first name is then never one that is taken
	if err := w.createDisk(r); err != nil {
		return err
	}
	d := w.disks[0]
	k := &keeper{w: w, disk: d.name, r: r, shown: map[volume.Ref]posix.Tree{}, unsure: map[volume.Ref]posix.Tree{}}
	for range crashes {
		if err := besideOnce(w, k, steps); err != nil {
			return err
		}
	}
	return nil
}

func besideOnce(w *World, k *keeper, steps int) error {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		k.run(stop)
	}()
	var failed error
	for i := 0; failed == nil && !w.crashed(); i++ {
		w.seq++
		r := rand.New(rand.NewPCG(w.cfg.Seed, uint64(w.seq)))
		if i >= steps && i%20 == 0 {
			w.crash.disarm() // not every moment comes by itself
			w.crash.arm(r)
		}
		w.clock.Advance(time.Duration(1 + r.Int64N(1e9)))
		failed = w.turn(r)
	}
	close(stop)
	wg.Wait()
	if failed != nil && !w.crashed() {
		return failed
	}
	if k.err != nil {
		return k.err
	}
	clone, where := w.crash.happened()
	d := w.disks[0]
	w.abandon()
	w.mem = clone
	if err := w.open(); err != nil {
		return fmt.Errorf("after the crash %s: %w", where, err)
	}
	got, err := w.read(volume.Ref{Disk: d.name})
	if err == nil {
		var m moment
		rec := diskRecord{d: d, name: d.name, moves: d.moves}
		if m, err = rec.moment(foundDisk{name: d.name, tree: got}, d.floor); err == nil {
			rec.restore(m)
			w.settle()
			err = k.judge()
		}
	}
	if err != nil {
		return fmt.Errorf("after the crash %s: %w", where, err)
	}
	return nil
}

// TestCheckpointsBesideAWriter makes and removes checkpoints and forks while
// the disk is written to, crashes, and looks at all of them.
func TestCheckpointsBesideAWriter(t *testing.T) {
	n, steps := 6, 120
	if *flagRounds > 0 {
		n = *flagRounds
	}
	if *flagSteps > 0 {
		steps = *flagSteps
	}
	for seed := *flagSeed; seed < *flagSeed+uint64(n); seed++ {
		if err := beside(seed, 4, steps); err != nil {
			t.Fatalf("seed %d: %v\nreplay: go test ./internal/sim -count=1 -run '%s$' -sim.seed=%d -sim.rounds=1 -sim.steps=%d",
				seed, err, t.Name(), seed, steps)
		}
	}
}
