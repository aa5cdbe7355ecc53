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

	"tine.dev/tine/internal/fs/kv"
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
	const ordinary, accepted, frees = 0, 1, 2
	try := func(what string, need int, want tine.ErrorKind, ok bool) {
		t.Helper()
		b := s.NewBatch()
		b.Set(key(what, 1), []byte("v"))
		switch need {
		case accepted:
			b.AllowLow()
		case frees:
			b.Frees()
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
	w, ok := s.(kv.Waiter)
	if !ok {
		t.Fatal("it does not tell what room there is")
	}
	room := func(mib int64, low, last bool) {
		t.Helper()
		d.avail.Store(mib << 20)
		clock.Add(int64(time.Second))
		if r := w.Room(); r.Low != low || r.Last != last {
			t.Errorf("with %d MiB: %+v", mib, r)
		}
	}
	try("plenty", ordinary, 0, true)
	room(50, true, false)
	try("low", ordinary, tine.KindNoSpace, false)
	try("low, accepted", accepted, 0, true)
	try("low, freeing", frees, 0, true)
	room(30, true, true)
	try("scarce, accepted", accepted, tine.KindNoSpace, false)
	try("scarce, freeing", frees, 0, true)
	room(10, true, true)
	try("at the end, freeing", frees, tine.KindNoSpace, false)
	room(1<<10, false, false)
	try("plenty again", ordinary, 0, true)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOthersTakeAll fills a small device at once with another's file, whatever the
// store has in memory: all the bytes that may be held back are committed, in the
// worst case with the memory tables nearly full, and so are deletions, many times
// over what is left, and what they leave in memory is flushed.
func TestOthersTakeAll(t *testing.T) {
	for _, before := range []int{0, 100 << 10, 240 << 10, 700 << 10, 1000 << 10, 1900 << 10} {
		t.Run(fmt.Sprintf("%d KiB of rows before", before>>10), func(t *testing.T) { testOthersTakeAll(t, before) })
	}
}

func testOthersTakeAll(t *testing.T, before int) {
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
	rng := rand.NewChaCha8([32]byte{2})
	value := make([]byte, 4<<10)
	n := 0
	// commit tries again for a while, as the engine does: a compaction under way may
	// hold some room until it has failed.
	commit := func(what string, sync bool, fill func(kv.Batch)) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; {
			b := s.NewBatch()
			fill(b)
			err := s.Commit(b, sync)
			if err == nil {
				return
			}
			if tine.KindOf(err) != tine.KindNoSpace || time.Now().After(end) {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	rows := func(bytes int, mark func(kv.Batch)) {
		t.Helper()
		for ; bytes > 0; n, bytes = n+1, bytes-len(value) {
			_, _ = rng.Read(value) // never fails
			commit(fmt.Sprintf("row %d", n), true, func(b kv.Batch) {
				b.Set(key(fmt.Sprintf("row-%06d", n), 1), value)
				mark(b)
			})
		}
	}
	rows(before, func(kv.Batch) {})
	other, err := os.Create(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = other.Write(value[:4<<10])
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	w := s.(kv.Waiter)
	if !w.Room().Low {
		t.Error("a device without any room is not low")
	}
	rows(int(w.AlwaysBytes())*9/10, kv.Batch.AllowLow) // less what the batches have around their rows
	for i := range 40_000 {                            // some 3 MiB of batches
		commit(fmt.Sprintf("deletion %d", i), i%500 == 0, func(b kv.Batch) {
			b.Delete(key(fmt.Sprintf("row-%06d-%030d", i%n, i), 1))
			b.Frees()
		})
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	_ = other.Close()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// scarce is a device that counts what is laid out in advance.
type scarce struct {
	device
	laidOut atomic.Int64
}

func (d *scarce) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, c)
	if err != nil {
		return nil, err
	}
	return &scarceFile{f, d}, nil
}

type scarceFile struct {
	vfs.File
	on *scarce
}

func (f *scarceFile) Preallocate(_, length int64) error {
	f.on.laidOut.Add(length)
	return nil
}

// TestCompactionsWait: what is left on a device that is nearly full is not for
// compactions, nor for logs in advance; with room again both go on.
func TestCompactionsWait(t *testing.T) {
	d := &scarce{device: device{FS: vfs.Default}}
	d.total.Store(100 << 30)
	d.avail.Store(1 << 30)
	s := open(t, pebble.Options{Dir: t.TempDir(), FS: d, LowSpaceBytes: 64 << 20, OnPoison: func(err error) { t.Errorf("poisoned: %v", err) }})
	var clock atomic.Int64
	start := time.Now()
	pebble.SetSpaceClock(s, func() time.Time { return start.Add(time.Duration(clock.Add(int64(time.Second)))) })
	write := func() {
		t.Helper()
		b := s.NewBatch()
		b.Frees()
		for i := range 100 {
			b.Set(key(fmt.Sprintf("row-%06d", i), 1), make([]byte, 1000))
		}
		if err := s.Commit(b, true); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	write()
	had := d.laidOut.Load()
	if had == 0 {
		t.Error("no log is laid out where there is room")
	}
	d.avail.Store(30 << 20)
	write()
	if n := d.laidOut.Load(); n != had {
		t.Errorf("%d bytes are laid out for logs on a device that is nearly full", n-had)
	}
	wantKind(t, "a compaction", s.Compact([]byte{0}, []byte{0xff}), tine.KindNoSpace)
	d.avail.Store(1 << 30)
	if err := s.Compact([]byte{0}, []byte{0xff}); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
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
