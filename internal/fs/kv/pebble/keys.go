package pebble

import (
	"bytes"
	"math"

	pdb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/colblk"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// The names below stand in the files. A change of what they mean needs a new
// name, and the old one kept for reading.
const (
	comparerName  = "tine.v1"
	schemaName    = "tine.v1"
	epochProperty = "tine.epoch.v1"
)

// bundleRows is how many keys of a block share one stored prefix.
const bundleRows = 16

// split returns the length of a row's key without its epoch: what the Bloom
// filters hold. Bounds of ranges may be shorter than any row's key; 0 makes
// Pebble take them for smaller than every prefix, which is the safe side.
func split(key []byte) int {
	return max(0, len(key)-record.EpochLen)
}

// newComparer orders keys as plain bytes. That agrees with "prefix first,
// then newest first" because no logical key is a prefix of another one (see
// package record). Separators are never shortened: a shortened key would have
// other bytes where the epoch belongs.
func newComparer() *pdb.Comparer {
	c := *pdb.DefaultComparer
	c.Name = comparerName
	c.Split = split
	c.Separator = func(dst, a, _ []byte) []byte { return append(dst, a...) }
	c.Successor = func(dst, a []byte) []byte { return append(dst, a...) }
	c.ImmediateSuccessor = func(dst, a []byte) []byte { return append(append(dst, a...), 0) }
	return &c
}

// newSchema lays the keys of a data block out in one column, whole.
//
// Pebble's own schema puts prefix and epoch into two columns and seeks in the
// first, then in the second. That is right for keys that end in an epoch, and
// wrong for others: a scan that starts at a bare prefix would be cut eight
// bytes short and land on rows before it. With whole keys a seek is a search
// by plain byte order, whatever the key. Only the writer knows of the epoch:
// it tells the table where the prefix ends, for the Bloom filter.
func newSchema() colblk.KeySchema {
	plain := *pdb.DefaultComparer
	plain.Name = schemaName
	s := colblk.DefaultKeySchema(&plain, bundleRows)
	s.Name = schemaName
	inner := s.NewKeyWriter
	s.NewKeyWriter = func() colblk.KeyWriter { return &keyWriter{KeyWriter: inner()} }
	return s
}

// keyWriter writes whole keys, and compares them by prefix.
type keyWriter struct {
	colblk.KeyWriter
	prev []byte
	rows int
}

func (w *keyWriter) ComparePrev(key []byte) colblk.KeyComparison {
	c := colblk.KeyComparison{PrefixLen: int32(split(key)), UserKeyComparison: 1}
	if w.rows == 0 {
		return c
	}
	c.CommonPrefixLen = int32(min(commonPrefix(w.prev, key), split(w.prev), split(key)))
	c.UserKeyComparison = int32(bytes.Compare(key, w.prev))
	return c
}

func (w *keyWriter) WriteKey(row int, key []byte, _, _ int32) {
	shared := 0
	if w.rows > 0 {
		shared = commonPrefix(w.prev, key)
	}
	w.KeyWriter.WriteKey(row, key, int32(len(key)), int32(shared))
	w.prev = append(w.prev[:0], key...)
	w.rows++
}

func (w *keyWriter) Reset() {
	w.KeyWriter.Reset()
	w.prev, w.rows = w.prev[:0], 0
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// epochMapper feeds the block property: the interval of epochs in a block.
// It looks at the key alone. So a tombstone, whose key is that of the row it
// deletes, lies in the same interval as the row, and a scan that skips the
// block of the tombstone skips that of the row too or checks its epoch and
// drops it: a deleted row cannot come back. Range tombstones are not subject
// to block filters at all.
type epochMapper struct{}

func (epochMapper) MapPointKey(key pdb.InternalKey, _ []byte) (sstable.BlockInterval, error) {
	_, e, ok := record.SplitEpoch(key.UserKey)
	if !ok {
		return sstable.BlockInterval{Lower: 0, Upper: math.MaxUint64}, nil
	}
	lower := clampEpoch(e)
	return sstable.BlockInterval{Lower: lower, Upper: lower + 1}, nil
}

func (epochMapper) MapRangeKeys(sstable.Span) (sstable.BlockInterval, error) {
	return sstable.BlockInterval{}, nil
}

// clampEpoch keeps the end of an interval, which is exclusive, representable.
func clampEpoch(e tine.Epoch) uint64 { return min(uint64(e), math.MaxUint64-1) }

func newEpochCollector() pdb.BlockPropertyCollector {
	return sstable.NewBlockIntervalCollector(epochProperty, epochMapper{}, nil)
}

func newEpochFilter(after, upTo tine.Epoch) pdb.BlockPropertyFilter {
	return sstable.NewBlockIntervalFilter(epochProperty, clampEpoch(after+1), clampEpoch(upTo)+1, nil)
}
