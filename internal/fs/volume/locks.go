package volume

import (
	"context"
	"sync"

	"tine.dev/tine/internal/tine"
)

// lockTable holds the advisory locks of one disk: byte ranges as fcntl(2) has
// them and whole-file locks as flock(2). The two kinds do not see each other,
// as on any Linux file system.
type lockTable struct {
	mu    sync.Mutex
	files map[lockKey]*fileLocks
	waits map[lockOwner]lockOwner // who waits for whom, to find deadlocks
}

// lockKey is a file and the kind of locks on it.
type lockKey struct {
	node  Node
	flock bool
}

// lockOwner is who holds a lock: an owner as the client's kernel names it.
type lockOwner struct {
	s     *Session
	owner uint64
}

type heldLock struct {
	owner lockOwner
	Lock
}

type fileLocks struct {
	held    []heldLock
	changed chan struct{} // closed and replaced when a lock is given back
}

func (t *lockTable) file(k lockKey) *fileLocks {
	f := t.files[k]
	if f == nil {
		if t.files == nil {
			t.files = map[lockKey]*fileLocks{}
			t.waits = map[lockOwner]lockOwner{}
		}
		f = &fileLocks{changed: make(chan struct{})}
		t.files[k] = f
	}
	return f
}

// conflict returns a lock of another owner that stands in l's way.
func (f *fileLocks) conflict(o lockOwner, l Lock) *heldLock {
	for i := range f.held {
		h := &f.held[i]
		if h.owner != o && h.Start <= l.End && l.Start <= h.End && (h.Kind == WriteLock || l.Kind == WriteLock) {
			return h
		}
	}
	return nil
}

// replace sets the owner's range to l: what it held there before is cut out,
// and ranges of one kind that touch become one.
func (f *fileLocks) replace(o lockOwner, l Lock) {
	var out []heldLock
	for _, h := range f.held {
		if h.owner == o && h.Kind == l.Kind && h.Start-1 <= l.End && l.Start-1 <= h.End {
			l.Start, l.End = min(l.Start, h.Start), max(l.End, h.End)
			continue
		}
		if h.owner != o || h.End < l.Start || l.End < h.Start {
			out = append(out, h)
			continue
		}
		if h.Start < l.Start {
			left := h
			left.End = l.Start - 1
			out = append(out, left)
		}
		if h.End > l.End {
			right := h
			right.Start = l.End + 1
			out = append(out, right)
		}
	}
	if l.Kind != Unlock {
		out = append(out, heldLock{o, l})
	}
	f.held = out
	close(f.changed)
	f.changed = make(chan struct{})
}

// set takes, changes or gives back a lock. With wait it waits until nothing
// stands in the way, until ctx is done (KindInterrupted), or until waiting
// would be a deadlock.
func (t *lockTable) set(ctx context.Context, k lockKey, o lockOwner, l Lock, wait bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		f := t.file(k)
		h := f.conflict(o, l)
		if l.Kind == Unlock || h == nil {
			f.replace(o, l)
			t.forgetEmpty(k, f)
			return nil
		}
		if k.flock {
			f.replace(o, Lock{Kind: Unlock, Start: l.Start, End: l.End}) // flock(2): a conversion gives the old lock up first
		}
		if !wait {
			return tine.ErrAgain
		}
		if !k.flock && t.waitsFor(h.owner, o) {
			return tine.ErrDeadlock
		}
		t.waits[o] = h.owner
		changed := f.changed
		t.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		t.mu.Lock()
		delete(t.waits, o)
		if ctx.Err() != nil {
			return tine.ErrInterrupted
		}
	}
}

// waitsFor reports whether a waits, through any chain, for b.
func (t *lockTable) waitsFor(a, b lockOwner) bool {
	for range len(t.waits) + 1 {
		if a == b {
			return true
		}
		next, ok := t.waits[a]
		if !ok {
			return false
		}
		a = next
	}
	return false
}

func (t *lockTable) forgetEmpty(k lockKey, f *fileLocks) {
	if len(f.held) == 0 {
		delete(t.files, k)
	}
}

// test returns the lock that stands in l's way, or l as Unlock.
func (t *lockTable) test(k lockKey, o lockOwner, l Lock) Lock {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.files[k]; f != nil {
		if h := f.conflict(o, l); h != nil {
			return h.Lock
		}
	}
	l.Kind = Unlock
	return l
}

// drop gives back all locks for which gone is true.
func (t *lockTable) drop(gone func(lockKey, lockOwner) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, f := range t.files {
		kept := f.held[:0:0]
		for _, h := range f.held {
			if !gone(k, h.owner) {
				kept = append(kept, h)
			}
		}
		if len(kept) != len(f.held) {
			f.held = kept
			close(f.changed)
			f.changed = make(chan struct{})
			t.forgetEmpty(k, f)
		}
	}
}

func (t *lockTable) dropSession(s *Session) {
	t.drop(func(_ lockKey, o lockOwner) bool { return o.s == s })
}

// current puts the present generation in place of 0, so that one file has one
// key.
func (s *Session) current(n Node) (Node, error) {
	_, gen, err := s.at.Enter(n.Gen)
	if err != nil {
		return n, err
	}
	s.at.Exit()
	return Node{gen, n.Ino}, nil
}

// GetLock returns the lock that stands in the way of l; its Kind is Unlock if
// there is none.
func (s *Session) GetLock(n Node, l Lock) (Lock, error) {
	n, err := s.current(n)
	if err != nil {
		return l, err
	}
	return s.hub.locks.test(lockKey{n, false}, lockOwner{s, l.Owner}, l), nil
}

// SetLock takes or gives back a byte range, as fcntl(2).
func (s *Session) SetLock(ctx context.Context, n Node, l Lock, wait bool) error {
	n, err := s.current(n)
	if err != nil {
		return err
	}
	return s.lock(ctx, lockKey{n, false}, l, wait)
}

// Flock takes or gives back a whole-file lock, as flock(2).
func (s *Session) Flock(ctx context.Context, n Node, owner uint64, k LockKind, wait bool) error {
	n, err := s.current(n)
	if err != nil {
		return err
	}
	l := Lock{Kind: k, Start: 0, End: 1<<63 - 1, Owner: owner}
	return s.lock(ctx, lockKey{n, true}, l, wait)
}

// lock sets a lock. Its holder sees all that was written under it before.
func (s *Session) lock(ctx context.Context, k lockKey, l Lock, wait bool) error {
	err := s.hub.locks.set(ctx, k, lockOwner{s, l.Owner}, l, wait)
	if err == nil && l.Kind != Unlock {
		s.catchUp()
	}
	return err
}

// ReleaseOwner gives back all byte ranges of an owner on a file: what close(2)
// of any of its descriptors does.
func (s *Session) ReleaseOwner(n Node, owner uint64) {
	if s.hub.locks.empty() {
		return
	}
	n, err := s.current(n)
	if err != nil {
		return
	}
	s.hub.locks.drop(func(k lockKey, o lockOwner) bool {
		return !k.flock && k.node == n && o == lockOwner{s, owner}
	})
}

func (t *lockTable) empty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.files) == 0
}
