package reclaim

import (
	"cmp"
	"slices"

	"tine.dev/tine/internal/fs/record"
)

// Piece is a run of a segment that several chunks may name.
type Piece struct {
	Off, Len int64 // in bytes of the segment
	Runs     int64 // of neighbouring versions that name any byte of it
	Dirty    bool  // it has changed since its row was last written
}

// End is the first offset after the piece.
func (p Piece) End() int64 { return p.Off + p.Len }

// Pieces are the shared pieces of one segment, disjoint and sorted by offset.
type Pieces []Piece

// Find returns the place of the piece that starts at an offset, and whether
// there is one.
func (ps Pieces) Find(off int64) (int, bool) {
	return slices.BinarySearchFunc(ps, off, func(p Piece, off int64) int { return cmp.Compare(p.Off, off) })
}

// Overlapping returns the pieces that overlap [off, off+n), as a part of ps.
func (ps Pieces) Overlapping(off, n int64) Pieces {
	i, _ := ps.Find(off)
	if i > 0 && ps[i-1].End() > off {
		i--
	}
	j := i
	for j < len(ps) && ps[j].Off < off+n {
		j++
	}
	return ps[i:j]
}

// Outside calls fn with the parts of [off, off+n) that lie in no piece, in
// order.
func (ps Pieces) Outside(off, n int64, fn func(off, n int64)) {
	end := off + n
	for _, p := range ps.Overlapping(off, n) {
		if p.Off > off {
			fn(off, p.Off-off)
		}
		off = p.End()
	}
	if off < end {
		fn(off, end-off)
	}
}

// Cover returns the pieces after every byte of [off, off+n) was made part of
// one. The new ones are dirty, and count one run: of whatever names them now.
func (ps Pieces) Cover(off, n int64) Pieces {
	var fresh []Piece
	ps.Outside(off, n, func(off, n int64) { fresh = append(fresh, Piece{Off: off, Len: n, Runs: 1, Dirty: true}) })
	for _, p := range fresh {
		i, _ := ps.Find(p.Off)
		ps = slices.Insert(ps, i, p)
	}
	return ps
}

// Overlap returns how many bytes two ranges have in common.
func Overlap(aOff, aLen, bOff, bLen int64) int64 {
	return max(0, min(aOff+aLen, bOff+bLen)-max(aOff, bOff))
}

// TrimCommon leaves out what two versions of a chunk have in common at their
// ends: a small write into a fragmented chunk changes little of its list. It
// may, although the same bytes can be named twice in a chunk: such bytes are
// shared pieces, which are freed by their count and not by what Released says.
func TrimCommon(a, b []record.Extent) (ra, rb []record.Extent) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}
