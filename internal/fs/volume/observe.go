package volume

import (
	"sync"
	"sync/atomic"
	"time"

	"tine.dev/tine/internal/tine"
)

// Op is a kind of operation on files, as it is counted.
type Op uint8

// The kinds. Their order is nobody's business: what leaves the process is the
// name.
const (
	OpLookup Op = iota
	OpGetAttr
	OpSetAttr
	OpCreate
	OpMkdir
	OpMknod
	OpSymlink
	OpReadlink
	OpLink
	OpUnlink
	OpRmdir
	OpRename
	OpOpen
	OpRead
	OpWrite
	OpFsync
	OpAllocate
	OpSeek
	OpCopy
	OpClose
	OpOpenDir
	OpReadDir
	OpGetXattr
	OpSetXattr
	OpListXattr
	OpRemoveXattr
	OpStatFS
	NumOps = iota
)

var opNames = [NumOps]string{
	OpLookup: "lookup", OpGetAttr: "getattr", OpSetAttr: "setattr", OpCreate: "create", OpMkdir: "mkdir", OpMknod: "mknod",
	OpSymlink: "symlink", OpReadlink: "readlink", OpLink: "link", OpUnlink: "unlink", OpRmdir: "rmdir", OpRename: "rename",
	OpOpen: "open", OpRead: "read", OpWrite: "write", OpFsync: "fsync", OpAllocate: "fallocate", OpSeek: "seek", OpCopy: "copy",
	OpClose: "close", OpOpenDir: "opendir", OpReadDir: "readdir", OpGetXattr: "getxattr", OpSetXattr: "setxattr",
	OpListXattr: "listxattr", OpRemoveXattr: "removexattr", OpStatFS: "statfs",
}

// String returns the stable word for the kind.
func (o Op) String() string { return opNames[o] }

// Observer is told of the few file operations that somebody should hear of.
// Its methods are called from the goroutine of the operation, with no lock
// held; they must not wait and must not call the host.
type Observer interface {
	// Failed is told of an operation that failed for a reason that lies with
	// the disk and not with who asked: no space, a damaged row or block, a
	// device that failed, a bug.
	Failed(disk tine.DiskID, op Op, err error)
	// Slow is told of an operation that took at least the time that Observe
	// was given.
	Slow(disk tine.DiskID, op Op, start time.Time, took time.Duration, err error)
}

// watch counts what happens on a host. Its counters are touched by every file
// operation, so they are plain atomic additions: no lock, no allocation, and
// one pair of clock readings an operation.
//
// An entry of attached belongs to a disk with a session; when the last session
// goes, its counts move to past, so that the sums never go back and a disk that
// nobody uses costs nothing.
type watch struct {
	observer atomic.Pointer[observation]
	commits  *commitCounters

	mu       sync.Mutex // guards what follows; a leaf
	attached map[tine.DiskID]*opCounters
	past     OpFigures
}

// observation is who is told, and of what.
type observation struct {
	Observer
	slow time.Duration
}

// Observe has o told of failed operations, and of those that take at least
// slow; 0 for none. It replaces whoever was told before; nil ends it.
func (h *Host) Observe(o Observer, slow time.Duration) {
	if o == nil {
		h.watch.observer.Store(nil)
		return
	}
	h.watch.observer.Store(&observation{o, slow})
}

// opCounters counts the operations of one disk.
type opCounters struct {
	disk     tine.DiskID
	sessions int // guarded by watch.mu
	w        *watch

	read, written atomic.Uint64 // bytes
	ops           [NumOps]histogram
}

// join returns the counters of a disk, for one more session.
func (w *watch) join(id tine.DiskID) *opCounters {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.attached[id]
	if c == nil {
		if w.attached == nil {
			w.attached = map[tine.DiskID]*opCounters{}
		}
		c = &opCounters{disk: id, w: w}
		w.attached[id] = c
	}
	c.sessions++
	return c
}

// leave gives the counters back.
func (w *watch) leave(c *opCounters) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.sessions--; c.sessions == 0 {
		c.addTo(&w.past)
		delete(w.attached, c.disk)
	}
}

// processStart is what clock readings count from: a difference of two
// readings of the monotonic clock costs half of a time.Now.
var processStart = time.Now()

// instant is a reading of the monotonic clock.
type instant time.Duration

func readClock() instant { return instant(time.Since(processStart)) }

// observe counts one operation that began at start and has just ended.
func (c *opCounters) observe(op Op, start instant, err error) {
	took := time.Duration(readClock() - start)
	c.ops[op].add(took)
	if err == nil && took < slowest {
		return
	}
	o := c.w.observer.Load()
	if o == nil {
		return
	}
	if o.slow > 0 && took >= o.slow {
		o.Slow(c.disk, op, processStart.Add(time.Duration(start)), took, err)
	}
	if err != nil && disksFault(err) {
		o.Failed(c.disk, op, err)
	}
}

// slowest is the least time that can be asked for as slow: below it an
// operation that succeeds does not even look whether somebody listens.
const slowest = time.Millisecond

// disksFault reports whether the reason of a failure lies with the disk.
func disksFault(err error) bool {
	switch tine.KindOf(err) {
	case tine.KindNoSpace, tine.KindCorrupt, tine.KindIO, tine.KindUnavailable, tine.KindVersion, tine.KindInternal:
		return true
	}
	return false
}
