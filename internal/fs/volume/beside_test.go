package volume_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// TestDisksBesideEachOther has four goroutines do to five disks whatever can
// be done to whole disks, at random, and then looks whether every disk that is
// left can be read, before and after background work and after opening again.
func TestDisksBesideEachOther(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for round := range 8 {
		fs := vfs.NewMem()
		h := open(t, volume.Options{FS: fs})
		for i := range 3 {
			if _, err := h.CreateDisk(ctx, me, fmt.Sprint("n", i)); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(round*10+g)))
				for range 200 {
					if op, err := anyOperation(h, r); unexpected(err) {
						t.Errorf("%s: %v (%s)", op, err, tine.KindOf(err))
					}
				}
			})
		}
		wg.Wait()
		lookAtAll(t, h, "after the operations")
		if err := h.ReclaimIdle(ctx); err != nil {
			t.Error(err)
		}
		lookAtAll(t, h, "after background work")
		if err := h.Close(ctx); err != nil {
			t.Error(err)
		}
		h = open(t, volume.Options{FS: fs})
		lookAtAll(t, h, "after opening again")
		if err := h.Close(ctx); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			return
		}
	}
}

// anyOperation does one thing to disks named n0 to n4.
func anyOperation(h *volume.Host, r *rand.Rand) (op string, err error) {
	a, b, cp := fmt.Sprint("n", r.IntN(5)), fmt.Sprint("n", r.IntN(5)), fmt.Sprint("c", r.IntN(3))
	ops := []struct {
		name string
		do   func() error
	}{
		{"fork", func() error {
			_, err := h.Fork(ctx, me, volume.Ref{Disk: a}, []string{b}, volume.WaitRunnable)
			return err
		}},
		{"fork of a checkpoint", func() error {
			_, err := h.Fork(ctx, me, volume.Ref{Disk: a, Checkpoint: cp}, []string{b}, volume.WaitDurable)
			return err
		}},
		{"promote", func() error { _, err := h.Promote(ctx, me, a, b, true); return err }},
		{"checkpoint", func() error { _, err := h.Checkpoint(ctx, me, a, cp, "", volume.WaitRunnable); return err }},
		{"rollback", func() error { _, err := h.Rollback(ctx, me, a, cp); return err }},
		{"undo", func() error { _, err := h.Undo(ctx, me, a); return err }},
		{"checkpoint rm", func() error { return h.RemoveCheckpoint(ctx, me, a, cp) }},
		{"rename", func() error { _, err := h.RenameDisk(ctx, me, a, b); return err }},
		{"rm", func() error { _, err := h.RemoveDisk(ctx, me, a, r.IntN(2) == 0); return err }},
		{"undelete", func() error { _, err := h.UndeleteDisk(ctx, me, a); return err }},
		{"create", func() error { _, err := h.CreateDisk(ctx, me, a); return err }},
		{"mkdir", func() error {
			s, err := h.Attach(ctx, me, volume.Ref{Disk: a}, volume.AttachOptions{})
			if err != nil {
				return err
			}
			_, _, err = s.Mkdir(root, volume.Root, fmt.Sprint("d", r.IntN(100)), 0o755)
			return errors.Join(err, s.Detach(ctx))
		}},
	}
	o := ops[r.IntN(len(ops))]
	return o.name, o.do()
}

// unexpected reports errors that no order of such operations explains.
func unexpected(err error) bool {
	if err == nil {
		return false
	}
	switch tine.KindOf(err) {
	case tine.KindNotFound, tine.KindExists, tine.KindBusy, tine.KindConflict, tine.KindCrossDevice, tine.KindInvalid, tine.KindStale:
		return false
	}
	return true
}

func lookAtAll(t *testing.T, h *volume.Host, when string) {
	t.Helper()
	ds, err := h.Disks(ctx, me, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range ds {
		s, err := h.Attach(ctx, me, volume.Ref{Disk: d.Name}, volume.AttachOptions{})
		if err != nil {
			t.Errorf("%s, disk %s: %v", when, d.Name, err)
			continue
		}
		if _, err := s.GetAttr(volume.Root); err != nil {
			t.Errorf("%s, the root of disk %s: %v", when, d.Name, err)
		}
		if err := s.Detach(ctx); err != nil {
			t.Errorf("%s, disk %s: %v", when, d.Name, err)
		}
	}
}

// TestUndeleteRacesPurge: whichever of the two is first, the disk is either
// there or gone, and the data directory can be opened again.
func TestUndeleteRacesPurge(t *testing.T) {
	fs := vfs.NewMem()
	h := open(t, volume.Options{FS: fs})
	for i := range 100 {
		name := fmt.Sprint("a", i)
		if _, err := h.CreateDisk(ctx, me, name); err != nil {
			t.Fatal(err)
		}
		if _, err := h.RemoveDisk(ctx, me, name, false); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { h.UndeleteDisk(ctx, me, name) })
		wg.Go(func() { h.RemoveDisk(ctx, me, name, true) })
		wg.Wait()
	}
	if err := h.ReclaimIdle(ctx); err != nil {
		t.Error(err)
	}
	lookAtAll(t, h, "after the races")
	if err := h.Close(ctx); err != nil {
		t.Error(err)
	}
	h = open(t, volume.Options{FS: fs})
	lookAtAll(t, h, "after opening again")
	h.Close(ctx)
}

// TestFailedCopyChangesNothing: a copy that meets a full device leaves the
// destination as it was, and later writes to it count.
func TestFailedCopyChangesNothing(t *testing.T) {
	fs := newSegmentFS()
	h := open(t, volume.Options{FS: fs})
	if _, err := h.CreateDisk(ctx, me, "a"); err != nil {
		t.Fatal(err)
	}
	s := attach(t, h, "a")
	write(t, s, "src", bytes.Repeat([]byte("s"), 3<<20))
	write(t, s, "dst", []byte("the content of dst"))
	if _, err := h.Fork(ctx, me, volume.Ref{Disk: "a"}, []string{"b"}, volume.WaitDurable); err != nil {
		t.Fatal(err)
	}
	b := attach(t, h, "b")
	write(t, b, "other", bytes.Repeat([]byte("o"), 10000)) // opens a segment
	files := map[string]*volume.File{}
	for _, name := range []string{"src", "dst"} {
		_, n, err := b.Lookup(volume.Root, name)
		if err != nil {
			t.Fatal(err)
		}
		if files[name], err = b.Open(n); err != nil {
			t.Fatal(err)
		}
	}
	fs.setWrites(syscall.ENOSPC)
	if n, err := files["src"].CopyTo(files["dst"], 0, 8, 2<<20); tine.KindOf(err) != tine.KindNoSpace {
		t.Fatalf("a copy on a full device: %d, %v", n, err)
	}
	fs.setWrites(nil)
	if got := read(t, b, "dst"); string(got) != "the content of dst" {
		t.Errorf("a failed copy has changed the file: %q", got)
	}
	if _, err := files["dst"].WriteAt(root, []byte("WRITTEN"), 0); err != nil {
		t.Fatal(err)
	}
	if got := read(t, b, "dst"); !bytes.HasPrefix(got, []byte("WRITTEN")) {
		t.Errorf("a write after it is lost: %q", got)
	}
	s.Detach(ctx)
	b.Detach(ctx)
	if err := h.Close(ctx); err != nil {
		t.Fatal(err)
	}
}
