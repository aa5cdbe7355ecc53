package timeline

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tine.dev/tine/internal/fs/rarely"
	"tine.dev/tine/internal/fs/rounds"
	"tine.dev/tine/internal/tine"
)

// janitor runs the engine's background work, one piece at a time: drops,
// absorbing, folding, reaping of unlinked files, repack. None of it is needed
// for anything to be right; all of it may be interrupted anywhere.
type janitor struct {
	*rounds.Rounds
	engine *Engine
	work   sync.Mutex   // held while a piece of work runs
	hurry  atomic.Int32 // callers that wait for all work to be done
	noRoom rarely.Teller
}

// tidyInterval is how often the janitor looks without being told, shortInterval
// the same while the device is short of room: it may have some again, or a copy
// of a segment may find room now.
const (
	tidyInterval  = 30 * time.Second
	shortInterval = time.Second
)

func (j *janitor) start() {
	e := j.engine
	j.Start(func() {
		if err := e.RemoveStrays(); err != nil && tine.KindOf(err) != tine.KindInterrupted && e.check() == nil {
			e.Logger.Warn("segment files that no row names are left for the next start", "error", err)
		}
	}, func() time.Duration {
		err := j.run(context.Background(), false)
		if err != nil && !outOfRoom(err) && e.check() == nil {
			e.Logger.Warn("background work is tried again later", "error", err)
		}
		if e.Room.Short() {
			return shortInterval
		}
		if err == nil {
			j.noRoom.Over(e.Logger, "the device has room again; background work goes on")
		}
		return tidyInterval
	})
}

// run works until nothing is left. thorough also repacks whatever has dead
// bytes, not only what is worth it.
func (j *janitor) run(ctx context.Context, thorough bool) error {
	j.work.Lock()
	defer j.work.Unlock()
	p := pass{janitor: j, failed: map[*tree]error{}}
	if err := p.tidy(ctx); err != nil {
		return err
	}
	p.sealLeft(ctx)
	for _, t := range j.engine.loadedTrees() {
		if stop, err := j.Stopped(ctx); stop {
			return err
		}
		if p.failed[t] == nil {
			p.note(t, t.repack(ctx, &p, thorough))
		}
	}
	return p.first
}

// pass is one run of the janitor.
type pass struct {
	*janitor
	failed map[*tree]error // left alone for this pass: a damaged tree must not starve the others
	first  error           // of them
}

// note leaves a tree alone for the rest of the pass if its work failed.
func (p *pass) note(t *tree, err error) {
	if err != nil {
		p.failed[t] = err
		p.first = cmp.Or(p.first, err)
		if outOfRoom(err) {
			p.noRoom.Met(p.engine.Logger, time.Now(), "the device is full; background work, which gives space back, waits for some room", "error", err)
			return
		}
		p.engine.Logger.Error("background work of a tree failed", "tree", t.id.String(), "error", err)
	}
}

// outOfRoom reports that work found the device full, which passes.
func outOfRoom(err error) bool { return err != nil && tine.KindOf(err) == tine.KindNoSpace }

// tidy does all work but repacking. The error says why it had to end; what
// failed in a tree is in the pass.
func (p *pass) tidy(ctx context.Context) error {
	for busy := true; busy; {
		busy = false
		for _, t := range p.engine.loadedTrees() {
			for p.failed[t] == nil {
				if stop, err := p.Stopped(ctx); stop {
					return err
				}
				did, err := p.step(ctx, t)
				p.note(t, err)
				if !did {
					break
				}
				busy = true
			}
		}
	}
	return nil
}

// maxLeftOpen is how many lines without a head may keep a segment open for
// writing, which nobody will write any more: most are soon absorbed, which seals
// it. Each costs two file descriptors.
const maxLeftOpen = 64

// sealLeft seals the open segments of the lines that have no head, the oldest
// first, if there are too many.
func (p *pass) sealLeft(ctx context.Context) {
	var left []*line
	for _, t := range p.engine.loadedTrees() {
		t.mu.Lock()
		for l := range t.headless {
			if l.writes() {
				left = append(left, l)
			}
		}
		t.mu.Unlock()
	}
	slices.SortFunc(left, func(a, b *line) int { return slices.Compare(a.id[:], b.id[:]) })
	for _, l := range left[:max(0, len(left)-maxLeftOpen)] {
		if p.failed[l.tree] == nil {
			p.note(l.tree, l.syncAndSeal(ctx))
		}
	}
}

