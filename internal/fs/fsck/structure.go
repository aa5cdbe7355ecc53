package fsck

import (
	"cmp"
	"fmt"
	"slices"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// structure connects the records of each tree and checks how they hang
// together.
func (w *world) structure() {
	names := map[string]*disk{}
	for _, t := range w.trees {
		t.connect(w)
		for _, d := range t.disks {
			if tine.CheckName("disk", d.rec.Name) != nil {
				w.add("T014", place{tree: t}, "disk %s is called %q", d.id, d.rec.Name)
				w.mend(func(r *repairer) { r.renameDisk(d, "recovered") })
				continue
			}
			if d.rec.Deleted != 0 {
				continue
			}
			k := fmt.Sprintf("%s/%s", t.tenant, d.rec.Name)
			if other := names[k]; other != nil {
				w.add("T009", place{tree: t}, "disks %s and %s are both called %q", d.id, other.id, d.rec.Name)
				w.mend(func(r *repairer) { r.renameDisk(d, d.rec.Name) })
				continue
			}
			names[k] = d
		}
	}
	w.mend((*repairer).mendLines)
}

// unheld tells of a line that nothing holds, or that has been written since the
// last that does: the head of a disk whose record is gone.
func (w *world) unheld(l *line) {
	if !l.unheld {
		l.unheld = true
		w.add("T011", place{line: l}, "timeline %s", l.id)
		w.mend(func(r *repairer) { r.unheld = append(r.unheld, l) })
	}
}

// connect resolves what the tree's records name.
func (t *tree) connect(w *world) {
	here := place{tree: t}
	if t.rec == nil && !slices.ContainsFunc(t.lost, func(r lostRecord) bool { return r.table == record.TableTree }) {
		if len(t.lines) == 0 && len(t.checkpoints) == 0 {
			for _, d := range t.disks {
				w.add("T002", here, "disk %q names tree %s", d.rec.Name, t.id)
			}
			t.broken = true
			return
		}
		w.add("T001", here, "tree %s has %d lines", t.id, len(t.lines))
		w.mend(func(r *repairer) { r.writeTree(t) })
	} else if t.rec == nil {
		w.mend(func(r *repairer) { r.writeTree(t) })
	} else if !t.rec.Store.IsZero() && !t.shipped {
		w.add("T015", here, "store %s", t.rec.Store)
		w.mend(func(r *repairer) { r.writeTree(t) })
	}
	t.checkAliases(w)
	t.connectStrata(w)
	t.connectLines(w)
	t.connectHolders(w)
	t.connectSegments(w)
	for _, k := range t.tasks {
		if l := t.resolve(k.rec.Timeline); l != nil {
			l.tasks++
		}
	}
	for _, l := range t.sorted() {
		l.checkEpochs(w)
	}
	w.mend(func(r *repairer) { r.mendLost(t) })
}

func (t *tree) checkAliases(w *world) {
	for id := range t.aliases {
		if t.resolve(id) == nil {
			w.add("T005", place{tree: t}, "the alias of timeline %s", id)
			t.broken = true
			w.mend(func(r *repairer) { r.dropAlias(t, id) })
		}
	}
}

func (t *tree) connectStrata(w *world) {
	for _, l := range t.sorted() {
		for _, s := range l.rec.Strata {
			if other := w.strata[s]; other != nil {
				w.add("T006", place{line: l}, "stratum %s belongs to %s too", s, other.id)
				t.broken, l.broken, other.broken, other.tree.broken = true, true, true, true
				continue
			}
			w.strata[s] = l
		}
		if len(l.rec.Strata) == 0 {
			w.add("T012", place{line: l}, "timeline %s has no stratum to write to", l.id)
			l.broken, t.broken = true, true
		}
	}
}

// connectLines connects children and parents, and finds circles.
func (t *tree) connectLines(w *world) {
	for _, l := range t.lines {
		if l.rec.Parent.IsZero() {
			continue
		}
		if l.parent = t.resolve(l.rec.Parent); l.parent == nil {
			w.add("T003", place{line: l}, "its parent is timeline %s", l.rec.Parent)
			l.broken, t.broken = true, true
		}
	}
	for _, l := range t.lines {
		n := 0
		for p := l.parent; p != nil && n <= len(t.lines); p = p.parent {
			n++
		}
		l.depth = n
		if n > len(t.lines) {
			w.add("T004", place{line: l}, "timeline %s", l.id)
			l.broken, t.broken = true, true
		}
	}
	for _, l := range t.sorted() {
		if l.depth > len(t.lines) {
			l.parent = nil // nothing walks in circles from here on
			continue
		}
		if p := l.parent; p != nil {
			p.children = append(p.children, l)
			p.holds[l.rec.Branch]++
			l.broken = l.broken || p.broken
		}
	}
}

// connectHolders connects disks and checkpoints with their lines.
func (t *tree) connectHolders(w *world) {
	byID := map[tine.DiskID]*disk{}
	for _, d := range t.disks {
		byID[d.id] = d
		if d.line = t.resolve(d.rec.Timeline); d.line == nil {
			w.add("T003", place{tree: t}, "disk %q names timeline %s", d.rec.Name, d.rec.Timeline)
			t.broken = true
			continue
		}
		if other := d.line.head(); other != nil {
			w.add("T008", place{line: d.line}, "disks %q and %q", other.rec.Name, d.rec.Name)
			t.broken = true
		}
		d.line.heads = append(d.line.heads, d)
	}
	names := map[string]*checkpoint{}
	for _, c := range t.checkpoints {
		if c.line = t.resolve(c.rec.Timeline); c.line == nil {
			w.add("T003", place{tree: t}, "checkpoint %q names timeline %s", c.rec.Name, c.rec.Timeline)
			t.broken = true
			w.mend(func(r *repairer) {
				r.dangling = append(r.dangling, danglingCheckpoint{c.rec, key0(t.id, record.IDKey(record.TableCheckpoint, c.id))})
			})
			continue
		}
		c.line.holds[c.rec.Epoch]++
		c.line.checkpoints = append(c.line.checkpoints, c)
		if c.disk = byID[c.rec.Disk]; c.disk == nil {
			w.add("T010", place{line: c.line}, "checkpoint %q names disk %s", c.rec.Name, c.rec.Disk)
			w.mend(func(r *repairer) { r.orphanCheckpoints = append(r.orphanCheckpoints, c) })
			continue
		}
		if tine.CheckName("checkpoint", c.rec.Name) != nil {
			w.add("T014", place{line: c.line}, "disk %q has a checkpoint called %q", c.disk.rec.Name, c.rec.Name)
			w.mend(func(r *repairer) { r.renameCheckpoint(t, c, "recovered") })
			continue
		}
		k := fmt.Sprintf("%s@%s", c.disk.id, c.rec.Name)
		if names[k] != nil {
			w.add("T009", place{line: c.line}, "disk %q has two checkpoints %q", c.disk.rec.Name, c.rec.Name)
			w.mend(func(r *repairer) { r.renameCheckpoint(t, c, c.rec.Name) })
		}
		names[k] = c
	}
	for _, l := range t.lines {
		for e := range l.holds {
			l.pins = append(l.pins, e)
		}
		if l.head() != nil {
			l.pins = append(l.pins, tine.Head)
		}
		slices.SortFunc(l.pins, cmp.Compare[tine.Epoch])
	}
}

func (t *tree) connectSegments(w *world) {
	for _, g := range t.segs {
		if !g.has {
			continue
		}
		if g.line = t.resolve(g.rec.Timeline); g.line == nil {
			w.add("T003", place{tree: t}, "segment %s names timeline %s", g.id, g.rec.Timeline)
			t.broken = true
		}
	}
}

// doubted reports that a pin is held by children only of which it is not clear
// where they branch off.
func (l *line) doubted(p tine.Epoch) bool {
	n := 0
	for _, c := range l.children {
		if c.rec.Branch == p && c.rec.First != p+1 {
			n++
		}
	}
	return n == l.holds[p]
}

// checkEpochs checks the line's epochs against its pins, and whether anything
// holds it.
func (l *line) checkEpochs(w *world) {
	here := place{line: l}
	if l.rec.First != l.rec.Branch+1 || l.rec.Epoch < l.rec.First || l.rec.Epoch >= tine.Head || l.parent == nil && l.rec.Parent.IsZero() && l.rec.Branch != 0 {
		w.add("T013", here, "timeline %s branches off at %s, starts at %s and is at %s", l.id, l.rec.Branch, l.rec.First, l.rec.Epoch)
		w.mend(func(r *repairer) { r.mendEpochs(l) })
	}
	for _, p := range l.pins {
		switch {
		case p == tine.Head:
		case p < l.rec.First:
			w.add("T007", here, "%d hold %s; timeline %s starts at %s", l.holds[p], p, l.id, l.rec.First)
			l.tree.broken = true
		case p >= l.rec.Epoch && !l.doubted(p):
			w.add("T013", here, "%d hold %s, which timeline %s still writes: it is at %s", l.holds[p], p, l.id, l.rec.Epoch)
			w.mend(func(r *repairer) { r.mendEpochs(l) })
		}
	}
	if len(l.pins) == 0 && l.tasks == 0 {
		w.unheld(l)
	}
}
