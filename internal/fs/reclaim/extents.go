package reclaim

import (
	"bytes"
	"slices"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// SegRange is a run of bytes and the segment that they are in.
type SegRange struct {
	Segment tine.SegmentID
	Off     int64
	Len     int64
}

// End is the first offset after the run.
func (r SegRange) End() int64 { return r.Off + r.Len }

// Released returns the bytes that self names and neither the next older nor
// the next newer version of the same key does (I10), where owns says that their
// segment belongs to the line. Any list may be nil. Positions within the
// chunk do not matter: bytes that moved are still named. The result is
// disjoint, in order of segment and offset, with neighbours joined.
func Released(self, older, newer []record.Extent, owns func(tine.SegmentID) bool) []SegRange {
	named := union(self, owns)
	if len(named) == 0 {
		return nil
	}
	kept := union(older, owns)
	if len(newer) > 0 {
		kept = normalize(append(kept, union(newer, owns)...))
	}
	return subtract(named, kept)
}

// Names reports whether any extent overlaps the bytes [off, off+length) of seg.
func Names(xs []record.Extent, seg tine.SegmentID, off, length int64) bool {
	for i := range xs {
		x := &xs[i]
		if x.Segment == seg && x.Off < off+length && off < x.Off+x.Len {
			return true
		}
	}
	return false
}

func union(xs []record.Extent, owns func(tine.SegmentID) bool) []SegRange {
	var out []SegRange
	for i := range xs {
		x := &xs[i]
		if n := len(out); n > 0 && out[n-1].Segment == x.Segment && out[n-1].End() == x.Off {
			out[n-1].Len += x.Len
		} else if owns(x.Segment) {
			out = append(out, SegRange{x.Segment, x.Off, x.Len})
		}
	}
	return normalize(out)
}

// normalize sorts the runs and joins those that touch or overlap, in place.
func normalize(rs []SegRange) []SegRange {
	if len(rs) < 2 {
		return rs
	}
	slices.SortFunc(rs, func(a, b SegRange) int {
		if c := bytes.Compare(a.Segment[:], b.Segment[:]); c != 0 {
			return c
		}
		return int(min(max(a.Off-b.Off, -1), 1))
	})
	out := rs[:1]
	for _, r := range rs[1:] {
		last := &out[len(out)-1]
		if r.Segment == last.Segment && r.Off <= last.End() {
			last.Len = max(last.End(), r.End()) - last.Off
		} else {
			out = append(out, r)
		}
	}
	return out
}

// subtract returns what of named is not in kept; both are normalized.
func subtract(named, kept []SegRange) []SegRange {
	var out []SegRange
	k := 0
	for _, r := range named {
		for k < len(kept) && before(kept[k], r) {
			k++
		}
		for i := k; i < len(kept) && kept[i].Segment == r.Segment && kept[i].Off < r.End(); i++ {
			if kept[i].Off > r.Off {
				out = append(out, SegRange{r.Segment, r.Off, kept[i].Off - r.Off})
			}
			end := min(kept[i].End(), r.End())
			r.Off, r.Len = end, r.End()-end
		}
		if r.Len > 0 {
			out = append(out, r)
		}
	}
	return out
}

// before reports whether a ends at or before the start of b.
func before(a, b SegRange) bool {
	if c := bytes.Compare(a.Segment[:], b.Segment[:]); c != 0 {
		return c < 0
	}
	return a.End() <= b.Off
}
