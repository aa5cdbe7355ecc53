package pebble

import (
	pdb "github.com/cockroachdb/pebble/v2"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// batch is a Pebble batch that remembers the first mistake made with it.
type batch struct {
	b    *pdb.Batch
	need need
	err  error
}

func (s *store) NewBatch() kv.Batch { return &batch{b: s.db.NewBatch()} }

func (b *batch) note(err error) {
	if err != nil && b.err == nil {
		b.err = tine.Errorf(tine.KindInternal, "building a batch: %w", err)
	}
}

func (b *batch) Set(key, value []byte) {
	// A key shorter than its table's shape would be found by no point read.
	if split(key)+record.EpochLen > len(key) {
		b.note(tine.Errorf(tine.KindInternal, "the key %x is not that of a row", key))
		return
	}
	b.note(b.b.Set(key, value, nil))
}

func (b *batch) Delete(key []byte) { b.note(b.b.Delete(key, nil)) }

func (b *batch) DeleteRange(lower, upper []byte) { b.note(b.b.DeleteRange(lower, upper, nil)) }

func (b *batch) AllowLow() { b.need = max(b.need, accepted) }
func (b *batch) Frees()    { b.need = freeing }
func (b *batch) Len() int  { return int(b.b.Count()) }
func (b *batch) Size() int { return b.b.Len() }

func (b *batch) Changes(fn func(kv.Change) error) error {
	if b.b == nil {
		return tine.Errorf(tine.KindInternal, "the batch was used before")
	}
	if b.err != nil {
		return b.err
	}
	for r := b.b.Reader(); ; {
		kind, key, value, ok, err := r.Next()
		if err != nil {
			return tine.Errorf(tine.KindInternal, "reading a batch: %w", err)
		}
		if !ok {
			return nil
		}
		c := kv.Change{Key: key, Value: value}
		switch kind {
		case pdb.InternalKeyKindSet:
			c.Kind = kv.ChangeSet
		case pdb.InternalKeyKindDelete:
			c.Kind = kv.ChangeDelete
		case pdb.InternalKeyKindRangeDelete:
			c.Kind = kv.ChangeDeleteRange
		default:
			return tine.Errorf(tine.KindInternal, "a batch holds a change of kind %s", kind)
		}
		if err := fn(c); err != nil {
			return err
		}
	}
}

func (b *batch) Discard() {
	if b.b != nil {
		_ = b.b.Close() // only hands memory back
		b.b = nil
	}
}

// Commit applies the batch on a goroutine of its own, so that it can be
// abandoned when the store is poisoned meanwhile. That costs about one
// microsecond; a device flush costs a few hundred.
func (s *store) Commit(kb kv.Batch, sync bool) error {
	b, ok := kb.(*batch)
	if !ok || b.b == nil {
		return tine.Errorf(tine.KindInternal, "the batch is not of this store or was used before")
	}
	if err := s.check(); err != nil {
		b.Discard()
		return err
	}
	if b.err != nil {
		s.poison.strike(b.err)
		return b.err
	}
	if err := s.admit(b); err != nil {
		b.Discard()
		return err
	}
	pb := b.b
	b.b = nil
	opts := pdb.NoSync
	if sync {
		opts = pdb.Sync
		if pb.Empty() {
			// Pebble takes an empty batch for nothing to do; what was
			// committed before must become durable all the same.
			if err := pb.LogData(nil, nil); err != nil {
				return s.fail(err)
			}
		}
	}
	err := s.poison.run(func() error { return s.db.Apply(pb, opts) })
	if err != nil {
		return s.fail(err)
	}
	_ = pb.Close()
	return nil
}

// admit refuses a batch for which there is no room.
func (s *store) admit(b *batch) error {
	if s.Waiting() {
		return tine.Errorf(tine.KindNoSpace, "the device is full; what the key-value store has taken already waits for room").
			WithHint("free space on the device, or make it larger")
	}
	return s.space.admit(b.b.Len(), b.need)
}

// fail poisons the store with an error that Pebble returned for a commit:
// whether the batch happened is not known then.
func (s *store) fail(err error) error {
	if perr := s.poison.check(); perr != nil {
		return perr
	}
	s.poison.strike(err)
	return translate("commit", err)
}
