package fsck

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/volume"
)

// TestLive checks a directory again and again while a host changes it, with
// background work: no moment may show anything wrong.
func TestLive(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	h, err := volume.Open(ctx, volume.Options{Dir: dataDir, FS: vfs.NewMem(), SegmentBytes: 100 << 10, CommitInterval: 1, CacheBytes: 1 << 20})
	must(t, err)
	_, err = h.CreateDisk(ctx, me, "a")
	must(t, err)
	done := make(chan error, 1)
	stop := make(chan struct{})
	round := make(chan struct{}, 1)
	go func() {
		done <- churn(h, r, round, stop)
		close(round)
	}()
	var views int64
	for range 40 {
		<-round // something has changed since the check before
		stored, err := h.Stored(ctx)
		must(t, err)
		found, err := Check(Options{Rows: stored.Rows, FS: stored.FS, SegmentDir: stored.Segments, Live: true, Data: true})
		must(t, err)
		views += found.Stats.Views
		if !found.Clean() {
			t.Errorf("found:\n%s", describe(found))
			break
		}
	}
	close(stop)
	must(t, <-done)
	must(t, h.ReclaimIdle(ctx))
	must(t, h.Close(ctx))
	if views < 80 {
		t.Errorf("only %d views were looked at", views)
	}
}

// churn writes, removes, forks, promotes and takes checkpoints until it is told
// to stop.
func churn(h *volume.Host, r *rand.Rand, round chan<- struct{}, stop <-chan struct{}) error {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		case round <- struct{}{}:
		default: // a check is under way, and goes on beside this
		}
		s, err := h.Attach(ctx, me, volume.Ref{Disk: "a"}, volume.AttachOptions{})
		if err != nil {
			return err
		}
		for range 20 {
			name := fmt.Sprintf("f%d", r.IntN(40))
			f, _, _, err := s.Create(root, volume.Root, name, 0o644, false)
			if err != nil {
				return err
			}
			if _, err := f.WriteAt(root, content(r.IntN(99), r.IntN(30000)), r.Int64N(5000)); err != nil {
				return err
			}
			if err := f.Close(); err != nil {
				return err
			}
			_ = s.Unlink(root, volume.Root, fmt.Sprintf("f%d", r.IntN(40)))
		}
		if err := s.Detach(ctx); err != nil {
			return err
		}
		name := fmt.Sprintf("x%d", i)
		if _, err := h.Checkpoint(ctx, me, "a", name, "", volume.WaitRunnable); err != nil {
			return err
		}
		if i > 5 {
			if err := h.RemoveCheckpoint(ctx, me, "a", fmt.Sprintf("x%d", i-5)); err != nil {
				return err
			}
		}
		if i%7 == 6 {
			if _, err := h.Fork(ctx, me, volume.Ref{Disk: "a"}, []string{name}, volume.WaitRunnable); err != nil {
				return err
			}
			if _, err := h.Promote(ctx, me, name, "a", true); err != nil {
				return err
			}
		}
	}
}
