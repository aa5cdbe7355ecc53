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

// tally counts what the removal of a disk would free, and which of that its
// head shows. It holds copies only, so it counts with no lock held.
type tally struct {
	path   []*timeline.Line    // the disk's line and its ancestors
	head   *timeline.Reader    // of what the disk shows
	branch tine.Epoch          // of the head's line
	whole  []*timeline.OwnRows // of lines that would go whole: those on the head's path first, the youngest first
	onPath int                 // how many of them are on it
	chains []*chain

	all       bool       // the whole tree would go
	oldestPin tine.Epoch // of the tree's oldest line; 0: it has none
	pieces    bool       // lines that would go whole have shared pieces

	unique   int64
	ofHead   int64 // of what the head shows, bytes that it names several times counted each time
	dead     map[tine.SegmentID]struct{}
	freed    map[tine.SegmentID][]reclaim.SegRange // disjoint: bytes that several rows name lie in pieces, which are freed once
	goneRows map[rowID]struct{}                    // versions of chains that would go with the bytes inside
	looked   map[record.Logical]struct{}           // rows of chains of which something would go
	masked   map[tine.Ino]struct{}                 // unlinked files that the head inherits and does not show
}

// rowID names one version of a row.
type rowID struct {
	line  *timeline.Line
	key   record.Logical
	birth tine.Epoch
}

// newTally prepares the counting of what w says.
func newTally(s *timeline.Survey, w *whatIf) *tally {
	root := w.path[len(w.path)-1]
	n := &tally{path: w.path, head: s.Shown, branch: w.path[0].Branch, all: w.gone[root],
		goneRows: map[rowID]struct{}{}, looked: map[record.Logical]struct{}{},
		freed: map[tine.SegmentID][]reclaim.SegRange{}, dead: map[tine.SegmentID]struct{}{}}
	if len(root.Pins) > 0 {
		n.oldestPin = root.Pins[0].Epoch
	}
	for _, l := range w.path {
		if !w.gone[l] {
			break
		}
		n.addWhole(s.Lines[l])
		n.onPath++
	}
	for l := range w.gone {
		if !slices.Contains(w.path[:n.onPath], l) {
			n.addWhole(s.Lines[l])
		}
	}
	for _, lines := range w.chains() {
		n.chains = append(n.chains, newChain(s, w, lines))
	}
	return n
}

func (n *tally) addWhole(f *timeline.Frozen) {
	for id, x := range f.Segments {
		n.unique += x.Live
		n.dead[id] = struct{}{}
		n.pieces = n.pieces || len(x.Pieces) > 0
	}
	n.whole = append(n.whole, f.Rows)
}

func (n *tally) free(r reclaim.SegRange) {
	n.unique += r.Len
	n.freed[r.Segment] = append(n.freed[r.Segment], r)
}

func (n *tally) count() error {
	for _, c := range n.chains {
		if err := n.countChain(c); err != nil {
			return err
		}
	}
	for _, rs := range n.freed {
		slices.SortFunc(rs, func(a, b reclaim.SegRange) int { return int(min(1, max(-1, a.Off-b.Off))) })
	}
	if err := n.findMasked(); err != nil {
		return err
	}
	for i := range n.whole {
		if err := n.countWhole(i); err != nil {
			return err
		}
	}
	for k := range n.looked {
		f, err := n.head.Get(k)
		if err != nil {
			return err
		}
		i := n.hopOf(f.Birth)
		if !f.Exists() || i < n.onPath {
			continue
		}
		_, gone := n.goneRows[rowID{n.path[i], k, f.Birth}]
		if err := n.countShown(k, f.Val, gone); err != nil {
			return err
		}
	}
	return nil
}