// writes reports whether the line has a segment open for writing.
func (l *line) writes() bool {
	l.space.mu.Lock()
	defer l.space.mu.Unlock()
	return l.space.writer != nil
}

// restShare is how many times as long as the copying of a segment took the
// next one is put off, while nobody waits for it.
const restShare = 3

// rest lets the clients have the device for a while, and does what else comes
// up meanwhile: repacking copies data and flushes it, a segment after another,
// and none of it is urgent.
func (p *pass) rest(ctx context.Context, worked time.Duration) error {
	enough := time.NewTimer(restShare * worked)
	defer enough.Stop()
	for p.hurry.Load() == 0 && !p.engine.Room.Short() {
		select {
		case <-enough.C:
			return nil
		case <-p.Quit():
			return nil
		case <-ctx.Done():
			return nil // the next step says so
		case <-p.Poked():
			if err := p.tidy(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// The kinds of background work that may be waiting in a tree, so that one of ten
// thousand idle forks is not searched for it at every step.
const (
	choreFold uint32 = 1 << iota
	choreReap
	choreCommit
	choreFilter
	allChores = choreFold | choreReap | choreCommit | choreFilter
)

// findLine returns the oldest line for which want is true, if the chore may be
// waiting; nil if there is none.
func (t *tree) findLine(chore uint32, want func(*line) bool) *line {
	if !t.todo.Take(chore) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var best *line
	for _, l := range t.lines {
		if (best == nil || slices.Compare(l.id[:], best.id[:]) < 0) && want(l) {
			best = l
		}
	}
	if best != nil {
		t.todo.Add(chore)
	}
	return best
}

// step does one piece of work in a tree; false if there is none.
func (j *janitor) step(ctx context.Context, t *tree) (bool, error) {
	for _, piece := range []func() (bool, error){
		func() (bool, error) { return t.foldOne(ctx, false) }, // first: all else gets dearer with every stratum
		func() (bool, error) { return t.absorbOne(ctx) },
		func() (bool, error) { return t.runTasks(ctx) },
		func() (bool, error) { return t.foldOne(ctx, true) },
		func() (bool, error) { return t.reapOne(ctx) },
		func() (bool, error) { return false, t.pruneAliases(ctx) },
		func() (bool, error) { return t.commitOne(ctx) },
		func() (bool, error) { return t.filterOne(ctx) },
	} {
		if did, err := piece(); did || err != nil {
			return did, err
		}
	}
	return false, nil
}

// loadedTrees returns the trees that have not failed, loading those that are not
// loaded: a tree may have tasks left from before a restart.
func (e *Engine) loadedTrees() []*tree {
	e.mu.Lock()
	ts := slices.Collect(maps.Values(e.trees))
	e.mu.Unlock()
	loaded := ts[:0]
	for _, t := range ts {
		if t.poison.Load() != nil {
			continue
		}
		switch err := t.ensure(); {
		case err == nil:
			t.mu.Unlock()
			loaded = append(loaded, t)
		case tine.KindOf(err) != tine.KindUnavailable: // else its store is not there, which is told elsewhere
			e.Logger.Error("a tree could not be loaded", "tree", t.id.String(), "error", err)
		}
	}
	return loaded
}

// Tidy runs background work until nothing is left to free, absorb, fold or
// reap, and repacks every segment that has dead bytes.
func (e *Engine) Tidy(ctx context.Context) error {
	e.janitor.hurry.Add(1)
	defer e.janitor.hurry.Add(-1)
	e.janitor.Wake() // it may be resting
	e.settle()
	err := e.janitor.run(ctx, true)
	e.settle()
	e.flights.Wait()
	return err
}

// settle waits for what follows the commits under way, of which nobody is told:
// files of dead segments are removed, full ones are sealed and may be dead.
func (e *Engine) settle() {
	for _, t := range e.loadedTrees() {
		for _, l := range t.sorted() {
			_ = l.exclusive(func() error { return nil })
		}
	}
}

// commitOne commits a line in whose open layer segments wait to be dropped.
func (t *tree) commitOne(ctx context.Context) (bool, error) {
	l := t.findLine(choreCommit, func(l *line) bool {
		l.mu.RLock()
		defer l.mu.RUnlock()
		return len(l.open.segs) > 0
	})
	if l == nil {
		return false, nil
	}
	return true, l.sync(ctx)
}
