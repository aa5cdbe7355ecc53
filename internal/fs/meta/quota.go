package meta

import (
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// This file says how much an operation adds to what the disk's quota bounds.
// Each is asked before anything changes and, where it matters, before data is
// staged.

// admitWrite refuses a write of [at, end) that does not fit into the quota.
// What is overwritten in place adds nothing.
func (t *txn) admitWrite(n *node, at, end int64, inline bool) error {
	if !t.Bounded() {
		return nil
	}
	if inline {
		// The row holds the bytes from the start of the file to the end of
		// the write, a gap before the write included.
		return t.AdmitBytes(end, func() (int64, error) { return end - n.Bytes, nil })
	}
	return t.AdmitBytes(end-at, func() (int64, error) {
		have, err := t.covered(n, at, end)
		return end - at - have, err
	})
}

// admitAllocate refuses an allocation whose range would not fit into the quota
// if it were written: nothing is reserved for it, but programs ask so that they
// need not fail later. Punching and zeroing only free.
func (t *txn) admitAllocate(n *node, mode uint32, from, to int64) error {
	if mode&(FallocPunchHole|FallocZeroRange) != 0 {
		return nil
	}
	return t.admitWrite(n, from, to, false)
}

// admitCopy refuses a copy that does not fit into the quota: shared data
// counts for each file that shows it.
func (t *txn) admitCopy(s *node, off int64, d *node, to, length int64) error {
	if !t.Bounded() {
		return nil
	}
	return t.AdmitBytes(length, func() (int64, error) {
		comes, err := t.covered(s, off, off+length)
		if err != nil {
			return 0, err
		}
		goes, err := t.covered(d, to, to+length)
		return comes - goes, err
	})
}

// covered returns how many bytes of data the file has in [from, to). Its cost
// follows the data.
func (t *txn) covered(n *node, from, to int64) (sum int64, err error) {
	if n.Bytes == 0 || from >= to {
		return 0, nil
	}
	first, end := uint64(from/tine.ChunkBytes), uint64((to-1)/tine.ChunkBytes)
	err = t.Scan(record.ChunkKey(n.ino, first), record.ChunkKey(n.ino, end+1), func(k record.Logical, f timeline.Found) (bool, error) {
		c, err := record.DecodeChunk(f.Val)
		if err != nil {
			return false, err
		}
		xs := c.Extents
		if len(c.Inline) > 0 {
			xs = []record.Extent{{Len: int64(len(c.Inline))}}
		}
		base := int64(k.Number()) * tine.ChunkBytes
		for _, x := range xs {
			sum += max(0, min(base+x.End(), to)-max(base+x.Pos, from))
		}
		return true, nil
	})
	return sum, err
}
