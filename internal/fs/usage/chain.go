package usage

import (
	"slices"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/reclaim"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/stratum"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// chain is lines that are one after the removal, or one line. Their epochs
// stand behind one another on one axis: the versions that an older line keeps
// are not younger than the branch of the next one.
type chain struct {
	parts   []part
	left    []tine.Epoch // the pins that are left, the head's last
	lost    []tine.Epoch // the others, but for those of tails
	segs    map[tine.SegmentID]*chainSegment
	open    map[tine.Ino]bool // inodes with handles on the head of the youngest part
	reaped  map[tine.Ino]bool // unlinked files of older parts, which the head would reap
	hasHead bool
}

// part is one line of a chain.
type part struct {
	line   *timeline.Line
	rows   *timeline.OwnRows
	branch tine.Epoch
	upTo   tine.Epoch // its last epoch on the axis; what was born later is its tail
	tail   bool       // its tail goes: a pin in it was lost
}

// chainSegment is a segment that a part of a chain owns.
type chainSegment struct {
	part   int
	pieces reclaim.Pieces
	change []int64 // how the runs of each piece change
}

// newChain makes a chain of lines, the oldest first.
func newChain(s *timeline.Survey, w *whatIf, lines []*timeline.Line) *chain {
	c := &chain{segs: map[tine.SegmentID]*chainSegment{}, reaped: map[tine.Ino]bool{}}
	for i, l := range lines {
		p := part{line: l, rows: s.Lines[l].Rows, branch: l.Branch, upTo: tine.Head}
		left := w.pinsLeft(l)
		if i+1 < len(lines) {
			p.upTo = lines[i+1].Branch
			if w.loses(l) {
				left = left[:len(left)-1]
			}
		}
		for _, e := range pinsNow(l, w) {
			switch _, stays := slices.BinarySearch(left, e); {
			case stays:
			case e > p.upTo:
				p.tail = true
			default:
				c.lost = append(c.lost, e)
			}
		}
		c.left = append(c.left, left...)
		for id, x := range s.Lines[l].Segments {
			c.segs[id] = &chainSegment{part: i, pieces: x.Pieces, change: make([]int64, len(x.Pieces))}
		}
		c.open = s.Lines[l].Open
		c.parts = append(c.parts, p)
	}
	c.hasHead = len(c.left) > 0 && c.left[len(c.left)-1] == tine.Head
	return c
}

// pinsNow returns all pins of a line before the removal, the head's last.
func pinsNow(l *timeline.Line, w *whatIf) []tine.Epoch {
	ps := make([]tine.Epoch, 0, len(l.Pins)+1)
	for _, p := range l.Pins {
		ps = append(ps, p.Epoch)
	}
	if l.HasHead || l == w.path[0] {
		ps = append(ps, tine.Head)
	}
	return ps
}

// gap is a place between two neighbouring pins that are left, at which pins
// are lost. What only those kept was born in below and replaced in above, as
// with a drop.
type gap struct{ below, above kv.Born }

// gaps returns the gaps of a chain that end at a pin.
func (c *chain) gaps() (gs []gap) {
	last := -1
	for _, p := range c.lost {
		i, _ := slices.BinarySearch(c.left, p)
		switch {
		case i == len(c.left):
			return gs
		case i == last:
			gs[len(gs)-1].below.UpTo = p
			continue
		}
		last = i
		g := gap{kv.Born{UpTo: p}, kv.Born{After: p, UpTo: c.left[i]}}
		if i > 0 {
			g.below.After = c.left[i-1]
		}
		gs = append(gs, g)
	}
	return gs
}

// whole returns the keys of the rows that have versions which go for no other
// reason than their births: those after the last pin that is left, those in
// tails, and those of files that the head would reap.
func (c *chain) whole() (seqs []keys) {
	chunks := record.TableKey(record.TableChunk)
	for i := range c.parts {
		p := &c.parts[i]
		if p.tail {
			seqs = append(seqs, p.rows.Keys(chunks, kv.Born{After: p.upTo, UpTo: tine.Head}))
		}
		for ino := range c.reaped {
			seqs = append(seqs, p.rows.Keys(record.InoPrefix(record.TableChunk, ino), kv.Born{UpTo: p.upTo}))
		}
	}
	newest := c.left[len(c.left)-1]
	if n := len(c.lost); n > 0 && c.lost[n-1] > newest {
		seqs = append(seqs, c.born(kv.Born{After: newest, UpTo: tine.Head}))
	}
	return seqs
}

// born yields the keys of the chunks of which the chain has a version born in
// an interval of its axis.
func (c *chain) born(b kv.Born) keys {
	return func(yield func(record.Logical, error) bool) {
		for i := range c.parts {
			p := &c.parts[i]
			in := kv.Born{After: max(b.After, p.branch), UpTo: min(b.UpTo, p.upTo)}
			if in.After >= in.UpTo {
				continue
			}
			for k, err := range p.rows.Keys(record.TableKey(record.TableChunk), in) {
				if !yield(k, err) {
					return
				}
			}
		}
	}
}

// findReaped finds the unlinked files of the older parts: once the lines are
// one, the head removes them.
func (c *chain) findReaped() error {
	if !c.hasHead {
		return nil
	}
	for i := range len(c.parts) - 1 {
		for k, err := range c.parts[i].rows.Keys(record.TableKey(record.TableOrphan), kv.Born{UpTo: c.parts[i].upTo}) {
			if err != nil {
				return err
			}
			vs, err := c.versions(k)
			if err != nil {
				return err
			}
			vs = slices.DeleteFunc(vs, func(v placed) bool { return v.inTail })
			if n := len(vs); n > 0 && !vs[n-1].Tomb && !c.open[k.Ino()] {
				c.reaped[k.Ino()] = true
			}
		}
	}
	return nil
}

// placed is a version of a row in a chain.
type placed struct {
	stratum.Version
	part   int
	inTail bool
	stays  bool
	chunk  record.Chunk
}

// versions returns all versions of a row in the chain, in the order of its
// axis, those of a tail after the others of their part.
func (c *chain) versions(k record.Logical) ([]placed, error) {
	var all []placed
	for i := range c.parts {
		vs, err := c.parts[i].rows.Versions(k)
		if err != nil {
			return nil, err
		}
		for _, v := range vs {
			all = append(all, placed{Version: v, part: i, inTail: v.Birth > c.parts[i].upTo})
		}
	}
	return all, nil
}
