// Package faulty wraps a driver and makes it fail on a plan, as stores do on
// bad days, so that tests can see what the layers above do about it. A plan
// counts calls, or draws from a seed; the same plan over the same calls fails
// the same way.
package faulty

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

// Op is a set of kinds of requests.
type Op uint16

// The kinds of requests. A part of an upload and its completion count apart.
const (
	Get Op = 1 << iota
	Put
	Begin
	Part
	Complete
	Stat
	List
	Delete
	Copy
	Sweep

	Reads  = Get | Stat | List
	Writes = Put | Begin | Part | Complete | Delete | Copy | Sweep
	All    = Reads | Writes
)

// What says how a request goes wrong.
type What uint8

// The ways to go wrong. Those that only make sense for some requests leave the
// others alone: Truncated and WrongBytes are for Get; LostAck, Late and Full
// for writes; Vanished for Get and Stat; OneKey for Delete.
const (
	Busy       What = iota // 503: not done, try later
	Throttled              // 429: not done, try later
	Slow                   // waits (Fault.Wait, or until the caller's ctx ends), then is done
	Truncated              // half of the bytes come
	WrongBytes             // all bytes come, one bit is another
	LostAck                // done, but the answer is lost
	Late                   // the answer is lost; done after Fault.After further requests, or at Release
	Denied                 // 403: credentials expired
	Full                   // 507: the bucket is full
	ReadOnly               // the bucket takes no writes
	Vanished               // 404, though it is there
	OneKey                 // one of the keys is not deleted, the others are
)

// Fault is one thing that goes wrong. At counts requests of its Ops from 1 on
// since the plan was set; 0 with Every means each Every-th; 0 with Percent
// means a draw from the seed.
type Fault struct {
	Ops     Op
	What    What
	At      int
	Every   int
	Percent int
	// Wait, for Slow: called before the request goes on; it may block.
	Wait func(ctx context.Context)
	// After, for Late: how many requests come first.
	After int
}

// Plan says what fails. The zero plan fails nothing. The first fault that
// applies to a request wins.
type Plan struct {
	Seed   uint64
	Faults []Fault
}

// Store is a blob.Driver that follows a plan. Safe for concurrent use.
type Store struct {
	next blob.Driver

	mu       sync.Mutex // guards all below
	plan     Plan
	rng      *rand.Rand
	counts   []int // by fault
	requests int
	injected int
	late     []late
}

// late is a write that is still to happen.
type late struct {
	at int // the count of requests
	do func()
}

// Wrap returns a driver over d, which it closes with itself.
func Wrap(d blob.Driver, p Plan) *Store {
	s := &Store{next: d}
	s.SetPlan(p)
	return s
}

// SetPlan replaces the plan and starts counting anew. Writes that are late
// stay so.
func (s *Store) SetPlan(p Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = p
	s.rng = rand.New(rand.NewPCG(p.Seed, 0x626c_6f62))
	s.counts = make([]int, len(p.Faults))
}

// Injected returns how many requests went wrong.
func (s *Store) Injected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.injected
}

// Requests returns how many requests there were.
func (s *Store) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Release makes all late writes happen now.
func (s *Store) Release() {
	s.mu.Lock()
	all := s.late
	s.late = nil
	s.mu.Unlock()
	for _, l := range all {
		l.do()
	}
}

// pick counts a request, makes the late writes happen that are due, and finds
// the fault for it, if there is one.
func (s *Store) pick(op Op) *Fault {
	s.mu.Lock()
	s.requests++
	var due []late
	s.late = slices.DeleteFunc(s.late, func(l late) bool {
		if l.at > s.requests {
			return false
		}
		due = append(due, l)
		return true
	})
	f := s.draw(op)
	if f != nil {
		s.injected++
	}
	s.mu.Unlock()
	for _, l := range due {
		l.do()
	}
	return f
}

// draw is pick under the lock.
func (s *Store) draw(op Op) *Fault {
	var found *Fault
	for i := range s.plan.Faults {
		f := &s.plan.Faults[i]
		if f.Ops&op == 0 || !f.What.suits(op) {
			continue
		}
		s.counts[i]++
		hit := f.At > 0 && f.At == s.counts[i] ||
			f.At == 0 && f.Every > 0 && s.counts[i]%f.Every == 0 ||
			f.At == 0 && f.Every == 0 && f.Percent > 0 && s.rng.IntN(100) < f.Percent
		if hit && found == nil {
			found = f
		}
	}
	return found
}

// suits reports whether a request can go wrong in this way.
func (w What) suits(op Op) bool {
	switch w {
	case Truncated, WrongBytes:
		return op == Get
	case LostAck, Full, ReadOnly:
		return op&Writes != 0
	case Late:
		return op&(Writes&^Sweep) != 0
	case Vanished:
		return op&(Get|Stat) != 0
	case OneKey:
		return op == Delete
	}
	return true
}

// refusals are the answers of faults that keep a request from being done.
var refusals = map[What]blob.Answer{
	Busy:      {Status: 503, Code: "ServiceUnavailable"},
	Throttled: {Status: 429, Code: "TooManyRequests"},
	Denied:    {Status: 403, Code: "ExpiredToken"},
	Full:      {Status: 507, Code: "InsufficientStorage"},
	ReadOnly:  {Status: 403, Code: "AccountIsDisabled"},
	Vanished:  {Status: 404, Code: "NoSuchKey"},
}

// lost is the error of a request whose answer does not come.
func lost(op, key string) error {
	return tine.Errorf(tine.KindUnavailable, "%s %q: injected: the answer was lost", op, key)
}

// do makes one request under the plan.
func (s *Store) do(ctx context.Context, op Op, word string, key blob.Key, request func(context.Context) error) error {
	return s.follow(ctx, s.pick(op), word, key, request)
}

// follow makes one request with the fault, if f is not nil. For a write that
// comes late it calls request when the caller is long gone.
func (s *Store) follow(ctx context.Context, f *Fault, word string, key blob.Key, request func(context.Context) error) error {
	if f == nil {
		return request(ctx)
	}
	if answer, ok := refusals[f.What]; ok {
		answer.Op, answer.Store, answer.Key = word, "faulty", string(key)
		return answer.Err()
	}
	switch f.What {
	case Slow:
		if f.Wait != nil {
			f.Wait(ctx)
		} else {
			<-ctx.Done()
		}
	case LostAck:
		if err := request(ctx); err != nil {
			return err
		}
		return lost(word, string(key))
	case Late:
		s.mu.Lock()
		defer s.mu.Unlock()
		ctx := context.WithoutCancel(ctx)
		s.late = append(s.late, late{at: s.requests + f.After + 1, do: func() { _ = request(ctx) }})
		return lost(word, string(key))
	}
	return request(ctx)
}

// Traits implements blob.Driver.
func (s *Store) Traits() blob.Traits {
	t := s.next.Traits()
	t.Name = "faulty+" + t.Name
	return t
}

// Close implements blob.Driver.
func (s *Store) Close() error { return s.next.Close() }

// Sweep implements blob.Driver.
func (s *Store) Sweep(ctx context.Context, before time.Time) (n int, err error) {
	err = s.do(ctx, Sweep, "sweep", "", func(ctx context.Context) (err error) {
		n, err = s.next.Sweep(ctx, before)
		return err
	})
	return n, err
}
