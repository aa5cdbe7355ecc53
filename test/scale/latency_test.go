package scale_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/volume"
)

// F1: fork, checkpoint and rollback of a mounted, walked disk that is being
// written to cost the same however many files there are.

// runs is how often each step is measured.
const runs = 40

// maxRunnable is how long a fork, checkpoint or rollback may take. A rollback
// waits for the device, which the machine may keep busy.
func maxRunnable() time.Duration {
	return time.Duration(bound(10, 100)) * time.Millisecond
}

// subject is a mounted disk of some size with a writer on it.
type subject struct {
	host  *volume.Host
	dir   string
	names string
	fresh int // the next of the files that the kernel has never heard of

	fork, checkpoint, rollback, stat, cached times
	forkCall, rollbackCall                   times // without what follows
}

func newSubject(t *testing.T, n int) *subject {
	t.Helper()
	s := &subject{host: newHost(t), names: fmt.Sprintf("%d files", n)}
	_, err := s.host.CreateDisk(ctx, me, "disk")
	check(t, err)
	session := attach(t, s.host, "disk")
	start := time.Now()
	makeTree(t, session, n)
	for i := range 2 * runs {
		put(t, session, volume.Root, fmt.Sprintf("fresh-%d", i), []byte("never looked up"))
	}
	check(t, session.Detach(ctx))
	_, err = s.host.Checkpoint(ctx, me, "disk", "start", "", volume.WaitDurable)
	check(t, err)
	made := time.Since(start)
	s.dir = mount(t, s.host, "disk")
	t.Logf("%s: made in %v, walked in %v", s.names, made.Round(time.Millisecond), s.walk(t).Round(time.Millisecond))
	s.write(t)
	return s
}

func (s *subject) walk(t testing.TB) time.Duration {
	start := time.Now()
	walk(t, filepath.Join(s.dir, "top"))
	return time.Since(start)
}

// write writes a page every millisecond until the end of the test. A rollback
// takes its file away; it opens it again, as a program would.
func (s *subject) write(t *testing.T) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		page := make([]byte, 4096)
		var f *os.File
		for i := int64(0); ; i++ {
			select {
			case <-stop:
				if f != nil {
					f.Close()
				}
				return
			case <-tick.C:
			}
			var err error
			if f == nil {
				f, err = os.OpenFile(filepath.Join(s.dir, "written"), os.O_RDWR|os.O_CREATE, 0o644)
			}
			if err == nil {
				_, err = f.WriteAt(page, i%4096*4096)
			}
			if err == nil {
				continue
			}
			if !errors.Is(err, syscall.ESTALE) && !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ENOENT) {
				t.Errorf("the writer: %v", err)
				return
			}
			if f != nil {
				f.Close()
				f = nil
			}
		}
	})
	t.Cleanup(func() {
		close(stop)
		wg.Wait()
	})
}

// settle waits for the background work that the steps before have left, so
// that each step is measured by itself: it is not the other disk's.
func (s *subject) settle(t *testing.T) { check(t, s.host.ReclaimIdle(ctx)) }

// forkOnce forks the disk and uses the child.
func (s *subject) forkOnce(t *testing.T, i int) {
	s.settle(t)
	name := fmt.Sprintf("fork-%d", i)
	var child *volume.Session
	s.fork.timed(func() {
		s.forkCall.timed(func() { fork(t, s.host, "disk", name) })
		child = attach(t, s.host, name)
		put(t, child, volume.Root, "new", []byte("of the child"))
		if got := get(t, child, "new"); got != "of the child" {
			t.Fatalf("the child shows %q", got)
		}
	})
	check(t, child.Detach(ctx))
	_, err := s.host.RemoveDisk(ctx, me, name, true)
	check(t, err)
}

func (s *subject) checkpointOnce(t *testing.T, i int) {
	s.settle(t)
	name := fmt.Sprintf("cp-%d", i)
	s.checkpoint.timed(func() {
		_, err := s.host.Checkpoint(ctx, me, "disk", name, "", volume.WaitRunnable)
		check(t, err)
	})
	check(t, s.host.RemoveCheckpoint(ctx, me, "disk", name))
}

// rollbackOnce rolls the disk back and looks at a name that is new to the
// kernel; then, with again, at one that it knew, and walks the tree anew.
func (s *subject) rollbackOnce(t *testing.T, again bool) {
	s.settle(t)
	name := filepath.Join(s.dir, fmt.Sprintf("fresh-%d", s.fresh))
	s.fresh++
	s.rollback.timed(func() {
		s.rollbackCall.timed(func() {
			_, err := s.host.Rollback(ctx, me, "disk", "start")
			check(t, err)
		})
		s.stat.timed(func() {
			_, err := os.Lstat(name)
			check(t, err)
		})
	})
	if !again {
		return
	}
	s.cached.timed(func() {
		_, err := os.Lstat(filepath.Join(s.dir, "top", "dir-0", "file-0"))
		check(t, err)
	})
	s.walk(t)
}

func TestForkCheckpointRollback(t *testing.T) {
	needFUSE(t)
	small, large := newSubject(t, 1000), newSubject(t, size(*files, 20_000, 1_000_000))
	both := []*subject{small, large}
	for i := range runs {
		for _, s := range both {
			s.forkOnce(t, i)
			s.checkpointOnce(t, i)
		}
	}
	for i := range runs {
		for _, s := range both {
			s.rollbackOnce(t, i%(runs/4) == 0)
		}
	}
	most := bound(1.5, 3)
	for _, step := range []struct {
		name string
		of   func(*subject) times
	}{
		{"fork, until a new file of the child is read", func(s *subject) times { return s.fork }},
		{"checkpoint, runnable", func(s *subject) times { return s.checkpoint }},
		{"rollback with the stat of a new name", func(s *subject) times { return s.rollback }},
	} {
		compare(t, step.name, small.names, step.of(small), large.names, step.of(large), most)
		for _, s := range both {
			if m := step.of(s).median(); m > maxRunnable() {
				t.Errorf("%s: %v with %s; at most %v", step.name, m, s.names, maxRunnable())
			}
		}
	}
	for _, s := range both {
		t.Logf("%s: of a fork, the call alone: %v; of a rollback: %v; the stat: %v; first stat of the cached tree: %v",
			s.names, s.forkCall, s.rollbackCall, s.stat, s.cached)
	}
}
