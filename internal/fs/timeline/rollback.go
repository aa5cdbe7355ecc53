package timeline

import (
	"context"
	"fmt"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/step"
	"tine.dev/tine/internal/tine"
)

// Rollback sets the disk's head to what one of its checkpoints shows. What the
// head showed before becomes an automatic checkpoint, whose name it returns:
// that is the undo. It is atomic, works while the disk is attached, and is
// durable when it returns. Whatever was learnt of the disk before has a
// generation that is now stale.
func (d *Disk) Rollback(ctx context.Context, cp string, a Actor) (undo string, err error) {
	s, undo, err := d.rollback(func() (*checkpoint, error) { return d.find(cp) }, "rollback", a)
	if err != nil {
		return "", err
	}
	return undo, s.Wait(ctx, d.engine.Room)
}

// Undo sets the head to the newest automatic checkpoint: it takes back the
// last rollback, promote or undo.
func (d *Disk) Undo(ctx context.Context, a Actor) (undo string, err error) {
	newest := func() (*checkpoint, error) {
		if n := len(d.autos); n > 0 {
			return d.autos[n-1], nil
		}
		return nil, tine.Errorf(tine.KindNotFound, "disk %q has nothing to undo", d.rec.Name).
			WithHint("only rollback, promote and undo can be undone; `tine log %s` shows what happened", d.rec.Name)
	}
	s, undo, err := d.rollback(newest, "undo", a)
	if err != nil {
		return "", err
	}
	return undo, s.Wait(ctx, d.engine.Room)
}

func (d *Disk) rollback(target func() (*checkpoint, error), op string, a Actor) (*step.Step, string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tree
	if err := d.ensureLiving(); err != nil {
		return nil, "", err
	}
	defer t.mu.Unlock()
	c, err := target()
	if err != nil {
		return nil, "", err
	}
	now := d.engine.Clock()
	p := c.line.root()
	n := t.newLine(tine.NewID[tine.TimelineID](now), p, c.rec.Epoch)
	n.strata = t.newStrata(now)
	r := newRows()
	p.adopt(n)
	t.setTimeline(r, n)
	s, undo, err := d.exchange(r, n, op, "to "+c.rec.Name, a, func(r *rows) { p.hold(r, n.branch, 1) })
	if err != nil {
		t.topo.Lock()
		delete(p.children, n)
		t.topo.Unlock()
		delete(t.lines, n.id)
		r.Finish(nil) // nothing is to be waited for
		return nil, "", err
	}
	return s, undo, nil
}

// exchange makes n the disk's head, with an automatic checkpoint of the old
// one first, and gives the old head up. It commits the record, with what also
// adds to it when nothing can fail any more, which rests on everything that either head shows. d.mu (for
// writing) and t.mu are held.
func (d *Disk) exchange(r *rows, n *line, op, detail string, a Actor, also func(*rows)) (*step.Step, string, error) {
	t, old := d.tree, d.line
	nextIno, nextCookie, err := old.nextNumbers()
	if err != nil {
		return nil, "", err
	}
	// What is sealed for this record is sealed before any line learns to wait
	// for it, or the two would wait for each other.
	n.mu.Lock()
	err = n.raiseNumbers(nextIno, nextCookie)
	var last *step.Step
	if n.state.touched {
		last = n.seal()
		n.kick()
	} else if n.counters.dirty {
		n.firstCounters(r)
	}
	n.mu.Unlock()
	if err != nil {
		return nil, "", err
	}
	auto, p, err := d.checkpoint(r, record.Checkpoint{
		Name: d.autoName(op), Author: a.Author, Caller: a.Caller, Auto: true,
		Message: fmt.Sprintf("before %s %s", op, detail),
	})
	if err != nil {
		return nil, "", err
	}
	old.mu.Lock()
	old.setHead(nil)
	old.opens, old.counters.orphans = nil, orphans{}
	old.mu.Unlock()
	d.line = n
	d.gen++
	d.rec.Moves++
	t.addTask(r, record.TaskDrop, old, tine.Head)
	also(r)
	for len(d.autos) > d.engine.UndoKeep && d.autos[0].open == 0 {
		t.dropCheckpoint(r, d, d.autos[0])
	}
	t.setDisk(r, d)
	t.setLog(r, d, d.entry(d.engine.now(), op, detail+", before it: "+auto.rec.Name, a))
	n.mu.Lock()
	n.setHead(d)
	n.after = r.Step
	n.mu.Unlock()
	s := t.commit(r, p.last, last)
	d.engine.janitor.Wake()
	return s, auto.rec.Name, nil
}

// nextNumbers returns the next inode number and cookie of the line's head.
func (l *line) nextNumbers() (tine.Ino, uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, err := l.begin()
	if err != nil {
		return 0, 0, err
	}
	defer t.close()
	return l.counters.NextIno, l.counters.NextCookie, nil
}

