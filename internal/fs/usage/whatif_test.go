package usage

import (
	"math/rand/v2"
	"slices"
	"testing"

	"tine.dev/tine/internal/fs/reclaim"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// sketch is a line of a tree in its smallest form, on which removals and
// absorptions are carried out one at a time.
type sketch struct {
	id       byte
	parent   *sketch
	branch   tine.Epoch
	head     int // 0: none; else a disk
	pins     []hold
	children []*sketch
	became   *sketch // the line that it was absorbed by
	gone     bool
}

// hold is one holder of a pin: a checkpoint of a disk, or a child (0).
type hold struct {
	epoch tine.Epoch
	disk  int
}

func (l *sketch) newest() (e tine.Epoch) {
	for _, h := range l.pins {
		e = max(e, h.epoch)
	}
	return e
}

func (l *sketch) unpin(h hold) {
	i := slices.Index(l.pins, h)
	l.pins = slices.Delete(l.pins, i, i+1)
}

// choice is what the choice of heirs looks at, as of the moment at which the
// sketch was copied.
type choice map[*sketch]reclaim.Heir

// settle removes lines that nothing holds, in a random order, and then absorbs,
// older lines first, until there is nothing more. The other way round a line
// that is to go can be absorbed first: then its rows go as those that no pin
// keeps, and only the names of lines differ.
func settle(r *rand.Rand, lines []*sketch, heirs choice) {
	for again := true; again; {
		again = false
		for _, i := range r.Perm(len(lines)) {
			if l := lines[i]; !l.gone && l.became == nil && l.head == 0 && len(l.pins) == 0 {
				l.gone, again = true, true
				if p := l.parent; p != nil {
					p.unpin(hold{l.branch, 0})
					p.children = slices.DeleteFunc(p.children, func(x *sketch) bool { return x == l })
				}
			}
		}
		for _, l := range lines {
			if !again && !l.gone && l.became == nil && l.head == 0 {
				again = l.absorb(heirs)
			}
		}
	}
}

// absorb has the line continued by a child, if one can.
func (l *sketch) absorb(heirs choice) bool {
	var heir *sketch
	for _, c := range l.children {
		if c.branch == l.newest() && (c.head != 0 || len(c.pins) > 0) && (heir == nil || heirs[c].Before(heirs[heir])) {
			heir = c
		}
	}
	if heir == nil {
		return false
	}
	l.unpin(hold{heir.branch, 0})
	heir.pins = append(heir.pins, l.pins...)
	l.children = slices.DeleteFunc(l.children, func(x *sketch) bool { return x == heir })
	for _, c := range l.children {
		c.parent = heir
	}
	heir.children = append(heir.children, l.children...)
	heir.parent, heir.branch, l.became = l.parent, l.branch, heir
	if p := l.parent; p != nil {
		p.children[slices.Index(p.children, l)] = heir
	}
	return true
}

// randomTree makes a tree of lines on which three disks stand.
func randomTree(r *rand.Rand) []*sketch {
	lines := []*sketch{{id: 1}}
	for len(lines) < 2+r.IntN(7) {
		p := lines[r.IntN(len(lines))]
		l := &sketch{id: byte(len(lines) + 1), parent: p, branch: p.branch + 1 + tine.Epoch(r.IntN(4))}
		p.children = append(p.children, l)
		p.pins = append(p.pins, hold{l.branch, 0})
		lines = append(lines, l)
	}
	for d := 1; d <= 3; d++ {
		if l := lines[r.IntN(len(lines))]; l.head == 0 {
			l.head = d
			for range r.IntN(3) {
				c := lines[r.IntN(len(lines))]
				c.pins = append(c.pins, hold{c.branch + 1 + tine.Epoch(r.IntN(4)), d})
			}
		}
	}
	return lines
}

// heirsOf fixes the choice of heirs, without a disk.
func heirsOf(lines []*sketch, without int) choice {
	heirs := choice{}
	for _, l := range lines {
		heirs[l] = reclaim.Heir{ID: tine.TimelineID{l.id}, HasHead: l.head != 0 && l.head != without, Children: len(l.children)}
	}
	return heirs
}

// twins reports that two children leave a line at one epoch. Then which of them
// continues it can hang on which lines are absorbed first.
func twins(lines []*sketch) bool {
	return slices.ContainsFunc(lines, func(l *sketch) bool {
		at := map[tine.Epoch]bool{}
		for _, c := range l.children {
			if at[c.branch] {
				return true
			}
			at[c.branch] = true
		}
		return false
	})
}

// removalOf copies what is left of a tree for the removal of a disk.
func removalOf(lines []*sketch, disk int, heirs choice) (*timeline.Removal, map[*sketch]*timeline.Line) {
	all, r := map[*sketch]*timeline.Line{}, &timeline.Removal{}
	for _, l := range lines {
		x := &timeline.Line{ID: tine.TimelineID{l.id}, Branch: l.branch, AsHeir: heirs[l], HasHead: heirs[l].HasHead}
		held := map[tine.Epoch]int{}
		for _, h := range l.pins {
			held[h.epoch]++
			if h.disk == disk {
				r.Checkpoints = append(r.Checkpoints, timeline.Point{Line: x, Epoch: h.epoch})
			}
		}
		for e := tine.Epoch(0); e < 50; e++ {
			if held[e] > 0 {
				x.Pins = append(x.Pins, timeline.Pin{Epoch: e, Holders: held[e]})
			}
		}
		if l.head == disk {
			r.Head = x
		}
		all[l] = x
	}
	for _, l := range lines {
		for _, c := range l.children {
			all[c].Parent = all[l]
			if !all[l].HasHead {
				all[l].Children = append(all[l].Children, all[c])
			}
		}
	}
	return r, all
}

// TestWhatIfIsWhatHappens plays removals through on paper, and then carries
// them out step by step on sketches of trees: the same lines go whole, and the
// same become one, but that twins may be taken for each other.
func TestWhatIfIsWhatHappens(t *testing.T) {
	removed, whole, joined := 0, 0, 0
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 10))
		lines := randomTree(r)
		settle(r, lines, heirsOf(lines, 0))
		lines = slices.DeleteFunc(lines, func(l *sketch) bool { return l.gone || l.became != nil })
		disk := 1 + r.IntN(3)
		i := slices.IndexFunc(lines, func(l *sketch) bool { return l.head == disk })
		if i < 0 {
			continue
		}
		removed++
		heirs, alike := heirsOf(lines, disk), twins(lines)
		removal, copies := removalOf(lines, disk, heirs)
		w := newWhatIf(removal)

		lines[i].head = 0
		for _, l := range lines {
			l.pins = slices.DeleteFunc(l.pins, func(h hold) bool { return h.disk == disk })
		}
		settle(r, lines, heirs)
		end := map[*timeline.Line]*timeline.Line{} // which line's object each is at the end
		for _, c := range w.chains() {
			for _, x := range c {
				end[x] = c[len(c)-1]
			}
		}
		for _, l := range lines {
			x, last := copies[l], l
			for last.became != nil {
				last = last.became
			}
			if w.gone[x] != last.gone {
				t.Fatalf("seed %d: line %d goes whole: %v on paper, %v", seed, l.id, w.gone[x], last.gone)
			}
			if last.gone {
				whole++
				continue
			}
			if last != l {
				joined++
			}
			if e := end[x]; !alike && e != copies[last] && (e != nil || last != l) {
				t.Fatalf("seed %d: line %d is one with %+v on paper, with %d", seed, l.id, e, last.id)
			}
		}
	}
	if removed < 1000 || whole < 200 || joined < 200 {
		t.Errorf("of %d removals %d lines went whole and %d became one: the test does not test", removed, whole, joined)
	}
}
