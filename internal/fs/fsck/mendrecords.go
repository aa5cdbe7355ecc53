package fsck

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"tine.dev/tine/internal/fs/fsck/rowform"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// writeTree writes a tree's own record anew.
func (r *repairer) writeTree(t *tree) {
	if t.tenant.IsZero() {
		t.tenant = tine.DefaultTenant
	}
	rec := record.Tree{Tenant: t.tenant, Created: r.now.UnixNano()}
	for _, d := range t.disks {
		rec.Created = min(rec.Created, d.rec.Created)
	}
	r.plan(stageRecords, "wrote it anew", set(key0(t.tenant, record.IDKey(record.TableTree, t.id)), rec.Append(nil)))
}

func (r *repairer) writeDisk(done string, d *disk) {
	tenant := d.tree.tenant
	if tenant.IsZero() {
		tenant = tine.DefaultTenant
	}
	if d.key == nil {
		d.key = key0(tenant, record.IDKey(record.TableDisk, d.id))
	}
	r.plan(stageRecords, done, set(d.key, d.rec.Append(nil)))
}

// freshName returns a name that no disk has.
func (r *repairer) freshName(like string) string {
	for {
		r.names++
		name := fmt.Sprintf("%.100s-%d", like, r.names)
		if !r.w.hasDisk(name) {
			return name
		}
	}
}

func (w *world) hasDisk(name string) bool {
	for _, t := range w.trees {
		if slices.ContainsFunc(t.disks, func(d *disk) bool { return d.rec.Name == name }) {
			return true
		}
	}
	return false
}

func (r *repairer) renameDisk(d *disk, like string) {
	d.rec.Name = r.freshName(like)
	r.writeDisk("called it "+d.rec.Name, d)
}

func (r *repairer) renameCheckpoint(t *tree, c *checkpoint, like string) {
	for n := 2; ; n++ {
		name := fmt.Sprintf("%.100s-%d", like, n)
		if !slices.ContainsFunc(t.checkpoints, func(x *checkpoint) bool { return x.rec.Disk == c.rec.Disk && x.rec.Name == name }) {
			c.rec.Name = name
			break
		}
	}
	r.plan(stageRecords, "called it "+c.rec.Name, set(key0(t.id, record.IDKey(record.TableCheckpoint, c.id)), c.rec.Append(nil)))
}

// dropDangling drops checkpoints whose line is gone, unless the line may only
// have lost its record.
func (r *repairer) dropDangling() {
	if len(r.w.unclaimed()) > 0 {
		return
	}
	for _, c := range r.dangling {
		r.w.last = Finding{Code: "T003", What: fmt.Sprintf("checkpoint %q names timeline %s", c.rec.Name, c.rec.Timeline)}
		r.plan(stageRecords, "dropped the checkpoint", del(c.key))
	}
}

// dropAlias removes an alias that leads nowhere, if nothing goes by it.
func (r *repairer) dropAlias(t *tree, id tine.TimelineID) {
	for _, at := range t.references() {
		for range len(t.aliases) + 1 {
			if at == id {
				return
			}
			at = t.aliases[at]
		}
	}
	r.plan(stageRecords, "removed it", del(key0(t.id, record.IDKey(record.TableAlias, id))))
}

// references returns the lines that the tree's records name.
func (t *tree) references() []tine.TimelineID {
	var ids []tine.TimelineID
	for _, l := range t.lines {
		if !l.rec.Parent.IsZero() {
			ids = append(ids, l.rec.Parent)
		}
	}
	for _, d := range t.disks {
		ids = append(ids, d.rec.Timeline)
	}
	for _, c := range t.checkpoints {
		ids = append(ids, c.rec.Timeline)
	}
	for _, g := range t.segs {
		if g.has {
			ids = append(ids, g.rec.Timeline)
		}
	}
	return ids
}

