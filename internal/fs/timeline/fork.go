package timeline

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/step"
	"tine.dev/tine/internal/tine"
)

// point is an epoch of a line: what a fork branches off and a checkpoint names.
type point struct {
	line  *line
	epoch tine.Epoch
	last  *step.Step // after which all that it shows is durable
	moved bool       // the line's epoch was bumped for it: its record must be written
}

// freeze makes the head's present state a point. It costs one record: the open
// layer is sealed and the epoch bumped (I2), unless nothing was written since the
// last bump. A line that was never written is skipped: its state is its
// parent's at the branch. The point gets n holders in the same moment, before
// any write can replace what it shows. t.mu is held, and line.mu not.
func (l *line) freeze(r *rows, n int) (point, error) {
	p, err := l.tryFreeze(r, n)
	if err == nil && p.line != l {
		p.line.hold(r, p.epoch, n)
	}
	return p, err
}

func (l *line) tryFreeze(r *rows, n int) (p point, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.commits.failed != nil {
		return point{}, l.commits.failed
	}
	if l.untouched() {
		return point{line: l.parent.root(), epoch: l.branch, last: l.after}, nil
	}
	defer func() {
		for range n {
			l.pins.Add(p.epoch)
		}
		l.after = r.Step
	}()
	if !l.state.written && !l.counters.dirty && l.epoch > l.first {
		return point{line: l, epoch: l.epoch - 1, last: l.lastStep()}, nil
	}
	p = point{line: l, epoch: l.epoch, last: l.seal(), moved: true}
	l.epoch++
	l.open.epoch = l.epoch
	l.state.written = false
	if len(l.layers()) > 0 {
		l.kick()
	}
	return p, nil
}

// find returns a disk's checkpoint by name; t.mu is held.
func (d *Disk) find(name string) (*checkpoint, error) {
	if c := d.checkpoints[name]; c != nil {
		return c, nil
	}
	return nil, tine.Errorf(tine.KindNotFound, "disk %q has no checkpoint %q", d.rec.Name, name).
		WithHint("`tine checkpoint ls %s` lists them", d.rec.Name)
}

// Fork makes new disks whose lines branch off this disk's head, or off one of
// its checkpoints. They can be used at once; the step is done when they are
// durable. All of them are made or none.
func (d *Disk) Fork(cp string, names []string, a Actor) ([]*Disk, Step, error) {
	e, t := d.engine, d.tree
	if err := e.Room.Grow(); err != nil {
		return nil, Step{}, err
	}
	release, err := e.Reserve(t.rec.Tenant, names...)
	if err != nil {
		return nil, Step{}, err
	}
	defer release()
	if err := d.ensureLiving(); err != nil {
		return nil, Step{}, err
	}
	defer t.mu.Unlock()
	r := newRows()
	p, err := d.pointOf(r, cp, len(names))
	if err != nil {
		return nil, Step{}, err
	}
	now, from := e.Clock(), d.rec.Name
	if cp != "" {
		from += "@" + cp
	}
	var ds []*Disk
	for _, name := range names {
		child := t.newLine(tine.NewID[tine.TimelineID](now), p.line, p.epoch)
		child.strata = t.newStrata(now)
		p.line.adopt(child)
		k := t.newDisk(name, child, now.UnixNano())
		k.rec.Origin, k.rec.Forked, k.rec.Durable = from, d.id, d.rec.Durable
		k.setQuota(d.rec.Quota)
		t.setTimeline(r, child)
		t.setDisk(r, k)
		t.setLog(r, k, k.entry(now.UnixNano(), "fork", "from "+from, a))
		ds = append(ds, k)
	}
	t.setLog(r, d, d.entry(now.UnixNano(), "fork", "to "+strings.Join(names, " "), a))
	if p.moved {
		t.setTimeline(r, p.line)
	}
	for _, k := range ds {
		k.line.after = r.Step
	}
	s := t.commit(r, p.last)
	e.publish(t.rec.Tenant, ds...)
	return ds, Step{s, e}, nil
}

// pointOf returns what DISK or DISK@CHECKPOINT means now, with n holders;
// t.mu is held.
func (d *Disk) pointOf(r *rows, cp string, n int) (point, error) {
	if cp == "" {
		return d.line.freeze(r, n)
	}
	c, err := d.find(cp)
	if err != nil {
		return point{}, err
	}
	l := c.line.root()
	l.hold(r, c.rec.Epoch, n)
	return point{line: l, epoch: c.rec.Epoch}, nil
}

// Step is something that will be durable.
type Step struct {
	step   *step.Step
	engine *Engine
}

// Wait waits until it is.
func (s Step) Wait(ctx context.Context) error { return s.step.Wait(ctx, s.engine.Room) }

