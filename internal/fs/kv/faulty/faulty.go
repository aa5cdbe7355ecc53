// Package faulty wraps a key-value store and makes it fail on a plan, so that
// tests can see what the layers above do about it. A plan counts calls, or
// draws from a seed; the same plan over the same calls fails the same way.
package faulty

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/tine"
)

// Fault is one thing that goes wrong. At counts calls from 1 on since Open or
// since the plan was set; 0 with Every set means each Every-th call; 0 with
// Percent means a draw from the seed.
type Fault struct {
	At      int64
	Every   int64
	Percent int
	// Kind is what the call fails with. A commit that fails with
	// tine.KindNoSpace has not happened and the store goes on; after any
	// other kind the store is poisoned, as the seam says.
	Kind tine.ErrorKind
	// Applied makes a failing commit happen all the same before it fails:
	// the case that callers must be ready for. Not with KindNoSpace.
	Applied bool
	// Wait, if not nil, is called before the call goes on, with the number of
	// the call: it may block, as a slow device does. With no Kind set
	// (tine.KindInternal) the call then succeeds.
	Wait func(call int64)
}

// Plan says what fails. The zero plan fails nothing.
type Plan struct {
	Seed   uint64
	Commit []Fault
	Read   []Fault // Newest, Scan and each move of a cursor
}

// Store is a kv.Store that follows a plan. Safe for concurrent use.
type Store struct {
	kv.Store
	commits, reads atomic.Int64
	mu             sync.Mutex // guards all below
	plan           Plan
	rng            *rand.Rand
	poison         error
}

// Wrap returns a store over s. Closing it closes s.
func Wrap(s kv.Store, p Plan) *Store {
	f := &Store{Store: s}
	f.SetPlan(p)
	return f
}

// SetPlan replaces the plan and starts counting anew. A poisoned store stays
// poisoned.
func (s *Store) SetPlan(p Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = p
	s.rng = rand.New(rand.NewPCG(p.Seed, 0x7469_6e65))
	s.commits.Store(0)
	s.reads.Store(0)
}

// Commits and Reads return how many calls the plan has counted.
func (s *Store) Commits() int64 { return s.commits.Load() }

// Reads is beside Commits.
func (s *Store) Reads() int64 { return s.reads.Load() }

// Poison makes every later call fail, as if the device had failed just now.
func (s *Store) Poison() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strike()
}

func (s *Store) strike() {
	if s.poison == nil {
		s.poison = tine.Errorf(tine.KindUnavailable, "the key-value store stopped after an injected fault")
	}
}

func (s *Store) poisoned() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.poison
}

// pick finds the fault for call n, if there is one.
func (s *Store) pick(faults func(*Plan) []Fault, n int64) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := faults(&s.plan)
	for i := range list {
		f := &list[i]
		switch {
		case f.At > 0 && f.At == n,
			f.At == 0 && f.Every > 0 && n%f.Every == 0,
			f.At == 0 && f.Every == 0 && f.Percent > 0 && s.rng.IntN(100) < f.Percent:
			return f
		}
	}
	return nil
}

func commitFaults(p *Plan) []Fault { return p.Commit }
func readFaults(p *Plan) []Fault   { return p.Read }

// Commit implements kv.Store.
func (s *Store) Commit(b kv.Batch, sync bool) error {
	if err := s.poisoned(); err != nil {
		b.Discard()
		return err
	}
	n := s.commits.Add(1)
	f := s.pick(commitFaults, n)
	if f != nil && f.Wait != nil {
		f.Wait(n)
	}
	if f == nil || f.Kind == tine.KindInternal {
		return s.Store.Commit(b, sync)
	}
	if f.Kind == tine.KindNoSpace {
		b.Discard()
		return tine.Errorf(tine.KindNoSpace, "injected: no space for commit %d", n)
	}
	if f.Applied {
		if err := s.Store.Commit(b, sync); err != nil {
			return err
		}
	} else {
		b.Discard()
	}
	s.Poison()
	return tine.Errorf(f.Kind, "injected: commit %d failed", n)
}

// Flush implements kv.Store.
func (s *Store) Flush() error {
	if err := s.poisoned(); err != nil {
		return err
	}
	return s.Store.Flush()
}

// Compact implements kv.Store.
func (s *Store) Compact(lower, upper []byte) error {
	if err := s.poisoned(); err != nil {
		return err
	}
	return s.Store.Compact(lower, upper)
}

// Snapshot implements kv.Store.
func (s *Store) Snapshot() kv.Snapshot { return &snapshot{s.Store.Snapshot(), s} }

// read counts a read and returns its error. A failed read does not poison.
func (s *Store) read() error {
	if err := s.poisoned(); err != nil {
		return err
	}
	n := s.reads.Add(1)
	f := s.pick(readFaults, n)
	if f == nil {
		return nil
	}
	if f.Wait != nil {
		f.Wait(n)
	}
	if f.Kind == tine.KindInternal {
		return nil
	}
	return tine.Errorf(f.Kind, "injected: read %d failed", n)
}

type snapshot struct {
	kv.Snapshot
	s *Store
}

func (n *snapshot) Newest(prefix []byte, limit tine.Epoch) ([]byte, tine.Epoch, bool, error) {
	if err := n.s.read(); err != nil {
		return nil, 0, false, err
	}
	return n.Snapshot.Newest(prefix, limit)
}

func (n *snapshot) Scan(lower, upper []byte, born *kv.Born) (kv.Scan, error) {
	if err := n.s.read(); err != nil {
		return nil, err
	}
	c, err := n.Snapshot.Scan(lower, upper, born)
	if err != nil {
		return nil, err
	}
	return &scan{Scan: c, s: n.s}, nil
}

type scan struct {
	kv.Scan
	s   *Store
	err error
}

func (c *scan) Next() bool { return c.ready() && c.Scan.Next() }

func (c *scan) Seek(key []byte) bool { return c.ready() && c.Scan.Seek(key) }

func (c *scan) ready() bool {
	if c.err == nil {
		c.err = c.s.read()
	}
	return c.err == nil
}

func (c *scan) Err() error {
	if c.err != nil {
		return c.err
	}
	return c.Scan.Err()
}
