package timeline

import (
	"context"
	"slices"
	"time"

	"tine.dev/tine/internal/fs/crashpoint"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/fs/step"
	"tine.dev/tine/internal/fs/stratum"
	"tine.dev/tine/internal/tine"
)

// changed is called, with line.mu held, after an operation has changed rows.
// It starts a commit when the layer is large, and otherwise sees that one
// starts within the commit interval (P3).
func (l *line) changed() {
	o := &l.tree.engine.Options
	l.open.held.Set(o.Room, l.open.bytes)
	if l.open.bytes >= o.LayerBytes {
		l.commits.wanted = true
		l.kick()
		return
	}
	if o.CommitInterval > 0 && !l.commits.timer {
		l.commits.timer = true
		time.AfterFunc(o.CommitInterval, func() {
			l.mu.Lock()
			l.commits.timer = false
			if !l.open.empty() {
				l.commits.wanted = true
				l.kick()
			}
			l.mu.Unlock()
		})
	}
}

// maxSealed bounds the layers that wait to be applied; past it writers wait.
const maxSealed = 6

// admit holds an operation back while too much waits to be committed, and
// refuses it if the device is full: a process that waits in a request of a mount
// cannot be killed. No lock is held.
func (l *line) admit() error {
	room := l.tree.engine.Room
	for {
		if err := l.tree.check(); err != nil {
			return err
		}
		var s *step.Step
		switch ys := l.layers(); {
		case len(ys) >= maxSealed:
			s = ys[0].Step
		case !room.Crowded():
			return nil
		default:
			if s = l.push(); s == nil {
				return nil // other lines are to blame, and theirs wait
			}
		}
		if err := s.Wait(context.Background(), room); err != nil {
			return err
		}
	}
}

// push starts the commit of all that is pending and returns its oldest step, nil
// if nothing is.
func (l *line) push() *step.Step {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ys := l.layers(); len(ys) > 0 {
		return ys[0].Step
	}
	if l.open.empty() {
		return nil
	}
	l.commits.wanted = true
	l.kick()
	return l.open.Step
}

// kick starts the committer unless it runs; line.mu is held.
func (l *line) kick() {
	if !l.commits.running {
		l.commits.running = true
		l.commits.idle = make(chan struct{})
		go l.commitLoop()
	}
}

// settle waits until the committer has nothing left to do, what follows a
// commit included. The line must be one that nobody writes any more.
func (l *line) settle() {
	for {
		l.mu.Lock()
		running, idle := l.commits.running, l.commits.idle
		l.mu.Unlock()
		if !running {
			return
		}
		<-idle
	}
}

