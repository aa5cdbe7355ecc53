package timeline

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/step"
	"tine.dev/tine/internal/fs/stratum"
	"tine.dev/tine/internal/tine"
)

// Disk is a name for the head of a line.
type Disk struct {
	engine *Engine
	id     tine.DiskID
	tree   *tree
	rec    record.Disk // guarded by tree.mu

	mu    sync.RWMutex                 // held for reading by every operation on the head
	line  *line                        // written with mu and tree.mu held
	gen   uint32                       // grows when the head is exchanged
	quota atomic.Pointer[record.Quota] // rec.Quota, for the head's operations; nil: none
	inUse int                          // attachments; guarded by tree.mu
	gone  bool                         // purged, or promoted onto another; guarded by tree.mu

	checkpoints map[string]*checkpoint // by name; guarded by tree.mu
	autos       []*checkpoint          // the automatic ones, oldest first; guarded by tree.mu
}

// Actor is on whose behalf a record is made.
type Actor struct{ Author, Caller string }

func (d *Disk) entry(now int64, op, detail string, a Actor) record.LogEntry {
	return record.LogEntry{Time: now, Op: op, Detail: detail, Author: a.Author, Caller: a.Caller}
}

// ID returns the disk's identifier.
func (d *Disk) ID() tine.DiskID { return d.id }

// Tree returns the id of the disk's tree.
func (d *Disk) Tree() tine.TreeID { return d.tree.id }

// Record returns what is stored of the disk and of its tree. It works also while
// the tree cannot be loaded.
func (d *Disk) Record() (record.Disk, record.Tree) {
	d.tree.mu.Lock()
	defer d.tree.mu.Unlock()
	return d.rec, d.tree.rec
}

// Failed returns why nothing can become durable on the disk until the data directory
// is opened again, nil if it can.
func (d *Disk) Failed() error { return d.tree.check() }

// Find returns the living disk of that name.
func (e *Engine) Find(tenant tine.TenantID, name string) (*Disk, error) {
	if err := tine.CheckName("disk", name); err != nil {
		return nil, err
	}
	e.mu.Lock()
	d := e.names[diskName{tenant, name}]
	e.mu.Unlock()
	if d == nil {
		return nil, tine.Errorf(tine.KindNotFound, "there is no disk %q", name).
			WithHint("`tine disk ls` lists the disks")
	}
	return d, nil
}

// Reserve takes names that must not exist yet; release gives back those that
// were not filled.
func (e *Engine) Reserve(tenant tine.TenantID, names ...string) (release func(), err error) {
	for _, n := range names {
		if err := tine.CheckName("disk", n); err != nil {
			return nil, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, tine.Errorf(tine.KindUnavailable, "the server is stopping")
	}
	for i, n := range names {
		if _, taken := e.names[diskName{tenant, n}]; taken {
			for _, m := range names[:i] {
				delete(e.names, diskName{tenant, m})
			}
			return nil, tine.Errorf(tine.KindExists, "a disk %q exists already", n).
				WithHint("choose another name, or remove it with `tine disk rm %s`", n)
		}
		e.names[diskName{tenant, n}] = nil
	}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, n := range names {
			if k := (diskName{tenant, n}); e.names[k] == nil {
				delete(e.names, k)
			}
		}
	}, nil
}

func (e *Engine) publish(tenant tine.TenantID, ds ...*Disk) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range ds {
		e.disks[d.id] = d
		e.names[diskName{tenant, d.rec.Name}] = d
	}
}

// FirstRow is a row that a new disk starts with.
type FirstRow struct {
	Key   record.Logical
	Value []byte
}

// Origin says where a new disk lives, and what it starts with.
type Origin struct {
	Store    tine.StoreID // zero: this machine alone
	Quota    record.Quota
	Durable  record.Durability
	Rows     []FirstRow
	Counters record.Counters
}

