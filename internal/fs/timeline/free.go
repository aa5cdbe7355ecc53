package timeline

import (
	"context"
	"slices"

	"tine.dev/tine/internal/fs/crashpoint"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/reclaim"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/step"
	"tine.dev/tine/internal/fs/stratum"
	"tine.dev/tine/internal/tine"
)

// task is work that must not be forgotten, such as a drop: the pin at epoch of
// the line lost its last holder. It stands in a row from the record that released the pin until it
// has been run to its end, so a crash between only means running it again.
type task struct {
	kind  record.TaskKind
	seq   uint64
	line  *line // follow with root
	epoch tine.Epoch
}

// addTask adds a task to a record; t.mu is held.
func (t *tree) addTask(r *rows, kind record.TaskKind, l *line, e tine.Epoch) {
	t.nextTask++
	r.list.Set(t.key(record.TaskKey(t.nextTask)), record.Task{Kind: kind, Timeline: l.id, Epoch: e}.Append(nil))
	l.tasks++
	t.tasks = append(t.tasks, task{kind, t.nextTask, l, e})
}

// stepKeys is how many rows a background step looks at while it holds the
// line's lock.
const stepKeys = 32

// stepBytes is how much a background step may leave to be committed before the
// next one waits for it.
const stepBytes = 256 << 10

// tasksAtOnce bounds how many tasks share their waits.
const tasksAtOnce = 64

// runTasks runs the oldest tasks of the tree; false if there are none. It is
// the janitor's. Waiting for the device is what a task costs, so many go
// together: one wait for the records that left them, one for what their lines
// had pending, one for what they freed.
func (t *tree) runTasks(ctx context.Context) (bool, error) {
	t.mu.Lock()
	batch, last := slices.Clone(t.tasks[:min(len(t.tasks), tasksAtOnce)]), t.last
	t.mu.Unlock()
	if len(batch) == 0 {
		return false, nil
	}
	// A pin's release is durable before anything that it permits is freed (I8).
	if err := last.Wait(ctx, t.engine.Room); err != nil {
		return true, err
	}
	// What drop looks for in the store is there: versions that were added above
	// a pin before it was released.
	if err := syncLines(ctx, batch); err != nil {
		return true, err
	}
	t.engine.Crash.At(crashpoint.DropStarted)
	for _, k := range batch {
		if err := t.runTask(ctx, k); err != nil {
			return true, err
		}
	}
	// What was freed is durable before the tasks are forgotten.
	if err := syncLines(ctx, batch); err != nil {
		return true, err
	}
	t.endTasks(batch)
	return true, nil
}

// runTask frees what one task says can go.
func (t *tree) runTask(ctx context.Context, k task) error {
	l := k.line.root()
	t.mu.Lock()
	pins := l.pinsWithHead()
	t.mu.Unlock()
	switch _, pinned := slices.BinarySearch(pins, k.epoch); {
	case len(pins) == 0: // the line goes whole
	case k.kind == record.TaskTombs:
		return l.freeBorn(ctx, kv.Born{After: k.epoch, UpTo: tine.Head}, kv.Born{})
	case !pinned:
		return l.drop(ctx, pins, k.epoch)
	}
	return nil
}

// endTasks takes the tasks away, and the lines that nothing holds after them.
func (t *tree) endTasks(batch []task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tasks = t.tasks[len(batch):]
	ended := map[*line]*rows{}
	var lines []*line // in the order of their tasks
	for _, k := range batch {
		l := k.line.root()
		if ended[l] == nil {
			ended[l] = newRows()
			lines = append(lines, l)
		}
		ended[l].list.Delete(t.key(record.TaskKey(k.seq)))
		l.tasks--
	}
	for _, l := range lines {
		if l.tasks == 0 && l.head == nil && len(l.pins.Sorted()) == 0 {
			l.settle() // nothing of the line may be under way when it goes
			t.remove(ended[l], l)
		} else {
			t.commit(ended[l], l.lastStepLocked())
		}
	}
}

