package depot

import (
	"context"
	"sync"
	"time"

	"tine.dev/tine/internal/fs/journal"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/outbox"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Tree is a tree that this server owns and ships. Safe for concurrent use.
type Tree struct {
	d    *Depot
	id   tine.TreeID
	box  *outbox.Outbox
	segs Segments
	quit chan struct{}
	kick chan struct{} // holds one token when somebody waits
	done sync.WaitGroup

	// Known to the shipping goroutine only.
	sent     map[tine.SegmentID]int64 // how much of an open segment the store has
	there    map[generation]bool      // what was sent for the next journal object
	doubtful bool                     // another server may have taken the tree over while this one did not run
	cuts     progress
	buried   map[tine.SegmentID]bool // segments whose objects are removed and whose graves are not yet
	reaped   time.Time               // when that was last looked for
	waits    int                     // how often the next object waited for what its rows name

	mu      sync.Mutex
	shipped record.Shipped
	change  chan struct{} // closed and made anew when shipped or failed changes
	failed  error         // why the last attempt failed; nil after one that did not
	since   time.Time     // since when attempts fail
	lost    error         // not nil: the tree is another server's
}

// generation is one file of a segment.
type generation struct {
	id     tine.SegmentID
	number uint64
}

// Rows is the row store through which all of the tree's rows must be
// committed.
func (t *Tree) Rows() kv.Store { return t.box }

// Generations returns the generation of segments up to which other servers may
// have made some: each term has 2^32 of its own.
func (t *Tree) Generations() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return (t.shipped.Term - 1) << 32
}

// Status is how far the store is behind.
type Status struct {
	Shipped uint64 // sequence up to which the store has the tree's commits
	Newest  uint64 // sequence of the newest commit
	Failed  error  // why the store does not take any now; nil if it does
	Since   time.Time
	Lost    error // not nil: another server owns the tree
}

// Status tells how far the store is behind.
func (t *Tree) Status() Status {
	_, newest := t.box.Settled()
	t.mu.Lock()
	defer t.mu.Unlock()
	return Status{Shipped: t.shipped.Sequence, Newest: newest, Failed: t.failed, Since: t.since, Lost: t.lost}
}

// Sync returns when the store has everything that was committed before the
// call. While the store does not take it Sync waits, until ctx ends.
// Errors: KindInterrupted, KindStale when the tree is another server's.
func (t *Tree) Sync(ctx context.Context) error {
	_, target := t.box.Settled()
	for {
		t.mu.Lock()
		at, lost, change := t.shipped.Sequence, t.lost, t.change
		t.mu.Unlock()
		switch {
		case lost != nil:
			return lost
		case at >= target:
			return nil
		}
		select {
		case t.kick <- struct{}{}:
		default:
		}
		select {
		case <-change:
		case <-t.quit:
			return tine.Errorf(tine.KindUnavailable, "the server is stopping; what the store does not have yet follows when it is started again")
		case <-ctx.Done():
			return tine.Errorf(tine.KindInterrupted, "gave up waiting for the store: %w", context.Cause(ctx))
		}
	}
}

// Close stops shipping. What was not shipped stays in the outbox.
func (t *Tree) Close() {
	close(t.quit)
	t.done.Wait()
}

// begin starts the shipping goroutine.
func (t *Tree) begin(shipped record.Shipped) {
	t.shipped, t.change = shipped, make(chan struct{})
	t.sent, t.there = map[tine.SegmentID]int64{}, map[generation]bool{}
	t.buried, t.reaped = map[tine.SegmentID]bool{}, time.Now()
	t.quit, t.kick = make(chan struct{}), make(chan struct{}, 1)
	t.done.Go(t.run)
}

// run ships until the tree is closed or lost.
func (t *Tree) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	t.done.Go(func() { <-t.quit; cancel() })
	if err := t.look(ctx); err != nil {
		t.note(err)
		t.d.o.Lost(t.id, err)
		return
	}
	pause := t.d.o.Pause // the store has tried each request several times by then
	for t.await() {
		err := t.shipAll(ctx)
		select {
		case <-t.quit:
			return
		default:
		}
		t.note(err)
		if lost := t.Status().Lost; lost != nil {
			t.d.o.Lost(t.id, lost)
			return
		}
		if err == nil {
			pause = t.d.o.Pause
			t.tidy(ctx)
			continue
		}
		select {
		case <-t.quit:
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, 30*t.d.o.Pause)
		t.nudge()
	}
}

// look finds out whether another server has taken a doubtful tree over, also if
// there is nothing to ship: programs must not go on with a state that is not the
// disk's any more. A store that does not answer is asked again by shipping.
func (t *Tree) look(ctx context.Context) error {
	s := t.shipped
	if !t.doubtful {
		return nil
	}
	// What this server has sent and not heard of comes first.
	mine := journal.Header{Tree: t.id, Server: t.d.o.Server, Number: s.Number + 1, Term: s.Term, First: s.Sequence + 1}
	for {
		h, _, err := t.d.read(ctx, t.id, mine.Number)
		if err != nil {
			return nil
		}
		if err := own(h, mine); err != nil {
			return err
		}
		mine.Number, mine.First = mine.Number+1, h.Last+1
	}
}

// tidy removes from the store what has been of no use for long, now and then.
func (t *Tree) tidy(ctx context.Context) {
	if time.Since(t.reaped) < t.d.o.Horizon/2 {
		return
	}
	t.reaped = time.Now()
	if err := t.reap(ctx); err != nil && ctx.Err() == nil {
		t.d.o.Logger.Warn("what is of no use in the store is not removed yet", "tree", t.id.String(), "store", t.d.o.Blob.Name(), "error", err)
	}
}

// nudge makes the next await return at once.
func (t *Tree) nudge() {
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// await waits for something to ship, and then a little for more; false when
// the tree is closed.
func (t *Tree) await() bool {
	select {
	case <-t.quit:
		return false
	case <-t.kick:
		return true
	case <-t.box.Added():
	}
	var late <-chan time.Time
	if t.d.o.Delay >= 0 {
		timer := time.NewTimer(t.d.o.Delay)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-t.quit:
		return false
	case <-t.kick:
	case <-late:
	}
	return true
}

// note takes over how an attempt went.
func (t *Tree) note(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil && t.failed != nil:
		t.d.o.Logger.Info("the store takes commits again", "tree", t.id.String(), "store", t.d.o.Blob.Name())
		t.failed, t.since = nil, time.Time{}
	case err != nil && t.failed == nil:
		t.failed, t.since = err, t.d.o.Clock()
		t.d.o.Logger.Warn("the store does not take commits; they wait on this machine", "tree", t.id.String(), "store", t.d.o.Blob.Name(), "error", err)
	case err != nil:
		t.failed = err
	}
	if tine.KindOf(err) == tine.KindStale && err != nil {
		t.lost = err
		t.d.o.Logger.Error("another server has taken the tree over; what it did not get is lost to it", "tree", t.id.String(), "error", err)
	}
	t.wake()
}

// arrived takes over that the store has one object more.
func (t *Tree) arrived(s record.Shipped) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shipped = s
	t.wake()
}

// wake tells those who wait; t.mu is held.
func (t *Tree) wake() {
	close(t.change)
	t.change = make(chan struct{})
}
