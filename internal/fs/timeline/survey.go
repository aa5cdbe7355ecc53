package timeline

import (
	"maps"
	"slices"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/reclaim"
	"tine.dev/tine/internal/tine"
)

// This file is what others need to work out what the removal of a disk would
// do, without doing it: copies of what is near it, and of the rows that are
// wanted, as they were at one moment.

// Removal is the structure that the removal of a disk with its checkpoints
// would meet, the disk itself left out of account: the lines of its head and
// its checkpoints, their ancestors, and what could continue any of those. A
// tree may have ten thousand other lines. All of it is copied, and each line
// once.
type Removal struct {
	Head        *Line   // whose head is the disk's
	Checkpoints []Point // the disk's own
	Inodes      int64   // that the disk's head shows
	Bytes       int64   // of data that it shows, holes left out; both with open files without a name

	// Alone tells that nothing but its head needs any of the disk's rows, that
	// it needs no other's, and that no bytes are named twice: then all that it
	// shows is its own.
	Alone bool
}

// Point is a line at an epoch.
type Point struct {
	Line  *Line
	Epoch tine.Epoch
}

// Line is a line of a tree as a Removal meets it.
type Line struct {
	ID       tine.TimelineID
	Parent   *Line        // nil for a root
	Branch   tine.Epoch   // where it leaves its parent
	Pins     []Pin        // in ascending order; the head is none of them
	HasHead  bool         // another disk stands on it
	Children []*Line      // left out of lines that another disk stands on, and of those that are here only as children
	AsHeir   reclaim.Heir // what it is among the children of its parent
	line     *line
}

// Pin is a pinned epoch of a line, and how many checkpoints and children hold it.
type Pin struct {
	Epoch   tine.Epoch
	Holders int
}

// Survey is a Removal, and the rows that were wanted, as of one moment. It
// holds a snapshot of the store until it is closed, and no lock. It is not safe
// for concurrent use.
type Survey struct {
	Removal
	Lines map[*Line]*Frozen // those that were wanted
	Shown *Reader           // of the disk's head; nil if no line was wanted
	snap  kv.Snapshot
}

// Frozen is what a line itself had at the moment of a Survey.
type Frozen struct {
	Rows     *OwnRows
	Segments map[tine.SegmentID]OwnSegment
	Open     map[tine.Ino]bool // inodes with handles on the line's head
}

// OwnSegment is a segment that a line has written.
type OwnSegment struct {
	Live   int64          // bytes of it that any row of the line names
	Pieces reclaim.Pieces // its shared pieces
}

// Survey copies the structure that the removal of the disk would meet, and then
// what the lines that want asks for have. want is called with the tree's lock
// held, and must only look at what it is given; without any line it asks for
// no rows are read. The lines' open layers are sealed for it, because a sealed
// layer never changes: so it starts commits of them, and waits for none.
//
// What comes back is as of one moment while nothing writes to the tree, and else
// each line is as of a moment of its own. The caller closes it.
func (d *Disk) Survey(want func(*Removal) []*Line) (*Survey, error) {
	t := d.tree
	if err := t.ensure(); err != nil {
		return nil, err
	}
	defer t.mu.Unlock()
	s := &Survey{Lines: map[*Line]*Frozen{}}
	if err := d.removal(&s.Removal); err != nil {
		return nil, err
	}
	wanted := want(&s.Removal)
	if len(wanted) == 0 {
		return s, nil
	}
	s.snap = d.engine.Rows.Snapshot()
	for _, x := range wanted {
		s.Lines[x] = s.freeze(x.line)
	}
	l := d.line
	l.mu.Lock()
	l.sealNow()
	s.Shown = l.view.reader()
	l.mu.Unlock()
	s.Shown.open, s.Shown.snap = nil, s.snap
	// The first read fixes the snapshot's moment: after the layers (I11), and
	// before anything can move rows to strata that were not copied.
	if _, err := l.strata[0].Has(s.snap, &kv.Born{}); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close gives back the snapshot; nothing of the survey can be read after it.
func (s *Survey) Close() {
	if s.snap != nil {
		s.snap.Close()
		s.snap = nil
	}
}

// removal fills in what the disk's removal would meet; t.mu is held.
func (d *Disk) removal(r *Removal) error {
	err := d.line.view.Read(func(v *Reader) (err error) {
		r.Inodes, r.Bytes, err = v.Totals()
		return err
	})
	if err != nil {
		return err
	}
	r.Alone = d.line.alone()
	c := copier{d, map[*line]*Line{}}
	r.Head = c.withAncestors(d.line)
	for _, p := range d.checkpoints {
		r.Checkpoints = append(r.Checkpoints, Point{c.withAncestors(p.line.root()), p.rec.Epoch})
	}
	for _, x := range slices.Collect(maps.Values(c.done)) {
		if x.HasHead {
			continue // nothing continues a line that has a head
		}
		for l := range x.line.children {
			k := c.one(l)
			k.Parent = x
			x.Children = append(x.Children, k)
		}
	}
	return nil
}

// alone reports what Removal.Alone tells; t.mu is held.
func (l *line) alone() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, info := range l.space.segs {
		if len(info.pieces) > 0 {
			return false
		}
	}
	return l.parent == nil && len(l.pins.Sorted()) == 0 && len(l.opens) == 0
}

// copier copies lines, each once; t.mu is held.
type copier struct {
	disk *Disk // which is left out of account
	done map[*line]*Line
}

func (c *copier) one(l *line) *Line {
	if x := c.done[l]; x != nil {
		return x
	}
	x := &Line{ID: l.id, Branch: l.branch, HasHead: l.head != nil && l.head != c.disk, AsHeir: l.asHeir(), line: l}
	x.AsHeir.HasHead = x.HasHead
	for _, e := range l.pins.Sorted() {
		x.Pins = append(x.Pins, Pin{e, l.pins.Held(e)})
	}
	c.done[l] = x
	return x
}

func (c *copier) withAncestors(l *line) *Line {
	first := c.one(l)
	for x := first; l.parent != nil && x.Parent == nil; x = x.Parent {
		l = l.parent.root()
		x.Parent = c.one(l)
	}
	return first
}

// sealNow seals the open layer unless it is empty, and has it committed;
// line.mu is held for writing.
func (l *line) sealNow() {
	if l.commits.failed != nil || l.open.empty() && !l.counters.dirty {
		return
	}
	l.seal()
	l.kick()
}

// freeze copies what a line has, and makes a reader of its own rows; t.mu is
// held.
func (s *Survey) freeze(l *line) *Frozen {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sealNow()
	f := &Frozen{Segments: map[tine.SegmentID]OwnSegment{}, Open: map[tine.Ino]bool{}}
	for id, info := range l.space.segs {
		f.Segments[id] = OwnSegment{info.live, slices.Clone(info.pieces)}
	}
	for ino := range l.opens {
		f.Open[ino] = true
	}
	f.Rows = &OwnRows{&Reader{view: &l.view, hops: l.view.hops()[:1], layers: []held{{0, l.layers()}}, snap: s.snap}}
	return f
}
