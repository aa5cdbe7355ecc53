package sim

import (
	"fmt"
	"slices"
	"strings"

	"tine.dev/tine/internal/tine"
)

// A crash leaves of each tree all its records up to one, and of each disk what
// it showed at one moment. The history keeps both since the last time that
// everything was durable.

// treeRecord is one record of a tree's stream in the model: what the tree
// looked like after it, and which moments of which disks it counts on.
type treeRecord struct {
	seq    int
	disks  map[tine.DiskID]diskRecord
	frozen map[tine.DiskID]int
}

// diskRecord is what records say of one disk.
type diskRecord struct {
	d           *disk
	name        string
	deleted     bool
	moves       int
	checkpoints []*checkpoint
}

// grove is the history of one tree.
type grove struct {
	records []treeRecord
	floor   int // index of the newest record that is known to be durable; -1: none is
}

// recorded notes that a record was added to the stream of a tree. frozen are
// the disks whose present state it counts on. A durable record makes all
// before it durable, and those states.
func (w *World) recorded(id tine.TreeID, durable bool, frozen ...*disk) {
	g := w.groves[id]
	if g == nil {
		g = &grove{floor: -1}
		w.groves[id] = g
	}
	r := treeRecord{seq: w.seq, disks: map[tine.DiskID]diskRecord{}, frozen: map[tine.DiskID]int{}}
	add := func(d *disk, deleted bool) {
		if d.tree == id {
			w.saw(d)
			r.disks[d.id] = diskRecord{d, d.name, deleted, d.moves, slices.Clone(d.checkpoints)}
		}
	}
	for _, d := range w.disks {
		add(d, false)
	}
	for _, d := range w.trash {
		add(d, true)
	}
	for _, d := range frozen {
		r.frozen[d.id] = len(d.past) - 1
	}
	g.records = append(g.records, r)
	if durable {
		w.recordsDurable(g, len(g.records)-1)
	}
}

// recordsDurable notes that the records of a tree up to one are durable, and
// the moments that they count on.
func (w *World) recordsDurable(g *grove, upTo int) {
	if w.crashed() {
		return
	}
	for ; g.floor < upTo; g.floor++ {
		r := g.records[g.floor+1]
		for id, i := range r.frozen {
			d := r.disks[id].d
			d.floor = max(d.floor, i)
		}
	}
	w.cuts.know(w)
}

// saw notes what a disk shows now, if that has changed.
func (w *World) saw(d *disk) {
	n := len(d.past)
	if n > 0 && d.past[n-1].moves == d.moves && d.past[n-1].tree.Sum() == d.fs.Tree.Sum() {
		// Only files without a name have changed. The numbers that they took may
		// be taken again after a crash.
		d.past[n-1].seq, d.past[n-1].line = w.seq, *d.line
		return
	}
	d.past = append(d.past, moment{w.seq, d.moves, d.fs.Tree, d.fs.NextIno, *d.line, d.line})
}

// durable notes that all that a disk shows now is durable, and with it the
// record that made the disk.
func (w *World) durable(d *disk) {
	w.saw(d)
	if w.crashed() {
		return
	}
	d.floor = len(d.past) - 1
	w.cuts.know(w)
	g := w.groves[d.tree]
	for i, r := range g.records {
		if _, there := r.disks[d.id]; there {
			w.recordsDurable(g, i)
			return
		}
	}
}

// settle makes the present state of everything the only one that a crash may
// leave.
func (w *World) settle() {
	clear(w.groves)
	all := append(slices.Clone(w.disks), w.trash...)
	for _, d := range all {
		d.past, d.floor = nil, 0
	}
	for _, d := range all {
		if w.groves[d.tree] == nil {
			w.recorded(d.tree, true)
		}
	}
	w.cuts.know(w)
}

// floors are what was known to be durable at some time: of each tree the newest
// record, of each disk the oldest moment that a crash may leave. Immutable.
type floors struct {
	trees map[tine.TreeID]int
	disks map[tine.DiskID]int
}

