package timeline

import (
	"context"
	"slices"

	"tine.dev/tine/internal/fs/crashpoint"
	"tine.dev/tine/internal/fs/reclaim"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/stratum"
	"tine.dev/tine/internal/tine"
)

// maxStrata is how many strata a line may have before neighbours are folded.
const maxStrata = 3

// absorbOne makes two lines of the tree into one where that is possible: a
// line without a head, whose newest pin a child holds, is continued by that
// child. It moves no rows: the strata of both stand behind one another, and
// an alias remembers the name that went. That is what keeps a disk one level
// deep through any number of rollbacks and promotes.
func (t *tree) absorbOne(ctx context.Context) (bool, error) {
	if t.engine.Mutation == MutateNeverAbsorb {
		return false, nil
	}
	t.mu.Lock()
	l, c := t.absorbable()
	t.mu.Unlock()
	if l == nil {
		return false, nil
	}
	// What the line has freed is committed before, so that the two sets of
	// rows meet with nothing pending on the older side.
	if l.pending() {
		if err := l.sync(ctx); err != nil {
			return false, err
		}
	}
	l.settle()
	t.mu.Lock()
	defer t.mu.Unlock()
	if again, heir := t.absorbable(); again != l || heir != c {
		return true, nil
	}
	defer lockBoth(l, c)()
	if !l.open.empty() || len(l.layers()) > 0 || l.commits.running {
		return true, nil
	}
	t.absorb(l, c)
	return true, nil
}

// pending reports that the line shows something that is not in the store.
func (l *line) pending() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return !l.open.empty() || l.counters.dirty || len(l.layers()) > 0
}

// lockBoth locks two lines in the order of their ids.
func lockBoth(a, b *line) (unlock func()) {
	if slices.Compare(a.id[:], b.id[:]) > 0 {
		a, b = b, a
	}
	a.mu.Lock()
	b.mu.Lock()
	return func() {
		b.mu.Unlock()
		a.mu.Unlock()
	}
}

// absorbable finds a line and the child that can continue it; t.mu is held.
func (t *tree) absorbable() (l, child *line) {
	for x := range t.headless {
		if l != nil && slices.Compare(x.id[:], l.id[:]) > 0 {
			continue
		}
		if heir := x.heir(); heir != nil {
			l, child = x, heir
		}
	}
	return l, child
}

// heir returns the child that can continue a line without a head, nil if there
// is none yet.
func (l *line) heir() (heir *line) {
	p := l.pins.Newest()
	if l.tasks > 0 || p == 0 {
		return nil
	}
	for c := range l.children {
		if c.branch == p && (heir == nil || c.asHeir().Before(heir.asHeir())) {
			heir = c
		}
	}
	return heir
}

// asHeir returns what the choice of an heir looks at; t.mu is held.
func (l *line) asHeir() reclaim.Heir {
	return reclaim.Heir{ID: l.id, HasHead: l.head != nil, Children: len(l.children)}
}

// absorb makes the child's object both lines. t.mu and both lines' mu are
// held; the older line has nothing pending.
func (t *tree) absorb(l, c *line) {
	p := l.pins.Newest()
	t.topo.Lock()
	c.strata = append(slices.Clone(l.strata), c.strata...)
	c.parent, c.branch, c.first = l.parent, l.branch, l.first
	delete(l.children, c)
	if len(l.children) > len(c.children) {
		l.children, c.children = c.children, l.children
	}
	for k := range l.children {
		if c.children == nil {
			c.children = map[*line]struct{}{}
		}
		c.children[k] = struct{}{}
	}
	if l.parent != nil {
		up := l.parent.root()
		delete(up.children, l)
		up.children[c] = struct{}{}
	}
	l.children = nil
	l.merged.Store(c)
	t.topo.Unlock()
	t.version.Add(1)

	gone := c.mergePins(l, p)
	c.state.touched = c.state.touched || l.state.touched
	if l.state.stored.Load() {
		c.state.stored.Store(true)
	}
	c.mergeSegments(l)
	delete(t.lines, l.id)
	delete(t.headless, l)
	t.aliases[l.id] = l
	if len(l.aka) > len(c.aka) {
		l.aka, c.aka = c.aka, l.aka
	}
	c.aka = append(append(c.aka, l.aka...), l.id)
	l.aka = nil

	r := newRows()
	r.list.Delete(t.key(record.IDKey(record.TableTimeline, l.id)))
	r.list.Set(t.key(record.IDKey(record.TableAlias, l.id)), record.Alias{Into: c.id}.Append(nil))
	t.setTimeline(r, c)
	if gone {
		t.addTask(r, record.TaskDrop, c, p)
	}
	// A tombstone of the child may have hidden what its parent has freed since.
	t.addTask(r, record.TaskTombs, c, p)
	s := t.commit(r, l.lastStep(), c.lastStep())
	c.after = s
	c.state.reap = true
	t.todo.Add(choreFold | choreReap | choreFilter)
	t.engine.Crash.At(crashpoint.AbsorbApplied)
}