// Create makes a disk, the root of a tree of its own. It is durable on this
// machine when Create returns.
func (e *Engine) Create(ctx context.Context, tenant tine.TenantID, name string, a Actor, o Origin) (*Disk, error) {
	if err := o.Quota.Check(); err != nil {
		return nil, err
	}
	if err := e.Room.Grow(); err != nil {
		return nil, err
	}
	release, err := e.Reserve(tenant, name)
	if err != nil {
		return nil, err
	}
	defer release()
	now := e.Clock()
	t := newTree(e, tine.NewID[tine.TreeID](now), record.Tree{Tenant: tenant, Store: o.Store, Created: now.UnixNano()})
	if err := t.enter(ctx, true); err != nil {
		return nil, err
	}
	t.loaded = true
	t.mu.Lock()
	l := t.newLine(tine.NewID[tine.TimelineID](now), nil, 0)
	l.strata = []*stratum.Stratum{stratum.New(tine.NewID[tine.StratumID](now))}
	d := t.newDisk(name, l, now.UnixNano())
	d.rec.Durable = o.Durable
	d.setQuota(o.Quota)
	l.state.touched, l.state.written = true, true
	l.state.stored.Store(true)
	l.counters = lineCounters{Counters: o.Counters, at: Found{Kind: Value, Birth: l.epoch}, loaded: true}
	r := newRows()
	r.list.Set(record.Key(tenant, record.IDKey(record.TableTree, t.id), 0), t.rec.Append(nil))
	for _, row := range o.Rows {
		r.list.Set(record.Key(l.strata[0].ID, row.Key, l.epoch), row.Value)
	}
	r.list.Set(record.Key(l.strata[0].ID, record.TableKey(record.TableCounters), l.epoch), l.counters.Append(nil))
	t.setTimeline(r, l)
	t.setDisk(r, d)
	t.setLog(r, d, d.entry(now.UnixNano(), "create", "", a))
	l.after = t.commit(r)
	t.mu.Unlock()
	if err := l.after.Wait(ctx, e.Room); err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.trees[t.id] = t
	e.mu.Unlock()
	e.publish(tenant, d)
	return d, nil
}

// newDisk makes a disk in memory whose head is l; t.mu is held.
func (t *tree) newDisk(name string, l *line, now int64) *Disk {
	d := &Disk{engine: t.engine, id: tine.NewID[tine.DiskID](t.engine.Clock()), tree: t, line: l, gen: 1}
	d.rec = record.Disk{Tree: t.id, Timeline: l.id, Name: name, Created: now}
	l.setHead(d)
	t.disks = append(t.disks, d)
	return d
}

// Rename gives the disk another name.
func (d *Disk) Rename(ctx context.Context, name string, a Actor) error {
	e, t := d.engine, d.tree
	release, err := e.Reserve(t.rec.Tenant, name)
	if err != nil {
		return err
	}
	defer release()
	if err := d.ensureLiving(); err != nil {
		return err
	}
	old := d.rec.Name
	d.rec.Name = name
	s := t.change(d, "rename", old+" to "+name, a)
	e.mu.Lock()
	delete(e.names, diskName{t.rec.Tenant, old})
	e.names[diskName{t.rec.Tenant, name}] = d
	e.mu.Unlock()
	t.mu.Unlock()
	return s.Wait(ctx, e.Room)
}

// exists refuses disks that were purged or promoted since they were found by
// their name; t.mu is held.
func (d *Disk) exists() error {
	if d.gone {
		return tine.Errorf(tine.KindNotFound, "disk %q has just been purged or promoted", d.rec.Name).
			WithHint("`tine disk ls` lists the disks")
	}
	return nil
}

// living refuses disks that were removed meanwhile; t.mu is held. Whatever
// changes a disk or makes something of it asks first, for it was found by its
// name without t.mu.
func (d *Disk) living() error {
	if err := d.exists(); err != nil {
		return err
	}
	if d.rec.Deleted != 0 {
		return tine.Errorf(tine.KindNotFound, "disk %q has been removed", d.rec.Name).
			WithHint("`tine disk undelete %s` brings it back", d.rec.Name)
	}
	return nil
}

// ensureLiving loads the disk's tree and refuses a disk that was removed. It
// leaves t.mu held on success.
func (d *Disk) ensureLiving() error {
	err := d.tree.ensure()
	if err != nil {
		return err
	}
	if err = d.living(); err != nil {
		d.tree.mu.Unlock()
	}
	return err
}

// idle refuses disks that are attached; t.mu is held.
func (d *Disk) idle() error {
	if d.inUse > 0 {
		return tine.Errorf(tine.KindBusy, "disk %q is in use", d.rec.Name).
			WithHint("unmount it first; `tine mounts` shows where")
	}
	return nil
}

// Remove puts the disk into the trash, from which Undelete brings it back, or,
// with purge, gives it up for good together with its checkpoints: the space
// comes back in the background.
func (d *Disk) Remove(ctx context.Context, purge bool, a Actor) error {
	return d.remove(ctx, purge, a, func() bool { return true })
}

