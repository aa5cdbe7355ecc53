package volume

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tine.dev/tine/internal/fs/meta"
	"tine.dev/tine/internal/tine"
)

// kept are inodes that have lost their last name and that the client of a
// session still knows: by a descriptor of open(2) with O_PATH, as a working
// directory, or because it is about to open what it has just looked up. A
// client usually forgets within microseconds.
type kept struct {
	count atomic.Int64 // of nodes and leaving, so that most calls need no lock

	mu      sync.Mutex
	nodes   map[Node]removal
	leaving int           // forgotten, but not yet let go
	gone    chan struct{} // closed when one has gone; nil if nobody waits
}

// removal is how an inode has lost its last name.
type removal struct {
	at  time.Time
	own bool // through this session
}

// change runs f under the lock.
func (k *kept) change(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
	k.count.Store(int64(len(k.nodes) + k.leaving))
}

func (k *kept) add(n Node, own bool) {
	k.change(func() {
		if k.nodes == nil {
			k.nodes = make(map[Node]removal)
		}
		k.nodes[n] = removal{time.Now(), own}
	})
}

// withdraw takes back an add, and reports whether that was still possible.
func (k *kept) withdraw(n Node) (ok bool) {
	k.change(func() {
		_, ok = k.nodes[n]
		delete(k.nodes, n)
	})
	return ok
}

// leave takes a node out and reports whether it was there; if so, left must
// follow.
func (k *kept) leave(n Node) (ok bool) {
	if k.count.Load() == 0 {
		return false
	}
	k.change(func() {
		if _, ok = k.nodes[n]; ok {
			delete(k.nodes, n)
			k.leaving++
		}
	})
	return ok
}

func (k *kept) left() {
	k.change(func() {
		k.leaving--
		if k.gone != nil {
			close(k.gone)
			k.gone = nil
		}
	})
}

func (k *kept) all() []Node {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.nodes))
}

// youngest returns how long the youngest node will be younger than limit, and a
// channel that is closed when one goes.
func (k *kept) youngest(limit time.Duration) (left time.Duration, gone <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leaving > 0 {
		left = limit
	}
	for _, r := range k.nodes {
		left = max(left, limit-time.Since(r.at))
	}
	if k.gone == nil {
		k.gone = make(chan struct{})
	}
	return left, k.gone
}

// keep lets the sessions of the disk keep what loses its last name in
// generation gen through one of them. A session notes the inode before its client is asked whether
// it knows it, so that a Forget beside it is never missed; if one has come
// between the two, it will close the handle that is then counted.
func (b *hub) keep(from *Session, gen uint32) meta.Keep {
	return func(ino tine.Ino) (handles int) {
		n := Node{gen, ino}
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, s := range b.sessions {
			if s.knows == nil {
				continue
			}
			s.kept.add(n, s == from)
			if s.knows(n) || !s.kept.withdraw(n) {
				handles++
			}
		}
		return handles
	}
}

// Forget tells the session that its client no longer knows an inode, see
// AttachOptions.Knows. For other inodes it does nothing.
func (s *Session) Forget(n Node) {
	if s.kept.leave(n) {
		s.letGo(n)
		s.kept.left()
	}
}

func (s *Session) letGo(n Node) {
	// A failure leaves an inode without a name, which goes when the disk is
	// opened the next time.
	_ = s.look(OpClose, n, func(v meta.View, _ uint32) error { return v.Close(n.Ino) })
}

// RemovedByOthers returns when an inode that the client still knows has lost its
// last name through another session; ok is false if it has not.
func (s *Session) RemovedByOthers(n Node) (at time.Time, ok bool) {
	if s.kept.count.Load() == 0 {
		return at, false
	}
	s.kept.mu.Lock()
	defer s.kept.mu.Unlock()
	r, ok := s.kept.nodes[n]
	return r.at, ok && !r.own
}

// AwaitForgotten waits for the client to forget what has lost its last name
// within the last moments, and reports whether there was anything: what the
// removal of a file frees is free when the client has forgotten the file, a
// moment after the removal has returned.
func (s *Session) AwaitForgotten() bool {
	const moments = 50 * time.Millisecond
	if s.kept.count.Load() == 0 {
		return false
	}
	// Not for longer: what is let go may itself wait for room.
	end := time.NewTimer(moments)
	defer end.Stop()
	for waited := false; ; waited = true {
		left, gone := s.kept.youngest(moments)
		if left <= 0 {
			return waited
		}
		select {
		case <-gone:
		case <-end.C:
			return true
		}
	}
}
