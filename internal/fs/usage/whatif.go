package usage

import (
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// whatIf is the structure of a tree as it would be without a disk: it follows
// what the removal and the janitor would do, on a copy of the structure. It
// looks only at lines that lose something, for a tree may have ten thousand
// others.
//
// The order in which the janitor does things does not matter to what is left,
// so lines that go whole are found first. Lines that become one do not change
// which others do: the newest pin of the two is the younger line's, and the
// older one's pins keep their places.
type whatIf struct {
	path []*timeline.Line                      // the disk's line and its ancestors
	less map[*timeline.Line]map[tine.Epoch]int // the holds that each pin of a touched line loses
	gone map[*timeline.Line]bool               // lines that go whole
	heir map[*timeline.Line]*timeline.Line     // the child that continues a line
}

// newWhatIf plays through the removal of a disk with its checkpoints.
func newWhatIf(r *timeline.Removal) *whatIf {
	w := &whatIf{less: map[*timeline.Line]map[tine.Epoch]int{}, gone: map[*timeline.Line]bool{}, heir: map[*timeline.Line]*timeline.Line{}}
	for l := r.Head; l != nil; l = l.Parent {
		w.path = append(w.path, l)
	}
	w.touch(r.Head)
	for _, c := range r.Checkpoints {
		w.release(c.Line, c.Epoch)
	}
	touched := make([]*timeline.Line, 0, len(w.less))
	for l := range w.less {
		touched = append(touched, l)
	}
	for _, l := range touched {
		w.cascade(l)
	}
	for l := range w.less {
		if c := w.continues(l); c != nil {
			w.heir[l] = c
		}
	}
	return w
}

func (w *whatIf) touch(l *timeline.Line) map[tine.Epoch]int {
	less := w.less[l]
	if less == nil {
		less = map[tine.Epoch]int{}
		w.less[l] = less
	}
	return less
}

func (w *whatIf) release(l *timeline.Line, e tine.Epoch) { w.touch(l)[e]++ }

// pinsLeft returns the pins of a line that are left, the head's last.
func (w *whatIf) pinsLeft(l *timeline.Line) []tine.Epoch {
	less := w.less[l]
	var ps []tine.Epoch
	for _, p := range l.Pins {
		if p.Holders > less[p.Epoch] {
			ps = append(ps, p.Epoch)
		}
	}
	if l.HasHead {
		ps = append(ps, tine.Head)
	}
	return ps
}

// cascade has a line go whole if no pin of it is left. Then it gives back its
// hold on its parent, which may follow.
func (w *whatIf) cascade(l *timeline.Line) {
	for l != nil && !w.gone[l] && len(w.pinsLeft(l)) == 0 {
		w.gone[l] = true
		if l.Parent != nil {
			w.release(l.Parent, l.Branch)
		}
		l = l.Parent
	}
}

// continues returns the child that a touched line without a head would be
// absorbed by, nil if there is none: as timeline chooses it, without what is
// gone.
func (w *whatIf) continues(l *timeline.Line) (heir *timeline.Line) {
	if w.gone[l] || l.HasHead {
		return nil
	}
	left := w.pinsLeft(l)
	p := left[len(left)-1]
	for _, c := range l.Children {
		if c.Branch == p && w.stays(c) && (heir == nil || c.AsHeir.Before(heir.AsHeir)) {
			heir = c
		}
	}
	return heir
}

// stays reports that a child will be there: it would not go whole, nor is it
// going already.
func (w *whatIf) stays(l *timeline.Line) bool {
	return !w.gone[l] && (l.HasHead || len(l.Pins) > 0)
}

// loses reports whether the pin that a line and its heir meet at has no other
// holder.
func (w *whatIf) loses(l *timeline.Line) bool {
	e := w.heir[l].Branch
	for _, p := range l.Pins {
		if p.Epoch == e {
			return p.Holders-w.less[l][e] == 1
		}
	}
	return false
}

// chains returns the lines that are left and lose something, each with those
// that it becomes one with, the oldest first.
func (w *whatIf) chains() [][]*timeline.Line {
	var cs [][]*timeline.Line
	for l := range w.less {
		if w.gone[l] || l.Parent != nil && w.heir[l.Parent] == l {
			continue
		}
		var c []*timeline.Line
		for x := l; x != nil; x = w.heir[x] {
			c = append(c, x)
		}
		cs = append(cs, c)
	}
	return cs
}

// losers returns the lines whose rows tell what would be freed.
func (w *whatIf) losers() []*timeline.Line {
	var ls []*timeline.Line
	for l := range w.gone {
		ls = append(ls, l)
	}
	for _, c := range w.chains() {
		ls = append(ls, c...)
	}
	return ls
}
