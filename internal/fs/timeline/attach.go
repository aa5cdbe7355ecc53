package timeline

import (
	"context"
	"maps"
	"slices"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/stratum"
	"tine.dev/tine/internal/tine"
)

// Attachment is one use of a disk's head, or of a checkpoint.
type Attachment struct {
	disk   *Disk
	frozen *View // of a checkpoint; nil for a head
	cp     *checkpoint
}

// Attach begins a use of the disk, or of one of its checkpoints. While it
// lasts neither can be removed.
func (d *Disk) Attach(cp string) (*Attachment, error) {
	t := d.tree
	if err := d.ensureLiving(); err != nil {
		return nil, err
	}
	defer t.mu.Unlock()
	a := &Attachment{disk: d}
	if cp == "" {
		d.inUse++
		return a, nil
	}
	c, err := d.find(cp)
	if err != nil {
		return nil, err
	}
	c.open++
	a.cp, a.frozen = c, &View{line: c.line, epoch: c.rec.Epoch}
	return a, nil
}

// Detach ends the use.
func (a *Attachment) Detach() {
	t := a.disk.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.cp != nil {
		a.cp.open--
	} else {
		a.disk.inUse--
	}
}

// Disk returns what is attached to.
func (a *Attachment) Disk() *Disk { return a.disk }

// Frozen reports whether it is a checkpoint.
func (a *Attachment) Frozen() bool { return a.frozen != nil }

// Enter begins one operation on a state of generation gen, or on whichever is
// current for 0. The state cannot be exchanged until exit is called. Another
// generation is tine.ErrStale (I17).
func (a *Attachment) Enter(gen uint32) (v *View, current uint32, err error) {
	if a.frozen != nil {
		return a.frozen, 1, nil
	}
	d := a.disk
	d.mu.RLock()
	if gen != 0 && gen != d.gen {
		d.mu.RUnlock()
		return nil, 0, tine.ErrStale
	}
	return &d.line.view, d.gen, nil
}

// Exit ends what Enter began.
func (a *Attachment) Exit() {
	if a.frozen == nil {
		a.disk.mu.RUnlock()
	}
}

// Generation returns the current generation.
func (a *Attachment) Generation() uint32 {
	_, gen, _ := a.Enter(0)
	a.Exit()
	return gen
}

// Sync makes durable all that the view's line shows (P1).
func (v *View) Sync(ctx context.Context) error {
	if v.epoch != tine.Head {
		return nil
	}
	return v.line.sync(ctx)
}

// Sync makes durable all that has reached the disk.
func (d *Disk) Sync(ctx context.Context) error {
	if err := d.tree.ensure(); err != nil {
		return err
	}
	l := d.line
	d.tree.mu.Unlock()
	return l.sync(ctx)
}

// SealUnused seals the open segment of a disk to which nothing is attached, so
// that no file is kept open for it; the next write begins another segment.
func (d *Disk) SealUnused(ctx context.Context) error {
	if err := d.tree.ensure(); err != nil {
		return err
	}
	l, idle := d.line, d.exists() == nil && d.inUse == 0
	d.tree.mu.Unlock()
	if !idle {
		return nil
	}
	return l.syncAndSeal(ctx)
}

// HeadInfo describes a disk's head.
type HeadInfo struct {
	Timeline tine.TimelineID
	Epoch    tine.Epoch
	Depth    int // lines that a look-up may have to ask
	Strata   int
	InUse    int
	Dirty    int64 // bytes written and not yet durable
}

// dirty returns how many sealed layers wait to be durable, and about how many
// bytes, in layers and segments, are not durable yet. line.mu is held.
func (l *line) dirty() (layers int, bytes int64) {
	bytes = int64(l.open.bytes)
	for _, y := range l.layers() {
		layers, bytes = layers+1, bytes+int64(y.bytes)
	}
	l.space.mu.Lock()
	defer l.space.mu.Unlock()
	if w := l.space.writer; w != nil {
		bytes += w.End() - l.space.info.loc.Load().End
	}
	for _, s := range l.space.full {
		bytes += s.end - s.info.loc.Load().End
	}
	return layers, bytes
}

// Info describes the disk's head; see Record for the rest.
func (d *Disk) Info() (HeadInfo, error) {
	t := d.tree
	if err := t.ensure(); err != nil {
		return HeadInfo{}, err
	}
	defer t.mu.Unlock()
	l := d.line
	i := HeadInfo{Timeline: l.id, InUse: d.inUse}
	l.mu.RLock()
	i.Epoch = l.epoch
	_, i.Dirty = l.dirty()
	l.mu.RUnlock()
	for _, h := range l.view.hops() {
		i.Depth++
		i.Strata += len(h.strata)
	}
	return i, nil
}