// floors returns what is known to be durable now.
func (w *World) floors() *floors {
	f := &floors{map[tine.TreeID]int{}, map[tine.DiskID]int{}}
	for id, g := range w.groves {
		f.trees[id] = g.floor
		for _, r := range g.records { // those too that have been removed since
			for _, d := range r.disks {
				f.disks[d.d.id] = d.d.floor
			}
		}
	}
	return f
}

// tree returns the newest durable record of a tree; -1 if there is none, as of
// a tree that was made later.
func (f *floors) tree(id tine.TreeID) int {
	if k, ok := f.trees[id]; ok {
		return k
	}
	return -1
}

// find returns the newest record, not before the durable one, after which the
// tree was what was found of it, and the moment of each disk. Record -1 is
// before the tree was made.
func (g *grove) find(found map[tine.DiskID]foundDisk, durable int, fl *floors) (int, map[tine.DiskID]moment, error) {
	var why []string
	for k := len(g.records) - 1; k >= max(0, durable); k-- {
		moments, err := g.matches(k, found, fl)
		if err == nil {
			return k, moments, nil
		}
		why = append(why, fmt.Sprintf("the record of step %d: %v", g.records[k].seq, err))
	}
	if durable < 0 && len(found) == 0 {
		return -1, nil, nil
	}
	return 0, nil, fmt.Errorf("no state of the history is what is left:\n%s", strings.Join(why, "\n"))
}

// matches tells whether what was found of a tree is what it was after record
// k, with each disk as it was at one moment that it may go back to, and
// returns those moments.
func (g *grove) matches(k int, found map[tine.DiskID]foundDisk, fl *floors) (map[tine.DiskID]moment, error) {
	r := g.records[k]
	floors := map[tine.DiskID]int{}
	for _, earlier := range g.records[:k+1] {
		for id, i := range earlier.frozen {
			floors[id] = max(floors[id], i)
		}
	}
	for id, f := range found {
		if _, ok := r.disks[id]; !ok {
			return nil, fmt.Errorf("disk %s did not exist", f.name)
		}
	}
	moments := map[tine.DiskID]moment{}
	for id, d := range r.disks {
		f, ok := found[id]
		switch {
		case !ok:
			return nil, fmt.Errorf("disk %s is missing", d.name)
		case f.name != d.name || f.deleted != d.deleted:
			return nil, fmt.Errorf("disk %s (deleted: %v) was %s (deleted: %v)", f.name, f.deleted, d.name, d.deleted)
		}
		m, err := d.moment(f, max(floors[id], fl.disks[id]))
		if err != nil {
			return nil, err
		}
		moments[id] = m
	}
	return moments, nil
}

// moment finds the newest moment, from floor on, that shows what was found.
func (d diskRecord) moment(f foundDisk, floor int) (moment, error) {
	if d.deleted {
		return d.d.past[len(d.d.past)-1], nil // it was idle when it was removed, and cannot be looked at
	}
	if len(f.checkpoints) != len(d.checkpoints) {
		return moment{}, fmt.Errorf("disk %s has %d checkpoints and had %d", d.name, len(f.checkpoints), len(d.checkpoints))
	}
	for _, c := range d.checkpoints {
		t, ok := f.checkpoints[c.name]
		if !ok {
			return moment{}, fmt.Errorf("checkpoint %s of %s is missing", c.name, d.name)
		}
		if diff := difference(c.tree, t); diff != nil {
			return moment{}, fmt.Errorf("checkpoint %s of %s: %w", c.name, d.name, diff)
		}
	}
	for i, m := range slices.Backward(d.d.past) {
		if m.moves == d.moves && m.tree.Sum() == f.tree.Sum() {
			if i < floor {
				return moment{}, fmt.Errorf("disk %s is as it was at step %d, but step %d was durable", d.name, m.seq, d.d.past[floor].seq)
			}
			return m, nil
		}
	}
	last := d.d.past[len(d.d.past)-1]
	return moment{}, fmt.Errorf("disk %s is as it never was; the newest of %d states was\n%w", d.name, len(d.d.past), difference(last.tree, f.tree))
}