// commitLoop applies sealed layers in order until nothing is asked for (I3). It
// is the only goroutine that writes the line's rows to the store.
func (l *line) commitLoop() {
	for {
		l.mu.Lock()
		if len(l.layers()) == 0 && l.commits.wanted && len(l.commits.between) == 0 {
			l.seal()
		}
		between := l.commits.between
		l.commits.between = nil
		ys := l.layers()
		if len(between) == 0 && len(ys) == 0 {
			l.commits.running = false
			close(l.commits.idle)
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		for _, fn := range between {
			fn()
		}
		if len(ys) == 0 {
			continue
		}
		y := ys[0]
		err := l.apply(y)
		l.mu.Lock()
		if err != nil {
			l.commits.failed = err
		}
		if rest := slices.Clone(l.layers()[1:]); len(rest) > 0 {
			l.sealed.Store(&rest)
		} else {
			l.sealed.Store(nil)
		}
		l.mu.Unlock()
		y.held.Set(l.tree.engine.Room, 0)
		y.Finish(err)
		if err == nil {
			l.afterCommit(y)
		}
	}
}

// seal closes the open layer; line.mu is held for writing. It returns the
// newest sealed layer's step, or what the line's state already depends on.
func (l *line) seal() *step.Step {
	y := l.open
	if y.empty() && !l.counters.dirty && !l.commits.wanted {
		return l.lastStep()
	}
	l.commits.wanted = false
	l.sealCounters()
	l.space.mu.Lock()
	y.ends = append(y.ends, l.space.full...)
	l.space.full = nil
	if w := l.space.writer; w != nil {
		y.ends = append(y.ends, segmentEnd{l.space.info, w, w.End()})
	}
	l.space.mu.Unlock()
	l.sealSpace(y)
	y.After(l.after)
	ys := append(append([]*layer(nil), l.layers()...), y)
	l.sealed.Store(&ys)
	l.open = newLayer(l, l.epoch)
	return y.Step
}

// lastStep is the step after which all that the line shows is durable.
func (l *line) lastStep() *step.Step {
	if ys := l.layers(); len(ys) > 0 {
		return ys[len(ys)-1].Step
	}
	return l.after
}

// sealCounters puts the counters into the layer, versioned like any row.
func (l *line) sealCounters() {
	if !l.counters.dirty || !l.counters.loaded {
		return
	}
	c := &l.counters
	c.Commits++
	t := Txn{line: l}
	t.Put(record.TableKey(record.TableCounters), c.at, c.Append(nil))
	c.at = Found{Kind: Value, Birth: l.epoch}
	c.dirty = false
}

// sealSpace puts the live bytes of the touched segments into the layer, and
// removes the rows of those that nothing names any more.
func (l *line) sealSpace(y *layer) {
	for id := range y.segs {
		info := l.space.segs[id]
		if info == nil || info.gone {
			continue
		}
		if info.live == 0 && info.staged.Load() == 0 && info.loc.Load().State == record.SegmentSealed {
			l.dropSegment(y, info)
			continue
		}
		y.raw.Set(l.tree.key(record.IDKey(record.TableLive, id)), record.Live{Bytes: info.live}.Append(nil))
		for i := range info.pieces {
			if p := &info.pieces[i]; p.Dirty {
				p.Dirty = false
				y.raw.Set(l.tree.key(record.OffsetKey(record.TablePiece, id, p.Off)), record.Piece{Len: p.Len, Runs: p.Runs}.Append(nil))
			}
		}
	}
}

// dropSegment puts the removal of a dead segment's rows into the layer.
func (l *line) dropSegment(y *layer, info *segInfo) {
	info.gone = true
	delete(l.space.segs, info.id)
	y.raw.Delete(l.tree.key(record.IDKey(record.TableLive, info.id)))
	y.raw.Delete(l.tree.key(record.IDKey(record.TableSegment, info.id)))
	y.dead = append(y.dead, deadSegment{info.id, info.loc.Load().Generation})
}

// apply makes a sealed layer durable: first the file data that it names, then
// its rows as one batch (I4). On a full device it waits for room and goes on; what
// is in memory meanwhile is not lost, and whoever waits for it is told.
func (l *line) apply(y *layer) error {
	e := l.tree.engine
	if err := l.tree.check(); err != nil {
		return err
	}
	if err := y.AwaitDeps(); err != nil {
		return err
	}
	tail := e.TailBytes
	if e.Room.Full() {
		tail = 0 // the bytes have room in their file already
	}
	hardened := make([]segment.Hardened, len(y.ends))
	for i := 0; i < len(y.ends); {
		if y.ends[i].info.loc.Load().State == record.SegmentSealed {
			i++ // sealed since: all of it is durable
			continue
		}
		h, err := y.ends[i].w.Harden(y.ends[i].end, tail)
		switch {
		case err == nil:
			hardened[i] = h
			i++
		case tine.KindOf(err) != tine.KindNoSpace || !e.waitForSpace():
			l.tree.fail(err)
			return err
		}
	}
	if !l.state.stored.Swap(true) {
		l.tree.todo.Add(choreFilter) // it lengthens the paths of those below
	}
	for {
		b := e.Rows.NewBatch()
		for i, s := range y.ends {
			l.placeSegment(b, s, hardened[i])
		}
		l.buildRows(b, y)
		e.Crash.At(crashpoint.BatchBuilt)
		if b.Len() == 0 {
			b.Discard()
			break
		}
		if !y.grows {
			b.Frees()
		} else if e.Room.Full() {
			b.AllowLow()
		}
		err := l.tree.place.Rows.Commit(b, true)
		if err == nil {
			break
		}
		if tine.KindOf(err) != tine.KindNoSpace || !e.waitForSpace() {
			e.fail(err)
			return err
		}
	}
	e.Crash.At(crashpoint.BatchApplied)
	for i, s := range y.ends {
		s.info.settle(s.end, hardened[i], l.id)
	}
	return nil
}

// placeSegment puts an open segment's location row and tail into the batch.
func (l *line) placeSegment(b kv.Batch, s segmentEnd, h segment.Hardened) {
	t := l.tree
	loc := *s.info.loc.Load()
	if loc.State == record.SegmentSealed {
		return
	}
	for _, tail := range h.Tails {
		b.Set(t.key(record.OffsetKey(record.TableTail, tail.Segment, tail.Off)), tail.Bytes)
	}
	for _, off := range s.info.tails.Below(h.DropTailsBelow) {
		b.Delete(t.key(record.OffsetKey(record.TableTail, s.info.id, off)))
	}
	if loc.End != s.end || loc.Synced != h.Synced || loc.Timeline != l.id {
		loc.Timeline, loc.End, loc.Synced = l.id, s.end, h.Synced
		b.Set(t.key(record.IDKey(record.TableSegment, s.info.id)), loc.Append(nil))
	}
}

// buildRows puts a layer's rows into the batch: new versions into the newest
// stratum, deletions into every stratum that may hold the version. That goes
// also for a version of the same epoch: a fold may have moved it to a neighbour,
// and a second copy left there would come back if the fold went the other way
// after a restart.
func (l *line) buildRows(b kv.Batch, y *layer) {
	strata := l.strataNow()
	active := strata[len(strata)-1]
	var key []byte
	y.rows.Scan(func(k record.Logical, e entry) bool {
		if e.replaces != 0 {
			for _, s := range strata {
				if s == active && e.replaces == y.epoch && !e.gone {
					continue // set below
				}
				key = record.AppendEpoch(record.AppendKey(key[:0], s.ID, k), e.replaces)
				b.Delete(key)
			}
		}
		if e.gone {
			return true
		}
		active.Note(k)
		key = record.AppendEpoch(record.AppendKey(key[:0], active.ID, k), y.epoch)
		b.Set(key, stratum.Encode(e.val, e.tomb))
		return true
	})
	for k, births := range y.frees {
		for _, birth := range births {
			for _, s := range strata {
				key = record.AppendEpoch(record.AppendKey(key[:0], s.ID, k), birth)
				b.Delete(key)
			}
		}
	}
	y.raw.Apply(b)

}

// waitForSpace waits a little for room, when a commit has found none; false when
// the engine closes or has failed.
func (e *Engine) waitForSpace() bool { return e.Room.Refused(e.janitor.Quit()) && e.check() == nil }

// afterCommit does what may happen only once a commit is durable: it removes
// the files of dead segments (I18), and seals those that are full.
func (l *line) afterCommit(y *layer) {
	e := l.tree.engine
	if len(y.segs) > 0 && e.Room.Full() {
		e.janitor.Wake() // what it has freed is worth having back
	}
	if len(y.dead) > 0 {
		e.Crash.At(crashpoint.SegmentUnreferenced)
	}
	for _, d := range y.dead {
		l.tree.forget(d.id)
		if err := e.Segments.Remove(d.id, d.gen); err != nil {
			e.Logger.Warn("a dead segment's file could not be removed; the next start tries again", "segment", d.id.String(), "error", err)
		}
	}
	for _, s := range y.ends {
		l.space.mu.Lock()
		full := l.space.writer != s.w
		l.space.mu.Unlock()
		if full && s.info.loc.Load().State == record.SegmentOpen {
			switch err := l.sealSegment(s.info, s.w); {
			case tine.KindOf(err) == tine.KindNoSpace && err != nil:
				l.space.mu.Lock()
				l.space.full = append(l.space.full, s) // with the next commit; what it holds is durable
				l.space.mu.Unlock()
			case err != nil:
				l.tree.fail(err)
				return
			}
		}
	}
}

// sync makes durable all that the line shows now (P1): it waits for the commit
// that holds it. Callers that wait together share a commit.
func (l *line) sync(ctx context.Context) error {
	if err := l.tree.check(); err != nil {
		return err // also where nothing is pending (P4)
	}
	l.mu.Lock()
	if l.commits.failed != nil {
		defer l.mu.Unlock()
		return l.commits.failed
	}
	var s *step.Step
	if l.open.empty() && !l.counters.dirty {
		s = l.lastStep()
	} else {
		l.commits.wanted = true
		s = l.open.Step
	}
	if len(l.layers()) > 0 || l.commits.wanted {
		l.kick()
	}
	l.mu.Unlock()
	return s.Wait(ctx, l.tree.engine.Room)
}

// exclusive runs fn in the line's committer, between two commits, and waits
// for it: nothing else writes the line's rows meanwhile.
func (l *line) exclusive(fn func() error) error {
	done := make(chan error, 1)
	l.mu.Lock()
	l.commits.between = append(l.commits.between, func() { done <- fn() })
	l.kick()
	l.mu.Unlock()
	return <-done
}