// mergePins moves the older line's pins to the child, less the child's own
// hold on p; it reports whether nothing holds p any more.
func (c *line) mergePins(l *line, p tine.Epoch) bool {
	gone := l.pins.Release(p)
	c.pins.TakeAll(&l.pins)
	return gone
}

func (c *line) mergeSegments(l *line) {
	if len(l.space.segs) > len(c.space.segs) {
		l.space.segs, c.space.segs = c.space.segs, l.space.segs
	}
	for _, info := range l.space.segs {
		c.space.segs = with(c.space.segs, info)
	}
	l.space.segs = nil
	l.space.mu.Lock()
	full, unnamed := l.space.full, l.space.unnamed
	if w := l.space.writer; w != nil {
		full = append(full, segmentEnd{l.space.info, w, w.End()})
	}
	l.space.writer, l.space.info, l.space.full, l.space.unnamed = nil, nil, nil, nil
	l.space.mu.Unlock()
	c.space.mu.Lock()
	c.space.full = append(c.space.full, full...)
	for _, info := range unnamed {
		c.space.unnamed = with(c.space.unnamed, info)
	}
	c.space.mu.Unlock()
	for _, f := range full {
		c.open.touch(f.info.id) // the next commit seals them, and there is to be one
	}
	if len(full) > 0 {
		c.tree.todo.Add(choreCommit)
	}
}

// foldOne moves the rows of a stratum into its neighbour, smaller into
// larger, in a line that has too many strata. Each step is one atomic batch
// that moves all versions of a row together (I13), so look-ups are right between
// steps, and a crash between them only leaves the rest for later.
//
// Rows may meet in one stratum only once the record that put the strata into
// one line is durable, so a line whose last record is not is passed over;
// waiting tells it to wait for that record instead.
func (t *tree) foldOne(ctx context.Context, waiting bool) (bool, error) {
	if t.engine.Room.Full() {
		return false, nil // it needs room first, and what gives some back waits behind it
	}
	unready := false
	l := t.findLine(choreFold, func(l *line) bool {
		if len(l.strata) <= maxStrata {
			return false
		}
		ready := waiting || l.recorded()
		unready = unready || !ready
		return ready
	})
	if l == nil {
		if unready {
			t.todo.Add(choreFold)
		}
		return false, nil
	}
	l.mu.RLock()
	after := l.after
	l.mu.RUnlock()
	if err := after.Wait(ctx, t.engine.Room); err != nil {
		return false, err
	}
	snap := t.engine.Rows.Snapshot()
	from, to, err := stratum.FoldPair(snap, l.strataNow())
	snap.Close()
	if err != nil {
		return false, err
	}
	for done := false; !done; {
		err := l.exclusive(func() error {
			var err error
			done, err = l.foldStep(from, to)
			return err
		})
		if err != nil {
			return false, err
		}
		t.engine.Crash.At(crashpoint.FoldStep)
	}
	return true, nil
}

// recorded reports that the last record that concerns the line is durable.
func (l *line) recorded() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.after == nil || l.after.IsDone()
}

// foldStep moves some rows; done reports that the stratum is empty and gone.
// It runs in the line's committer.
func (l *line) foldStep(from, to *stratum.Stratum) (done bool, err error) {
	l.tree.folds.Add(1)
	done, err = from.Fold(l.tree.place.Rows, to)
	l.tree.folds.Add(1)
	if done {
		l.dropStratum(from)
	}
	return done, err
}

// dropStratum ends a fold: the stratum is empty, so look-ups leave it out from
// now on, and the line's record follows. A crash in between leaves an empty
// stratum in the record, which is folded again.
func (l *line) dropStratum(s *stratum.Stratum) {
	t := l.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	l.mu.Lock()
	t.topo.Lock()
	l.strata = slices.DeleteFunc(slices.Clone(l.strata), func(x *stratum.Stratum) bool { return x == s })
	delete(t.large, s.ID)
	t.topo.Unlock()
	t.version.Add(1)
	l.mu.Unlock()
	r := newRows()
	t.setTimeline(r, l)
	t.commit(r)
}
