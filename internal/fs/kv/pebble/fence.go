package pebble

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// fence is the file system that Pebble sees. It does two things.
//
// It keeps from Pebble the errors that Pebble cannot live through. A log or a
// manifest that cannot be written makes Pebble end the process: mostly through
// its logger, but in places by a panic on a lock that it does not hold, which
// nothing can recover from. A table that cannot be written is tried again at
// once, for ever. So such an error is not returned: it poisons the store, and
// the goroutine that met it is parked. Only a full device is different: the
// reserve is given up and the write gets a second try. After that a table that
// has no room is put off, and a log or a manifest waits for room, however long
// that takes, while no new commit is let in (waiting). A flush is never tried
// again: what it has not written, the device may have forgotten.
//
// And it can be shut for changes. A poisoned Pebble cannot be stopped: its
// goroutines wait for one that will never return, or go on compacting. Before
// the directory may be opened again it must be certain that none of them
// touches it (I21). After shut, every change blocks for good, which also keeps
// Pebble from retrying in a busy loop.
type fence struct {
	vfs.FS
	fatal   func(error) // poisons the store
	relieve func() bool // gives up the reserve; false if there was none
	mark    *mark       // told of what is durable of the log
	// compacts and layOut ask for room for so many bytes of a compaction, and
	// of a log in advance.
	compacts, layOut func(int64) bool
	patient          atomic.Bool  // a log may wait for room; not while the store is opened
	waits            atomic.Int64 // changes that wait for room now

	mu    sync.RWMutex  // held for reading during every change
	down  bool          // under mu
	still chan struct{} // closed when the fence is shut and no change is under way
}

// weight says what the failing of a change means.
type weight uint8

const (
	mayFail   weight = iota // Pebble copes
	canWait                 // a compaction: Pebble copes with a full device, and nothing waits for it
	mayBeFull               // Pebble copes with a full device, and with nothing else
	mustHold                // Pebble copes with nothing
)

// fullPause keeps Pebble from trying a table again and again on a full device.
const fullPause = 100 * time.Millisecond

// change makes one change to the files, again and again while it must hold and
// the device is full.
func (f *fence) change(w weight, op func() error) error {
	for {
		err := f.try(op)
		if err == nil || w == mayFail {
			return err
		}
		switch full := errors.Is(err, syscall.ENOSPC); {
		case full && w != canWait && f.relieve():
		case full && w <= mayBeFull:
			time.Sleep(fullPause)
			return err
		case full && f.patient.Load():
			f.waits.Add(1)
			time.Sleep(fullPause)
			f.waits.Add(-1)
		default:
			f.fatal(err)
			select {}
		}
	}
}

// flush is change for what must not be repeated. The name is of what is flushed,
// which the system's error does not tell.
func (f *fence) flush(w weight, name string, op func() error) error {
	err := f.try(op)
	if err == nil || w == mayFail || w <= mayBeFull && errors.Is(err, syscall.ENOSPC) {
		return err
	}
	f.fatal(fmt.Errorf("flush %s: %w", name, err))
	select {}
}

// try makes one change, unless the fence is shut.
func (f *fence) try(op func() error) error {
	f.mu.RLock()
	if f.down {
		f.mu.RUnlock()
		select {}
	}
	defer f.mu.RUnlock()
	return op()
}

// shut lets no further change begin. It does not wait for those under way and
// must be called once only.
func (f *fence) shut() {
	go func() {
		f.mu.Lock()
		f.down = true
		f.mu.Unlock()
		close(f.still)
	}()
}

// quiet waits, at most patience, until a fence that was shut has no change
// under way, and reports whether that is so. A device that answers nothing
// any more can keep a change under way for ever.
func (f *fence) quiet(patience time.Duration) bool {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-f.still:
		return true
	case <-t.C:
		return false
	}
}

// weigh tells tables from the files that Pebble needs for every step: logs,
// manifests, and the markers that name the current ones.
func (f *fence) weigh(name string) weight {
	base := f.FS.PathBase(name)
	if strings.HasSuffix(base, ".log") || strings.HasPrefix(base, "MANIFEST-") || strings.HasPrefix(base, "marker.") {
		return mustHold
	}
	return mayBeFull
}

func (f *fence) Unwrap() vfs.FS { return f.FS }

// Lock does nothing: the store holds the lock of the directory itself, for a
// poisoned Pebble would never give it back.
func (f *fence) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// compaction is how Pebble labels the tables of one.
const compaction vfs.DiskWriteCategory = "pebble-compaction"

