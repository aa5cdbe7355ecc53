package pebble_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/tine"
)

// device is a file system that claims to have as much space as it is told.
type device struct {
	vfs.FS
	total, avail atomic.Int64
}

func (d *device) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{TotalBytes: uint64(d.total.Load()), AvailBytes: uint64(d.avail.Load())}, nil
}

// TestLowSpace checks the marks: what is refused and what is still taken, and
// that the store works on when there is room again.
func TestLowSpace(t *testing.T) {
	d := &device{FS: vfs.NewMem()}
	d.total.Store(100 << 30)
	d.avail.Store(1 << 30)
	s := open(t, pebble.Options{Dir: "db", FS: d, LowSpaceBytes: 64 << 20})
	var clock atomic.Int64
	start := time.Now()
	pebble.SetSpaceClock(s, func() time.Time { return start.Add(time.Duration(clock.Load())) })
	try := func(what string, low bool, want tine.ErrorKind, ok bool) {
		t.Helper()
		b := s.NewBatch()
		b.Set(key(what, 1), []byte("v"))
		if low {
			b.AllowLow()
		}
		err := s.Commit(b, true)
		switch {
		case ok && err != nil:
			t.Errorf("%s: %v", what, err)
		case !ok:
			wantKind(t, what, err, want)
			if tine.HintOf(err) == "" {
				t.Errorf("%s: no hint", what)
			}
		}
		n := s.Snapshot()
		_, _, found, err := n.Newest(prefix(what), 1)
		if found != ok || err != nil {
			t.Errorf("%s: found %v (%v)", what, found, err)
		}
		_ = n.Close()
	}
	try("plenty", false, 0, true)
	d.avail.Store(50 << 20)
	clock.Add(int64(time.Second))
	try("low", false, tine.KindNoSpace, false)
	try("low, freeing", true, 0, true)
	d.avail.Store(10 << 20)
	clock.Add(int64(time.Second))
	try("lower, freeing", true, tine.KindNoSpace, false)
	d.avail.Store(1 << 30)
	try("plenty again", false, 0, true)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFullTables lets the device be full for tables only, and then not: what
// was committed comes through, and the store does not give up at the first.
func TestFullTables(t *testing.T) {
	inj := &failing{part: ".sst", err: syscall.ENOSPC}
	s := open(t, pebble.Options{Dir: "db", FS: wrapErrors(vfs.NewMem(), inj), OnPoison: func(err error) { t.Errorf("poisoned: %v", err) }})
	if err := put(s, "a0", 1, true); err != nil {
		t.Fatal(err)
	}
	inj.armed.Store(true)
	inj.limit.Store(2)
	within(t, "flush", func() {
		if err := s.Flush(); err != nil {
			t.Error(err)
		}
	})
	if inj.hit.Load() != 2 {
		t.Errorf("%d faults, want 2", inj.hit.Load())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestReserve checks the reserve file on a real directory: laid down at the
// start, given up when the log meets a full device, and the write then held.
func TestReserve(t *testing.T) {
	dir := t.TempDir()
	s := open(t, pebble.Options{Dir: dir, ReserveBytes: 1 << 20})
	fi, err := os.Stat(filepath.Join(dir, "RESERVE"))
	if err != nil {
		t.Skipf("no reserve on this device: %v", err)
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !ok || fi.Size() != 1<<20 || st.Blocks*512 < 1<<20 {
		t.Errorf("the reserve has %d bytes, %d blocks", fi.Size(), st.Blocks)
	}
	if err := put(s, "a0", 1, true); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, pebble.Options{Dir: dir, ReserveBytes: 1 << 20})
	if _, err := os.Stat(filepath.Join(dir, "RESERVE")); err != nil {
		t.Error("the reserve does not survive a re-opening")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFullDevice fills a real device, with this store's rows and with another
// writer's file. Nothing but KindNoSpace may come of it; what frees space
// still goes through; and with room again all goes on.
func TestFullDevice(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tine-test", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("no tmpfs can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	s := open(t, pebble.Options{Dir: filepath.Join(dir, "db"), OnPoison: func(err error) { t.Errorf("poisoned: %v", err) }})
	var clock atomic.Int64
	start := time.Now()
	pebble.SetSpaceClock(s, func() time.Time { return start.Add(time.Duration(clock.Add(int64(time.Second)))) })
	rng := rand.NewChaCha8([32]byte{1})
	value := make([]byte, 16<<10)
	fill := func() (n int, err error) {
		for ; n < 1<<16; n++ {
			_, _ = rng.Read(value)
			b := s.NewBatch()
			b.Set(key(fmt.Sprintf("row-%06d", n), 1), value)
			if err := s.Commit(b, n%64 == 0); err != nil {
				return n, err
			}
		}
		return n, nil
	}
	n, err := fill()
	wantKind(t, "rows until full", err, tine.KindNoSpace)
	t.Logf("%d MiB of rows on a device of 64 MiB", n*len(value)>>20)
	other, err := os.Create(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = other.Write(value)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	_, err = fill()
	wantKind(t, "rows on a device filled by another", err, tine.KindNoSpace)
	if err := other.Truncate(0); err != nil {
		t.Fatal(err)
	}
	b := s.NewBatch()
	b.AllowLow()
	b.DeleteRange([]byte{0}, []byte{0xff})
	if err := s.Commit(b, true); err != nil {
		t.Fatalf("a deletion on a full device: %v", err)
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.Compact([]byte{0}, []byte{0xff}); err != nil {
		t.Fatal(err)
	}
	// Dead files are removed in the background; closing waits for that.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, pebble.Options{Dir: filepath.Join(dir, "db")})
	if again, err := fill(); again < n/2 {
		t.Errorf("after the deletion only %d of %d rows fit (%v)", again, n, err)
	}
	_ = other.Close()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
