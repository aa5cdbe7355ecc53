package volume_test

import (
	"bytes"
	"syscall"
	"testing"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// TestNoRoomToSealASegment: a segment that is full is sealed after the commit that
// needs its last byte. If there is no room for that nothing is lost and nothing
// failed; it is sealed later.
func TestNoRoomToSealASegment(t *testing.T) {
	fs := newSegmentFS()
	o := volume.Options{FS: fs, SegmentBytes: 256 << 10}
	h := open(t, o)
	if _, err := h.CreateDisk(ctx, me, "work"); err != nil {
		t.Fatal(err)
	}
	s := attach(t, h, "work")
	f, _, _, err := s.Create(root, volume.Root, "big", 0o644, true)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte("0123456789abcdef"), 48<<10)
	put := func(from, to int) {
		t.Helper()
		if _, err := f.WriteAt(root, want[from:to], int64(from)); err != nil {
			t.Fatal(err)
		}
	}
	put(0, 200<<10)
	put(200<<10, 400<<10) // the first segment has no room for these
	fs.setWrites(syscall.ENOSPC)
	if err := f.Fsync(ctx, false); err != nil {
		t.Fatalf("fsync of what lies in the segments already: %v", err)
	}
	// The sealing comes after the commit; the next commit comes after the sealing.
	if err := s.SetXattr(root, volume.Root, "user.x", []byte("y"), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Fsync(ctx, false); err != nil {
		t.Fatalf("fsync after a segment could not be sealed: %v (%v)", err, tine.KindOf(err))
	}
	if fs.refused() == 0 {
		t.Fatal("nothing met the full device")
	}
	fs.setWrites(nil)
	put(400<<10, len(want))
	if err := f.Fsync(ctx, false); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if n, err := f.ReadAt(got, 0); err != nil || n != len(want) || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Detach(ctx); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(ctx); err != nil {
		t.Fatal(err)
	}
}