// raiseNumbers sees that the line hands out none of the numbers that the name
// has already given to others: counters never go back (I16). line.mu is held.
func (l *line) raiseNumbers(ino tine.Ino, cookie uint64) error {
	t, err := l.begin()
	if err != nil {
		return err
	}
	defer t.close()
	c := &l.counters
	if c.NextIno < ino || c.NextCookie < cookie {
		c.NextIno, c.NextCookie, c.dirty = max(c.NextIno, ino), max(c.NextCookie, cookie), true
	}
	return nil
}

// firstCounters puts a new line's counters into the record that makes the line:
// it has no commit of its own before. line.mu is held.
func (l *line) firstCounters(r *rows) {
	k := record.TableKey(record.TableCounters)
	l.strata[0].Note(k)
	r.list.Set(record.Key(l.strata[0].ID, k, l.epoch), l.counters.Append(nil))
	l.counters.dirty, l.counters.at = false, Found{Kind: Value, Birth: l.epoch}
	l.state.touched, l.state.written = true, true
	l.state.stored.Store(true)
}

// Promote makes the fork's head this disk's head: the fork's name goes, its
// checkpoints become this disk's. It is refused when this disk has changed
// since the fork branched off, unless forced.
func (d *Disk) Promote(ctx context.Context, fork *Disk, force bool, a Actor) (undo string, err error) {
	if fork == d {
		return "", tine.Errorf(tine.KindInvalid, "a disk cannot be promoted onto itself")
	}
	if fork.tree != d.tree {
		return "", tine.Errorf(tine.KindCrossDevice, "the two disks do not descend from the same root").
			WithHint("promote a fork of the disk, or copy the files")
	}
	s, undo, err := d.promote(fork, force, a)
	if err != nil {
		return "", err
	}
	return undo, s.Wait(ctx, d.engine.Room)
}

func (d *Disk) promote(fork *Disk, force bool, a Actor) (*step.Step, string, error) {
	first, second := d, fork
	if string(first.id[:]) > string(second.id[:]) {
		first, second = second, first
	}
	first.mu.Lock()
	defer first.mu.Unlock()
	second.mu.Lock()
	defer second.mu.Unlock()
	t := d.tree
	if err := t.ensure(); err != nil {
		return nil, "", err
	}
	defer t.mu.Unlock()
	for _, k := range []*Disk{d, fork} {
		if err := k.living(); err != nil {
			return nil, "", err
		}
	}
	if err := fork.idle(); err != nil {
		return nil, "", err
	}
	if !force && !d.unchangedSince(fork) {
		return nil, "", tine.Errorf(tine.KindConflict, "disk %q has changed since %q was forked from it", d.rec.Name, fork.rec.Name).
			WithHint("`tine diff %s %s` shows how; --force promotes all the same, and `tine undo %s` takes it back", d.rec.Name, fork.rec.Name, d.rec.Name)
	}
	r := newRows()
	name := fork.rec.Name
	return d.exchange(r, fork.line, "promote", "of "+name, a, func(r *rows) { t.retire(r, d, fork) })
}

// retire takes a promoted fork's name away and gives its checkpoints to the
// disk; t.mu is held.
func (t *tree) retire(r *rows, d, fork *Disk) {
	for _, c := range fork.ownCheckpoints() {
		if c.rec.Auto {
			t.dropCheckpoint(r, fork, c)
			continue
		}
		name := c.rec.Name
		for n := 1; d.checkpoints[name] != nil; n++ {
			name = fmt.Sprintf("%.100s-%.20s-%d", c.rec.Name, fork.rec.Name, n)
		}
		c.rec.Name, c.rec.Disk = name, d.id
		d.own(c)
		t.setCheckpoint(r, c)
	}
	fork.checkpoints = nil
	t.forgetDisk(r, fork)
	e := t.engine
	e.mu.Lock()
	delete(e.names, diskName{t.rec.Tenant, fork.rec.Name})
	delete(e.disks, fork.id)
	e.mu.Unlock()
}

// unchangedSince reports whether all that the disk shows is in the fork's
// history, so that promoting the fork loses nothing of it: what version control
// calls a fast-forward. The answer does not depend on which lines have been
// absorbed meanwhile.
func (d *Disk) unchangedSince(fork *Disk) bool {
	l, at, clean := d.line.standing()
	if !clean {
		return false
	}
	for f, upTo := fork.line, tine.Head; ; f, upTo = f.parent.root(), f.branch {
		if f == l {
			return at <= upTo
		}
		if f.parent == nil {
			return false
		}
	}
}

// standing returns the point that the line's head shows: clean is false when
// it shows something that is no point yet. A line never written stands where
// it branched off. t.mu is held.
func (l *line) standing() (at *line, epoch tine.Epoch, clean bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.untouched() {
		return l.parent.root(), l.branch, true
	}
	return l, l.epoch - 1, !l.state.written && !l.counters.dirty
}
