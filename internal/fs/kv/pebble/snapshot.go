package pebble

import (
	"encoding/binary"

	pdb "github.com/cockroachdb/pebble/v2"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// snapshot is one Pebble iterator, made at the first read: an iterator holds
// the state of the moment it was made at, and making one is cheaper than
// registering a Pebble snapshot. All point reads use it; scans use clones of
// it, which share its moment.
type snapshot struct {
	s       *store
	it      *pdb.Iterator
	changes uint64 // s.changes when it was made
	key     []byte // scratch
	closed  bool
}

func (s *store) Snapshot() kv.Snapshot { return &snapshot{s: s} }

func (n *snapshot) pin() error {
	if err := n.s.check(); err != nil {
		return err
	}
	if n.it != nil {
		return nil
	}
	if n.closed {
		return tine.Errorf(tine.KindInternal, "the snapshot is closed")
	}
	n.changes = n.s.changes.Load()
	it, err := n.s.db.NewIterWithContext(n.s.outside.reading, &pdb.IterOptions{KeyTypes: pdb.IterKeyTypePointsOnly, UseL6Filters: true})
	if err != nil {
		return translate("open an iterator", err)
	}
	n.it = it
	n.key = n.s.keys.get()
	return nil
}

func (n *snapshot) Newest(prefix []byte, limit tine.Epoch) ([]byte, tine.Epoch, bool, error) {
	if err := n.pin(); err != nil {
		return nil, 0, false, err
	}
	n.key = record.AppendEpoch(append(n.key[:0], prefix...), limit)
	if !n.it.SeekPrefixGE(n.key) {
		if err := n.it.Error(); err != nil {
			return nil, 0, false, translate("read a row", err)
		}
		return nil, 0, false, nil
	}
	// The prefix that Pebble seeks by may be shorter than the one asked for.
	key := n.it.Key()
	if len(key) != len(n.key) || string(key[:len(prefix)]) != string(prefix) {
		return nil, 0, false, nil
	}
	value, err := n.it.ValueAndErr()
	if err != nil {
		return nil, 0, false, translate("read a row", err)
	}
	return value, tine.Epoch(^binary.BigEndian.Uint64(key[len(key)-record.EpochLen:])), true, nil
}

func (n *snapshot) Scan(lower, upper []byte, born *kv.Born) (kv.Scan, error) {
	if err := n.pin(); err != nil {
		return nil, err
	}
	opts := pdb.IterOptions{KeyTypes: pdb.IterKeyTypePointsOnly, LowerBound: lower, UpperBound: upper}
	c := &scan{s: n.s, after: 0, upTo: ^tine.Epoch(0), all: born == nil, changes: n.changes}
	if born != nil {
		c.after, c.upTo = born.After, born.UpTo
		if c.after >= c.upTo {
			c.empty = true
			return c, nil
		}
		// One place to spare: Pebble appends a filter of its own.
		filters := append(make([]pdb.BlockPropertyFilter, 0, 2), newEpochFilter(c.after, c.upTo))
		opts.PointKeyFilters = filters
	}
	if upper != nil && string(lower) >= string(upper) {
		c.empty = true
		return c, nil
	}
	it, err := n.it.CloneWithContext(n.s.outside.reading, pdb.CloneOptions{IterOptions: &opts})
	if err != nil {
		return nil, translate("open a scan", err)
	}
	c.it = it
	return c, nil
}

func (n *snapshot) Close() error {
	if n.closed {
		return nil
	}
	n.closed = true
	if n.it == nil {
		return nil
	}
	it := n.it
	n.it = nil
	n.s.keys.put(n.key)
	return n.s.release(it, n.changes)
}

// release closes an iterator. Closing the last one that holds an outdated
// state takes Pebble's main lock, which a poisoned store may never give
// back. So an iterator that has seen the state change is closed aside, and on
// a poisoned store it is left to lie.
func (s *store) release(it *pdb.Iterator, changes uint64) error {
	if s.poison.check() != nil {
		return nil
	}
	if s.changes.Load() == changes {
		return translate("close an iterator", it.Close())
	}
	return s.poison.run(func() error { return translate("close an iterator", it.Close()) })
}

// scan is a cursor over a clone of a snapshot's iterator.
type scan struct {
	s           *store
	it          *pdb.Iterator
	after, upTo tine.Epoch
	all         bool // no check of epochs
	empty       bool // nothing can be in it
	placed      bool
	err         error
	changes     uint64
}

func (c *scan) Next() bool {
	if !c.usable() {
		return false
	}
	if !c.placed {
		c.placed = true
		return c.settle(c.it.First())
	}
	return c.settle(c.it.Next())
}

func (c *scan) Seek(key []byte) bool {
	if !c.usable() {
		return false
	}
	c.placed = true
	return c.settle(c.it.SeekGE(key))
}

func (c *scan) usable() bool {
	if c.empty || c.it == nil || c.err != nil {
		return false
	}
	if err := c.s.poison.check(); err != nil {
		c.err = err
		return false
	}
	return true
}

// settle moves on to a row born in the interval. The block filter leaves out
// only blocks in which no row can be; the rows of the others are checked one
// by one.
func (c *scan) settle(valid bool) bool {
	for ; valid; valid = c.it.Next() {
		if c.all {
			return true
		}
		_, e, ok := record.SplitEpoch(c.it.Key())
		if ok && e > c.after && e <= c.upTo {
			return true
		}
	}
	if err := c.it.Error(); err != nil {
		c.err = translate("scan rows", err)
	}
	return false
}

func (c *scan) Key() []byte { return c.it.Key() }

func (c *scan) Value() []byte {
	v, err := c.it.ValueAndErr()
	if err != nil {
		c.err = translate("read a value", err)
		return nil
	}
	return v
}

func (c *scan) Err() error { return c.err }

func (c *scan) Close() error {
	if c.it == nil {
		return nil
	}
	it := c.it
	c.it = nil
	return c.s.release(it, c.changes)
}
