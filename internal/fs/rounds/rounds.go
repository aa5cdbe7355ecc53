// Package rounds has background work done in rounds: one at a time, when somebody
// says that there may be something to do, and now and then without being told. It
// knows when, and nothing of what.
package rounds

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Rounds are the rounds of one worker. Make them with New.
type Rounds struct {
	poke chan struct{}
	quit chan struct{}
	once sync.Once
	wg   sync.WaitGroup
}

// New returns rounds that have not begun.
func New() *Rounds { return &Rounds{poke: make(chan struct{}, 1), quit: make(chan struct{})} }

// Start calls first, and then round whenever Wake was called, and when the time
// that round has returned is over, until Stop. The first round comes at once.
func (r *Rounds) Start(first func(), round func() (next time.Duration)) {
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		first()
		next := time.NewTimer(0)
		defer next.Stop()
		for {
			select {
			case <-r.quit:
				return
			case <-r.poke:
			case <-next.C:
			}
			next.Reset(round())
		}
	}()
}

// Wake says that there may be something to do. It does not wait.
func (r *Rounds) Wake() {
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

// Poked receives when Wake was called, for a round that waits for something: it
// then has to look itself.
func (r *Rounds) Poked() <-chan struct{} { return r.poke }

// Quit is closed when the work is to end.
func (r *Rounds) Quit() <-chan struct{} { return r.quit }

// Stop ends the rounds, after what is under way has seen Stopped.
func (r *Rounds) Stop() {
	r.once.Do(func() { close(r.quit) })
	r.wg.Wait()
}

// Stopped reports whether work is to end: for Stop, which is no error, or because
// the context is done.
func (r *Rounds) Stopped(ctx context.Context) (bool, error) {
	select {
	case <-r.quit:
		return true, nil
	case <-ctx.Done():
		return true, context.Cause(ctx)
	default:
		return false, nil
	}
}

// Marks are kinds of work, a bit each, that may be waiting somewhere, so that it
// need not be searched for when it is not. The zero value has none; it is safe for
// concurrent use.
type Marks struct{ bits atomic.Uint32 }

// Add notes that these kinds may be waiting.
func (m *Marks) Add(kinds uint32) { m.bits.Or(kinds) }

// Take reports whether the kind may be waiting, and forgets it: whoever finds
// some adds it again.
func (m *Marks) Take(kind uint32) bool { return m.bits.And(^kind)&kind != 0 }
