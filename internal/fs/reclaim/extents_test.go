package reclaim

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

const segmentBytes = 40

type place struct {
	seg tine.SegmentID
	off int64
}

func randomExtents(r *rand.Rand, segs []tine.SegmentID) []record.Extent {
	var xs []record.Extent
	var pos int64
	for range r.IntN(6) {
		length := 1 + r.Int64N(12)
		xs = append(xs, record.Extent{Pos: pos, Len: length, Segment: segs[r.IntN(len(segs))], Off: r.Int64N(segmentBytes - length)})
		pos += length + r.Int64N(3)
	}
	return xs
}

func placesOf(xs []record.Extent) map[place]bool {
	all := map[place]bool{}
	for _, x := range xs {
		for o := x.Off; o < x.Off+x.Len; o++ {
			all[place{x.Segment, o}] = true
		}
	}
	return all
}

// TestReleasedByteByByte compares with sets of single bytes. Extents overlap
// each other freely, as they do once a file has been reflinked into itself.
func TestReleasedByteByByte(t *testing.T) {
	segs := []tine.SegmentID{{1}, {2}, {3}}
	foreign := segs[1]
	owns := func(s tine.SegmentID) bool { return s != foreign }
	for seed := uint64(1); seed <= 20000; seed++ {
		r := rand.New(rand.NewPCG(seed, 0))
		self, older, newer := randomExtents(r, segs), randomExtents(r, segs), randomExtents(r, segs)
		want := placesOf(self)
		for p := range want {
			if p.seg == foreign || placesOf(older)[p] || placesOf(newer)[p] {
				delete(want, p)
			}
		}
		got := Released(self, older, newer, owns)
		var last SegRange
		for i, g := range got {
			c := bytes.Compare(last.Segment[:], g.Segment[:])
			if g.Len <= 0 || i > 0 && (c > 0 || c == 0 && last.End() >= g.Off) {
				t.Fatalf("seed %d: %v is not sorted, disjoint and joined", seed, got)
			}
			last = g
			for o := g.Off; o < g.End(); o++ {
				if !want[place{g.Segment, o}] {
					t.Fatalf("seed %d: byte %d of %v released", seed, o, g.Segment)
				}
				delete(want, place{g.Segment, o})
			}
		}
		if len(want) > 0 {
			t.Fatalf("seed %d: self %v older %v newer %v: %d bytes not released, got %v", seed, self, older, newer, len(want), got)
		}
	}
}

func TestNamesByteByByte(t *testing.T) {
	segs := []tine.SegmentID{{1}, {2}}
	for seed := uint64(1); seed <= 2000; seed++ {
		r := rand.New(rand.NewPCG(seed, 1))
		xs := randomExtents(r, segs)
		all := placesOf(xs)
		for off := range int64(segmentBytes) {
			for length := int64(1); length <= 5; length++ {
				want := false
				for o := off; o < off+length; o++ {
					want = want || all[place{segs[0], o}]
				}
				if got := Names(xs, segs[0], off, length); got != want {
					t.Fatalf("seed %d: Names(%v, %d, %d) = %v", seed, xs, off, length, got)
				}
			}
		}
	}
}
