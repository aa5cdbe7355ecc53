package timeline

import (
	"slices"

	"tine.dev/tine/internal/fs/reclaim"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// pieceRef is one shared piece of one segment. The pieces of a segment are
// disjoint and sorted by offset.
type pieceRef struct {
	info *segInfo
	off  int64
	len  int64
}

func (p pieceRef) named(xs []record.Extent) bool {
	return reclaim.Names(xs, p.info.id, p.off, p.len)
}

// change adds to the piece's count of runs; at zero the whole piece is freed.
func (p pieceRef) change(t *Txn, delta int64) {
	if delta == 0 {
		return
	}
	i, ok := p.info.findPiece(p.off)
	if !ok {
		return
	}
	pc := &p.info.pieces[i]
	pc.runs += delta
	y := t.layer()
	y.touch(p.info.id)
	if pc.runs > 0 {
		pc.dirty = true
		return
	}
	p.info.live -= pc.len
	p.info.pieces = slices.Delete(p.info.pieces, i, i+1)
	y.raw = append(y.raw, rawRow{key: t.line.tree.key(record.OffsetKey(record.TablePiece, p.info.id, p.off))})
}

func (s *segInfo) findPiece(off int64) (int, bool) {
	return slices.BinarySearchFunc(s.pieces, off, func(p piece, off int64) int {
		switch {
		case p.off < off:
			return -1
		case p.off > off:
			return 1
		}
		return 0
	})
}

// overlapping returns the pieces that overlap [off, off+n).
func (s *segInfo) overlapping(off, n int64) []piece {
	i, _ := s.findPiece(off)
	if i > 0 && s.pieces[i-1].off+s.pieces[i-1].len > off {
		i--
	}
	j := i
	for j < len(s.pieces) && s.pieces[j].off < off+n {
		j++
	}
	return s.pieces[i:j]
}

// sharesPieces reports whether any extent lies in a segment of this line that
// has shared pieces.
func (t *Txn) sharesPieces(xs []record.Extent) bool {
	for i := range xs {
		if info := t.line.space.segs[xs[i].Segment]; info != nil && len(info.pieces) > 0 {
			return true
		}
	}
	return false
}

// piecesOf returns the shared pieces of this line that any of the lists names.
func (t *Txn) piecesOf(lists ...[]record.Extent) []pieceRef {
	var refs []pieceRef
	for _, xs := range lists {
		for i := range xs {
			info := t.line.space.segs[xs[i].Segment]
			if info == nil || len(info.pieces) == 0 {
				continue
			}
			for _, p := range info.overlapping(xs[i].Off, xs[i].Len) {
				ref := pieceRef{info, p.off, p.len}
				if !slices.Contains(refs, ref) {
					refs = append(refs, ref)
				}
			}
		}
	}
	return refs
}

// Share makes every byte of an extent part of a shared piece, so that a second
// chunk may name it. The chunk that names the extent now is counted as one
// run of each new piece; the second chunk counts when its row is set.
func (t *Txn) Share(x record.Extent) {
	info := t.line.space.segs[x.Segment]
	at, end := x.Off, x.Off+x.Len
	var fresh []piece
	for _, p := range info.overlapping(x.Off, x.Len) {
		if p.off > at {
			fresh = append(fresh, piece{off: at, len: p.off - at, runs: 1, dirty: true})
		}
		at = p.off + p.len
	}
	if at < end {
		fresh = append(fresh, piece{off: at, len: end - at, runs: 1, dirty: true})
	}
	for _, p := range fresh {
		i, _ := info.findPiece(p.off)
		info.pieces = slices.Insert(info.pieces, i, p)
	}
	t.layer().touch(info.id)
}

// Shareable reports whether the extent may be named by a second chunk: its
// segment must be this line's, for a line counts only its own bytes.
func (t *Txn) Shareable(s tine.SegmentID) bool { return t.line.space.segs[s] != nil }
