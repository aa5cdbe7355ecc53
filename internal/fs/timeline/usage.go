package timeline

import (
	"slices"

	"tine.dev/tine/internal/fs/reclaim"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Usage says what a disk takes up.
type Usage struct {
	LogicalBytes int64 // data that its head shows, holes left out
	UniqueBytes  int64 // what removing it with its own checkpoints would free
	SharedBytes  int64 // data that its head shows and that others hold as well
	Inodes       int64
}

// Usage computes what the disk takes up. Logical bytes and inodes are
// counters. Unique bytes are found by asking, for each line that the disk or
// its checkpoints pin, which versions the remaining pins would still need.
func (d *Disk) Usage() (Usage, error) {
	t := d.tree
	if err := t.ensure(); err != nil {
		return Usage{}, err
	}
	defer t.mu.Unlock()
	var u Usage
	err := d.line.view.Read(func(r *Reader) (err error) {
		u.Inodes, u.LogicalBytes, err = r.Totals()
		return err
	})
	if err != nil {
		return Usage{}, err
	}
	if d.line.alone() {
		u.UniqueBytes = u.LogicalBytes
		return u, nil
	}
	w := &whatIf{tree: t, less: map[*line]map[tine.Epoch]int{}, headless: map[*line]bool{}}
	w.headless[d.line] = true
	for _, c := range d.checkpoints {
		w.release(c.line.root(), c.rec.Epoch)
	}
	if u.UniqueBytes, err = w.freed(d.line); err != nil {
		return Usage{}, err
	}
	u.SharedBytes = max(0, u.LogicalBytes-w.ofHead)
	return u, nil
}

// alone reports that nothing but its head needs any of the line's rows, that it
// needs no other's, and that no bytes are named twice: then all that it shows
// is its own.
func (l *line) alone() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, info := range l.space.segs {
		if len(info.pieces) > 0 {
			return false
		}
	}
	return l.parent == nil && len(l.pins.sorted) == 0 && len(l.opens) == 0
}

// whatIf answers what would be freed if some pins were released.
type whatIf struct {
	tree     *tree
	less     map[*line]map[tine.Epoch]int // holds that go, per pin
	headless map[*line]bool
	ofHead   int64 // bytes of the head in question that would be freed
}

func (w *whatIf) release(l *line, e tine.Epoch) {
	if w.less[l] == nil {
		w.less[l] = map[tine.Epoch]int{}
	}
	w.less[l][e]++
}

// pinsLeft returns the pins that would remain, the head's last.
func (w *whatIf) pinsLeft(l *line) []tine.Epoch {
	var ps []tine.Epoch
	for _, e := range l.pins.sorted {
		if l.pins.held[e] > w.less[l][e] {
			ps = append(ps, e)
		}
	}
	if l.head != nil && !w.headless[l] {
		ps = append(ps, tine.Head)
	}
	return ps
}

// freed adds up what goes in every affected line. A line without pins goes
// whole and gives back its hold on its parent, which may go on.
func (w *whatIf) freed(head *line) (int64, error) {
	var total int64
	done := map[*line]bool{}
	for {
		l := w.next(head, done)
		if l == nil {
			return total, nil
		}
		done[l] = true
		left := w.pinsLeft(l)
		if len(left) == 0 && l.parent != nil {
			p := l.parent.root()
			w.release(p, l.branch)
			if done[p] {
				return 0, tine.Errorf(tine.KindInternal, "usage visited a parent before its child")
			}
		}
		n, err := w.freedIn(l, left, head)
		if err != nil {
			return 0, err
		}
		total += n
	}
}

// next returns an affected line that is not done, children before parents.
func (w *whatIf) next(head *line, done map[*line]bool) *line {
	var best *line
	depth := -1
	consider := func(l *line) {
		n := 0
		for p := l; p.parent != nil; p = p.parent.root() {
			n++
		}
		if !done[l] && n > depth {
			best, depth = l, n
		}
	}
	consider(head)
	for l := range w.less {
		consider(l)
	}
	return best
}

