package reclaim

import (
	"math/rand/v2"
	"slices"
	"testing"

	"tine.dev/tine/internal/tine"
)

// TestPinsCount compares the pins with a plain count.
func TestPinsCount(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var p Pins
	count := map[tine.Epoch]int{}
	for range 5000 {
		e := tine.Epoch(1 + r.IntN(20))
		if r.IntN(2) == 0 {
			p.Add(e)
			count[e]++
		} else if count[e] > 0 {
			count[e]--
			if last := p.Release(e); last != (count[e] == 0) {
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
		if !slices.Equal(p.Sorted(), want) {
			t.Fatalf("pins are %v, want %v", p.Sorted(), want)
		}
		if len(want) > 0 && p.Newest() != want[len(want)-1] {
			t.Fatalf("newest is %v of %v", p.Newest(), want)
		}
	}
}

// TestPinsTakeAll compares two sets made one with one that was given all holds.
func TestPinsTakeAll(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		var a, b, all Pins
		for range r.IntN(30) {
			p, e := &a, tine.Epoch(1+r.IntN(10))
			if r.IntN(2) == 0 {
				p = &b
			}
			p.Add(e)
			all.Add(e)
		}
		a.TakeAll(&b)
		if !slices.Equal(a.Sorted(), all.Sorted()) || len(b.Sorted()) > 0 {
			t.Fatalf("pins are %v and %v, want %v and none", a.Sorted(), b.Sorted(), all.Sorted())
		}
		for e := tine.Epoch(1); e <= 10; e++ {
			if a.Held(e) != all.Held(e) {
				t.Fatalf("epoch %d has %d holders, want %d", e, a.Held(e), all.Held(e))
			}
		}
	}
}
