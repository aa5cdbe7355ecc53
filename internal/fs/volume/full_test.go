package volume_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/mem"
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

// nearlyFull is a file system whose device has that many bytes left.
type nearlyFull struct {
	*segmentFS
	left atomic.Uint64
}

func leaves(bytes uint64) *nearlyFull {
	fs := &nearlyFull{segmentFS: newSegmentFS()}
	fs.left.Store(bytes)
	return fs
}

func (fs *nearlyFull) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{TotalBytes: 8 << 30, AvailBytes: fs.left.Load()}, nil
}

// TestWhatIsLeftIsForDeletions: as the room gets less, first what makes a disk larger
// is refused, then all that gives nothing back; deletions go through. A server does not
// start where not even they would.
func TestWhatIsLeftIsForDeletions(t *testing.T) {
	fs := leaves(1 << 30)
	h := open(t, volume.Options{FS: fs, CommitInterval: -1, Manual: true})
	if _, err := h.CreateDisk(ctx, me, "work"); err != nil {
		t.Fatal(err)
	}
	s := attach(t, h, "work")
	for _, name := range []string{"one", "two"} {
		write(t, s, name, content(1))
	}
	check(t, s.Sync(ctx))
	_, n, err := s.Lookup(volume.Root, "one")
	check(t, err)
	chmod := func() error {
		mode := uint32(0o600)
		_, err := s.SetAttr(root, n, volume.SetAttr{Mode: &mode})
		return err
	}
	made := 0
	create := func() error {
		made++
		f, _, _, err := s.Create(root, volume.Root, fmt.Sprint("more", made), 0o644, true)
		if err == nil {
			err = f.Close()
		}
		return err
	}
	// What is known of the room may be some milliseconds old.
	becomes := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !is(); {
			if time.Now().After(end) {
				t.Fatalf("%s: never", what)
			}
		}
	}
	full := func(try func() error) func() bool {
		return func() bool { return tine.KindOf(try()) == tine.KindNoSpace }
	}
	fs.left.Store(40 << 20)
	becomes("a file is refused", full(create))
	check(t, chmod())
	check(t, s.Unlink(root, volume.Root, "two"))
	check(t, s.Sync(ctx))
	fs.left.Store(20 << 20)
	becomes("a mode is refused", full(chmod))
	check(t, s.Unlink(root, volume.Root, "one"))
	check(t, s.Sync(ctx))
	fs.left.Store(1 << 30)
	becomes("a file is made", func() bool { return create() == nil })
	check(t, s.Detach(ctx))
	check(t, h.Close(ctx))
	fs.left.Store(1 << 20)
	if _, err := volume.Open(ctx, volume.Options{FS: fs, Dir: "/data"}); tine.KindOf(err) != tine.KindNoSpace || tine.HintOf(err) == "" {
		t.Errorf("a start without room: %v", err)
	}
	fs.left.Store(1 << 30)
	check(t, open(t, volume.Options{FS: fs}).Close(ctx))
}

// TestOpenSegmentGivesBack: where room is short, what is dead in a segment that is
// still open comes back too, however little it is; if there is no room to seal the
// segment it is sealed later.
func TestOpenSegmentGivesBack(t *testing.T) {
	fs := leaves(200 << 20)
	h := open(t, volume.Options{FS: fs, CommitInterval: -1, Manual: true})
	if _, err := h.CreateDisk(ctx, me, "work"); err != nil {
		t.Fatal(err)
	}
	s := attach(t, h, "work")
	left := bytes.Repeat([]byte("left"), 100_000)
	write(t, s, "left", left)
	write(t, s, "gone", bytes.Repeat([]byte("gone"), 200_000))
	check(t, s.Sync(ctx))
	had := h.Stats().SegmentBytes
	if err := s.Unlink(root, volume.Root, "gone"); err != nil {
		t.Fatal(err)
	}
	check(t, s.Sync(ctx))
	fs.setWrites(syscall.ENOSPC)
	if err := h.ReclaimIdle(ctx); tine.KindOf(err) != tine.KindNoSpace {
		t.Errorf("background work without any room: %v", err)
	}
	if fs.refused() == 0 {
		t.Fatal("nothing met the full device")
	}
	fs.setWrites(nil)
	check(t, s.Sync(ctx))
	check(t, h.ReclaimIdle(ctx))
	if n := h.Stats().SegmentBytes; n > had-600_000 {
		t.Errorf("%d of %d bytes are left though 800,000 are dead", n, had)
	}
	if !bytes.Equal(read(t, s, "left"), left) {
		t.Error("what was left is not what was written")
	}
	check(t, s.Detach(ctx))
	check(t, h.Close(ctx))
}

// refusing is a store that finds no room while it is told so, and had said before
// that there is plenty.
type refusing struct {
	kv.Store
	on atomic.Bool
}

func (r *refusing) Commit(b kv.Batch, sync bool) error {
	if r.on.Load() {
		b.Discard()
		return tine.ErrNoSpace
	}
	return r.Store.Commit(b, sync)
}

// TestForkThatMeetsTheEnd: a fork that was begun while there was room, and whose
// record then finds none, says that it is there but not durable; it can be used,
// and it is durable when there is room. While the device is full no other begins.
func TestForkThatMeetsTheEnd(t *testing.T) {
	rows := &refusing{Store: mem.New()}
	h := open(t, volume.Options{FS: vfs.NewMem(), Rows: rows, CommitInterval: -1})
	if _, err := h.CreateDisk(ctx, me, "work"); err != nil {
		t.Fatal(err)
	}
	s := attach(t, h, "work")
	write(t, s, "file", content(1))
	check(t, s.Sync(ctx))
	check(t, s.Detach(ctx))
	fork := func(name string) error {
		_, err := h.Fork(ctx, me, volume.Ref{Disk: "work"}, []string{name}, volume.WaitDurable)
		return err
	}
	rows.on.Store(true)
	if err := fork("first"); tine.KindOf(err) != tine.KindNoSpace || !strings.Contains(err.Error(), "done but not yet durable") {
		t.Errorf("the fork that meets the end: %v", err)
	}
	for name, make := range map[string]func() error{
		"a fork":       func() error { return fork("second") },
		"the same":     func() error { return fork("first") },
		"a disk":       func() error { _, err := h.CreateDisk(ctx, me, "other"); return err },
		"a checkpoint": func() error { _, err := h.Checkpoint(ctx, me, "work", "cp", "", volume.WaitDurable); return err },
	} {
		if err := make(); tine.KindOf(err) != tine.KindNoSpace || !strings.Contains(err.Error(), "nothing was done") {
			t.Errorf("%s on a full device: %v", name, err)
		}
	}
	k := attach(t, h, "first")
	if !bytes.Equal(read(t, k, "file"), content(1)) {
		t.Error("the fork shows other content")
	}
	rows.on.Store(false)
	for end := time.Now().Add(10 * time.Second); ; {
		err := fork("second")
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("with room again: %v", err)
		}
	}
	if err := fork("first"); tine.KindOf(err) != tine.KindExists {
		t.Errorf("the fork that met the end, again: %v", err)
	}
	check(t, k.Sync(ctx))
	check(t, k.Detach(ctx))
	check(t, h.Close(ctx))
}
