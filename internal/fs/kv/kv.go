// Package kv is the seam under the rows of a disk: an ordered map of bytes
// with atomic batches and consistent snapshots.
//
// The keys are those of package record: a prefix and an inverted epoch of
// record.EpochLen bytes, so that the versions of one row lie side by side,
// newest first. A driver must order keys as bytes.Compare does. It may use the
// epoch to find "the newest version not after e" with one seek and to skip
// whole blocks when a scan asks for the rows born in a range of epochs.
//
// Drivers: pebble (the real one), mem (the reference), faulty (a wrapper that
// fails on a seed's say). One contract suite, kvtest, runs against all.
package kv

import "tine.dev/tine/internal/tine"

// Store is an ordered map of rows. It is safe for concurrent use.
type Store interface {
	// NewBatch returns an empty batch.
	NewBatch() Batch
	// Commit applies the batch atomically and in the order of the calls to
	// Commit that return before this one starts. With sync it returns only
	// when the batch, and with it every batch applied before, is durable.
	// After an error of kind tine.KindNoSpace the batch has not happened and
	// the store still works. After any other error the store is poisoned:
	// every later call fails with tine.KindUnavailable until it is re-opened,
	// and the batch may or may not have happened.
	// The batch must not be used again.
	Commit(b Batch, sync bool) error
	// Snapshot returns a reader over one moment, not before this call.
	// It costs next to nothing until it is first used. Not safe for
	// concurrent use; must be closed.
	Snapshot() Snapshot
	// Flush writes what is in memory to files, so that space is given back
	// and a re-opening is short.
	Flush() error
	// Compact rewrites the range so that deleted rows give back their space.
	Compact(lower, upper []byte) error
	// Metrics returns the store's own figures.
	Metrics() Metrics
	// Close flushes and releases everything. Snapshots must be closed before.
	Close() error
}

// Waiter is a Store on a device that may be full. Such a store does not fail
// when a commit that it has let in meets a full device: the commit waits for
// room, and its caller with it. Others get tine.KindNoSpace at once.
type Waiter interface {
	// Waiting reports whether a commit waits for room now. It does not wait
	// itself and may be called at any time.
	Waiting() bool
	// Room tells what room there is. It asks the device, does not wait, and may
	// be called at any time.
	Room() Room
	// AlwaysBytes is how many bytes of batches, together, find room also if
	// another program takes all that is free at once: a caller that holds back
	// no more than this can commit it. 0: no such promise.
	AlwaysBytes() int64
}

// Room is what a Waiter says of the device.
type Room struct {
	Low  bool // batches without AllowLow are refused for want of room
	Last bool // so are those without Frees
	None bool // so are all
	// SpareBytes may be taken of the device by others than the store, before it
	// lacks what it needs for batches that free space.
	SpareBytes int64
}

// Batch collects changes to be applied as one.
type Batch interface {
	// Set puts a row. Key and value are copied.
	Set(key, value []byte)
	// Delete removes a row; it need not exist.
	Delete(key []byte)
	// DeleteRange removes all rows in [lower, upper). The bounds are not inside the
	// versions of a row: Newest could miss a range that begins there.
	DeleteRange(lower, upper []byte)
	// AllowLow marks a batch that cannot be given up, because it was accepted
	// while there was room: it is still taken when others get tine.KindNoSpace.
	AllowLow()
	// Frees marks a batch that frees space, or is needed to: it may use what is
	// kept for such batches alone.
	Frees()
	// Len returns the number of changes; Size their approximate bytes.
	Len() int
	Size() int
	// Changes calls fn for each change, in order, until fn returns an error,
	// which it returns. The bytes are valid until fn returns and must not be
	// changed; fn must not add to the batch.
	Changes(fn func(Change) error) error
	// Discard frees a batch that will not be committed.
	Discard()
}

// Change is one change of a batch. The numbers are part of formats that
// carry changes, and never change.
type Change struct {
	Kind  ChangeKind
	Key   []byte
	Value []byte // ChangeSet: the row's value; ChangeDeleteRange: the end of the range, itself not deleted
}

// ChangeKind tells what a change does.
type ChangeKind uint8

// The kinds.
const (
	ChangeSet         ChangeKind = 1
	ChangeDelete      ChangeKind = 2
	ChangeDeleteRange ChangeKind = 3
)

// Apply adds the change to a batch.
func (c Change) Apply(b Batch) {
	switch c.Kind {
	case ChangeSet:
		b.Set(c.Key, c.Value)
	case ChangeDelete:
		b.Delete(c.Key)
	case ChangeDeleteRange:
		b.DeleteRange(c.Key, c.Value)
	}
}

// Changes are collected before there is a batch for them.
type Changes []Change

// Set puts a row; key and value are kept as they are.
func (cs *Changes) Set(key, value []byte) {
	*cs = append(*cs, Change{Kind: ChangeSet, Key: key, Value: value})
}

// Delete removes a row.
func (cs *Changes) Delete(key []byte) { *cs = append(*cs, Change{Kind: ChangeDelete, Key: key}) }

// DeleteRange removes all rows in [lower, upper).
func (cs *Changes) DeleteRange(lower, upper []byte) {
	*cs = append(*cs, Change{Kind: ChangeDeleteRange, Key: lower, Value: upper})
}

// Apply adds the changes to a batch, in order.
func (cs Changes) Apply(b Batch) {
	for _, c := range cs {
		c.Apply(b)
	}
}

// Born restricts a scan to rows whose epoch is in (After, UpTo].
type Born struct{ After, UpTo tine.Epoch }

// Snapshot reads the rows of one moment.
type Snapshot interface {
	// Newest finds the newest version of the row that is not after limit.
	// prefix is the key without its epoch. The value is valid until the next
	// call on the snapshot.
	Newest(prefix []byte, limit tine.Epoch) (value []byte, birth tine.Epoch, ok bool, err error)
	// Scan returns a cursor over [lower, upper), before its first row. upper
	// nil means to the end. born, if not nil, promises that the caller cares
	// only for rows born in it: the cursor returns all of those and no other.
	Scan(lower, upper []byte, born *Born) (Scan, error)
	Close() error
}

// Scan is a cursor over rows in key order. Not safe for concurrent use.
type Scan interface {
	// Next moves to the next row; false at the end or after an error.
	Next() bool
	// Seek moves to the first row at or after key; false as Next.
	Seek(key []byte) bool
	// Key and Value are valid until the next move.
	Key() []byte
	Value() []byte
	// Err returns the error that ended the scan, if one did.
	Err() error
	Close() error
}

// Metrics are a store's own figures.
type Metrics struct {
	DiskBytes   int64 // bytes of files
	MemoryBytes int64 // bytes of memory tables and cached blocks
	Compactions int64 // compactions under way
	Tables      int64 // files
	CacheBytes  int64 // of MemoryBytes: cached blocks
	CacheHits   int64 // since the store was opened
	CacheMisses int64
	LogBytes    int64 // of the write-ahead log
	Flushes     int64 // of memory tables, since the store was opened
	Compacted   int64 // compactions since the store was opened
	Debt        int64 // bytes that compactions have still to rewrite, estimated
	Outside     int64 // bytes of adopted tables (see Adopter) that are still needed, estimated; not part of DiskBytes
}
