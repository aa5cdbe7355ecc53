package fsck

import (
	"cmp"
	"maps"
	"slices"

	"tine.dev/tine/internal/fs/fsck/rowform"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// DiskUsage is what a disk takes up, counted by brute force.
type DiskUsage struct {
	Disk         string `json:"disk"`
	Inodes       int64  `json:"inodes"`        // that its head shows
	LogicalBytes int64  `json:"logical_bytes"` // of data that its head shows, holes left out
	UniqueBytes  int64  `json:"unique_bytes"`  // what removing the disk and its checkpoints would free
	SharedBytes  int64  `json:"shared_bytes"`  // of the logical bytes, what would stay
}

// Usage counts what each disk takes up, from the rows alone: it works out which
// bytes the heads, checkpoints and forks need, with the disk and without it. It
// reads all rows of a tree once for each of its disks, so it is for comparing,
// not for daily use. Nothing may be wrong with the directory; use Check first.
func Usage(o Options) ([]DiskUsage, error) {
	w := newWorld(o)
	defer w.snap.Close()
	if err := w.catalog(); err != nil {
		return nil, err
	}
	w.structure()
	if err := w.choose(); err != nil {
		return nil, err
	}
	var out []DiskUsage
	for _, t := range w.order {
		for _, l := range t.sorted() {
			l.rows = 1 // a look-up skips lines without rows
		}
		for _, d := range t.disks {
			if d.line == nil || d.line.broken || len(o.Disks) > 0 && !slices.Contains(o.Disks, d.rec.Name) {
				continue
			}
			u, err := w.usage(d)
			if err != nil {
				return nil, err
			}
			out = append(out, u)
		}
	}
	slices.SortFunc(out, func(a, b DiskUsage) int { return cmp.Compare(a.Disk, b.Disk) })
	return out, nil
}

// held is what stays needed: the bytes of segments, and inline rows.
type held struct {
	spans  map[tine.SegmentID][]span
	inline map[string]int64 // by full key
}

func (h *held) bytes() int64 {
	var n int64
	for _, ss := range h.spans {
		n += total(ss)
	}
	for _, b := range h.inline {
		n += b
	}
	return n
}

func (w *world) usage(d *disk) (DiskUsage, error) {
	u := DiskUsage{Disk: d.rec.Name}
	with, err := w.needs(d.tree, nil)
	if err != nil {
		return u, err
	}
	stays, err := w.needs(d.tree, d)
	if err != nil {
		return u, err
	}
	u.UniqueBytes = with.bytes() - stays.bytes()
	head := view{d.line, tine.Head}
	err = w.eachIn(head, record.TableKey(record.TableInode), func(l record.Logical, v []byte) bool {
		if n, err := record.DecodeInode(v); err == nil && n.Nlink > 0 {
			u.Inodes++
			u.LogicalBytes += n.Bytes
		}
		return true
	})
	if err != nil {
		return u, err
	}
	u.SharedBytes, err = w.staying(head, stays)
	return u, err
}

// staying is how much of what a head shows is needed without it.
func (w *world) staying(head view, stays *held) (int64, error) {
	var n int64
	m, err := w.newMerger(head.hops(), record.TableKey(record.TableChunk))
	if err != nil {
		return 0, err
	}
	defer m.close()
	strata := strataOf(head.hops())
	for m.next() {
		v := m.vers[0]
		c, err := record.DecodeChunk(m.value(v))
		if err != nil {
			continue // a tombstone
		}
		if val, _, ok, err := w.lookup(head, record.InodeKey(record.Logical(m.key).Ino())); err != nil || !ok {
			return n, err
		} else if i, err := record.DecodeInode(val); err != nil || i.Nlink == 0 {
			continue
		}
		if len(c.Inline) > 0 {
			n += stays.inline[string(record.Key(strata[v.source], record.Logical(m.key), v.birth))]
		}
		for _, x := range c.Extents {
			n += x.Len - total(without([]span{{x.Off, x.Off + x.Len}}, stays.spans[x.Segment]))
		}
	}
	return n, m.err()
}

// needs works out which bytes of the tree are needed, with a disk and its
// checkpoints left out, if one is given.
func (w *world) needs(t *tree, less *disk) (*held, error) {
	h := &held{spans: map[tine.SegmentID][]span{}, inline: map[string]int64{}}
	for _, j := range t.without(less) {
		if err := w.lineNeeds(j, h); err != nil {
			return nil, err
		}
	}
	for id, ss := range h.spans {
		h.spans[id] = normal(ss)
	}
	return h, nil
}

// joined is a line as it would be when all background work is done: with those
// that it would continue.
type joined struct {
	lines    []*line              // oldest first
	upTo     map[*line]tine.Epoch // what of their rows counts: those after the newest pin went with the head
	parent   *joined
	branch   tine.Epoch
	children map[*joined]bool
	holds    map[tine.Epoch]int // tine.Head for the head
}

// newest returns the newest pin.
func (j *joined) newest() tine.Epoch {
	var p tine.Epoch
	for e := range j.holds {
		p = max(p, e)
	}
	return p
}

func (j *joined) release(e tine.Epoch) {
	if j.holds[e]--; j.holds[e] <= 0 {
		delete(j.holds, e)
	}
}

// without plays through that a disk and its checkpoints are removed: lines that
// nothing holds go, which may go on, and lines without a head are continued by a
// child at their newest pin.
func (t *tree) without(less *disk) map[*line]*joined {
	js := map[*line]*joined{}
	for _, l := range t.sorted() {
		j := &joined{lines: []*line{l}, upTo: map[*line]tine.Epoch{l: tine.Head}, branch: l.rec.Branch, children: map[*joined]bool{}, holds: maps.Clone(l.holds)}
		js[l] = j
		if l.parent != nil {
			j.parent = js[l.parent]
			j.parent.children[j] = true
		}
		for _, d := range l.heads {
			if d != less {
				j.holds[tine.Head]++
			}
		}
		for _, c := range l.checkpoints {
			if less != nil && c.disk == less {
				j.release(c.rec.Epoch)
			}
		}
	}
	for again := true; again; {
		again = false
		for _, l := range t.sorted() {
			j := js[l]
			if j == nil {
				continue
			}
			heir := j.heir()
			switch {
			case len(j.holds) == 0:
				if j.parent != nil {
					j.parent.release(j.branch)
					delete(j.parent.children, j)
				}
			case heir != nil:
				j.join(heir)
			default:
				continue
			}
			delete(js, l)
			again = true
		}
	}
	return js
}

// heir returns the child that continues a line without a head: one with a head
// before others, then the one with most children, then the oldest.
func (j *joined) heir() (heir *joined) {
	p := j.newest()
	if p == tine.Head {
		return nil
	}
	better := func(a, b *joined) bool {
		if (a.holds[tine.Head] > 0) != (b.holds[tine.Head] > 0) {
			return a.holds[tine.Head] > 0
		}
		if len(a.children) != len(b.children) {
			return len(a.children) > len(b.children)
		}
		x, y := a.lines[len(a.lines)-1].id, b.lines[len(b.lines)-1].id
		return slices.Compare(x[:], y[:]) < 0
	}
	for c := range j.children {
		if c.branch == p && (heir == nil || better(c, heir)) {
			heir = c
		}
	}
	return heir
}

// join makes the heir both lines.
func (j *joined) join(heir *joined) {
	for _, l := range j.lines {
		heir.upTo[l] = min(j.upTo[l], heir.branch)
	}
	j.release(heir.branch)
	delete(j.children, heir)
	heir.lines = append(slices.Clone(j.lines), heir.lines...)
	heir.parent, heir.branch = j.parent, j.branch
	for e, n := range j.holds {
		heir.holds[e] += n
	}
	for c := range j.children {
		c.parent = heir
		heir.children[c] = true
	}
	if j.parent != nil {
		delete(j.parent.children, j)
		j.parent.children[heir] = true
	}
}

// lineNeeds adds what the pins need of a line's own bytes. Shared pieces are
// needed as a whole.
func (w *world) lineNeeds(j *joined, h *held) error {
	var hops []hop
	as := &line{}
	for _, l := range j.lines {
		hops = append(hops, hop{l, kv.Born{After: 0, UpTo: j.upTo[l]}})
	}
	for e := range j.holds {
		as.pins = append(as.pins, e)
	}
	slices.Sort(as.pins)
	unlinked, err := w.unlinked(hops)
	if err != nil {
		return err
	}
	m, err := w.newMerger(hops, record.TableKey(record.TableChunk))
	if err != nil {
		return err
	}
	defer m.close()
	strata := strataOf(hops)
	all := as.pins
	for m.next() {
		as.pins = all
		if unlinked[record.Logical(m.key).Ino()] {
			as.pins = slices.DeleteFunc(slices.Clone(all), func(e tine.Epoch) bool { return e == tine.Head })
		}
		slices.SortFunc(m.vers, func(a, b version) int { return cmp.Compare(a.birth, b.birth) })
		for i, v := range m.vers {
			death := never
			if i+1 < len(m.vers) {
				death = m.vers[i+1].birth
			}
			c, err := record.DecodeChunk(m.value(v))
			if err != nil || !as.needed(v.birth, death) {
				continue
			}
			if len(c.Inline) > 0 {
				h.inline[string(record.Key(strata[v.source], record.Logical(m.key), v.birth))] = int64(len(c.Inline))
			}
			for _, x := range c.Extents {
				if g := w.segs[x.Segment]; g != nil && slices.Contains(j.lines, g.line) {
					h.name(g, x)
				}
			}
		}
	}
	return m.err()
}

// unlinked returns the inodes without a name that are the line's own: its head
// lets them go. Those that it inherits are not its own until it continues the
// line that had them open.
func (w *world) unlinked(hops []hop) (map[tine.Ino]bool, error) {
	m, err := w.newMerger(hops, record.TableKey(record.TableOrphan))
	if err != nil {
		return nil, err
	}
	defer m.close()
	out := map[tine.Ino]bool{}
	for m.next() {
		newest := slices.MaxFunc(m.vers, func(a, b version) int { return cmp.Compare(a.birth, b.birth) })
		if !rowform.IsTombstone(m.value(newest)) {
			out[record.Logical(m.key).Ino()] = true
		}
	}
	return out, m.err()
}

// name adds what an extent names.
func (h *held) name(g *seg, x record.Extent) {
	h.spans[g.id] = append(h.spans[g.id], span{x.Off, x.Off + x.Len})
	for _, p := range g.pieces {
		if p.from < x.Off+x.Len && x.Off < p.to {
			h.spans[g.id] = append(h.spans[g.id], p.span)
		}
	}
}

// strataOf returns the stratum of each source of a merger over the hops.
func strataOf(hops []hop) []tine.StratumID {
	var ss []tine.StratumID
	for _, h := range hops {
		for i := len(h.line.rec.Strata) - 1; i >= 0; i-- {
			ss = append(ss, h.line.rec.Strata[i])
		}
	}
	return ss
}