// Expire purges the disk if it has been in the trash since before the given
// time, in nanoseconds since 1970.
func (d *Disk) Expire(ctx context.Context, before int64) error {
	return d.remove(ctx, true, Actor{Caller: "retention"}, func() bool {
		return d.rec.Deleted != 0 && d.rec.Deleted < before
	})
}

// remove removes the disk unless, when its turn comes, that is not wanted any
// more.
func (d *Disk) remove(ctx context.Context, purge bool, a Actor, wanted func() bool) error {
	e, t := d.engine, d.tree
	if err := t.ensure(); err != nil {
		return err
	}
	if err := d.exists(); err != nil {
		t.mu.Unlock()
		return err
	}
	if !wanted() {
		t.mu.Unlock()
		return nil
	}
	if err := d.idle(); err != nil {
		t.mu.Unlock()
		return err
	}
	for _, c := range d.checkpoints {
		if c.open > 0 {
			t.mu.Unlock()
			return tine.Errorf(tine.KindBusy, "checkpoint %q of disk %q is in use", c.rec.Name, d.rec.Name).
				WithHint("unmount it first; `tine mounts` shows where")
		}
	}
	wasLiving, name := d.rec.Deleted == 0, d.rec.Name
	r := newRows()
	var s *step.Step
	if purge {
		s = t.purge(r, d)
	} else {
		if err := d.living(); err != nil {
			t.mu.Unlock()
			return err
		}
		d.rec.Deleted = e.now()
		t.setDisk(r, d)
		t.setLog(r, d, d.entry(d.rec.Deleted, "remove", "", a))
		s = t.commit(r)
	}
	e.unpublish(diskName{t.rec.Tenant, name}, d, wasLiving, purge)
	t.mu.Unlock()
	err := s.Wait(ctx, e.Room)
	e.janitor.Wake()
	return err
}

// unpublish takes a removed disk out of the names, into the trash or away.
func (e *Engine) unpublish(k diskName, d *Disk, living, purged bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if living {
		delete(e.names, k)
	} else {
		e.trash[k] = slices.DeleteFunc(e.trash[k], func(x *Disk) bool { return x == d })
	}
	if purged {
		delete(e.disks, d.id)
	} else {
		e.trash[k] = append(e.trash[k], d)
	}
}

// purge gives up a disk's head and checkpoints; t.mu is held.
func (t *tree) purge(r *rows, d *Disk) *step.Step {
	l := d.line
	l.mu.Lock()
	last := l.seal()
	l.kick()
	l.setHead(nil)
	l.mu.Unlock()
	t.forgetDisk(r, d)
	for _, c := range d.checkpoints {
		t.dropCheckpoint(r, d, c)
	}
	t.addTask(r, record.TaskDrop, l, tine.Head)
	return t.commit(r, last)
}

// forgetDisk takes a disk out of the tree; t.mu is held.
func (t *tree) forgetDisk(r *rows, d *Disk) {
	d.gone = true
	t.delDisk(r, d)
	t.disks = slices.DeleteFunc(t.disks, func(x *Disk) bool { return x == d })
}

// Undelete brings back the newest removed disk of that name.
func (e *Engine) Undelete(ctx context.Context, tenant tine.TenantID, name string, a Actor) (*Disk, error) {
	release, err := e.Reserve(tenant, name)
	if err != nil {
		return nil, err
	}
	defer release()
	k := diskName{tenant, name}
	e.mu.Lock()
	var best *Disk
	if ds := e.trash[k]; len(ds) > 0 {
		best = ds[len(ds)-1]
		e.trash[k] = ds[:len(ds)-1]
	}
	e.mu.Unlock()
	if best == nil {
		return nil, tine.Errorf(tine.KindNotFound, "there is no removed disk %q", name).
			WithHint("`tine disk ls --deleted` lists what can be brought back")
	}
	t := best.tree
	if err := t.ensure(); err != nil {
		e.mu.Lock()
		e.trash[k] = append(e.trash[k], best)
		e.mu.Unlock()
		return nil, err
	}
	if err := best.exists(); err != nil {
		t.mu.Unlock()
		return nil, err
	}
	best.rec.Deleted = 0
	s := t.change(best, "undelete", "", a)
	e.publish(tenant, best)
	t.mu.Unlock()
	return best, s.Wait(ctx, e.Room)
}
