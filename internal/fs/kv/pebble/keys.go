package pebble

import (
	"bytes"
	"math"

	pdb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// The names below stand in the files. A change of what they mean needs a new
// name, and the old one kept for reading.
const (
	comparerName  = "tine.v1"
	epochProperty = "tine.epoch.v1"
)

// bundleRows is how many prefixes of a block share one stored start.
const bundleRows = 16

// tableEnd is where the table byte of a key ends and the logical rest starts.
const tableEnd = tine.IDSize + 1

// split returns the length of a key's prefix: of the row's key without its
// epoch, which is what the Bloom filters hold.
//
// Pebble also splits the bounds of scans and of range deletions, which may be
// any bytes, and it relies on this law for all of them: byte order is the
// order of the prefixes, then that of what follows them (I1). "All but the last
// eight bytes" would break it, as a bound has no epoch to cut off. So the end
// of the prefix is found from the left, by the shape of the table's keys; what
// ends before its prefix does is all prefix. As no prefix found so is the
// start of another, the law holds.
//
// In a table that is not known here the prefix ends after the table byte:
// right, but of no use to the filters.
func split(key []byte) int {
	if len(key) < tableEnd {
		return len(key)
	}
	end := tableEnd
	switch record.Table(key[tableEnd-1]) {
	case record.TableDentry, record.TableXattr:
		return splitName(key, tableEnd+8)
	case record.TableLink:
		return splitName(key, tableEnd+16)
	case record.TableInode, record.TableOrphan, record.TableTask, record.TableOutbox:
		end += 8
	case record.TableCookie, record.TableChunk, record.TableTimeline, record.TableCheckpoint, record.TableSegment,
		record.TableLive, record.TableAlias, record.TableDisk, record.TableGrave:
		end += 16
	case record.TableTail, record.TablePiece, record.TableLog:
		end += 24
	}
	return min(end, len(key))
}

// splitName is for keys with a name from the given offset on, ended by NUL.
func splitName(key []byte, from int) int {
	if len(key) > from {
		if i := bytes.IndexByte(key[from:], 0); i >= 0 {
			return from + i + 1
		}
	}
	return len(key)
}

// newComparer orders keys as plain bytes. Separators are never shortened: a
// shortened key would have other bytes where the epoch belongs.
func newComparer() *pdb.Comparer {
	c := *pdb.DefaultComparer
	c.Name = comparerName
	c.Split = split
	c.Separator = func(dst, a, _ []byte) []byte { return append(dst, a...) }
	c.Successor = func(dst, a []byte) []byte { return append(dst, a...) }
	c.ImmediateSuccessor = func(dst, a []byte) []byte { return append(append(dst, a...), 0) }
	return &c
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