// Checkpoint names the head's present state.
func (d *Disk) Checkpoint(name, message string, a Actor) (CheckpointInfo, Step, error) {
	if err := tine.CheckName("checkpoint", name); err != nil {
		return CheckpointInfo{}, Step{}, err
	}
	if len(message) > tine.MaxMessageBytes {
		return CheckpointInfo{}, Step{}, tine.Errorf(tine.KindInvalid, "the message has %d bytes; at most %d are allowed", len(message), tine.MaxMessageBytes)
	}
	t := d.tree
	if err := d.engine.Room.Grow(); err != nil {
		return CheckpointInfo{}, Step{}, err
	}
	if err := d.ensureLiving(); err != nil {
		return CheckpointInfo{}, Step{}, err
	}
	defer t.mu.Unlock()
	if _, err := d.find(name); err == nil {
		return CheckpointInfo{}, Step{}, tine.Errorf(tine.KindExists, "disk %q has a checkpoint %q already", d.rec.Name, name).
			WithHint("choose another name, or remove it with `tine checkpoint rm %s %s`", d.rec.Name, name)
	}
	r := newRows()
	c, p, err := d.checkpoint(r, record.Checkpoint{Name: name, Message: message, Author: a.Author, Caller: a.Caller})
	if err != nil {
		return CheckpointInfo{}, Step{}, err
	}
	t.setLog(r, d, d.entry(c.rec.Created, "checkpoint", name, a))
	s := t.commit(r, p.last)
	return d.info(c), Step{s, d.engine}, nil
}

// checkpoint freezes the head and adds the rows of a checkpoint of it; t.mu is
// held. The caller commits them after p.last.
func (d *Disk) checkpoint(r *rows, rec record.Checkpoint) (*checkpoint, point, error) {
	t := d.tree
	p, err := d.line.freeze(r, 1)
	if err != nil {
		return nil, p, err
	}
	now := d.engine.Clock()
	rec.Disk, rec.Epoch, rec.Created = d.id, p.epoch, now.UnixNano()
	c := &checkpoint{id: tine.NewID[tine.CheckpointID](now), rec: rec, line: p.line}
	d.own(c)
	t.setCheckpoint(r, c)
	if p.moved {
		t.setTimeline(r, p.line)
	}
	return c, p, nil
}

// CheckpointInfo describes a checkpoint.
type CheckpointInfo struct {
	ID tine.CheckpointID
	record.Checkpoint
}

func (d *Disk) info(c *checkpoint) CheckpointInfo { return CheckpointInfo{c.id, c.rec} }

// Checkpoints returns the disk's checkpoints, oldest first.
func (d *Disk) Checkpoints() ([]CheckpointInfo, error) {
	if err := d.tree.ensure(); err != nil {
		return nil, err
	}
	defer d.tree.mu.Unlock()
	var cs []CheckpointInfo
	for _, c := range d.ownCheckpoints() {
		cs = append(cs, d.info(c))
	}
	return cs, nil
}

// ownCheckpoints returns the disk's checkpoints, oldest first; t.mu is held.
func (d *Disk) ownCheckpoints() []*checkpoint {
	return slices.SortedFunc(maps.Values(d.checkpoints), func(a, b *checkpoint) int {
		if a.rec.Created != b.rec.Created {
			return int(min(1, max(-1, a.rec.Created-b.rec.Created)))
		}
		return strings.Compare(a.rec.Name, b.rec.Name)
	})
}

// RemoveCheckpoint gives up a checkpoint; the space comes back in the
// background.
func (d *Disk) RemoveCheckpoint(ctx context.Context, name string, a Actor) error {
	t := d.tree
	if err := t.ensure(); err != nil {
		return err
	}
	c, err := d.find(name)
	if err == nil && c.open > 0 {
		err = tine.Errorf(tine.KindBusy, "checkpoint %q of disk %q is in use", name, d.rec.Name).
			WithHint("unmount it first; `tine mounts` shows where")
	}
	if err != nil {
		t.mu.Unlock()
		return err
	}
	r := newRows()
	t.dropCheckpoint(r, d, c)
	t.setLog(r, d, d.entry(d.engine.now(), "checkpoint-remove", name, a))
	s := t.commit(r)
	t.mu.Unlock()
	err = s.Wait(ctx, d.engine.Room)
	d.engine.janitor.Wake()
	return err
}

// own makes the checkpoint one of the disk's; t.mu is held.
func (d *Disk) own(c *checkpoint) {
	if d.checkpoints == nil {
		d.checkpoints = map[string]*checkpoint{}
	}
	d.checkpoints[c.rec.Name] = c
	if c.rec.Auto {
		d.autos = append(d.autos, c)
	}
}

// dropCheckpoint gives up a checkpoint's pin; t.mu is held.
func (t *tree) dropCheckpoint(r *rows, d *Disk, c *checkpoint) {
	l := c.line.root()
	delete(d.checkpoints, c.rec.Name)
	d.autos = slices.DeleteFunc(d.autos, func(x *checkpoint) bool { return x == c })
	r.list.Delete(t.key(record.IDKey(record.TableCheckpoint, c.id)))
	if l.release(r, c.rec.Epoch) {
		t.addTask(r, record.TaskDrop, l, c.rec.Epoch)
	}
}

// autoName names an automatic checkpoint so that it neither meets another nor
// a name that people would choose.
func (d *Disk) autoName(op string) string {
	for n := d.rec.Moves + 1; ; n++ {
		name := fmt.Sprintf("auto-%s-%d", op, n)
		if _, err := d.find(name); err != nil {
			return name
		}
	}
}
