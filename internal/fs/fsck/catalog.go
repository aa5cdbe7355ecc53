package fsck

import (
	"bytes"
	"slices"

	"tine.dev/tine/internal/fs/fsck/rowform"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// tree is what the records say of a tree.
type tree struct {
	id          tine.TreeID
	rec         *record.Tree // nil: it has none
	tenant      tine.TenantID
	lines       map[tine.TimelineID]*line
	aliases     map[tine.TimelineID]tine.TimelineID
	disks       []*disk
	checkpoints []*checkpoint
	segs        []*seg
	byID        map[tine.SegmentID]*seg
	tasks       []task
	maxTask     uint64
	logs        map[tine.DiskID]bool // the disks that have a history here
	lost        []lostRecord         // that do not decode
	shipped     bool                 // a row says what its store has
	broken      bool                 // the lines do not hang together: what it shows is not checked
	maxIno      tine.Ino             // the largest number of an inode in any version of its rows
	maxCookie   uint64
}

type lostRecord struct {
	table record.Table
	id    [tine.IDSize]byte
	key   []byte
}

type disk struct {
	id   tine.DiskID
	key  []byte // of its record; nil for one that is about to be made
	rec  record.Disk
	tree *tree
	line *line
}

type checkpoint struct {
	id   tine.CheckpointID
	rec  record.Checkpoint
	disk *disk
	line *line
}

type task struct {
	seq uint64
	rec record.Task
}

// line is one timeline.
type line struct {
	tree        *tree
	id          tine.TimelineID
	rec         record.Timeline
	parent      *line
	children    []*line
	heads       []*disk
	checkpoints []*checkpoint
	holds       map[tine.Epoch]int // how many hold each pin: checkpoints and children
	pins        []tine.Epoch       // ascending; tine.Head last if there is a head
	tasks       int
	depth       int
	rows        int64
	broken      bool // no view of it can be made
	unheld      bool // it seems to be the head of a disk whose record is gone
	known       map[tine.Epoch]*ledger
}

// head returns a disk that the line is the head of; nil if there is none.
func (l *line) head() *disk {
	if len(l.heads) == 0 {
		return nil
	}
	return l.heads[0]
}

// floor is the newest pin below the head: versions born later may be replaced.
func (l *line) floor() tine.Epoch {
	f := l.rec.Branch
	for _, p := range l.pins {
		if p != tine.Head {
			f = max(f, p)
		}
	}
	return f
}

// catalog reads all records, and finds the strata that have rows.
func (w *world) catalog() error {
	w.rep.phase("records", "rows")
	scan, err := w.snap.Scan(nil, nil, nil)
	if err != nil {
		return err
	}
	defer scan.Close()
	for ok := scan.Next(); ok; {
		key := bytes.Clone(scan.Key())
		owner, l, epoch, err := record.SplitKey(key)
		if err != nil {
			w.add("R001", place{key: key}, "a key of %d bytes", len(key))
			w.mend(func(r *repairer) { r.batchDelete(key, "removed it") })
			ok = scan.Next()
			continue
		}
		if rowform.FileTable(l.Table()) {
			w.owners = append(w.owners, owner)
			end := record.PrefixEnd(owner[:])
			ok = end != nil && scan.Seek(end)
			continue
		}
		w.rep.tick("records", "rows", 1)
		w.rep.Stats.Rows++
		w.recordRow(owner, l, epoch, key, bytes.Clone(scan.Value()))
		ok = scan.Next()
	}
	w.indexSegments()
	return scan.Err()
}

// recordRow takes in a row that has no versions.
func (w *world) recordRow(owner [tine.IDSize]byte, l record.Logical, epoch tine.Epoch, key, v []byte) {
	good, known := rowform.Shape(l)
	switch {
	case !known:
		w.add("R009", place{key: key}, "table %#x", byte(l.Table()))
		return
	case !good || epoch != 0:
		w.add("R001", place{key: key}, "a %s row with a key of %d bytes at %s", rowform.TableName(l.Table()), len(key), epoch)
		w.mend(func(r *repairer) { r.batchDelete(key, "removed it") })
		return
	}
	if rowform.TenantTable(l.Table()) {
		w.tenantRow(tine.TenantID(owner), l, key, v)
		return
	}
	w.tree(tine.TreeID(owner)).recordRow(w, l, key, v)
}

// tree returns what is known of a tree, making room for one not met before.
func (w *world) tree(id tine.TreeID) *tree {
	t := w.trees[id]
	if t == nil {
		t = &tree{id: id, lines: map[tine.TimelineID]*line{}, aliases: map[tine.TimelineID]tine.TimelineID{}, logs: map[tine.DiskID]bool{}, byID: map[tine.SegmentID]*seg{}}
		w.trees[id] = t
	}
	return t
}

// undecodable notes a record that does not decode.
func (w *world) undecodable(t *tree, l record.Logical, key []byte, err error) {
	if tine.KindOf(err) == tine.KindVersion {
		w.newer = true
		w.add("R003", place{tree: t, key: key}, "%v", err)
		return
	}
	w.add("T012", place{tree: t, key: key}, "a %s record: %v", rowform.TableName(l.Table()), err)
	id, _ := l.ID()
	if l.Table() == record.TableTimeline || l.Table() == record.TableAlias || l.Table() == record.TableTree {
		w.damaged = true
	}
	if t != nil {
		t.lost = append(t.lost, lostRecord{l.Table(), id, key})
	}
}

func (w *world) tenantRow(tenant tine.TenantID, l record.Logical, key, v []byte) {
	w.tenants[tenant] = true
	id, _ := l.ID()
	if l.Table() == record.TableTree {
		t := w.tree(tine.TreeID(id))
		t.tenant = tenant
		rec, err := record.DecodeTree(v)
		if err != nil {
			w.undecodable(t, l, key, err)
			return
		}
		t.rec = &rec
		return
	}
	if l.Table() == record.TablePolicy {
		// One of a disk that is gone goes when the server next meets it.
		if _, err := record.DecodePolicy(v); err != nil {
			w.undecodable(nil, l, key, err)
			w.mend(func(r *repairer) { r.plan(stageRecords, "dropped it", del(key)) })
		}
		return
	}
	rec, err := record.DecodeDisk(v)
	if err != nil {
		w.undecodable(nil, l, key, err)
		w.mend(func(r *repairer) { r.lostDisks = append(r.lostDisks, lostRecord{l.Table(), id, key}) })
		return
	}
	t := w.trees[rec.Tree]
	if t == nil {
		// Trees sort before disks under a tenant, so all that have a record are
		// known; a tree without one may come later.
		t = w.tree(rec.Tree)
	}
	t.disks = append(t.disks, &disk{id: id, key: key, rec: rec, tree: t})
	if t.rec == nil {
		t.tenant = tenant
	}
}

// recordRow takes in a row of the tree.
func (t *tree) recordRow(w *world, l record.Logical, key, v []byte) {
	id, n := l.ID()
	var err error
	switch l.Table() {
	case record.TableTimeline:
		var rec record.Timeline
		if rec, err = record.DecodeTimeline(v); err == nil {
			t.lines[id] = &line{tree: t, id: id, rec: rec, holds: map[tine.Epoch]int{}, known: map[tine.Epoch]*ledger{}}
		}
	case record.TableAlias:
		var a record.Alias
		if a, err = record.DecodeAlias(v); err == nil {
			t.aliases[id] = a.Into
		}
	case record.TableCheckpoint:
		var c record.Checkpoint
		if c, err = record.DecodeCheckpoint(v); err == nil {
			t.checkpoints = append(t.checkpoints, &checkpoint{id: id, rec: c})
		}
	case record.TableSegment:
		var s record.Segment
		if s, err = record.DecodeSegment(v); err == nil {
			g := t.seg(id)
			g.rec, g.has = s, true
		}
	case record.TableTail:
		g := t.seg(id)
		g.tails = append(g.tails, tail{int64(n), int64(len(v)), key})
	case record.TableLive:
		var lv record.Live
		if lv, err = record.DecodeLive(v); err == nil {
			g := t.seg(id)
			g.live, g.liveKey = lv.Bytes, key
		}
	case record.TablePiece:
		var p record.Piece
		if p, err = record.DecodePiece(v); err == nil {
			g := t.seg(id)
			g.pieces = append(g.pieces, piece{span: span{int64(n), int64(n) + p.Len}, runs: p.Runs})
			g.pieceKeys = append(g.pieceKeys, key)
		}
	case record.TableTask:
		var k record.Task
		if k, err = record.DecodeTask(v); err == nil {
			t.tasks = append(t.tasks, task{l.Seq(), k})
			t.maxTask = max(t.maxTask, l.Seq())
		}
	case record.TableShipped:
		t.shipped = true
		_, err = record.DecodeShipped(v)
	case record.TableLog:
		t.logs[id] = true
		_, err = record.DecodeLogEntry(v)
	}
	if err != nil {
		w.undecodable(t, l, key, err)
	}
}

// seg returns what a tree knows of a segment, making room for one not met
// before.
func (t *tree) seg(id tine.SegmentID) *seg {
	g := t.byID[id]
	if g == nil {
		g = &seg{id: id, tree: t}
		t.byID[id] = g
		t.segs = append(t.segs, g)
	}
	return g
}

// indexSegments finds the tree of each segment: the one that has its location.
func (w *world) indexSegments() {
	for _, t := range w.trees {
		for _, g := range t.segs {
			other := w.segs[g.id]
			if other == nil || g.has && !other.has {
				w.segs[g.id] = g
				continue
			}
			if g.has && other.has {
				w.add("S015", place{tree: t}, "segment %s is of tree %s too", g.id, other.tree.id)
				t.broken, other.tree.broken = true, true
			}
		}
	}
}

// resolve returns the line that an id means, nil if there is none.
func (t *tree) resolve(id tine.TimelineID) *line {
	for range len(t.aliases) + 1 {
		into, ok := t.aliases[id]
		if !ok {
			return t.lines[id]
		}
		id = into
	}
	return nil
}

// sorted returns the lines, parents before their children; those in a circle
// come last.
func (t *tree) sorted() []*line {
	ls := make([]*line, 0, len(t.lines))
	for _, l := range t.lines {
		ls = append(ls, l)
	}
	slices.SortFunc(ls, func(a, b *line) int {
		if a.depth != b.depth {
			return a.depth - b.depth
		}
		return slices.Compare(a.id[:], b.id[:])
	})
	return ls
}
