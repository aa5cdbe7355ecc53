package timeline

import (
	"slices"

	"tine.dev/tine/internal/fs/reclaim"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// pieceRef is one shared piece of one segment.
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
	i, ok := p.info.pieces.Find(p.off)
	if !ok {
		return
	}
	pc := &p.info.pieces[i]
	pc.Runs += delta
	y := t.layer()
	y.touch(p.info.id)
	if pc.Runs > 0 {
		pc.Dirty = true
		return
	}
	p.info.live -= pc.Len
	p.info.pieces = slices.Delete(p.info.pieces, i, i+1)
	y.raw.Delete(t.line.tree.key(record.OffsetKey(record.TablePiece, p.info.id, p.off)))
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
			for _, p := range info.pieces.Overlapping(xs[i].Off, xs[i].Len) {
				ref := pieceRef{info, p.Off, p.Len}
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
	info.pieces = info.pieces.Cover(x.Off, x.Len)
	t.layer().touch(info.id)
}

// Shareable reports whether the extent may be named by a second chunk: its
// segment must be this line's, for a line counts only its own bytes.
func (t *Txn) Shareable(s tine.SegmentID) bool { return t.line.space.segs[s] != nil }
