package segment

import (
	"encoding/binary"
	"sync"

	"tine.dev/tine/internal/tine"
)

const (
	// smallBlocks is what a read of up to 16 KiB touches at most.
	smallBlocks = 2
	// maxBatchBlocks bounds one call to the file system, and the buffers:
	// 1 MiB of payload.
	maxBatchBlocks = 64
)

// buffer returns a buffer for n blocks and the pool that it goes back to.
func (s *Store) buffer(blocks int64) (*[]byte, *sync.Pool) {
	pool := &s.large
	if blocks <= smallBlocks {
		pool = &s.small
	}
	return pool.Get().(*[]byte), pool
}

// readSpan reads payload from the blocks of the file: one read for each
// sequence of blocks that lie together, into a pooled buffer, from which the
// payload is copied once its checksum holds (I22).
func (f *file) readSpan(runs []run, end int64, p []byte, off int64) error {
	if off < 0 || off > end || int64(len(p)) > end-off {
		return f.rangeError(off, int64(len(p)), end)
	}
	for len(p) > 0 {
		first := off / BlockBytes
		r, ok := find(runs, first)
		if !ok {
			return tine.Errorf(tine.KindCorrupt, "segment %s: block %d is not in %s", f.key.id, first, f.path).
				WithHint("this is a bug of tine: a row names bytes that a repack has left out")
		}
		last := min((off+int64(len(p))-1)/BlockBytes, r.start+r.count-1, first+maxBatchBlocks-1)
		buf, pool := f.s.buffer(last - first + 1)
		n, err := f.readBlocks(r, first, last, end, *buf, p, off)
		pool.Put(buf)
		if err != nil {
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// readBlocks reads and verifies the blocks first to last of one run and copies
// to p what it holds of the payload from off, which lies in the first. It
// returns how much that is.
func (f *file) readBlocks(r run, first, last, end int64, buf, p []byte, off int64) (int, error) {
	buf = buf[:spanBytes(first, last, end)]
	if err := f.readFull(f.rd, buf, blockOff(r, first)); err != nil {
		return 0, err
	}
	skip, total := off-first*BlockBytes, 0
	for b := first; b <= last; b++ {
		n := payloadLen(b, end)
		if err := f.verify(b, buf[:n+sumBytes]); err != nil {
			return 0, err
		}
		c := copy(p, buf[skip:n])
		p, total, skip, buf = p[c:], total+c, 0, buf[n+sumBytes:]
	}
	return total, nil
}

// blockOff is where block b of the run lies in the file.
func blockOff(r run, b int64) int64 {
	return headerBytes + (r.before+b-r.start)*blockPhysical
}

// spanBytes is the physical length of consecutive blocks.
func spanBytes(first, last, end int64) int64 {
	return (last-first)*blockPhysical + payloadLen(last, end) + sumBytes
}

// verify checks one block: its payload with the checksum behind it.
func (f *file) verify(block int64, b []byte) error {
	n := len(b) - sumBytes
	want, got := binary.LittleEndian.Uint32(b[n:]), blockSum(f.seed, block, b[:n])
	if got == want {
		return nil
	}
	return tine.Errorf(tine.KindCorrupt, "segment %s: block %d in %s has checksum %08x, its bytes give %08x", f.key.id, block, f.path, want, got).
		WithHint("the file read now is damaged; an older checkpoint may still have it, else restore the segment file from a backup")
}

func (f *file) rangeError(off, n, end int64) error {
	return tine.Errorf(tine.KindCorrupt, "segment %s: %d bytes at %d are outside its %d bytes, in %s", f.key.id, n, off, end, f.path).
		WithHint("this is a bug of tine: a row names bytes that were never written")
}
