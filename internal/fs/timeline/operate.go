package timeline

import (
	"math"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/tine"
)

// This file is what the file system's rules are written against: reading and
// changing the rows of a view, staging data, counting.

// Read runs fn with a reader of the view, with the line's lock held for
// reading.
func (v *View) Read(fn func(*Reader) error) error {
	l := v.line.root()
	l.mu.RLock()
	for l.merged.Load() != nil {
		l.mu.RUnlock()
		l = l.root()
		l.mu.RLock()
	}
	defer l.mu.RUnlock()
	if err := l.commits.failed; err != nil {
		return err
	}
	r := v.reader()
	defer r.close()
	return fn(r)
}

// ReadBoth runs fn with readers of two views. Their lines are entered in the
// order of their ids, and anew when one was absorbed meanwhile.
func ReadBoth(a, b *View, fn func(ra, rb *Reader) error) error {
	for {
		x, y := a.line.root(), b.line.root()
		first, second := x, y
		if string(first.id[:]) > string(second.id[:]) {
			first, second = second, first
		}
		first.mu.RLock()
		if second != first {
			second.mu.RLock()
		}
		unlock := func() {
			if second != first {
				second.mu.RUnlock()
			}
			first.mu.RUnlock()
		}
		if x.merged.Load() != nil || y.merged.Load() != nil {
			unlock()
			continue
		}
		defer unlock()
		for _, l := range []*line{x, y} {
			if err := l.commits.failed; err != nil {
				return err
			}
		}
		ra, rb := a.reader(), b.reader()
		defer ra.close()
		defer rb.close()
		return fn(ra, rb)
	}
}

// Change runs fn as one operation on the head, at one moment of its history.
// A frozen view is tine.ErrReadOnly. What fn has done when it fails stays
// done: it checks first and changes last.
func (v *View) Change(fn func(*Txn) error) error {
	if v.epoch != tine.Head {
		return tine.ErrReadOnly
	}
	l := v.line
	if err := l.admit(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t, err := l.begin()
	if err != nil {
		return err
	}
	defer t.close()
	err = fn(t)
	if !l.open.empty() || l.counters.dirty {
		l.changed()
	}
	return err
}

// Frozen reports that the view never changes.
func (v *View) Frozen() bool { return v.epoch != tine.Head }

// Full reports that the device has no room for anything that makes the disk
// larger.
func (v *View) Full() bool { return v.line.tree.engine.Room.Probe() }

// Scarce reports that the device has room only for what gives space back.
func (v *View) Scarce() bool { return v.line.tree.engine.Room.Scarce() }

// Staged is data at the end of the line's open segment. It counts for nothing
// until a row names it (Txn.Name).
type Staged struct {
	info *segInfo
	Off  int64 // in the segment
	Len  int64
}

// Segment returns the segment that the data lies in.
func (s Staged) Segment() tine.SegmentID { return s.info.id }

// Stage appends data to the line's open segment, before an operation that will name
// it. p may be reused when it returns. The caller calls Release when that operation
// is over, whatever came of it: until then the bytes are kept, though no row
// names them.
func (v *View) Stage(p []byte) (Staged, error) { return v.line.stage(p, 1) }

// Release ends what View.Stage began. That of nothing does nothing.
func (s Staged) Release() {
	if s.info == nil || s.info.staged.Add(-1) > 0 {
		return
	}
	l := s.info.line.root()
	if s.info.loc.Load().State == record.SegmentSealed {
		l.mu.Lock()
		l.dropIfDead(s.info)
		l.mu.Unlock()
	}
}

// Stage is View.Stage within an operation, which need not be told of its end.
func (t *Txn) Stage(p []byte) (Staged, error) { return t.line.stage(p, 0) }

// Name makes the staged data's segment one of the line's and counts n of its
// bytes as named by a row.
func (t *Txn) Name(s Staged, n int64) {
	t.adopt(s.info)
	if n != 0 {
		t.addLive(s.info, n)
	}
}

// Pin opens an extent's segment for reading; the handle outlives the
// operation.
func (r *Reader) Pin(id tine.SegmentID) (*segment.Handle, error) { return r.view.line.tree.pin(id) }

// Now is the time of the operation, in nanoseconds since 1970.
func (t *Txn) Now() int64 { return t.now }

// Epoch is the birth of what the operation writes.
func (t *Txn) Epoch() tine.Epoch { return t.line.epoch }

// Fresh reports that the inode was made in the commit under way, so that none
// of its rows exists but in it: look-ups of them need not ask the store.
func (t *Txn) Fresh(ino tine.Ino) bool {
	e, ok := t.open.rows.Get(record.InodeKey(ino))
	return ok && e.below == belowNothing && !e.gone && e.replaces == 0
}

// GetFresh is Get for a row of a fresh inode.
func (t *Txn) GetFresh(l record.Logical) Found {
	if e, ok := t.open.rows.Get(l); ok {
		return e.found(t.open.epoch)
	}
	return Found{}
}

// NextIno takes the next inode number, which was never used in this line.
func (t *Txn) NextIno() tine.Ino {
	c := &t.line.counters
	c.NextIno++
	c.dirty = true
	return c.NextIno - 1
}

// NextCookie takes the next place in the paging order of directories.
func (t *Txn) NextCookie() uint64 {
	c := &t.line.counters
	c.NextCookie++
	c.dirty = true
	return c.NextCookie - 1
}

// Handles returns the open state of an inode, nil if it has no handle.
func (t *Txn) Handles(ino tine.Ino) *Handles { return t.line.opens[ino] }

// Opened returns the open state of an inode, making it if there is none.
func (t *Txn) Opened(ino tine.Ino) *Handles {
	l := t.line
	h := l.opens[ino]
	if h == nil {
		if l.opens == nil {
			l.opens = map[tine.Ino]*Handles{}
		}
		h = &Handles{}
		l.opens[ino] = h
	}
	return h
}

// Closed forgets the open state of an inode.
func (t *Txn) Closed(ino tine.Ino) {
	if h := t.line.opens[ino]; h != nil {
		t.SetOrphan(h, false, 0)
		delete(t.line.opens, ino)
	}
}

// Inherited reports whether a version belongs to an ancestor of the line.
func (t *Txn) Inherited(f Found) bool { return f.Birth <= t.line.branch }

// ReapLater has the janitor call Options.Reap for the line.
func (t *Txn) ReapLater() {
	t.line.state.reap = true
	t.line.tree.todo.Add(choreReap)
	t.line.tree.engine.janitor.Wake()
}

// Totals returns the inodes and bytes of data that the view shows, open files
// without a name included.
func (r *Reader) Totals() (inodes, bytes int64, err error) {
	l := r.view.line.root()
	if r.view.epoch == tine.Head && l.counters.loaded {
		inodes, bytes = l.counters.totals()
		return inodes, bytes, nil
	}
	f, err := r.Get(record.TableKey(record.TableCounters))
	if err != nil || !f.Exists() {
		return 0, 0, err
	}
	c, err := record.DecodeCounters(f.Val)
	return c.Inodes, c.Bytes, err
}

// NextCookie returns the place in the paging order of directories that the next
// name gets: every name that the view shows is before it.
func (r *Reader) NextCookie() (uint64, error) {
	if l := r.view.line.root(); r.view.epoch == tine.Head && l.counters.loaded {
		return l.counters.NextCookie, nil
	}
	f, err := r.Get(record.TableKey(record.TableCounters))
	if err != nil || !f.Exists() {
		return math.MaxUint64, err // hide nothing
	}
	c, err := record.DecodeCounters(f.Val)
	return c.NextCookie, err
}