// missing returns the lines that the tree's records name and that do not exist.
func (t *tree) missing() []tine.TimelineID {
	var ids []tine.TimelineID
	for _, id := range t.references() {
		if t.resolve(id) == nil && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, x := range t.lost {
		if x.table == record.TableTimeline && !slices.Contains(ids, x.id) {
			ids = append(ids, x.id)
		}
	}
	return ids
}

func (w *world) missingLines() bool {
	for _, t := range w.trees {
		if len(t.missing()) > 0 {
			return true
		}
	}
	return false
}

// unclaimed returns the strata with rows that no line has.
func (w *world) unclaimed() []tine.StratumID {
	var ss []tine.StratumID
	for _, s := range w.owners {
		if w.strata[s] == nil {
			ss = append(ss, s)
		}
	}
	return ss
}

// mendEpochs makes a line's epochs agree with its branch and its pins.
func (r *repairer) mendEpochs(l *line) {
	if l.rec.First != l.rec.Branch+1 || l.rec.Parent.IsZero() && l.rec.Branch != 0 {
		r.mendBranch(l)
		return // its parent's pins are known by the next round only
	}
	if l.rec.Epoch >= tine.Head {
		l.rec.Epoch = l.rec.First
	}
	l.rec.Epoch = max(l.rec.Epoch, l.rec.First)
	for _, p := range l.pins {
		if p != tine.Head {
			l.rec.Epoch = max(l.rec.Epoch, p+1)
		}
	}
	r.writeLine(l, "set them")
}

// mendBranch decides which of two numbers is wrong: where a line branches off, or
// where it starts. Rows born before the start, and a branch that the parent has
// not reached, tell.
func (r *repairer) mendBranch(l *line) {
	lo := tine.Head
	for _, s := range l.rec.Strata {
		b, _, err := r.w.births(s)
		if err != nil {
			return
		}
		lo = min(lo, b)
	}
	switch {
	case l.rec.Parent.IsZero():
		l.rec.Branch, l.rec.First = 0, 1
	case l.rec.First > 0 && (lo <= l.rec.Branch || l.parent != nil && l.rec.Branch >= l.parent.rec.Epoch):
		l.rec.Branch = l.rec.First - 1
	default:
		l.rec.First = l.rec.Branch + 1
	}
	r.writeLine(l, "set them")
}

// raiseEpoch lets a line's epoch be that of its newest row.
func (r *repairer) raiseEpoch(l *line, birth tine.Epoch) {
	if birth > l.rec.Epoch && birth < 1<<48 {
		l.rec.Epoch = birth
		r.writeLine(l, "raised the line's epoch")
	}
}

// writeLine writes a line's record once, as it is when the changes are made.
func (r *repairer) writeLine(l *line, done string) {
	if r.epochs[l] {
		return
	}
	if r.epochs == nil {
		r.epochs = map[*line]bool{}
	}
	r.epochs[l] = true
	r.plan(stageRecords, done, func(b kv.Batch) error {
		b.Set(key0(l.tree.id, record.IDKey(record.TableTimeline, l.id)), l.rec.Append(nil))
		return nil
	})
}

// mendLost deals with records that do not decode.
func (r *repairer) mendLost(t *tree) {
	for _, x := range t.lost {
		r.w.last = Finding{Code: "T012", What: "a " + rowform.TableName(x.table) + " record"}
		switch x.table {
		case record.TableCheckpoint, record.TableTask, record.TableLog, record.TablePiece:
			r.plan(stageRecords, "dropped it", del(x.key))
		case record.TableLive:
			r.plan(stageRecords, "dropped it; it is counted anew", del(x.key))
		case record.TableAlias:
			if len(t.missing()) == 0 {
				r.plan(stageRecords, "dropped it: nothing goes by it", del(x.key))
			}
		case record.TableSegment:
			// Wanted until the rows are read: its file may be sound.
			if !r.w.salvageable(x.id) {
				r.plan(stageFiles, "dropped it", del(x.key))
			}
		}
	}
}

// mendLines deals with lines that are named and do not exist.
func (r *repairer) mendLines() {
	if !r.rebuildLine() {
		r.dropDangling()
	}
}

// rebuildLine makes the record of a lost root line anew: its strata are those
// that no line has, if no other line is missing anywhere.
func (r *repairer) rebuildLine() bool {
	var lost *tree
	n := 0
	for _, t := range r.w.trees {
		if k := len(t.missing()); k > 0 {
			lost, n = t, n+k
		}
	}
	strata := r.w.unclaimed()
	if n != 1 || len(strata) == 0 {
		return false
	}
	for _, l := range lost.lines {
		if l.rec.Parent.IsZero() {
			return false // the root is there; where another line branched off cannot be told
		}
	}
	id := lost.missing()[0]
	rec := record.Timeline{First: 1, Epoch: 1}
	first := map[tine.StratumID]tine.Epoch{}
	for _, s := range strata {
		lo, hi, err := r.w.births(s)
		if err != nil {
			return false
		}
		first[s] = lo
		rec.Epoch = max(rec.Epoch, hi)
	}
	for _, c := range lost.checkpoints {
		if c.rec.Timeline == id {
			rec.Epoch = max(rec.Epoch, c.rec.Epoch+1)
		}
	}
	for _, l := range lost.lines {
		if l.rec.Parent == id {
			rec.Epoch = max(rec.Epoch, l.rec.Branch+1)
		}
	}
	slices.SortStableFunc(strata, func(a, b tine.StratumID) int { return cmp.Compare(first[a], first[b]) })
	rec.Strata = strata
	r.w.last = Finding{Code: "T003", What: fmt.Sprintf("timeline %s, the root of its tree", id)}
	r.plan(stageRecords, fmt.Sprintf("wrote its record anew, with %d strata", len(strata)),
		set(key0(lost.id, record.IDKey(record.TableTimeline, id)), rec.Append(nil)))
	return true
}

// births returns the lowest and highest epoch of a stratum's rows.
func (w *world) births(s tine.StratumID) (lo, hi tine.Epoch, err error) {
	scan, err := w.snap.Scan(s[:], record.PrefixEnd(s[:]), nil)
	if err != nil {
		return 0, 0, err
	}
	defer scan.Close()
	lo = tine.Head
	for scan.Next() {
		if _, e, ok := record.SplitEpoch(scan.Key()); ok && e < tine.Head {
			lo, hi = min(lo, e), max(hi, e)
		}
	}
	return lo, hi, scan.Err()
}

// planDisks gives heads that no disk names back to the disks that have lost
// theirs, and names of their own to those that are left.
func (r *repairer) planDisks() {
	heirs := map[*line]bool{}
	take := func(want func(*line) bool) *line {
		for _, l := range r.unheld {
			if !heirs[l] && want(l) {
				heirs[l] = true
				return l
			}
		}
		return nil
	}
	for _, t := range r.w.trees {
		for _, d := range t.disks {
			if d.line != nil || t.rec == nil {
				continue
			}
			if l := take(func(l *line) bool { return l.tree == t }); l != nil {
				r.w.last = Finding{Code: "T003", What: fmt.Sprintf("disk %q", d.rec.Name), Disk: d.rec.Name}
				d.rec.Timeline = l.id
				r.writeDisk("gave it the head that no disk names", d)
			}
		}
	}
	for _, x := range r.lostDisks {
		r.w.last = Finding{Code: "T012", What: "disk " + tine.DiskID(x.id).String()}
		l := take(func(l *line) bool { return l.tree.logs[x.id] })
		if l == nil {
			l = take(func(*line) bool { return true })
		}
		if l == nil {
			r.plan(stageRows, "dropped it: no head is left without a disk", del(x.key))
			continue
		}
		if d := r.newDisk(l, x.id); !bytes.Equal(d.key, x.key) {
			r.plan(stageRecords, "dropped the old record", del(x.key))
		}
	}
	r.planOrphans(take)
	for _, l := range r.unheld {
		if !heirs[l] {
			r.w.last = Finding{Code: "T011", What: "timeline " + l.id.String()}
			r.newDisk(l, tine.NewID[tine.DiskID](r.now))
		}
	}
}

// newDisk makes a disk of a line that has lost its own.
func (r *repairer) newDisk(l *line, id tine.DiskID) *disk {
	d := &disk{id: id, tree: l.tree, line: l}
	d.rec = record.Disk{Tree: l.tree.id, Timeline: l.id, Name: r.freshName("recovered"), Created: r.now.UnixNano()}
	l.tree.disks = append(l.tree.disks, d)
	r.writeDisk("made it the disk "+d.rec.Name, d)
	return d
}

// planOrphans finds a disk for checkpoints whose own does not exist: the disk
// anew, if its head is left; else they are dropped.
func (r *repairer) planOrphans(take func(func(*line) bool) *line) {
	made := map[tine.DiskID]bool{}
	for _, x := range r.lostDisks {
		made[x.id] = true // it is made, or dropped first
	}
	for _, c := range r.orphanCheckpoints {
		t := c.line.tree
		r.w.last = Finding{Code: "T010", What: fmt.Sprintf("checkpoint %q", c.rec.Name)}
		if made[c.rec.Disk] {
			continue
		}
		made[c.rec.Disk] = true
		l := take(func(l *line) bool { return l.tree == t })
		if l != nil {
			r.newDisk(l, c.rec.Disk)
			continue
		}
		for _, x := range r.orphanCheckpoints {
			if x.rec.Disk != c.rec.Disk {
				continue
			}
			t.maxTask++
			k := record.Task{Kind: record.TaskDrop, Timeline: x.line.id, Epoch: x.rec.Epoch}
			key, taskKey := key0(t.id, record.IDKey(record.TableCheckpoint, x.id)), key0(t.id, record.TaskKey(t.maxTask))
			r.plan(stageRecords, "dropped the checkpoint", func(b kv.Batch) error {
				b.Delete(key)
				b.Set(taskKey, k.Append(nil))
				return nil
			})
		}
	}
}
