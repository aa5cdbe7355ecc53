package volume_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// activity returns the counts of the only disk that is attached.
func activity(t *testing.T, h *volume.Host) volume.DiskActivity {
	t.Helper()
	ds, _ := h.Activity()
	if len(ds) != 1 {
		t.Fatalf("%d disks are attached", len(ds))
	}
	return ds[0]
}

func TestOperationsAreCountedByKind(t *testing.T) {
	h := open(t, volume.Options{FS: vfs.NewMem()})
	defer h.Close(ctx)
	if _, err := h.CreateDisk(ctx, me, "a"); err != nil {
		t.Fatal(err)
	}
	s := attach(t, h, "a")
	s2 := attach(t, h, "a")
	write(t, s, "f", bytes.Repeat([]byte("x"), 10000))
	read(t, s2, "f")
	if _, _, err := s.Lookup(volume.Root, "none"); tine.KindOf(err) != tine.KindNotFound {
		t.Fatal(err)
	}
	if _, _, err := s.Mkdir(root, volume.Root, "d", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.Rmdir(root, volume.Root, "d"); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	before := h.Commits()
	a := activity(t, h)
	if a.Sessions != 2 || a.ReadBytes != 10000 || a.WrittenBytes != 10000 {
		t.Errorf("%d sessions, %d bytes read, %d written", a.Sessions, a.ReadBytes, a.WrittenBytes)
	}
	for op, want := range map[volume.Op]uint64{volume.OpCreate: 1, volume.OpWrite: 1, volume.OpLookup: 2, volume.OpMkdir: 1,
		volume.OpRmdir: 1, volume.OpFsync: 1, volume.OpRename: 0} {
		if got := a.Ops[op].Count(); got != want {
			t.Errorf("%s: %d, want %d", op, got, want)
		}
		if want > 0 && a.Ops[op].Nanos == 0 {
			t.Errorf("%s took no time", op)
		}
	}
	if before.Synced.Count() == 0 || before.Bytes == 0 || before.Failed != 0 {
		t.Errorf("commits: %+v", before)
	}
	for _, x := range []*volume.Session{s, s2} {
		if err := x.Detach(ctx); err != nil {
			t.Fatal(err)
		}
	}
	ds, sum := h.Activity()
	if len(ds) != 0 || sum.Ops[volume.OpMkdir].Count() != 1 || sum.WrittenBytes != 10000 {
		t.Errorf("after the last session: %d disks; mkdir %d", len(ds), sum.Ops[volume.OpMkdir].Count())
	}
}

// noted is an observer that keeps what it is told.
type noted struct {
	mu     sync.Mutex
	failed []volume.Op
	kinds  []tine.ErrorKind
	slow   []volume.Op
}

func (n *noted) Failed(_ tine.DiskID, op volume.Op, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failed, n.kinds = append(n.failed, op), append(n.kinds, tine.KindOf(err))
}

func (n *noted) Slow(_ tine.DiskID, op volume.Op, _ time.Time, took time.Duration, _ error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if took >= time.Millisecond {
		n.slow = append(n.slow, op)
	}
}

func TestAnObserverHearsOfTheDisksFaultsOnly(t *testing.T) {
	h := open(t, volume.Options{FS: vfs.NewMem()})
	if _, err := h.CreateDisk(ctx, me, "a"); err != nil {
		t.Fatal(err)
	}
	s := attach(t, h, "a")
	n := &noted{}
	h.Observe(n, time.Nanosecond)
	if _, _, err := s.Lookup(volume.Root, "none"); tine.KindOf(err) != tine.KindNotFound {
		t.Fatal(err)
	}
	if len(n.failed) != 0 {
		t.Errorf("told of a name that is not there: %v", n.failed)
	}
	// Nothing works after the rows are closed: each operation says so.
	if err := h.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Lookup(volume.Root, "none")
	if err == nil || len(n.failed) != 1 || n.failed[0] != volume.OpLookup || n.kinds[0] != tine.KindOf(err) {
		t.Errorf("%v: told of %v, %v", err, n.failed, n.kinds)
	}
	h.Observe(nil, 0)
	if _, _, err := s.Lookup(volume.Root, "none"); err == nil || len(n.failed) != 1 {
		t.Errorf("told after the end: %v, %v", err, n.failed)
	}
}

// TestBuckets puts durations next to every edge.
func TestBuckets(t *testing.T) {
	last := time.Duration(0)
	for b := range volume.NumBuckets - 1 {
		end := volume.BucketEnd(b)
		if end <= last {
			t.Fatalf("bucket %d ends at %v, the one before at %v", b, end, last)
		}
		if got := volume.BucketOf(end - 1); got != b {
			t.Errorf("%d ns is in bucket %d, want %d", end-1, got, b)
		}
		if got := volume.BucketOf(end); got != b+1 {
			t.Errorf("%d ns is in bucket %d, want %d", end, got, b+1)
		}
		last = end
	}
	if volume.BucketEnd(volume.NumBuckets-1) != 0 || volume.BucketOf(time.Hour) != volume.NumBuckets-1 {
		t.Error("the last bucket has an end")
	}
}

// BenchmarkObserve is what counting adds to one file operation.
func BenchmarkObserve(b *testing.B) {
	c := volume.NewOpCounters()
	b.ReportAllocs()
	for b.Loop() {
		volume.CountOne(c)
	}
}

// BenchmarkObserveParallel is the same from all processors at once, on one
// disk and one kind: the worst case.
func BenchmarkObserveParallel(b *testing.B) {
	c := volume.NewOpCounters()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			volume.CountOne(c)
		}
	})
}
