package reclaim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// TestTrimCommonKeepsTheDifference: what two lists do not have in common at
// their ends is all that is left, and nothing else.
func TestTrimCommonKeepsTheDifference(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	seg := tine.NewID[tine.SegmentID](time.Unix(0, 0))
	list := func() (xs []record.Extent) {
		for range r.IntN(5) {
			xs = append(xs, record.Extent{Pos: int64(r.IntN(3)), Len: 1, Segment: seg})
		}
		return xs
	}
	for range 2000 {
		a, b := list(), list()
		x, y := TrimCommon(a, b)
		pre := 0
		for pre < len(a) && pre < len(b) && a[pre] == b[pre] {
			pre++
		}
		if !slices.Equal(append(slices.Clone(a[:pre]), x...), a[:pre+len(x)]) || !slices.Equal(append(slices.Clone(b[:pre]), y...), b[:pre+len(y)]) {
			t.Fatalf("%v and %v are trimmed to %v and %v", a, b, x, y)
		}
		if tail := a[pre+len(x):]; !slices.Equal(tail, b[pre+len(y):]) {
			t.Fatalf("%v and %v: the ends that were left out differ", a, b)
		}
	}
}

// TestPiecesByteByByte compares the pieces of a segment with sets of bytes.
func TestPiecesByteByByte(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 7))
		var ps Pieces
		covered := map[int64]bool{}
		for range 8 {
			off, n := r.Int64N(40), 1+r.Int64N(12)
			was := int64(0)
			for o := off; o < off+n; o++ {
				if covered[o] {
					was++
				}
			}
			inside := int64(0)
			for _, p := range ps.Overlapping(off, n) {
				inside += Overlap(p.Off, p.Len, off, n)
			}
			ps.Outside(off, n, func(o, n int64) {
				for ; n > 0; o, n = o+1, n-1 {
					if covered[o] {
						t.Fatalf("seed %d: byte %d is in a piece of %v", seed, o, ps)
					}
					covered[o] = true
				}
			})
			before := slices.Clone(ps)
			ps = ps.Cover(off, n)
			for o := off; o < off+n; o++ {
				if !covered[o] {
					t.Fatalf("seed %d: byte %d is neither in a piece of %v nor outside", seed, o, before)
				}
			}
			if inside != was {
				t.Fatalf("seed %d: %d bytes of [%d, +%d) lie in pieces of %v, want %d", seed, inside, off, n, before, was)
			}
			total := int64(0)
			for i, p := range ps {
				total += p.Len
				if i > 0 && ps[i-1].End() > p.Off {
					t.Fatalf("seed %d: %v are not sorted and disjoint", seed, ps)
				}
				if j, ok := ps.Find(p.Off); !ok || j != i {
					t.Fatalf("seed %d: piece %d of %v is found at %d, %v", seed, i, ps, j, ok)
				}
			}
			if total != int64(len(covered)) {
				t.Fatalf("seed %d: %v have %d bytes, want %d", seed, ps, total, len(covered))
			}
		}
	}
}
