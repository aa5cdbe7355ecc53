package pebble

import (
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/tine"
)

// reserveName is the file that keeps space free for a bad day.
const reserveName = "RESERVE"

// spaceInterval is how old the known free space may be. Another writer on the
// device would have to fill the whole low mark in this time to get past it.
const spaceInterval = 20 * time.Millisecond

// need says how much a batch matters on a device that is nearly full.
type need uint8

const (
	ordinary need = iota // can be refused: nobody counts on it
	accepted             // its caller has said yes to somebody
	freeing              // it gives space back
)

// space refuses commits while the device is nearly full, for Pebble cannot
// live through a log that it cannot write.
//
// There are marks, each for what matters more than what is above it. Below low,
// ordinary batches are refused, no log is laid out in advance, and the reserve
// file is removed, so that what follows finds room also where others have filled
// the device: then the reserve is all that there is, and the marks below low
// divide it. Below twice the floor accepted batches wait, whose callers bound them
// to what is above (always), and compactions are put off, because they need room
// first. Below the floor nothing is let in; that part is for what is under way:
// the log, and the tables that memory is flushed to. The reserve is laid down
// again when there is room for it twice over.
type space struct {
	fs      vfs.FS
	dir     string
	log     *slog.Logger
	low     int64
	floor   int64
	reserve int64 // bytes of the reserve file; 0 if there shall be none
	now     func() time.Time
	failed  atomic.Int64 // flushes in a row that found no room

	mu      sync.Mutex
	known   bool // the file system can tell its free space
	checked time.Time
	avail   int64 // at checked, less what was admitted since
	lies    bool  // the reserve file lies on the device
}

// newSpace fits the marks to the device: on a small one they are fractions of
// it. onDisk tells that dir is a real directory, in which a reserve makes sense.
func newSpace(o Options, fs vfs.FS, onDisk bool, log *slog.Logger) *space {
	s := &space{fs: fs, dir: o.Dir, log: log, low: o.LowSpaceBytes, reserve: o.ReserveBytes, now: time.Now}
	usage, err := fs.GetDiskUsage(o.Dir)
	s.known = err == nil
	if !s.known {
		return s
	}
	s.low = min(s.low, int64(usage.TotalBytes/4))
	s.floor = s.low / 4
	s.reserve = min(s.reserve, int64(usage.TotalBytes/16)) &^ 4095
	if !onDisk {
		s.reserve = 0
	}
	if s.reserve > 0 {
		// On a device that others have filled the reserve is all that there is:
		// a quarter for each kind of what must go on.
		s.floor = min(s.floor, s.reserve/4)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if fi, err := os.Stat(s.path()); s.reserve > 0 && err == nil && fi.Size() == s.reserve {
		s.lies = true
	}
	s.refresh()
	return s
}

func (s *space) path() string { return filepath.Join(s.dir, reserveName) }

// admit tells whether a batch of size bytes may be written.
func (s *space) admit(size int, n need) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known {
		return nil
	}
	takes := 2 * int64(size) // the log, and the table it is flushed to
	s.look(takes)
	if limit := s.limit(n); s.avail-takes < limit || (s.failed.Load() > 0 && n == ordinary) {
		return tine.Errorf(tine.KindNoSpace, "the device of %s has %d MiB left; %d MiB are kept free for the key-value store",
			s.dir, s.avail>>20, limit>>20).WithHint("free space on the device: delete files or checkpoints, or make the device larger")
	}
	s.avail -= takes
	return nil
}

// look brings the free space up to date, if it is old or matters, and gives up
// the reserve when so many bytes more would touch the low mark.
func (s *space) look(takes int64) {
	if s.now().Sub(s.checked) > spaceInterval || s.avail-takes < s.low {
		s.refresh()
	}
	if s.avail-takes < s.low && s.lies {
		s.release()
	}
}

// limit is what must be left after a batch.
func (s *space) limit(n need) int64 {
	switch {
	case n == freeing:
		return s.floor
	case n == accepted:
		return 2 * s.floor
	case s.lies:
		return s.low
	}
	return s.low + s.reserve
}

// room tells others what the marks mean for them.
func (s *space) room() kv.Room {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known {
		return kv.Room{SpareBytes: math.MaxInt64}
	}
	s.refresh() // whoever asks keeps the answer for a while
	s.look(0)
	return kv.Room{
		Low:        s.avail < s.limit(ordinary) || s.failed.Load() > 0,
		Last:       s.avail < s.limit(accepted),
		None:       s.avail < s.limit(freeing),
		SpareBytes: max(0, s.avail-2*s.floor),
	}
}

// always is how many bytes of accepted batches find room when others fill the
// device at once: they take twice their size, and half of what is above their mark
// is left to compactions under way, and to deletions.
func (s *space) always() int64 {
	if s.reserve == 0 {
		return 0
	}
	return s.floor / 2
}

// compacts reports whether there is room for n bytes of a compaction.
func (s *space) compacts(n int64) bool { return s.leaves(n, 2*s.floor) }

// layOut reports whether there is room to lay out n bytes of a log in advance.
func (s *space) layOut(n int64) bool { return s.leaves(n, s.low+s.reserve) }

// leaves reports whether so much is left after n bytes were taken.
func (s *space) leaves(n, left int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known {
		return true
	}
	if s.now().Sub(s.checked) > spaceInterval || s.avail-n < left {
		s.refresh()
	}
	return s.avail-n >= left
}

// relieve is called when Pebble met a full device; it reports whether there
// was a reserve to give up.
func (s *space) relieve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lies {
		return false
	}
	s.release()
	return true
}

func (s *space) refresh() {
	usage, err := s.fs.GetDiskUsage(s.dir)
	if err != nil {
		return // the last figure stands; a device that fails shows in the commit
	}
	s.checked, s.avail = s.now(), int64(min(usage.AvailBytes, 1<<62))
	if !s.lies && s.reserve > 0 && s.avail > s.low+3*s.reserve {
		s.lay()
	}
}

// lay makes the reserve file. A device that cannot set space aside, or has
// none, goes without.
func (s *space) lay() {
	f, err := os.OpenFile(s.path(), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = unix.Fallocate(int(f.Fd()), 0, 0, s.reserve)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil {
		s.log.Warn("no space is set aside for a full device", "path", s.path(), "error", err)
		_ = os.Remove(s.path())
		s.reserve = 0
		return
	}
	s.lies = true
	s.avail -= s.reserve
}

func (s *space) release() {
	s.log.Warn("the device is nearly full; the reserve is given up", "path", s.path())
	if err := os.Remove(s.path()); err != nil && !os.IsNotExist(err) {
		s.log.Error("the reserve cannot be removed", "path", s.path(), "error", err)
		return
	}
	s.lies = false
	s.refresh()
}