// countAll counts a whole tree that would go, of whose data the head shows
// logical bytes. All that its other views show besides was there and changed
// after the oldest pin, lies in other lines, or belongs to files without a
// name; so only those rows are read. Reflinks spoil that: the head counts their
// bytes each time. Then all rows are read for the bytes inside them.
func (n *tally) countAll(logical int64) error {
	if n.pieces {
		for i := range n.whole {
			if err := n.countWhole(i); err != nil {
				return err
			}
		}
		return nil
	}
	if err := n.findMasked(); err != nil {
		return err
	}
	n.unique = logical
	chunks, ever, root := record.TableKey(record.TableChunk), kv.Born{UpTo: tine.Head}, n.whole[n.onPath-1]
	var seqs []keys
	for _, r := range n.whole {
		switch {
		case r != root:
			seqs = append(seqs, r.Keys(chunks, ever))
		case n.oldestPin > 0:
			seqs = append(seqs, r.Keys(chunks, kv.Born{After: n.oldestPin, UpTo: tine.Head}))
		}
		for ino := range n.masked {
			seqs = append(seqs, r.Keys(record.InoPrefix(record.TableChunk, ino), ever))
		}
	}
	return eachOnce(seqs, n.countBesides)
}

// countBesides adds the bytes of a row's versions that the head does not show.
func (n *tally) countBesides(k record.Logical) error {
	var named []record.Extent
	for _, r := range n.whole {
		vs, err := r.Versions(k)
		if err != nil {
			return err
		}
		for _, v := range vs {
			if v.Tomb {
				continue
			}
			c, err := record.DecodeChunk(v.Val)
			if err != nil {
				return err
			}
			n.unique += int64(len(c.Inline))
			named = append(named, c.Extents...)
		}
	}
	for _, r := range reclaim.Released(named, nil, nil, func(tine.SegmentID) bool { return true }) {
		n.unique += r.Len
	}
	f, err := n.head.Get(k)
	if _, hidden := n.masked[k.Ino()]; err != nil || hidden || !f.Exists() {
		return err
	}
	c, err := record.DecodeChunk(f.Val)
	n.unique -= c.Bytes()
	return err
}

// findMasked finds the unlinked files that the head inherits: it has their
// rows, but no name leads to them and no counter has them.
func (n *tally) findMasked() error {
	n.masked = map[tine.Ino]struct{}{}
	p := record.TableKey(record.TableOrphan)
	return n.head.Scan(p, record.Logical(record.PrefixEnd([]byte(p))), func(k record.Logical, f timeline.Found) (bool, error) {
		if f.Birth <= n.branch {
			n.masked[k.Ino()] = struct{}{}
		}
		return true, nil
	})
}

// hopOf returns which line of the head's path a version that the head shows
// belongs to: births are ordered along it.
func (n *tally) hopOf(birth tine.Epoch) int {
	i := 0
	for i+1 < len(n.path) && birth <= n.path[i].Branch {
		i++
	}
	return i
}

// countWhole adds the bytes inside the rows of a line that would go whole; the
// segments' counters have the others. The lines on the head's path show some
// of them.
func (n *tally) countWhole(i int) error {
	return n.whole[i].Each(record.TableKey(record.TableChunk), func(k record.Logical, vs []stratum.Version) error {
		for _, v := range vs {
			if v.Tomb {
				continue
			}
			c, err := record.DecodeChunk(v.Val)
			if err != nil {
				return err
			}
			n.unique += int64(len(c.Inline))
		}
		if i >= n.onPath || n.all {
			return nil
		}
		newest := vs[len(vs)-1]
		if i > 0 {
			f, err := n.head.Get(k)
			if err != nil || !f.Exists() || n.hopOf(f.Birth) != i {
				return err
			}
			newest.Val, newest.Tomb = f.Val, false
		}
		if newest.Tomb {
			return nil
		}
		return n.countShown(k, newest.Val, true)
	})
}

// countShown adds what would go of a chunk that the head shows; gone tells
// whether the row itself would.
func (n *tally) countShown(k record.Logical, val []byte, gone bool) error {
	if _, hidden := n.masked[k.Ino()]; hidden {
		return nil
	}
	c, err := record.DecodeChunk(val)
	if err != nil {
		return err
	}
	if gone {
		n.ofHead += int64(len(c.Inline))
	}
	for _, x := range c.Extents {
		n.ofHead += n.freedOf(x)
	}
	return nil
}

