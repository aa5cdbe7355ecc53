// Package outbox keeps, beside the rows of a tree that lives in an object
// store, the commits that the store does not have yet.
//
// An Outbox stands in front of the row store. Into every batch that it commits
// it puts one more row: the batch's own changes, under a number that grows. So
// the rows and what is to be shipped of them become durable together, and no crash
// can part them. Whoever ships reads the entries in order, and removes those
// that have arrived.
//
// # Why a copy in a row
//
// The write-ahead log of the row store holds the same bytes, but drops them when it has
// flushed a memory table; and a comparison of the rows with what the store has
// would cost with the tree instead of with the changes. The copy is compressed,
// the same bytes go into the journal object, and most entries are removed before
// they reach a table.
//
// # Order
//
// Numbers are given before a commit starts. A commit that depends on another
// starts after that one has returned, so it has a larger number: a prefix of
// the numbers is a consistent state of the tree. A number whose commit was refused
// is a gap that means nothing.
//
// # What is not shipped as it is
//
// Of an open segment the rows say what the file on this device holds. Elsewhere
// there is no such file: there the row says that nothing of it is durable, and the
// bytes come as tail rows, which the shipper adds. Tail rows of this device are
// left out; when a segment is sealed or removed, those that were shipped go.
package outbox

import (
	"encoding/binary"
	"sync"

	"tine.dev/tine/internal/fs/journal"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Outbox is the row store of one tree. All commits of the tree's rows must go through it.
// Safe for concurrent use.
type Outbox struct {
	kv.Store
	tree  tine.TreeID
	codec *journal.Codec

	mu     sync.Mutex // a leaf
	next   uint64
	flying map[uint64]struct{} // numbers whose commit has not returned
	firm   uint64              // numbers up to it are settled and durable
	added  chan struct{}       // holds one token after an entry was added
}

// Open returns the outbox of a tree, which goes on after the entries that are
// there. shipped is the number up to which entries were removed.
// Errors: those of reading rows.
func Open(rows kv.Store, tree tine.TreeID, shipped uint64, codec *journal.Codec) (*Outbox, error) {
	o := &Outbox{Store: rows, tree: tree, codec: codec, next: shipped + 1, flying: map[uint64]struct{}{}, added: make(chan struct{}, 1)}
	err := o.Each(shipped, 0, func(e Entry) error { o.next = e.Sequence + 1; return nil })
	if o.next > shipped+1 {
		o.added <- struct{}{}
	}
	return o, err
}

// Added receives after entries were added. Each token may stand for many.
func (o *Outbox) Added() <-chan struct{} { return o.added }

// Commit is that of the row store; the batch's changes stay in the outbox.
func (o *Outbox) Commit(b kv.Batch, sync bool) error {
	list, err := o.list(b)
	if err != nil {
		return err
	}
	if list.Len() == 0 {
		return o.Store.Commit(b, sync)
	}
	packed := o.codec.Pack(nil, list)
	o.mu.Lock()
	seq, before := o.next, o.settled()
	o.next++
	o.flying[seq] = struct{}{}
	o.mu.Unlock()
	b.Set(record.Key(o.tree, record.OutboxKey(seq), 0), packed)
	err = o.Store.Commit(b, sync)
	o.mu.Lock()
	delete(o.flying, seq)
	if sync && err == nil {
		if before == seq-1 {
			before = seq
		}
		o.firm = max(o.firm, before)
	}
	o.mu.Unlock()
	select {
	case o.added <- struct{}{}:
	default:
	}
	return err
}

// list collects what is shipped of a batch.
func (o *Outbox) list(b kv.Batch) (*journal.List, error) {
	l := &journal.List{}
	err := b.Changes(func(c kv.Change) error {
		switch o.table(c.Key) {
		case record.TableTail, record.TableOutbox, record.TableShipped:
			return nil
		case record.TableSegment:
			return addSegment(l, c)
		}
		l.Add(c)
		return nil
	})
	return l, err
}

// table returns the table of one of the tree's own records, 0 for other rows.
func (o *Outbox) table(key []byte) record.Table {
	if len(key) <= tine.IDSize || tine.TreeID(key[:tine.IDSize]) != o.tree {
		return 0
	}
	return record.Table(key[tine.IDSize])
}

// addSegment adds the change of a location row as another machine must see it.
func addSegment(l *journal.List, c kv.Change) error {
	if c.Kind == kv.ChangeSet {
		loc, err := record.DecodeSegment(c.Value)
		if err != nil {
			return err
		}
		if loc.State == record.SegmentOpen {
			loc.Synced = 0
			l.Add(kv.Change{Kind: kv.ChangeSet, Key: c.Key, Value: loc.Append(nil)})
			return nil
		}
	}
	l.Add(c)
	if c.Kind == kv.ChangeDeleteRange {
		return nil // of the whole table or tree: the tails go by a range of their own
	}
	owner, k, _, err := record.SplitKey(c.Key)
	if err != nil {
		return err
	}
	id, _ := k.ID()
	tails := record.AppendKey(nil, owner, record.IDKey(record.TableTail, id))
	l.Add(kv.Change{Kind: kv.ChangeDeleteRange, Key: tails, Value: record.PrefixEnd(tails)})
	return nil
}

// Settled returns a number up to which every commit has returned, and the
// newest number that was given. What was committed without a flush is settled
// and not durable.
func (o *Outbox) Settled() (settled, newest uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.settled(), o.next - 1
}

func (o *Outbox) settled() uint64 {
	n := o.next - 1
	for seq := range o.flying {
		n = min(n, seq-1)
	}
	return n
}

// Firm makes durable what is settled up to a number, unless that is known to be so.
// Errors: those of committing rows.
func (o *Outbox) Firm(upTo uint64) error {
	o.mu.Lock()
	firm := o.firm
	o.mu.Unlock()
	if firm >= upTo {
		return nil
	}
	if err := o.Store.Commit(o.NewBatch(), true); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.firm = max(o.firm, upTo)
	return nil
}

// Entry is one commit that waits.
type Entry struct {
	Sequence uint64
	Packed   []byte // its changes, for journal.Codec.Each; valid until the callback returns
}

// Each calls fn for the entries after one number up to another (0: all), in
// order.
// Errors: those of reading rows, and of fn.
func (o *Outbox) Each(after, upTo uint64, fn func(Entry) error) error {
	snap := o.Snapshot()
	defer snap.Close()
	upper := record.PrefixEnd(record.AppendKey(nil, o.tree, record.TableKey(record.TableOutbox)))
	if upTo > 0 {
		upper = record.AppendKey(nil, o.tree, record.OutboxKey(upTo+1))
	}
	scan, err := snap.Scan(record.AppendKey(nil, o.tree, record.OutboxKey(after+1)), upper, nil)
	if err != nil {
		return err
	}
	defer scan.Close()
	for scan.Next() {
		key := scan.Key()
		e := Entry{Sequence: binary.BigEndian.Uint64(key[tine.IDSize+1:]), Packed: scan.Value()}
		if err := fn(e); err != nil {
			return err
		}
	}
	return scan.Err()
}

// Remove removes the entries up to a number, and notes what the store has, and
// rows that the shipper has added to it on its own. It is not flushed: what comes
// back after a crash is found in the store.
// Errors: those of committing rows.
func (o *Outbox) Remove(s record.Shipped, own ...kv.Change) error {
	b := o.NewBatch()
	b.DeleteRange(record.AppendKey(nil, o.tree, record.OutboxKey(0)), record.AppendKey(nil, o.tree, record.OutboxKey(s.Sequence+1)))
	b.Set(record.Key(o.tree, record.TableKey(record.TableShipped), 0), s.Append(nil))
	for _, c := range own {
		c.Apply(b)
	}
	b.Frees()
	return o.Store.Commit(b, false)
}

// Shipped reads the note of what the store has; ok is false if there is none.
// Errors: those of reading rows, KindCorrupt.
func Shipped(rows kv.Store, tree tine.TreeID) (s record.Shipped, ok bool, err error) {
	snap := rows.Snapshot()
	defer snap.Close()
	v, _, ok, err := snap.Newest(record.AppendKey(nil, tree, record.TableKey(record.TableShipped)), tine.Head)
	if !ok || err != nil {
		return s, false, err
	}
	s, err = record.DecodeShipped(v)
	return s, err == nil, err
}
