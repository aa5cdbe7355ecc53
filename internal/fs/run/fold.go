package run

import (
	"bytes"

	"github.com/tidwall/btree"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/tine"
)

// Fold makes of changes, in the order in which they were committed, the sorted set
// that does the same: the last set or deletion of each key, and the deleted ranges. A
// range deletion takes what was set in it before out of the set, and stays in it for
// what lies below; what is set in it later is kept beside. It holds all of this in
// memory, see Bytes; who folds a long journal ends a run when that grows large. Not
// safe for concurrent use.
type Fold struct {
	points *btree.BTreeG[kv.Change] // sets and deletions
	ranges *btree.BTreeG[kv.Change] // disjoint, and none touches the next
	bytes  int64
}

// changeOverhead is what a change takes in memory beside its bytes.
const changeOverhead = 96

func byKey(a, b kv.Change) bool { return bytes.Compare(a.Key, b.Key) < 0 }

// NewFold returns an empty set.
func NewFold() *Fold {
	opt := btree.Options{NoLocks: true}
	return &Fold{points: btree.NewBTreeGOptions(byKey, opt), ranges: btree.NewBTreeGOptions(byKey, opt)}
}

// Add applies the next change. It copies the bytes. Errors: tine.KindInvalid.
func (f *Fold) Add(c kv.Change) error {
	switch c.Kind {
	case kv.ChangeSet, kv.ChangeDelete:
		c.Key, c.Value = bytes.Clone(c.Key), bytes.Clone(c.Value)
		if c.Kind == kv.ChangeDelete {
			c.Value = nil
		}
		if old, had := f.points.Set(c); had {
			f.bytes -= held(old)
		}
		f.bytes += held(c)
	case kv.ChangeDeleteRange:
		if bytes.Compare(c.Key, c.Value) < 0 {
			f.deleteRange(c)
		}
	default:
		return tine.Errorf(tine.KindInvalid, "a change of kind %d is not known", c.Kind)
	}
	return nil
}

func held(c kv.Change) int64 { return int64(len(c.Key)+len(c.Value)) + changeOverhead }

func (f *Fold) deleteRange(c kv.Change) {
	lower, upper := bytes.Clone(c.Key), bytes.Clone(c.Value)
	for _, p := range within(f.points, lower, upper) {
		f.points.Delete(p)
		f.bytes -= held(p)
	}
	// The range before may reach into this one, or touch it.
	f.ranges.Descend(kv.Change{Key: lower}, func(r kv.Change) bool {
		if bytes.Compare(r.Value, lower) >= 0 {
			lower = r.Key
			if bytes.Compare(r.Value, upper) > 0 {
				upper = r.Value
			}
		}
		return false
	})
	for _, r := range within(f.ranges, lower, append(bytes.Clone(upper), 0)) { // up to one that begins at upper
		if bytes.Compare(r.Value, upper) > 0 {
			upper = r.Value
		}
		f.ranges.Delete(r)
		f.bytes -= held(r)
	}
	whole := kv.Change{Kind: kv.ChangeDeleteRange, Key: lower, Value: upper}
	f.ranges.Set(whole)
	f.bytes += held(whole)
}

// within returns the items whose key is in [lower, upper).
func within(t *btree.BTreeG[kv.Change], lower, upper []byte) (in []kv.Change) {
	t.Ascend(kv.Change{Key: lower}, func(c kv.Change) bool {
		if bytes.Compare(c.Key, upper) >= 0 {
			return false
		}
		in = append(in, c)
		return true
	})
	return in
}

// Bytes returns about how much memory the set takes.
func (f *Fold) Bytes() int64 { return f.bytes }

// Len returns the number of changes in the set.
func (f *Fold) Len() int { return f.points.Len() + f.ranges.Len() }

// Changes calls fn for each change of the set in the order of keys, a range deletion
// before what stands at its lower bound, until fn returns an error, which it
// returns. A deletion inside a deleted range is left out: it says nothing more.
func (f *Fold) Changes(fn func(kv.Change) error) error {
	points, ranges := f.points.Iter(), f.ranges.Iter()
	defer points.Release()
	defer ranges.Release()
	morePoints, moreRanges := points.First(), ranges.First()
	var end []byte // of the last range
	for morePoints || moreRanges {
		if moreRanges && (!morePoints || bytes.Compare(ranges.Item().Key, points.Item().Key) <= 0) {
			if err := fn(ranges.Item()); err != nil {
				return err
			}
			end = ranges.Item().Value
			moreRanges = ranges.Next()
			continue
		}
		c := points.Item()
		morePoints = points.Next()
		if c.Kind == kv.ChangeDelete && bytes.Compare(c.Key, end) < 0 {
			continue
		}
		if err := fn(c); err != nil {
			return err
		}
	}
	return nil
}

// Write writes the set as a run to w, without ending it.
func (f *Fold) Write(w *Writer) error { return f.Changes(w.Add) }
