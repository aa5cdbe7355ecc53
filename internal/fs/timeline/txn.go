package timeline

import (
	"tine.dev/tine/internal/fs/reclaim"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/stratum"
	"tine.dev/tine/internal/tine"
)

// Txn is one operation's change of a line's rows. It lives with line.mu held
// for writing. An operation checks everything first and changes rows last: a
// change is never taken back.
type Txn struct {
	*Reader
	line *line
	now  int64
}

// begin starts a change of the line's head; the caller holds line.mu for
// writing and calls close.
func (l *line) begin() (*Txn, error) {
	if l.commits.failed != nil {
		return nil, l.commits.failed
	}
	t := &Txn{Reader: l.view.reader(), line: l, now: l.tree.engine.now()}
	if err := t.loadCounters(); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// loadCounters reads the line's counters once. A fork inherits its parent's as
// of the branch; what unlinked open files hold is never in them.
func (t *Txn) loadCounters() error {
	l := t.line
	if l.counters.loaded {
		return nil
	}
	f, err := t.Get(record.TableKey(record.TableCounters))
	if err != nil {
		return err
	}
	l.counters.at = Found{Kind: f.Kind, Birth: f.Birth}
	if f.Kind == Value {
		if l.counters.Counters, err = record.DecodeCounters(f.Val); err != nil {
			return err
		}
	}
	l.counters.loaded = true
	return nil
}

func (t *Txn) layer() *layer { return t.line.open }

// Put sets a row. f is what get found for it.
func (t *Txn) Put(k record.Logical, f Found, val []byte) {
	y := t.layer()
	t.line.state.touched, t.line.state.written = true, true
	if e, ok := y.rows.Get(k); ok {
		e.val, e.tomb, e.gone = val, false, false
		y.set(k, e)
		return
	}
	e := entry{val: val}
	switch {
	case f.Kind == Nothing:
		e.below = belowNothing
		y.grows = true
	case f.Birth > t.line.floor():
		e.replaces = f.Birth
	default:
		e.below = belowSomething
	}
	y.set(k, e)
}

// Del removes a row. A tombstone is written only where something older lies
// below (I14); a row made and removed in one commit leaves nothing.
func (t *Txn) Del(k record.Logical, f Found) error {
	y := t.layer()
	t.line.state.touched, t.line.state.written = true, true
	e, ok := y.rows.Get(k)
	if !ok {
		if f.Kind != Value {
			return nil
		}
		e = entry{below: belowSomething}
		if f.Birth > t.line.floor() {
			e = entry{replaces: f.Birth}
		}
	}
	if e.below == belowUnknown {
		older, err := t.older(k)
		if err != nil {
			return err
		}
		e.below = belowNothing
		if older {
			e.below = belowSomething
		}
	}
	switch {
	case e.below == belowSomething:
		e.val, e.tomb, e.gone = nil, true, false
	case e.replaces == 0:
		y.rows.Delete(k)
		return nil
	default:
		e.val, e.tomb, e.gone = nil, false, true
	}
	y.set(k, e)
	return nil
}

// single reports that no row of the line can have an older version: nothing
// was ever pinned and there is no parent.
func (l *line) single() bool { return l.parent == nil && l.epoch == l.first }

// older reports whether any version of the row, tombstones included, lies
// below the one that the open layer is about to replace.
func (t *Txn) older(k record.Logical) (bool, error) {
	if t.line.single() {
		return false, nil
	}
	f, err := t.Get(k)
	if err != nil {
		return false, err
	}
	v, err := t.olderVersion(k, f.Birth)
	if err != nil || v != nil {
		return v != nil, err
	}
	f, err = t.inherited(k)
	return f.Kind != Nothing, err
}

// olderVersion returns the line's own version just below the one born at
// birth, nil if there is none.
func (t *Txn) olderVersion(k record.Logical, birth tine.Epoch) (*stratum.Version, error) {
	if t.line.single() {
		return nil, nil
	}
	vs, err := t.versions(k)
	if err != nil {
		return nil, err
	}
	for i := len(vs) - 1; i >= 0; i-- {
		if vs[i].Birth < birth {
			return &vs[i], nil
		}
	}
	return nil, nil
}

// Count changes the line's counters.
func (t *Txn) Count(inodes, bytes int64) {
	t.line.counters.Inodes += inodes
	t.line.counters.Bytes += bytes
	t.line.counters.dirty = true
}

// owns reports whether the segment was written by this line, so that its
// bytes are this line's to free.
func (t *Txn) owns(s tine.SegmentID) bool {
	info := t.line.space.segs[s]
	return info != nil || t.line.tree.engine.Mutation == MutateFreeForeign && t.line.tree.segment(s) != nil
}

// PutChunk sets a chunk row and accounts for the extents that leave with the
// version it replaces.
func (t *Txn) PutChunk(k record.Logical, f Found, c *record.Chunk) error {
	if err := t.account(k, f, c.Extents); err != nil {
		return err
	}
	t.Put(k, f, c.Append(nil))
	return nil
}

// DelChunk removes a chunk row and accounts for its extents.
func (t *Txn) DelChunk(k record.Logical, f Found) error {
	if err := t.account(k, f, nil); err != nil {
		return err
	}
	return t.Del(k, f)
}

// account lowers the live bytes of segments by what the row's newest version
// names and neither the new extents nor the version below do (reclaim rule
// "overwrite"), and keeps the counts of shared pieces.
func (t *Txn) account(k record.Logical, f Found, newer []record.Extent) error {
	var old []record.Extent
	if f.Kind == Value {
		c, err := record.DecodeChunk(f.Val)
		if err != nil {
			return err
		}
		old = c.Extents
	}
	if len(old) == 0 && !t.sharesPieces(newer) {
		return nil
	}
	replaced := f.Kind != Nothing && f.Birth > t.line.floor()
	var older []record.Extent
	if replaced {
		v, err := t.olderVersion(k, f.Birth)
		if err != nil {
			return err
		}
		if v != nil {
			if older, err = v.Extents(); err != nil {
				return err
			}
		}
		t.release(old, older, newer)
	} else if f.Birth > t.line.branch {
		older = old
	}
	for _, p := range t.piecesOf(old, older, newer) {
		inOlder, inNew := p.named(older), p.named(newer)
		if replaced {
			p.change(t, reclaim.RunsOnReplace(inOlder, p.named(old), inNew))
		} else {
			p.change(t, reclaim.RunsOnAdd(inOlder, inNew))
		}
	}
	return nil
}

// release frees the bytes that self names and neither neighbour does, but for
// those in shared pieces, which are freed by their count.
func (t *Txn) release(self, older, newer []record.Extent) {
	if t.line.tree.engine.Mutation == MutateIgnoreNeighbours {
		older = nil
	}
	self, newer = reclaim.TrimCommon(self, newer)
	for _, r := range reclaim.Released(self, older, newer, t.owns) {
		info := t.line.tree.segment(r.Segment)
		n := r.Len
		for _, p := range info.pieces.Overlapping(r.Off, r.Len) {
			n -= reclaim.Overlap(p.Off, p.Len, r.Off, r.Len)
		}
		if n != 0 {
			info.live -= n
			t.layer().touch(r.Segment)
		}
	}
}

// addLive counts bytes that a row has come to name.
func (t *Txn) addLive(info *segInfo, n int64) {
	info.live += n
	t.layer().touch(info.id)
}