// freedIn adds up the bytes of the line's data that the pins left do not need.
func (w *whatIf) freedIn(l *line, left []tine.Epoch, head *line) (int64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	r := (&View{line: l, epoch: tine.Head}).reader()
	defer r.close()
	owns := func(s tine.SegmentID) bool { return l.space.segs[s] != nil }
	var total int64
	pieces := map[pieceRef]bool{} // whether anything left names it
	p := record.TableKey(record.TableChunk)
	err := r.eachOwnKey(p, func(k record.Logical) error {
		vs, err := r.versions(k)
		if err != nil {
			return err
		}
		n, last, err := w.freedOf(l, vs, left, owns, pieces)
		total += n
		if l == head {
			w.ofHead += last
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	for ref, kept := range pieces {
		if !kept {
			total += ref.len
		}
	}
	return total, nil
}

// freedOf adds up what goes of one row's versions; last is the part of the
// newest one.
func (w *whatIf) freedOf(l *line, vs []version, left []tine.Epoch, owns func(tine.SegmentID) bool, pieces map[pieceRef]bool) (total, last int64, err error) {
	var gone, kept []record.Extent
	for i, v := range vs {
		if v.tomb {
			continue
		}
		c, err := record.DecodeChunk(v.val)
		if err != nil {
			return 0, 0, err
		}
		death := reclaim.Forever
		if i+1 < len(vs) {
			death = vs[i+1].birth
		}
		if reclaim.Needed(v.birth, death, left) {
			kept = append(kept, c.Extents...)
			continue
		}
		gone = append(gone, c.Extents...)
		total += int64(len(c.Inline))
		if i == len(vs)-1 {
			last += int64(len(c.Inline))
		}
	}
	newest := []record.Extent{}
	if n := len(vs); n > 0 {
		if newest, err = vs[n-1].extents(); err != nil {
			return 0, 0, err
		}
	}
	for _, g := range reclaim.Released(gone, kept, nil, owns) {
		total += w.outsidePieces(l, g)
		for _, x := range newest {
			if x.Segment == g.Segment {
				last += overlap(x.Off, x.Len, g.Off, g.Len)
			}
		}
	}
	for i, xs := range [][]record.Extent{gone, kept} {
		for _, x := range xs {
			if info := l.space.segs[x.Segment]; info != nil {
				for _, p := range info.overlapping(x.Off, x.Len) {
					ref := pieceRef{info, p.off, p.len}
					pieces[ref] = pieces[ref] || i == 1
				}
			}
		}
	}
	return total, last, nil
}

// outsidePieces is how much of a range lies in no shared piece.
func (w *whatIf) outsidePieces(l *line, g reclaim.SegRange) int64 {
	n := g.Len
	for _, p := range l.space.segs[g.Segment].overlapping(g.Off, g.Len) {
		n -= overlap(p.off, p.len, g.Off, g.Len)
	}
	return n
}

// eachOwnKey calls fn once for every row of a table of which the Reader's own
// line has any version.
func (r *Reader) eachOwnKey(p record.Logical, fn func(record.Logical) error) error {
	seen := map[record.Logical]bool{}
	visit := func(k record.Logical) error {
		if seen[k] {
			return nil
		}
		seen[k] = true
		return fn(k)
	}
	layers := slices.Clone(r.layers[0])
	if r.open != nil {
		layers = append(layers, r.open)
	}
	for _, y := range layers {
		it := y.rows.Iter()
		for ok := it.Seek(p); ok && it.Key() < prefixEnd(p); ok = it.Next() {
			if err := visit(it.Key()); err != nil {
				return err
			}
		}
	}
	for _, s := range r.hops[0].strata {
		if err := scanPrefix(r.snapshot(), s.id, p, func(k record.Logical, _ []byte) error { return visit(k) }); err != nil {
			return err
		}
	}
	return nil
}
