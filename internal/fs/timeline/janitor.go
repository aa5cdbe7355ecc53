package timeline

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tine.dev/tine/internal/tine"
)

// janitor runs the engine's background work, one piece at a time: drops,
// absorbing, folding, reaping of unlinked files, repack. None of it is needed
// for anything to be right; all of it may be interrupted anywhere.
type janitor struct {
	engine *Engine
	work   sync.Mutex // held while a piece of work runs
	poke   chan struct{}
	quit   chan struct{}
	hurry  atomic.Int32 // callers that wait for all work to be done
	once   sync.Once
	wg     sync.WaitGroup
}

func (j *janitor) init(e *Engine) {
	j.engine = e
	j.poke = make(chan struct{}, 1)
	j.quit = make(chan struct{})
}

// wake tells the janitor that there may be something to do.
func (j *janitor) wake() {
	select {
	case j.poke <- struct{}{}:
	default:
	}
}

// tidyInterval is how often the janitor looks without being told.
const tidyInterval = 30 * time.Second

func (j *janitor) start() {
	j.wg.Add(1)
	go func() {
		defer j.wg.Done()
		if err := j.engine.RemoveStrays(); err != nil && tine.KindOf(err) != tine.KindInterrupted && j.engine.check() == nil {
			j.engine.Logger.Warn("segment files that no row names are left for the next start", "error", err)
		}
		tick := time.NewTicker(tidyInterval)
		defer tick.Stop()
		for {
			select {
			case <-j.quit:
				return
			case <-j.poke:
			case <-tick.C:
			}
			if err := j.run(context.Background(), false); err != nil && j.engine.check() == nil {
				j.engine.Logger.Warn("background work is tried again later", "error", err)
			}
		}
	}()
	j.wake()
}

// stop ends background work after the step under way.
func (j *janitor) stop() {
	j.once.Do(func() { close(j.quit) })
	j.wg.Wait()
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
	for _, t := range j.engine.loadedTrees() {
		if stop, err := j.stopped(ctx); stop {
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
		p.engine.Logger.Error("background work of a tree failed", "tree", t.id.String(), "error", err)
	}
}

// tidy does all work but repacking. The error says why it had to end; what
// failed in a tree is in the pass.
func (p *pass) tidy(ctx context.Context) error {
	for busy := true; busy; {
		busy = false
		for _, t := range p.engine.loadedTrees() {
			for p.failed[t] == nil {
				if stop, err := p.stopped(ctx); stop {
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

// restShare is how many times as long as the copying of a segment took the
// next one is put off, while nobody waits for it.
const restShare = 3

// rest lets the clients have the device for a while, and does what else comes
// up meanwhile: repacking copies data and flushes it, a segment after another,
// and none of it is urgent.
func (p *pass) rest(ctx context.Context, worked time.Duration) error {
	enough := time.NewTimer(restShare * worked)
	defer enough.Stop()
	for p.hurry.Load() == 0 && !p.engine.Room.Full() {
		select {
		case <-enough.C:
			return nil
		case <-p.quit:
			return nil
		case <-ctx.Done():
			return nil // the next step says so
		case <-p.poke:
			if err := p.tidy(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// stopped reports whether the work is to end: the engine closes, which is no
// error, or the context is done.
func (j *janitor) stopped(ctx context.Context) (bool, error) {
	select {
	case <-j.quit:
		return true, nil
	case <-ctx.Done():
		return true, context.Cause(ctx)
	default:
		return false, nil
	}
}

// chores marks the kinds of background work that may be waiting in a tree, so
// that a tree of ten thousand idle forks is not searched for it at every step.
type chores struct{ bits atomic.Uint32 }

const (
	choreFold uint32 = 1 << iota
	choreReap
	choreCommit
	choreFilter
	allChores = choreFold | choreReap | choreCommit | choreFilter
)

func (c *chores) add(kinds uint32) { c.bits.Or(kinds) }

// take reports whether the kind may be waiting, and forgets it: whoever finds
// some adds it again.
func (c *chores) take(kind uint32) bool { return c.bits.And(^kind)&kind != 0 }

// findLine returns the oldest line for which want is true, if the chore may be
// waiting; nil if there is none.
func (t *tree) findLine(chore uint32, want func(*line) bool) *line {
	if !t.todo.take(chore) {
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
		t.todo.add(chore)
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
	ts := make([]*tree, 0, len(e.trees))
	for _, t := range e.trees {
		ts = append(ts, t)
	}
	e.mu.Unlock()
	loaded := ts[:0]
	for _, t := range ts {
		if t.poison.Load() != nil {
			continue
		}
		if err := t.ensure(); err != nil {
			e.Logger.Error("a tree could not be loaded", "tree", t.id.String(), "error", err)
			continue
		}
		t.mu.Unlock()
		loaded = append(loaded, t)
	}
	return loaded
}

// Tidy runs background work until nothing is left to free, absorb, fold or
// reap, and repacks every segment that has dead bytes.
func (e *Engine) Tidy(ctx context.Context) error {
	e.janitor.hurry.Add(1)
	defer e.janitor.hurry.Add(-1)
	e.janitor.wake() // it may be resting
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
