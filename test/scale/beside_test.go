package scale_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/blob/mem"
	"tine.dev/tine/internal/fs/volume"
)

// TestStoreBeside does the same to a disk that lives in a store as well, and to one that
// does not, in turn: what is durable on this machine costs hardly more beside a
// store that follows.
func TestStoreBeside(t *testing.T) {
	pairs := size(0, 6, 20)
	h := hostWith(t, mem.New(mem.Options{})) // a store on this device would take flushes from both
	works := map[string]func(s *volume.Session, disk string, round int){
		"fsync of a small file": func(s *volume.Session, _ string, round int) {
			for i := range 100 {
				f, _, _, err := s.Create(root, volume.Root, fmt.Sprint("s", round, "-", i), 0o644, false)
				check(t, err)
				_, err = f.WriteAt(root, []byte("a few bytes"), 0)
				check(t, err)
				check(t, f.Fsync(ctx, false))
				check(t, f.Close())
			}
		},
		"metadata": func(s *volume.Session, _ string, round int) {
			_, d, err := s.Mkdir(root, volume.Root, fmt.Sprint("d", round), 0o755)
			check(t, err)
			for i := range 3000 {
				f, _, _, err := s.Create(root, d, fmt.Sprint(i), 0o644, false)
				check(t, err)
				check(t, f.Close())
			}
			for i := range 1500 {
				check(t, s.Unlink(root, d, fmt.Sprint(i)))
			}
			check(t, s.Sync(ctx))
		},
		"fork": func(_ *volume.Session, disk string, round int) {
			for i := range 20 {
				_, err := h.Fork(ctx, me, volume.Ref{Disk: disk}, []string{fmt.Sprint(disk, "-fork-", round, "-", i)}, volume.WaitDurable)
				check(t, err)
			}
		},
	}
	sessions := map[string]*volume.Session{}
	for disk, in := range map[string]string{"alone": "", "stored": "store"} {
		_, err := h.CreateDiskIn(ctx, me, disk, volume.NewDisk{Store: in})
		check(t, err)
		sessions[disk] = attach(t, h, disk)
	}
	for _, what := range []string{"fsync of a small file", "metadata", "fork"} {
		var took, cpu [2]times
		for round := range pairs {
			for i := range 2 {
				k := (i + round) % 2
				disk := []string{"alone", "stored"}[k]
				busy, began := processTime(t), time.Now()
				works[what](sessions[disk], disk, round)
				took[k] = append(took[k], time.Since(began))
				cpu[k] = append(cpu[k], processTime(t)-busy)
			}
		}
		ratio := float64(took[1].median()) / float64(took[0].median())
		t.Logf("%s: %v alone, %v with a store: %.2f times; the process's time %v and %v",
			what, took[0].median().Round(time.Microsecond), took[1].median().Round(time.Microsecond), ratio, cpu[0].median().Round(time.Microsecond), cpu[1].median().Round(time.Microsecond))
		if limit := bound(1.15, 5); ratio > limit {
			t.Errorf("%s with a store takes %.2f times as long; at most %.2f", what, ratio, limit)
		}
	}
	began := time.Now()
	check(t, h.SyncStore(ctx, me, "stored"))
	t.Logf("the store had the rest after %v", time.Since(began).Round(time.Millisecond))
	for _, s := range sessions {
		check(t, s.Detach(ctx))
	}
	check(t, h.Close(ctx))
}

// processTime is what the process has used of processors.
func processTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	check(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
