// Package mem is the reference driver of the key-value seam: a B-tree in
// memory whose copies are free until they are written to. It is what other
// drivers are compared with, and what tests of the layers above run on.
//
// Nothing survives Close, so "durable" means nothing here.
package mem

import (
	"bytes"
	"sync"

	"github.com/tidwall/btree"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

type row struct{ key, value []byte }

func less(a, b row) bool { return bytes.Compare(a.key, b.key) < 0 }

type store struct {
	mu     sync.Mutex // guards all below; the tree itself has no lock
	rows   *btree.BTreeG[row]
	bytes  int64
	closed bool
}

// New returns an empty store.
func New() kv.Store {
	return &store{rows: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

func (s *store) check() error {
	if s.closed {
		return tine.Errorf(tine.KindUnavailable, "the key-value store is closed")
	}
	return nil
}

type batch struct {
	ops  []kv.Change
	size int
	used bool
}

func (s *store) NewBatch() kv.Batch { return &batch{} }

func (b *batch) add(k kv.ChangeKind, key, value []byte) {
	b.ops = append(b.ops, kv.Change{Kind: k, Key: bytes.Clone(key), Value: bytes.Clone(value)})
	b.size += len(key) + len(value)
}

func (b *batch) Set(key, value []byte)           { b.add(kv.ChangeSet, key, value) }
func (b *batch) Delete(key []byte)               { b.add(kv.ChangeDelete, key, nil) }
func (b *batch) DeleteRange(lower, upper []byte) { b.add(kv.ChangeDeleteRange, lower, upper) }
func (b *batch) AllowLow()                       {}
func (b *batch) Frees()                          {}
func (b *batch) Len() int                        { return len(b.ops) }
func (b *batch) Size() int                       { return b.size }
func (b *batch) Changes(fn func(kv.Change) error) error {
	for _, c := range b.ops {
		if err := fn(c); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) Discard() { b.ops, b.used = nil, true }

func (s *store) Commit(kb kv.Batch, _ bool) error {
	b, ok := kb.(*batch)
	if !ok || b.used {
		return tine.Errorf(tine.KindInternal, "the batch is not of this store or was used before")
	}
	b.used = true
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(); err != nil {
		return err
	}
	for _, o := range b.ops {
		switch o.Kind {
		case kv.ChangeSet:
			old, had := s.rows.Set(row{o.Key, o.Value})
			s.count(old, had, -1)
			s.count(row{o.Key, o.Value}, true, 1)
		case kv.ChangeDelete:
			old, had := s.rows.Delete(row{key: o.Key})
			s.count(old, had, -1)
		case kv.ChangeDeleteRange:
			s.deleteRange(o.Key, o.Value)
		}
	}
	return nil
}

func (s *store) count(r row, had bool, sign int64) {
	if had {
		s.bytes += sign * int64(len(r.key)+len(r.value))
	}
}

func (s *store) deleteRange(lower, upper []byte) {
	var dead []row
	s.rows.Ascend(row{key: lower}, func(r row) bool {
		if bytes.Compare(r.key, upper) >= 0 {
			return false
		}
		dead = append(dead, r)
		return true
	})
	for _, r := range dead {
		s.rows.Delete(r)
		s.count(r, true, -1)
	}
}

func (s *store) Snapshot() kv.Snapshot { return &snapshot{s: s} }

func (s *store) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.check()
}

func (s *store) Compact(_, _ []byte) error { return s.Flush() }

func (s *store) Metrics() kv.Metrics {
	s.mu.Lock()
	defer s.mu.Unlock()
	return kv.Metrics{MemoryBytes: s.bytes}
}

func (s *store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// snapshot is a copy of the tree, taken at the first read.
type snapshot struct {
	s    *store
	rows *btree.BTreeG[row]
}

func (n *snapshot) pin() error {
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	if err := n.s.check(); err != nil {
		return err
	}
	if n.rows == nil {
		n.rows = n.s.rows.Copy()
	}
	return nil
}

func (n *snapshot) Newest(prefix []byte, limit tine.Epoch) (value []byte, birth tine.Epoch, ok bool, err error) {
	if err := n.pin(); err != nil {
		return nil, 0, false, err
	}
	key := record.AppendEpoch(append([]byte(nil), prefix...), limit)
	n.rows.Ascend(row{key: key}, func(r row) bool {
		p, e, whole := record.SplitEpoch(r.key)
		if whole && bytes.Equal(p, prefix) {
			value, birth, ok = r.value, e, true
		}
		return false
	})
	return value, birth, ok, nil
}

func (n *snapshot) Scan(lower, upper []byte, born *kv.Born) (kv.Scan, error) {
	if err := n.pin(); err != nil {
		return nil, err
	}
	c := &scan{s: n.s, it: n.rows.Iter(), lower: bytes.Clone(lower), upper: bytes.Clone(upper), bounded: upper != nil}
	if born != nil {
		b := *born
		c.born = &b
	}
	return c, nil
}

func (n *snapshot) Close() error { return nil }

type scan struct {
	s            *store
	it           btree.IterG[row]
	lower, upper []byte
	bounded      bool
	born         *kv.Born
	placed       bool
	ended        bool
	cur          row
	err          error
}

func (c *scan) Next() bool {
	if !c.placed {
		return c.Seek(c.lower)
	}
	return c.usable() && !c.ended && c.settle(c.it.Next())
}

func (c *scan) Seek(key []byte) bool {
	if !c.usable() {
		return false
	}
	c.placed, c.ended = true, false
	if bytes.Compare(key, c.lower) < 0 {
		key = c.lower
	}
	return c.settle(c.it.Seek(row{key: key}))
}

func (c *scan) usable() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.err == nil {
		c.err = c.s.check()
	}
	return c.err == nil
}

func (c *scan) settle(valid bool) bool {
	for ; valid; valid = c.it.Next() {
		c.cur = c.it.Item()
		if c.bounded && bytes.Compare(c.cur.key, c.upper) >= 0 {
			break
		}
		if c.born == nil {
			return true
		}
		_, e, ok := record.SplitEpoch(c.cur.key)
		if ok && e > c.born.After && e <= c.born.UpTo {
			return true
		}
	}
	c.ended = true
	return false
}

func (c *scan) Key() []byte   { return c.cur.key }
func (c *scan) Value() []byte { return c.cur.value }
func (c *scan) Err() error    { return c.err }
func (c *scan) Close() error  { return nil }
