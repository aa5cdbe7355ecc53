package timeline

import (
	"cmp"
	"context"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/tine"
)

// settle takes over into memory what a commit has made true of an open
// segment. Only the owner's committer calls it.
func (s *segInfo) settle(end int64, h segment.Hardened, owner tine.TimelineID) {
	loc := *s.loc.Load()
	if loc.State == record.SegmentSealed {
		return
	}
	s.tails = s.tails.After(h)
	loc.Timeline, loc.End, loc.Synced = owner, end, h.Synced
	s.loc.Store(&loc)
}

// stage writes p at the end of the line's open segment. It is called without
// line.mu, so that the copying does not hold up look-ups. The bytes count for
// nothing until a row names them (adopt); by then the segment may be full, sealed, and
// all else in it dead, so keep, 1 or 0, is added to what holds it until then (I19).
func (l *line) stage(p []byte, keep int32) (Staged, error) {
	e := l.tree.engine
	if err := e.Room.Take(int64(len(p))); err != nil {
		e.janitor.Wake() // what is dead is now worth having back
		return Staged{}, err
	}
	l.space.mu.Lock()
	defer l.space.mu.Unlock()
	if w := l.space.writer; w != nil && w.End()+int64(len(p)) > e.SegmentBytes {
		l.space.full = append(l.space.full, segmentEnd{l.space.info, w, w.End()})
		l.space.writer, l.space.info = nil, nil
	}
	if l.space.writer == nil {
		now := e.Clock()
		id := tine.NewID[tine.SegmentID](now)
		w, err := e.Segments.Create(id, now)
		if err != nil {
			return Staged{}, err
		}
		info := &segInfo{id: id, line: l}
		info.loc.Store(&record.Segment{Timeline: l.id, State: record.SegmentOpen, Created: now.UnixNano()})
		l.tree.segMu.Lock()
		l.tree.segs[id] = info
		l.tree.segMu.Unlock()
		l.space.unnamed = with(l.space.unnamed, info)
		l.space.writer, l.space.info = w, info
	}
	off, err := l.space.writer.Append(p)
	if err != nil {
		return Staged{}, err
	}
	l.space.info.staged.Add(keep)
	return Staged{l.space.info, off, int64(len(p))}, nil
}

// adopt makes the segment one of the line's, when a row first names it.
func (t *Txn) adopt(info *segInfo) {
	l := t.line
	if l.space.segs[info.id] == info {
		return
	}
	l.space.segs = with(l.space.segs, info)
	l.space.mu.Lock()
	delete(l.space.unnamed, info.id)
	l.space.mu.Unlock()
}

// with adds a segment to a set, which may be nil.
func with(segs map[tine.SegmentID]*segInfo, info *segInfo) map[tine.SegmentID]*segInfo {
	if segs == nil {
		segs = map[tine.SegmentID]*segInfo{}
	}
	segs[info.id] = info
	return segs
}

// takeAll empties the space and returns all its segments, whether a row names
// them or not. space.mu is held, and line.mu; the committer is idle.
func (s *space) takeAll() []*segInfo {
	var all []*segInfo
	for _, segs := range []map[tine.SegmentID]*segInfo{s.segs, s.unnamed} {
		for _, info := range segs {
			all = append(all, info)
		}
	}
	for _, f := range s.full {
		f.w.Abandon()
	}
	if s.writer != nil {
		s.writer.Abandon()
	}
	s.writer, s.info, s.full, s.segs, s.unnamed = nil, nil, nil, nil, nil
	return all
}

// dropRows removes all rows of a segment, key by key: a store with many deleted
// ranges is slow to read until it has compacted them.
func (t *tree) dropRows(r *rows, info *segInfo) {
	r.list.Delete(t.key(record.IDKey(record.TableSegment, info.id)))
	r.list.Delete(t.key(record.IDKey(record.TableLive, info.id)))
	for _, tail := range info.tails {
		r.list.Delete(t.key(record.OffsetKey(record.TableTail, info.id, tail.Off)))
	}
	for _, p := range info.pieces {
		r.list.Delete(t.key(record.OffsetKey(record.TablePiece, info.id, p.Off)))
	}
}

// sealSegment ends a segment that takes no more bytes. It runs in the line's
// committer, after the commit that needs the segment's last byte.
func (l *line) sealSegment(info *segInfo, w *segment.Writer) error {
	t := l.tree
	loc, err := w.Seal()
	if err != nil {
		return err
	}
	loc.Timeline, loc.Created = l.id, info.loc.Load().Created
	b := t.engine.Rows.NewBatch()
	for _, r := range info.tails {
		b.Delete(t.key(record.OffsetKey(record.TableTail, info.id, r.Off)))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if info.gone {
		b.Discard()
		return nil
	}
	b.Set(t.key(record.IDKey(record.TableSegment, info.id)), loc.Append(nil))
	b.Frees() // it removes the tail rows, and lets the segment be repacked
	if err := t.place.Rows.Commit(b, false); err != nil {
		return err
	}
	info.tails = nil
	info.loc.Store(&loc)
	l.dropIfDead(info)
	return nil
}

// dropIfDead has a sealed segment dropped by the next commit if nothing names it;
// line.mu is held.
func (l *line) dropIfDead(info *segInfo) {
	if info.live == 0 && l.space.segs[info.id] == info {
		l.open.touch(info.id)
		l.tree.todo.Add(choreCommit)
		l.changed()
	}
}

// syncAndSeal makes durable all that the line shows, and seals its open segment.
func (l *line) syncAndSeal(ctx context.Context) error {
	if err := l.sync(ctx); err != nil {
		return err
	}
	return l.sealWriter()
}

// sealWriter seals what the line has open of which all is durable, so that the
// files can be closed.
func (l *line) sealWriter() error {
	return l.exclusive(func() error {
		l.space.mu.Lock()
		ends, left := l.space.full, []segmentEnd(nil)
		if w := l.space.writer; w != nil && l.space.info.loc.Load().End == w.End() {
			ends = append(ends, segmentEnd{l.space.info, w, w.End()})
			l.space.writer, l.space.info = nil, nil
		}
		l.space.full = nil
		l.space.mu.Unlock()
		var first error
		for _, s := range ends {
			if s.info.loc.Load().End != s.end {
				left = append(left, s)
			} else if err := l.sealSegment(s.info, s.w); err != nil {
				first = cmp.Or(first, err)
				left = append(left, s)
			}
		}
		l.space.mu.Lock()
		l.space.full = append(left, l.space.full...)
		l.space.mu.Unlock()
		return first
	})
}

// segment returns what the tree knows of a segment, nil if nothing.
func (t *tree) segment(id tine.SegmentID) *segInfo {
	t.segMu.RLock()
	defer t.segMu.RUnlock()
	return t.segs[id]
}

func (t *tree) forget(id tine.SegmentID) {
	t.segMu.Lock()
	delete(t.segs, id)
	t.segMu.Unlock()
}

// pin opens an extent's segment for reading. The caller holds line.mu, under
// which the extent was looked up, so the segment is still there.
func (t *tree) pin(id tine.SegmentID) (*segment.Handle, error) {
	info := t.segment(id)
	if info == nil {
		return nil, tine.Errorf(tine.KindCorrupt, "a row names segment %s, which does not exist", id)
	}
	return t.engine.Segments.AcquireFrom(id, *info.loc.Load(), t.place.Segments)
}
