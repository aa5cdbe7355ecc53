package reclaim

import (
	"slices"

	"tine.dev/tine/internal/tine"
)

// Pins counts the holders of each pinned epoch of a line: its checkpoints and
// its children. The zero value has none. It is not safe for concurrent use.
type Pins struct {
	sorted []tine.Epoch
	held   map[tine.Epoch]int
}

// Sorted returns the pinned epochs in ascending order. It is the set's own and
// valid until the next change.
func (p *Pins) Sorted() []tine.Epoch { return p.sorted }

// Held returns how many hold an epoch, 0 if it is not pinned.
func (p *Pins) Held(e tine.Epoch) int { return p.held[e] }

// Newest returns the newest pinned epoch, 0 if there is none.
func (p *Pins) Newest() tine.Epoch {
	if n := len(p.sorted); n > 0 {
		return p.sorted[n-1]
	}
	return 0
}

// Add adds one holder of an epoch.
func (p *Pins) Add(e tine.Epoch) {
	if p.held == nil {
		p.held = map[tine.Epoch]int{}
	}
	if p.held[e]++; p.held[e] == 1 {
		i, _ := slices.BinarySearch(p.sorted, e)
		p.sorted = slices.Insert(p.sorted, i, e)
	}
}

// Release gives back one hold; last reports that the pin is gone.
func (p *Pins) Release(e tine.Epoch) (last bool) {
	if p.held[e]--; p.held[e] > 0 {
		return false
	}
	delete(p.held, e)
	if i, ok := slices.BinarySearch(p.sorted, e); ok {
		p.sorted = slices.Delete(p.sorted, i, i+1)
	}
	return true
}

// TakeAll moves all holds of another set to this one. It costs with the
// smaller of the two.
func (p *Pins) TakeAll(q *Pins) {
	if len(q.sorted) > len(p.sorted) {
		*q, *p = *p, *q
	}
	for e, n := range q.held {
		for range n {
			p.Add(e)
		}
	}
	*q = Pins{}
}
