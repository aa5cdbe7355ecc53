package reclaim

import (
	"slices"
	"testing"

	"tine.dev/tine/internal/tine"
)

// pinSets returns every set of pins out of the epochs 1..n and the head.
func pinSets(n int) [][]tine.Epoch {
	var all [][]tine.Epoch
	for bits := range 1 << (n + 1) {
		var pins []tine.Epoch
		for i := range n {
			if bits&(1<<i) != 0 {
				pins = append(pins, tine.Epoch(i+1))
			}
		}
		if bits&(1<<n) != 0 {
			pins = append(pins, tine.Head)
		}
		all = append(all, pins)
	}
	return all
}

// shown tells which of the versions (by birth, ascending) some pin shows, the
// slow way: each pin looks for the newest version that is not after it.
func shown(births, pins []tine.Epoch) map[tine.Epoch]bool {
	seen := map[tine.Epoch]bool{}
	for _, p := range pins {
		for i := len(births) - 1; i >= 0; i-- {
			if births[i] <= p {
				seen[births[i]] = true
				break
			}
		}
	}
	return seen
}

func death(births []tine.Epoch, i int) tine.Epoch {
	if i+1 < len(births) {
		return births[i+1]
	}
	return Forever
}

func TestNeededIsWhatPinsShow(t *testing.T) {
	const n = 6
	for _, pins := range pinSets(n) {
		for bits := range 1 << n {
			var births []tine.Epoch
			for i := range n {
				if bits&(1<<i) != 0 {
					births = append(births, tine.Epoch(i+1))
				}
			}
			want := shown(births, pins)
			for i, b := range births {
				if got := Needed(b, death(births, i), pins); got != want[b] {
					t.Fatalf("births %v pins %v: version %v needed = %v", births, pins, b, got)
				}
			}
		}
	}
}

func TestDropIntervalHoldsAllThatAPinKeptAlone(t *testing.T) {
	const n = 5
	for _, before := range pinSets(n) {
		for k, p := range before {
			remaining := slices.Delete(slices.Clone(before), k, k+1)
			after, upTo := DropInterval(remaining, p)
			for bits := range 1 << n {
				var births []tine.Epoch
				for i := range n {
					if bits&(1<<i) != 0 {
						births = append(births, tine.Epoch(i+1))
					}
				}
				was, is := shown(births, before), shown(births, remaining)
				for _, b := range births {
					if was[b] && !is[b] && (b <= after || b > upTo) {
						t.Fatalf("pins %v, %v dropped: version %v is outside (%v, %v]", before, p, b, after, upTo)
					}
				}
			}
		}
	}
}

func TestDropIntervalIsNoWiderThanTheNeighbours(t *testing.T) {
	for _, c := range []struct {
		pins        []tine.Epoch
		p           tine.Epoch
		after, upTo tine.Epoch
	}{
		{nil, 4, 0, tine.Head},
		{nil, tine.Head, 0, tine.Head},
		{[]tine.Epoch{3}, tine.Head, 3, tine.Head},
		{[]tine.Epoch{3}, 5, 3, tine.Head},
		{[]tine.Epoch{3, 9}, 5, 3, 5},
		{[]tine.Epoch{9, tine.Head}, 5, 0, 5},
		{[]tine.Epoch{3, 5}, 5, 5, 5},
	} {
		if after, upTo := DropInterval(c.pins, c.p); after != c.after || upTo != c.upTo {
			t.Errorf("DropInterval(%v, %v) = (%v, %v], want (%v, %v]", c.pins, c.p, after, upTo, c.after, c.upTo)
		}
	}
}
