package timeline

import (
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// TestPresenceIsNeverTooNarrow: a filter may say yes to anything, but never no
// to what was added; and it must say no often enough to be worth having.
func TestPresenceIsNeverTooNarrow(t *testing.T) {
	s := &stratum{}
	s.filter.Store(newPresence(maphash.MakeSeed(), 2000))
	for i := range 1000 {
		s.note(record.ChunkKey(tine.Ino(i), uint64(i)))
	}
	wrong := 0
	for i := range 1000 {
		if s.lacks(record.ChunkKey(tine.Ino(i), uint64(i))) || s.lacks(record.InoPrefix(record.TableChunk, tine.Ino(i))) {
			t.Fatalf("inode %d was added and is denied", i)
		}
		if !s.lacks(record.ChunkKey(tine.Ino(i+5000), 0)) {
			wrong++
		}
	}
	if wrong > 50 {
		t.Errorf("%d of 1000 absent keys are not denied", wrong)
	}
}

// TestOutgrownPresenceGoes: a filter that holds many times what it was made
// for answers yes to nearly all, so it is given up.
func TestOutgrownPresenceGoes(t *testing.T) {
	s := &stratum{}
	s.filter.Store(newPresence(maphash.MakeSeed(), 10))
	for i := range 1000 {
		s.note(record.InodeKey(tine.Ino(i)))
	}
	if s.filter.Load() != nil {
		t.Error("the filter is still there")
	}
}

// TestPinSetCounts compares the pin set with a plain count.
func TestPinSetCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var p pinSet
	count := map[tine.Epoch]int{}
	for range 5000 {
		e := tine.Epoch(1 + r.IntN(20))
		if r.IntN(2) == 0 {
			p.add(e)
			count[e]++
		} else if count[e] > 0 {
			count[e]--
			if last := p.release(e); last != (count[e] == 0) {
				t.Fatalf("release of %v says last = %v with %d left", e, last, count[e])
			}
		}
		var want []tine.Epoch
		for e, n := range count {
			if n > 0 {
				want = append(want, e)
			}
		}
		slices.Sort(want)
		if !slices.Equal(p.sorted, want) {
			t.Fatalf("pins are %v, want %v", p.sorted, want)
		}
		if len(want) > 0 && p.newest() != want[len(want)-1] {
			t.Fatalf("newest is %v of %v", p.newest(), want)
		}
	}
}

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
		x, y := trimCommon(a, b)
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

// TestStepWaitsForItsDependencies: a step is told of a failure before it.
func TestStepWaitsForItsDependencies(t *testing.T) {
	first := newStep()
	second := newStep(first)
	got := make(chan error)
	go func() { got <- second.awaitDeps() }()
	select {
	case err := <-got:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	first.finish(tine.ErrNoSpace)
	if err := <-got; tine.KindOf(err) != tine.KindNoSpace {
		t.Errorf("the failure before it is %v", err)
	}
	done := newStep()
	done.finish(nil)
	if s := newStep(done, nil); len(s.deps) != 0 {
		t.Errorf("a step that is done is still waited for")
	}
}
