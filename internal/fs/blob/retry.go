package blob

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"tine.dev/tine/internal/tine"
)

// Policy says how a Store tries again. The zero value is right for a store
// over a network.
type Policy struct {
	Attempts int           // a request at most; 0: 6
	First    time.Duration // the wait before the second attempt, doubled for each further one; 0: 100 ms
	Longest  time.Duration // a wait at most; 0: 5 s
	// Patience is how long one attempt may take, with a second more for each
	// MiB that it moves; 0: 20 s. Negative: no limit.
	Patience time.Duration
	// Budget is how many retries all calls together may make before they must
	// earn more: ten requests that succeed earn one. So a store that is down
	// gets hardly more requests than one that is up. 0: 200.
	Budget int
	// Sleep waits, or returns early with an error when ctx ends; nil: by the
	// clock. A simulator gives its own.
	Sleep func(ctx context.Context, d time.Duration) error
	// Random returns a number in [0,1) for the jitter; nil: not seeded. Safe
	// for concurrent use.
	Random func() float64
}

// earned is what one success adds to the budget, in retries.
const earned = 0.1

// retrier runs attempts under a policy. Safe for concurrent use.
type retrier struct {
	Policy
	mu   sync.Mutex
	left float64 // of the budget; guarded by mu
}

func newRetrier(p Policy) *retrier {
	if p.Attempts <= 0 {
		p.Attempts = 6
	}
	if p.First <= 0 {
		p.First = 100 * time.Millisecond
	}
	if p.Longest <= 0 {
		p.Longest = 5 * time.Second
	}
	if p.Patience == 0 {
		p.Patience = 20 * time.Second
	}
	if p.Budget <= 0 {
		p.Budget = 200
	}
	if p.Sleep == nil {
		p.Sleep = sleep
	}
	if p.Random == nil {
		p.Random = rand.Float64
	}
	return &retrier{Policy: p, left: float64(p.Budget)}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// worthwhile reports whether another attempt may do better: the store had no
// time or no answer, or bytes were damaged, which happens on the way far more
// often than at rest.
func worthwhile(err error) bool {
	switch tine.KindOf(err) {
	case tine.KindUnavailable, tine.KindCorrupt:
		return true
	}
	return false
}

// do calls f until it succeeds, fails for good, or attempts, budget or ctx end.
// bytes is what an attempt moves.
func (r *retrier) do(ctx context.Context, bytes int64, f func(context.Context) error) error {
	for n := 1; ; n++ {
		err := r.attempt(ctx, bytes, f)
		if err == nil {
			r.earn()
			return nil
		}
		if !worthwhile(err) || n >= r.Attempts || !r.spend() {
			return err
		}
		if r.Sleep(ctx, r.wait(n, err)) != nil {
			return tine.Errorf(tine.KindInterrupted, "%w, after: %v", context.Cause(ctx), err)
		}
	}
}

// attempt calls f once, within its time.
func (r *retrier) attempt(ctx context.Context, bytes int64, f func(context.Context) error) error {
	if r.Patience < 0 {
		return f(ctx)
	}
	patience := r.Patience + time.Duration(bytes>>20)*time.Second
	inner, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := f(inner)
	if tine.KindOf(err) == tine.KindInterrupted && ctx.Err() == nil {
		return tine.Errorf(tine.KindUnavailable, "no answer within %v: %w", patience, err)
	}
	return err
}

// longestAsked is the longest wait that a store can ask for.
const longestAsked = 30 * time.Second

// wait returns how long to wait after attempt n, which failed with err: half of
// it drawn, so that many who failed together do not come back together. A store
// that asks for a longer wait gets it, and what is drawn on top.
func (r *retrier) wait(n int, err error) time.Duration {
	d := r.Longest
	if n < 30 && r.First<<(n-1) < d {
		d = r.First << (n - 1)
	}
	drawn := time.Duration(r.Random() * float64(d/2))
	var a asked
	if errors.As(err, &a) && time.Duration(a) > d {
		return min(time.Duration(a), longestAsked) + drawn
	}
	return d/2 + drawn
}

func (r *retrier) spend() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left < 1 {
		return false
	}
	r.left--
	return true
}

func (r *retrier) earn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = min(r.left+earned, float64(r.Budget))
}
