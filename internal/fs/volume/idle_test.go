package volume_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/volume"
)

// slowRemoval is a file system that takes its time to remove segment files.
type slowRemoval struct {
	vfs.FS
	asked   sync.Once
	begun   chan struct{}
	done    chan struct{}
	removed atomic.Int64
}

func (f *slowRemoval) Remove(name string) error {
	if strings.Contains(name, "segments") {
		f.asked.Do(func() { close(f.begun) })
		<-f.done
		f.removed.Add(1)
	}
	return f.FS.Remove(name)
}

// TestIdleMeansThatSpaceIsFree: who has waited for background work finds the
// files of dead segments gone, also those of a commit that was over, for who
// waited for it, before.
func TestIdleMeansThatSpaceIsFree(t *testing.T) {
	fs := &slowRemoval{FS: vfs.NewMem(), begun: make(chan struct{}), done: make(chan struct{})}
	h := open(t, volume.Options{FS: fs, SegmentBytes: 1 << 20, CommitInterval: -1})
	defer h.Close(ctx)
	_, err := h.CreateDisk(ctx, me, "disk")
	check(t, err)
	s := attach(t, h, "disk")
	for _, b := range []byte("ab") {
		for _, name := range []string{"one", "two", "three", "four"} {
			write(t, s, name, bytes.Repeat([]byte{b}, 900<<10))
		}
		check(t, s.Sync(ctx))
	}
	<-fs.begun // the commit is durable; what it has left to remove is not removed
	time.AfterFunc(50*time.Millisecond, func() { close(fs.done) })
	check(t, h.ReclaimIdle(ctx))
	if n := fs.removed.Load(); n == 0 {
		t.Errorf("background work is said to be done and no file of a dead segment is gone")
	}
	if st := h.Stats(); st.SegmentBytes > st.LiveBytes+st.LiveBytes/20+1<<20 {
		t.Errorf("%d bytes of segments are left for %d live", st.SegmentBytes, st.LiveBytes)
	}
	check(t, s.Detach(ctx))
}

// TestUnusedDisksKeepNoFilesOpen: of many disks that were written and let go
// only some keep a file open for writing, and all show what was written; one
// that is used again goes on.
func TestUnusedDisksKeepNoFilesOpen(t *testing.T) {
	const disks, kept = 400, 128
	fs := &countedOpens{FS: vfs.NewMem()}
	h := open(t, volume.Options{FS: fs, CommitInterval: -1})
	defer h.Close(ctx)
	_, err := h.CreateDisk(ctx, me, "disk")
	check(t, err)
	first := attach(t, h, "disk") // in use all the time
	write(t, first, "file", content(0))
	check(t, first.Sync(ctx))
	for i := 1; i < disks; i++ {
		name := fmt.Sprintf("fork-%d", i)
		_, err := h.Fork(ctx, me, volume.Ref{Disk: "disk"}, []string{name}, volume.WaitRunnable)
		check(t, err)
		s := attach(t, h, name)
		write(t, s, "file", content(i))
		check(t, s.Detach(ctx))
	}
	if n := fs.open.Load(); n > kept+1 {
		t.Errorf("%d segment files are open for writing; at most %d disks and the one in use may have one", n, kept)
	}
	check(t, h.ReclaimIdle(ctx))
	for i := 1; i < disks; i++ {
		s := attach(t, h, fmt.Sprintf("fork-%d", i))
		if !bytes.Equal(read(t, s, "file"), content(i)) {
			t.Fatalf("fork %d shows other content than was written", i)
		}
		write(t, s, "again", content(i+1))
		if !bytes.Equal(read(t, s, "again"), content(i+1)) {
			t.Fatalf("fork %d cannot be written again", i)
		}
		check(t, s.Detach(ctx))
	}
	write(t, first, "file", content(disks))
	if !bytes.Equal(read(t, first, "file"), content(disks)) {
		t.Fatalf("the disk that was in use shows other content than was written")
	}
	check(t, first.Detach(ctx))
}

// TestStatesKeptKeepNoFilesOpen: what a disk showed before a rollback is kept for
// the undo, and its line may have a segment open that nobody writes any more; of
// many only some are, and all of them can be gone back to.
func TestStatesKeptKeepNoFilesOpen(t *testing.T) {
	const disks, kept = 150, 64
	fs := &countedOpens{FS: vfs.NewMem()}
	h := open(t, volume.Options{FS: fs, CommitInterval: -1})
	defer h.Close(ctx)
	name := func(i int) string { return fmt.Sprintf("disk-%d", i) }
	for i := range disks {
		_, err := h.CreateDisk(ctx, me, name(i))
		check(t, err)
		_, err = h.Checkpoint(ctx, me, name(i), "empty", "", volume.WaitRunnable)
		check(t, err)
		s := attach(t, h, name(i))
		write(t, s, "file", content(i))
		_, err = h.Rollback(ctx, me, name(i), "empty")
		check(t, err)
		check(t, s.Detach(ctx))
	}
	check(t, h.ReclaimIdle(ctx))
	if n := fs.open.Load(); n > kept {
		t.Errorf("%d segment files are open for writing after %d rollbacks; at most %d may be", n, disks, kept)
	}
	for i := range disks {
		_, err := h.Undo(ctx, me, name(i))
		check(t, err)
		s := attach(t, h, name(i))
		if !bytes.Equal(read(t, s, "file"), content(i)) {
			t.Fatalf("disk %d shows other content than before the rollback", i)
		}
		write(t, s, "file", content(i+1))
		check(t, s.Detach(ctx))
	}
}

// content is too large for a row.
func content(i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%08d", i), 1000) }

// countedOpens counts the segment files that are open for writing.
type countedOpens struct {
	vfs.FS
	open atomic.Int64
}

func (f *countedOpens) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	if err != nil || !strings.Contains(name, "segments") {
		return file, err
	}
	f.open.Add(1)
	return &countedFile{file, f}, nil
}

type countedFile struct {
	vfs.File
	fs *countedOpens
}

func (f *countedFile) Close() error {
	f.fs.open.Add(-1)
	return f.File.Close()
}