// Disks returns the tenant's living disks, or those in the trash.
func (e *Engine) Disks(tenant tine.TenantID, deleted bool) []*Disk {
	e.mu.Lock()
	defer e.mu.Unlock()
	var ds []*Disk
	if deleted {
		for k, trash := range e.trash {
			if k.tenant == tenant {
				ds = append(ds, trash...)
			}
		}
		return ds
	}
	for k, d := range e.names {
		if k.tenant == tenant && d != nil {
			ds = append(ds, d)
		}
	}
	return ds
}

// Trashed returns the newest removed disk of the name.
func (e *Engine) Trashed(tenant tine.TenantID, name string) (*Disk, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ds := e.trash[diskName{tenant, name}]; len(ds) > 0 {
		return ds[len(ds)-1], nil
	}
	return nil, tine.Errorf(tine.KindNotFound, "there is no disk %q", name).WithHint("`tine disk ls --deleted` lists removed disks")
}

// Log returns the disk's history, oldest first.
func (d *Disk) Log() ([]record.LogEntry, error) {
	t := d.tree
	if err := t.ensure(); err != nil {
		return nil, err
	}
	last := t.last
	t.mu.Unlock()
	if err := last.Wait(context.Background(), t.engine.Room); err != nil && tine.KindOf(err) != tine.KindNoSpace {
		return nil, err // on a full device the durable part is better than nothing
	}
	snap := t.engine.Rows.Snapshot()
	defer snap.Close()
	var es []record.LogEntry
	err := stratum.ScanPrefix(snap, t.id, record.IDKey(record.TableLog, d.id), func(_ record.Logical, v []byte) error {
		e, err := record.DecodeLogEntry(v)
		es = append(es, e)
		return err
	})
	return es, err
}

// Stats are figures of the whole engine.
type Stats struct {
	Trees, Disks, Lines, Strata, Checkpoints, Segments, Aliases int
	LiveBytes, SegmentBytes, RowBytes                           int64
	PendingTasks                                                int
	Layers                                                      int   // sealed, not yet durable
	DirtyBytes                                                  int64 // written, not yet durable
}

// Stats adds up the figures of the trees loaded so far.
func (e *Engine) Stats() Stats {
	var s Stats
	e.mu.Lock()
	s.Disks = len(e.disks)
	ts := slices.Collect(maps.Values(e.trees))
	e.mu.Unlock()
	s.Trees = len(ts)
	for _, t := range ts {
		t.mu.Lock()
		s.Lines += len(t.lines)
		s.Aliases += len(t.aliases)
		s.PendingTasks += len(t.tasks)
		for _, d := range t.disks {
			s.Checkpoints += len(d.checkpoints)
		}
		for _, l := range t.lines {
			s.Strata += len(l.strata)
			l.mu.RLock()
			s.Segments += len(l.space.segs)
			layers, dirty := l.dirty()
			s.Layers, s.DirtyBytes = s.Layers+layers, s.DirtyBytes+dirty
			for _, info := range l.space.segs {
				s.LiveBytes += info.live
			}
			l.mu.RUnlock()
		}
		t.mu.Unlock()
	}
	s.SegmentBytes = e.Segments.DiskBytes()
	s.RowBytes = e.Rows.Metrics().DiskBytes
	return s
}

// Related reports whether two attachments are of one tree.
func Related(a, b *Attachment) bool { return a.disk.tree == b.disk.tree }

// EnterBoth begins an operation on what two attachments show now, in an order
// in which any two can be entered. Neither can be exchanged until exit.
func EnterBoth(a, b *Attachment) (va, vb *View, exit func(), err error) {
	first, second := a, b
	if string(first.disk.id[:]) > string(second.disk.id[:]) {
		first, second = second, first
	}
	views := map[*Attachment]*View{}
	for _, x := range []*Attachment{first, second} {
		if views[x], _, err = x.Enter(0); err != nil {
			if x == second {
				first.Exit()
			}
			return nil, nil, nil, err
		}
	}
	return views[a], views[b], func() { first.Exit(); second.Exit() }, nil
}

// SameHead reports whether two attachments are of the head of one disk.
func SameHead(a, b *Attachment) bool { return a.frozen == nil && b.frozen == nil && a.disk == b.disk }