// freedOf returns how many bytes of an extent would be freed.
func (n *tally) freedOf(x record.Extent) (bytes int64) {
	if _, dead := n.dead[x.Segment]; dead {
		return x.Len
	}
	rs := n.freed[x.Segment]
	i, _ := slices.BinarySearchFunc(rs, x.Off, func(r reclaim.SegRange, off int64) int {
		if r.End() <= off {
			return -1
		}
		return 1
	})
	for ; i < len(rs) && rs[i].Off < x.Off+x.Len; i++ {
		bytes += reclaim.Overlap(rs[i].Off, rs[i].Len, x.Off, x.Len)
	}
	return bytes
}

// countChain looks at the rows of a chain that can have a version which only a
// lost pin kept.
func (n *tally) countChain(c *chain) error {
	if err := c.findReaped(); err != nil {
		return err
	}
	seqs := c.whole()
	for _, g := range c.gaps() {
		ks, err := fewer(c.born(g.below), c.born(g.above))
		if err != nil {
			return err
		}
		seqs = append(seqs, listed(ks))
	}
	err := eachOnce(seqs, func(k record.Logical) error { return n.countRow(c, k) })
	n.countPieces(c)
	return err
}

// countRow adds what would go of one row.
func (n *tally) countRow(c *chain, k record.Logical) error {
	vs, err := c.versions(k)
	if err != nil {
		return err
	}
	pins, death := c.left, reclaim.Forever
	if c.reaped[k.Ino()] {
		pins = pins[:len(pins)-1]
	}
	var gone, kept []record.Extent
	for i := len(vs) - 1; i >= 0; i-- {
		v := &vs[i]
		if !v.inTail {
			v.stays = reclaim.Needed(v.Birth, death, pins)
			death = v.Birth
		}
		if v.Tomb {
			continue
		}
		if v.chunk, err = record.DecodeChunk(v.Val); err != nil {
			return err
		}
		if v.stays {
			kept = append(kept, v.chunk.Extents...)
			continue
		}
		gone = append(gone, v.chunk.Extents...)
		n.looked[k] = struct{}{}
		if bytes := int64(len(v.chunk.Inline)); bytes > 0 {
			n.unique += bytes
			n.goneRows[rowID{c.parts[v.part].line, k, v.Birth}] = struct{}{}
		}
	}
	owns := func(s tine.SegmentID) bool { return c.segs[s] != nil }
	for _, r := range reclaim.Released(gone, kept, nil, owns) {
		c.segs[r.Segment].pieces.Outside(r.Off, r.Len, func(off, bytes int64) {
			n.free(reclaim.SegRange{Segment: r.Segment, Off: off, Len: bytes})
		})
	}
	c.countRuns(vs)
	return nil
}

// countRuns notes how the runs of the pieces that a row names change. Before,
// only versions of the line that owns the piece are counted; a younger line
// whose versions name it carries on the run of the version that it began from.
func (c *chain) countRuns(vs []placed) {
	type place struct {
		seg tine.SegmentID
		i   int
	}
	done := map[place]bool{}
	for i := range vs {
		for _, x := range vs[i].chunk.Extents {
			s := c.segs[x.Segment]
			if s == nil || len(s.pieces) == 0 {
				continue
			}
			for _, p := range s.pieces.Overlapping(x.Off, x.Len) {
				j, _ := s.pieces.Find(p.Off)
				if at := (place{x.Segment, j}); !done[at] {
					done[at] = true
					names := func(v *placed) bool { return reclaim.Names(v.chunk.Extents, x.Segment, p.Off, p.Len) }
					s.change[j] += runs(vs, names, func(v *placed) bool { return v.stays }) -
						runs(vs, names, func(v *placed) bool { return v.part == s.part })
				}
			}
		}
	}
}

// runs counts the runs of neighbouring versions that name something, among the
// versions that count.
func runs(vs []placed, names, counts func(*placed) bool) (n int64) {
	last := false
	for i := range vs {
		if v := &vs[i]; counts(v) {
			now := names(v)
			if now && !last {
				n++
			}
			last = now
		}
	}
	return n
}

// countPieces frees the pieces that nothing would name any more.
func (n *tally) countPieces(c *chain) {
	for id, s := range c.segs {
		for i, p := range s.pieces {
			if s.change[i] < 0 && p.Runs+s.change[i] <= 0 {
				n.free(reclaim.SegRange{Segment: id, Off: p.Off, Len: p.Len})
			}
		}
	}
}