// syncLines commits the lines of the tasks, all at once.
func syncLines(ctx context.Context, batch []task) error {
	lines := map[*line]struct{}{}
	for _, k := range batch {
		lines[k.line.root()] = struct{}{}
	}
	failed := make(chan error, len(lines))
	for l := range lines {
		go func() { failed <- l.sync(ctx) }()
	}
	var first error
	for range lines {
		if err := <-failed; err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (l *line) lastStepLocked() *step.Step {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.lastStep()
}

// drop frees what the pin p alone has kept: the versions born in (q, p], q being
// the next lower pin, whose next version is born in (p, r], r being the next
// higher one. So it looks at the rows born in one of these two intervals, the
// one with fewer: giving up a checkpoint of a large disk that has hardly
// changed before it, or hardly since, costs next to nothing. With no higher pin
// left all that is born after q goes.
func (l *line) drop(ctx context.Context, pins []tine.Epoch, p tine.Epoch) error {
	after, upTo := reclaim.DropInterval(pins, p)
	look := kv.Born{After: after, UpTo: upTo}
	if i, _ := slices.BinarySearch(pins, p); i < len(pins) {
		above := kv.Born{After: p, UpTo: pins[i]}
		fewer, err := l.fewerRows(look, above)
		if err != nil {
			return err
		}
		look = fewer
	}
	return l.freeBorn(ctx, look, kv.Born{After: after, UpTo: upTo})
}

// fewerRows returns the interval in which fewer of the line's rows are born.
func (l *line) fewerRows(a, b kv.Born) (kv.Born, error) {
	snap := l.tree.engine.Rows.Snapshot()
	defer snap.Close()
	return stratum.Fewer(snap, l.strataNow(), a, b)
}

// syncPast commits the line when more than a little waits in its open layer.
func (l *line) syncPast(ctx context.Context, bytes int) error {
	l.mu.RLock()
	waits := l.open.bytes
	l.mu.RUnlock()
	if waits < bytes {
		return nil
	}
	return l.sync(ctx)
}

// freeBorn looks at the line's rows that have a version born in look, a few at
// a time, and frees their versions born in free that are not needed, as commits
// of the line. With nothing to free it looks for tombstones only.
func (l *line) freeBorn(ctx context.Context, look, free kv.Born) error {
	for _, s := range l.strataNow() {
		cursor := s.ID[:]
		for cursor != nil {
			next, err := l.freeStep(s, cursor, look, free)
			if err != nil {
				return err
			}
			if err := l.syncPast(ctx, stepBytes); err != nil {
				return err
			}
			l.tree.engine.Crash.At(crashpoint.DropStep)
			cursor = next
		}
	}
	return nil
}

func (l *line) strataNow() []*stratum.Stratum {
	l.tree.topo.RLock()
	defer l.tree.topo.RUnlock()
	return slices.Clone(l.strata)
}

// freeStep looks at some rows of a stratum from cursor on and returns where to
// go on; nil at the end.
func (l *line) freeStep(s *stratum.Stratum, cursor []byte, look, free kv.Born) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, err := l.begin()
	if err != nil {
		return nil, err
	}
	defer t.close()
	keys, next, err := s.SomeKeys(t.snapshot(), cursor, look, free == kv.Born{}, stepKeys)
	if err != nil {
		return nil, err
	}
	pins := l.pinsWithHead()
	for _, k := range keys {
		if err := t.freeUnneeded(k, pins, free); err != nil {
			return nil, err
		}
	}
	if !l.open.empty() {
		l.changed()
	}
	return next, nil
}

// freeUnneeded frees the versions of a row that were born in the range and
// that no pin needs, and then tombstones with nothing below them.
func (t *Txn) freeUnneeded(k record.Logical, pins []tine.Epoch, born kv.Born) error {
	vs, err := t.versions(k)
	if err != nil {
		return err
	}
	for i := 0; i < len(vs); {
		death := reclaim.Forever
		if i+1 < len(vs) {
			death = vs[i+1].Birth
		}
		b := vs[i].Birth
		if b <= born.After || b > born.UpTo || reclaim.Needed(b, death, pins) {
			i++
			continue
		}
		if err := t.freeVersion(k, vs, i); err != nil {
			return err
		}
		vs = slices.Delete(vs, i, i+1)
	}
	for len(vs) > 0 && vs[0].Tomb {
		f, err := t.inherited(k)
		if err != nil {
			return err
		}
		if f.Kind != Nothing {
			break
		}
		if err := t.freeVersion(k, vs, 0); err != nil {
			return err
		}
		vs = vs[1:]
	}
	return nil
}

// inherited finds what the line's parent shows of the row.
func (t *Txn) inherited(k record.Logical) (Found, error) {
	if len(t.hops) < 2 {
		return Found{}, nil
	}
	return t.at(k, t.line.branch)
}

// freeVersion removes the version vs[i] and frees what of its extents neither
// neighbour names.
func (t *Txn) freeVersion(k record.Logical, vs []stratum.Version, i int) error {
	if k.Table() == record.TableChunk {
		if err := t.freeExtents(vs, i); err != nil {
			return err
		}
	}
	y := t.layer()
	birth := vs[i].Birth
	e, ok := y.rows.Get(k)
	if ok && e.below == belowSomething {
		e.below = belowUnknown // what lay below may be what goes
		y.rows.Set(k, e)
	}
	if birth != y.epoch {
		y.free(k, birth)
		return nil
	}
	switch {
	case !ok:
		y.set(k, entry{gone: true, replaces: birth})
	case e.replaces == 0:
		y.rows.Delete(k)
	default:
		e.val, e.tomb, e.gone = nil, false, true
		y.set(k, e)
	}
	return nil
}

func (t *Txn) freeExtents(vs []stratum.Version, i int) error {
	var xs [3][]record.Extent // older, self, newer
	for j := range xs {
		if n := i - 1 + j; n >= 0 && n < len(vs) {
			var err error
			if xs[j], err = vs[n].Extents(); err != nil {
				return err
			}
		}
	}
	older, self, newer := xs[0], xs[1], xs[2]
	if t.line.tree.engine.Mutation == MutateIgnoreNeighbours {
		older, newer = nil, nil
	}
	t.release(self, older, newer)
	for _, p := range t.piecesOf(older, self, newer) {
		p.change(t, reclaim.RunsOnFree(p.named(older), p.named(self), p.named(newer)))
	}
	return nil
}

// remove takes away a line that nothing holds: its rows by one range each, its
// segments whole. It gives back the pin on the parent, which may cascade.
// t.mu is held.
func (t *tree) remove(r *rows, l *line) {
	e := t.engine
	l.mu.Lock()
	if !l.bare() {
		for _, s := range l.strata {
			r.list.DeleteRange(s.ID[:], record.PrefixEnd(s.ID[:]))
		}
	}
	l.space.mu.Lock()
	dead := l.space.takeAll()
	l.space.mu.Unlock()
	r.list = append(r.list, l.open.raw...) // pieces that have just gone
	for _, info := range dead {
		t.dropRows(r, info)
	}
	r.list.Delete(t.key(record.IDKey(record.TableTimeline, l.id)))
	for _, id := range l.aka {
		r.list.Delete(t.key(record.IDKey(record.TableAlias, id)))
		delete(t.aliases, id)
	}
	last := l.lastStep()
	l.open.held.Set(e.Room, 0)
	l.open.Finish(nil) // whoever still waits for it waits for nothing
	l.open, l.counters.dirty = newLayer(l, l.epoch), false
	delete(t.lines, l.id)
	delete(t.headless, l)
	l.mu.Unlock()
	if l.parent != nil {
		p := l.parent.root()
		t.topo.Lock()
		delete(p.children, l)
		t.topo.Unlock()
		if p.release(r, l.branch) {
			t.addTask(r, record.TaskDrop, p, l.branch)
		}
	} else {
		r.list.Delete(record.Key(t.rec.Tenant, record.IDKey(record.TableTree, t.id), 0))
		r.list.DeleteRange(t.id[:], record.PrefixEnd(t.id[:]))
		e.mu.Lock()
		delete(e.trees, t.id)
		e.mu.Unlock()
	}
	s := t.commit(r, last)
	e.flights.Go(func() {
		<-s.Done()
		if s.Err() != nil {
			return
		}
		e.Crash.At(crashpoint.SegmentUnreferenced)
		for _, info := range dead {
			t.forget(info.id)
			if err := e.Segments.Remove(info.id, info.loc.Load().Generation); err != nil {
				e.Logger.Warn("a dead segment's file could not be removed; the next start tries again", "segment", info.id.String(), "error", err)
			}
		}
	})
}
