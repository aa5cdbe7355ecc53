package segment

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// TestFull fills the device at every write in turn and goes on when there is
// room again.
func TestFull(t *testing.T) {
	for full := 1; full < 8; full++ {
		n, on := 0, true
		inj := errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind != errorfs.OpFileWriteAt || !on {
				return nil
			}
			if n++; n > full {
				return &fs.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
			}
			return nil
		})
		s := openStore(t, Options{FS: errorfs.Wrap(vfs.NewMem(), inj)})
		w := create(t, s)
		type piece struct {
			off int64
			p   []byte
		}
		var kept []piece
		failures := 0
		r := rand.New(rand.NewPCG(uint64(full), 3))
		for i := range 30 {
			p := random(1+r.IntN(3*BlockBytes), uint64(i))
			if i == 7 {
				p = random(3<<20, 9)
			}
			on = i < 20
			off, err := w.Append(p)
			if err != nil {
				wantKind(t, err, tine.KindNoSpace)
				failures++
			} else {
				kept = append(kept, piece{off, p})
			}
		}
		if failures == 0 {
			t.Fatal("the device was never full")
		}
		on, n = true, full
		_, err := w.Seal()
		wantKind(t, err, tine.KindNoSpace)
		on = false
		row := mustSeal(t, w)
		for _, k := range kept {
			if !bytes.Equal(read(t, s, w.ID(), row, k.off, int64(len(k.p))), k.p) {
				t.Fatalf("full at write %d: bytes at %d are wrong", full, k.off)
			}
		}
		if err := s.Check(w.ID(), row); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFailed makes each kind of call fail once: the Writer must stay broken
// although the device works again.
func TestFailed(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpFileWriteAt, errorfs.OpFileSyncData, errorfs.OpFileSync, errorfs.OpFileSyncTo} {
		var armed atomic.Bool
		inj := errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == kind && armed.CompareAndSwap(true, false) {
				return syscall.EIO
			}
			return nil
		})
		s := openStore(t, Options{FS: errorfs.Wrap(vfs.NewMem(), inj), PushBytes: 4 * BlockBytes})
		w := create(t, s)
		mustAppend(t, w, random(5000, 1))
		armed.Store(true)
		_, err := w.Append(random(10*BlockBytes, 2))
		if err == nil {
			_, err = w.Harden(w.End(), 0)
		}
		if kind == errorfs.OpFileSyncTo {
			// The push runs beside; a flush waits for it once it has started.
			for err == nil && tine.KindOf(err) != tine.KindIO {
				_, err = w.Append(random(4*BlockBytes, 3))
			}
		}
		wantKind(t, err, tine.KindIO)
		if armed.Load() {
			t.Fatalf("%v: nothing failed", kind)
		}
		for range 2 {
			_, err = w.Append([]byte("x"))
			wantKind(t, err, tine.KindIO)
			_, err = w.Harden(w.End(), 1<<20)
			wantKind(t, err, tine.KindIO)
			_, err = w.Seal()
			wantKind(t, err, tine.KindIO)
		}
		w.Abandon()
	}
}

// TestFullElsewhere fills the device before each write of making, repacking
// and recovering: nothing is left behind, and it works once there is room.
func TestFullElsewhere(t *testing.T) {
	mem := vfs.NewMem()
	left := 1 << 30 // writes until the device is full
	inj := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWriteAt || op.Kind == errorfs.OpCreate {
			if left--; left < 0 {
				return &fs.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
			}
		}
		return nil
	})
	s := openStore(t, Options{FS: errorfs.Wrap(mem, inj)})
	// untilRoom calls fn with room for 0, 1, ... writes until it succeeds.
	untilRoom := func(fn func() error) {
		t.Helper()
		for room := 0; ; room++ {
			before := s.DiskBytes()
			left = room
			err := fn()
			left = 1 << 30
			if err == nil {
				if room == 0 {
					t.Fatal("it wrote nothing")
				}
				return
			}
			wantKind(t, err, tine.KindNoSpace)
			if now := s.DiskBytes(); now < before {
				t.Fatalf("%d bytes counted, %d before", now, before)
			}
		}
	}
	var w *Writer
	id := newID()
	untilRoom(func() (err error) {
		w, err = s.Create(id, testTime)
		if _, serr := mem.Stat(s.path(fileKey{id: id})); err != nil && !errors.Is(serr, fs.ErrNotExist) {
			t.Fatal("a file is left behind")
		}
		return err
	})
	data := random(3*BlockBytes+50, 1)
	mustAppend(t, w, data)
	h, err := w.Harden(w.End(), 0)
	if err != nil {
		t.Fatal(err)
	}
	loc := record.Segment{State: record.SegmentOpen, End: w.End(), Synced: h.Synced}
	w.Abandon()
	var row record.Segment
	untilRoom(func() (err error) {
		row, err = s.Recover(id, loc, h.Tails)
		return err
	})
	var next record.Segment
	untilRoom(func() (err error) {
		next, err = s.Repack(id, row, []Range{{BlockBytes, 5}})
		if _, serr := mem.Stat(s.path(fileKey{id, 1})); err != nil && !errors.Is(serr, fs.ErrNotExist) {
			t.Fatal("a file is left behind")
		}
		return err
	})
	if !bytes.Equal(read(t, s, id, row, 0, row.End), data) || !bytes.Equal(read(t, s, id, next, BlockBytes, 5), data[BlockBytes:BlockBytes+5]) {
		t.Fatal("wrong bytes")
	}
	if s.DiskBytes() != row.Physical+next.Physical {
		t.Fatalf("%d bytes counted, want %d", s.DiskBytes(), row.Physical+next.Physical)
	}
}

// TestTooManyOpenFiles: the device is well, and what to do is told.
func TestTooManyOpenFiles(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE} {
		inj := errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpCreate {
				return &fs.PathError{Op: "open", Path: op.Path, Err: errno}
			}
			return nil
		})
		s := openStore(t, Options{FS: errorfs.Wrap(vfs.NewMem(), inj)})
		_, err := s.Create(tine.NewID[tine.SegmentID](time.Now()), time.Now())
		wantKind(t, err, tine.KindIO)
		if hint := tine.HintOf(err); !strings.Contains(hint, "limit of open files") || strings.Contains(hint, "device") {
			t.Errorf("%v: %v, %s", errno, err, hint)
		}
	}
}
