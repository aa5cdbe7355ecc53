package volume

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// hub joins the sessions of one disk: it tells each what the others have
// changed, and holds the locks that they compete for.
//
// Lock order: hub.mu, then session.mu. Neither is held while the engine is
// called or a client is called back. hub.mu, with kept.mu below it, is also
// taken by the engine with a line locked, to ask who knows an inode.
type hub struct {
	mu       sync.Mutex
	sessions []*Session
	count    atomic.Int32 // sessions that want invalidations or not
	locks    lockTable
}

func (h *Host) hubOf(id tine.DiskID) *hub {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.hubs[id]
	if b == nil {
		b = &hub{}
		h.hubs[id] = b
	}
	return b
}

func (b *hub) join(s *Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sessions = append(b.sessions, s)
	b.count.Add(1)
}

func (b *hub) leave(s *Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, x := range b.sessions {
		if x == s {
			b.sessions = append(b.sessions[:i:i], b.sessions[i+1:]...)
			b.count.Add(-1)
		}
	}
}

// labels names the sessions, for people.
func (b *hub) labels() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ls []string
	for _, s := range b.sessions {
		if s.label != "" {
			ls = append(ls, s.label)
		}
	}
	return ls
}

// tell queues an invalidation for every session but the one that caused it;
// with from nil for all.
func (b *hub) tell(from *Session, i Invalidation) {
	if from != nil && b.count.Load() < 2 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.sessions {
		if s != from && s.queue != nil {
			s.queue.push(i)
		}
	}
}

// flush asks every session to hand over what its client still holds dirty. No
// lock is held. A session that cannot is an error: a fork is complete or fails
// (F3).
func (b *hub) flush(ctx context.Context) error {
	b.mu.Lock()
	var fns []func(context.Context) error
	var labels []string
	for _, s := range b.sessions {
		if s.flush != nil {
			fns, labels = append(fns, s.flush), append(labels, s.label)
		}
	}
	b.mu.Unlock()
	for i, fn := range fns {
		if err := fn(ctx); err != nil {
			return tine.Errorf(tine.KindUnavailable, "%s could not be flushed: %w", labels[i], err).
				WithHint("look at what uses it, or unmount it, and try again")
		}
	}
	return nil
}

// queue hands invalidations to a client in order, from one goroutine. It is
// unbounded in principle; past a limit everything in it becomes one "forget
// all", which is always right.
type queue struct {
	mu     sync.Mutex
	ready  *sync.Cond
	items  []queued
	busy   bool // something taken from items is being delivered
	closed bool
	done   chan struct{}
}

// queued is an invalidation, or a mark that is closed when its turn comes.
type queued struct {
	Invalidation
	mark chan struct{}
}

const queueLimit = 1 << 14

func newQueue(deliver func(Invalidation)) *queue {
	q := &queue{done: make(chan struct{})}
	q.ready = sync.NewCond(&q.mu)
	go func() {
		defer close(q.done)
		for {
			q.mu.Lock()
			q.busy = false
			for len(q.items) == 0 && !q.closed {
				q.ready.Wait()
			}
			q.busy = true
			items := q.items
			q.items = nil
			closed := q.closed
			q.mu.Unlock()
			if closed {
				return
			}
			for _, i := range items {
				if i.mark != nil {
					close(i.mark)
				} else {
					deliver(i.Invalidation)
				}
			}
		}
	}()
	return q
}

func (q *queue) push(i Invalidation) {
	q.mu.Lock()
	if len(q.items) >= queueLimit {
		marks := slices.DeleteFunc(q.items, func(i queued) bool { return i.mark == nil })
		q.items = append([]queued{{Invalidation: Invalidation{Kind: InvalidAll}}}, marks...)
	} else {
		q.items = append(q.items, queued{Invalidation: i})
	}
	q.mu.Unlock()
	q.ready.Signal()
}

// mark returns a channel that is closed when all that is queued now has been
// delivered, or the queue ends.
func (q *queue) mark() <-chan struct{} {
	m := make(chan struct{})
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return q.done
	}
	q.items = append(q.items, queued{mark: m})
	q.ready.Signal()
	return m
}

// idle reports that all that was ever queued has been delivered.
func (q *queue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items) == 0 && !q.busy
}

// catchUp waits until the session's client has been told of all that the others
// have done so far. Who opens a file or is given a lock relies on seeing what
// was written before: close-to-open, and a lock that means something. It is
// called where the client's kernel holds no lock of its own that delivery
// could need; should that be wrong somewhere, the wait is short.
func (s *Session) catchUp() {
	if s.queue == nil || s.hub.count.Load() < 2 || s.queue.idle() {
		return
	}
	limit := time.NewTimer(catchUpLimit)
	defer limit.Stop()
	select {
	case <-s.queue.mark():
	case <-s.queue.done:
	case <-limit.C:
	}
}

// catchUpLimit is the time within which other clients learn of a change (S2).
const catchUpLimit = 100 * time.Millisecond

// drain waits until every session has been told of all that was queued for it.
// A client that does not take it in time is left to learn later.
func (b *hub) drain(ctx context.Context) {
	b.mu.Lock()
	var queues []*queue
	for _, s := range b.sessions {
		if s.queue != nil {
			queues = append(queues, s.queue)
		}
	}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	for _, q := range queues {
		select {
		case <-q.mark():
		case <-q.done:
		case <-ctx.Done():
			return
		}
	}
}

// drainLimit bounds how long an answer waits for a client that does not take
// what it is told.
const drainLimit = 5 * time.Second

// close ends delivery; what is still queued is dropped, for the client goes.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.ready.Signal()
	<-q.done
}

// Attach begins a session on a disk or checkpoint.
func (h *Host) Attach(_ context.Context, c Caller, r Ref, o AttachOptions) (*Session, error) {
	d, err := h.engine.Find(c.Tenant, r.Disk)
	if err != nil {
		return nil, err
	}
	if h.away.isLost(d.Tree()) && !o.ReadOnly {
		return nil, d.Failed() // what is here may be looked at, should something of it be missed
	}
	a, err := d.Attach(r.Checkpoint)
	if err != nil {
		return nil, err
	}
	s := &Session{host: h, at: a, ref: r, label: o.Label, flush: o.Flush, knows: o.Knows,
		files: map[*File]struct{}{}, dirs: map[*Dir]struct{}{}, ops: h.watch.join(d.ID())}
	rec, _ := d.Record()
	s.bucket = rec.Durable == DurableBucket
	readOnly := o.ReadOnly || a.Frozen()
	s.readOnly.Store(readOnly)
	s.wrote.Store(!readOnly)
	if a.Frozen() {
		s.hub = &hub{}
	} else {
		s.hub = h.hubOf(d.ID())
	}
	if o.Invalidate != nil {
		s.queue = newQueue(o.Invalidate)
	}
	s.hub.join(s)
	return s, nil
}

func actor(c Caller) timeline.Actor { return timeline.Actor{Author: c.Author, Caller: c.Principal} }