func (f *fence) open(name string, c vfs.DiskWriteCategory, do func() (vfs.File, error)) (vfs.File, error) {
	file := &fencedFile{fence: f, weight: f.weigh(name), name: name}
	if file.weight == mayBeFull && c == compaction {
		file.weight = canWait
	}
	file.slot, file.number = markedFile(f.FS.PathBase(name))
	err := f.change(file.weight, func() (err error) {
		file.File, err = do()
		return err
	})
	if err != nil {
		return nil, err
	}
	return file, nil
}

func (f *fence) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.flushBeforeMarker(name)
	return f.open(name, c, func() (vfs.File, error) { return f.FS.Create(name, c) })
}

// flushBeforeMarker flushes the directory of a marker before the marker is made
// or removed. Pebble makes a manifest, makes the marker that names it, removes
// the marker before, and flushes the directory once, after all three. A power cut
// on a device that does not keep names in order could leave the marker of a
// manifest that is missing, or no marker at all, which Pebble takes for a new store.
func (f *fence) flushBeforeMarker(name string) {
	if !strings.HasPrefix(f.FS.PathBase(name), "marker.") {
		return
	}
	_ = f.flush(mustHold, f.FS.PathDir(name), func() error {
		d, err := f.FS.OpenDir(f.FS.PathDir(name))
		if err != nil {
			return err
		}
		return errors.Join(d.Sync(), d.Close())
	})
}

func (f *fence) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.open(name, c, func() (vfs.File, error) { return f.FS.OpenReadWrite(name, c, opts...) })
}

func (f *fence) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.open(newname, c, func() (vfs.File, error) { return f.FS.ReuseForWrite(oldname, newname, c) })
}

// OpenDir opens a directory to sync it, which is part of every new log.
func (f *fence) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &fencedFile{File: file, fence: f, weight: mustHold, name: name, slot: noSlot}, nil
}

func (f *fence) Link(oldname, newname string) error {
	return f.change(f.weigh(newname), func() error { return f.FS.Link(oldname, newname) })
}

func (f *fence) Rename(oldname, newname string) error {
	return f.change(f.weigh(newname), func() error { return f.FS.Rename(oldname, newname) })
}

func (f *fence) Remove(name string) error {
	f.flushBeforeMarker(name)
	return f.change(mayFail, func() error { return f.FS.Remove(name) })
}

func (f *fence) RemoveAll(name string) error {
	return f.change(mayFail, func() error { return f.FS.RemoveAll(name) })
}

func (f *fence) MkdirAll(dir string, perm os.FileMode) error {
	return f.change(mayFail, func() error { return f.FS.MkdirAll(dir, perm) })
}

// fencedFile is a file opened for writing. Files opened for reading pass
// through unwrapped.
type fencedFile struct {
	vfs.File
	fence  *fence
	weight weight
	name   string

	slot   slot   // of logs and manifests, which one goroutine at a time writes, from their start
	number uint64 // of such a file
	length int64  // what is written of it
}

// Write goes on where a first try on a full device has ended.
func (f *fencedFile) Write(p []byte) (n int, err error) {
	if f.weight == canWait && !f.fence.compacts(int64(len(p))) {
		time.Sleep(fullPause)
		return 0, syscall.ENOSPC
	}
	err = f.fence.change(f.weight, func() error {
		m, err := f.File.Write(p[n:])
		n += m
		return err
	})
	f.length += int64(n)
	return n, err
}

func (f *fencedFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.fence.change(f.weight, func() error {
		n, err = f.File.WriteAt(p, off)
		return err
	})
	return n, err
}

// Preallocate may fail: Pebble writes without it. On a device that is nearly full
// it would take what others need for a log that may never get so long.
func (f *fencedFile) Preallocate(off, length int64) error {
	if !f.fence.layOut(length) {
		return syscall.ENOSPC
	}
	return f.fence.change(mayFail, func() error { return f.File.Preallocate(off, length) })
}

func (f *fencedFile) Sync() error { return f.flush(f.File.Sync) }

func (f *fencedFile) SyncData() error { return f.flush(f.File.SyncData) }

// flush makes durable what was written before it.
func (f *fencedFile) flush(op func() error) error {
	length := f.length
	err := f.fence.flush(f.weight, f.name, op)
	if err == nil && f.slot != noSlot {
		f.fence.mark.note(f.slot, f.number, length)
	}
	return err
}

func (f *fencedFile) SyncTo(length int64) (full bool, err error) {
	err = f.fence.flush(f.weight, f.name, func() error {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}
