package fsck

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/tine"
)

// This file reads segment files by their documented form, apart from the code
// that writes them: a header of 64 bytes, blocks of 16,384 bytes each followed
// by its checksum, and at the end a run of 16 bytes for each sequence of blocks
// that are present, and a trailer of 64 bytes. Numbers are little-endian,
// checksums CRC-32C.
const (
	blockBytes   = 16384
	sumBytes     = 4
	blockStride  = blockBytes + sumBytes
	headBytes    = 64
	runBytes     = 16
	trailerBytes = 64
	maxSegment   = int64(1) << 60
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// run is a sequence of blocks that lie together in a file.
type run struct {
	first, count int64
	before       int64 // blocks before it in the file
}

// runs is where the blocks of a file lie.
type runs struct {
	list []run
	end  int64 // of the payload
}

func blocksOf(n int64) int64 { return (n + blockBytes - 1) / blockBytes }

// wholeRuns is the layout of a file that leaves out nothing.
func wholeRuns(end int64) *runs {
	r := &runs{end: end}
	if end > 0 {
		r.list = []run{{count: blocksOf(end)}}
	}
	return r
}

// payload is how many bytes block b has.
func (r *runs) payload(b int64) int64 { return min(blockBytes, r.end-b*blockBytes) }

// physical is the length of a sealed file with this layout.
func (r *runs) physical() int64 {
	n := int64(headBytes) + int64(len(r.list))*runBytes + trailerBytes
	for _, x := range r.list {
		n += (x.count-1)*blockStride + r.payload(x.first+x.count-1) + sumBytes
	}
	return n
}

// missing returns the bytes of blocks that the file leaves out.
func (r *runs) missing() []span {
	at := int64(0)
	var out []span
	for _, x := range r.list {
		if x.first > at {
			out = append(out, span{at * blockBytes, x.first * blockBytes})
		}
		at = x.first + x.count
	}
	if at*blockBytes < r.end {
		out = append(out, span{at * blockBytes, r.end})
	}
	return out
}

// readAll reads all of p; what is not there is KindCorrupt.
func readAll(f io.ReaderAt, p []byte, off int64) error {
	n, err := f.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return tine.Errorf(tine.KindCorrupt, "%d bytes at %d are not there", len(p)-n, off+int64(n))
	}
	return tine.Errorf(tine.KindIO, "%w", err)
}

// checkHead checks the first bytes of a file.
func checkHead(f io.ReaderAt, id tine.SegmentID, generation uint64) error {
	var b [headBytes]byte
	if err := readAll(f, b[:], 0); err != nil {
		return err
	}
	switch {
	case string(b[:8]) != "tineseg1":
		return tine.Errorf(tine.KindCorrupt, "it does not start as a segment does")
	case crc32.Checksum(b[:60], castagnoli) != binary.LittleEndian.Uint32(b[60:]):
		return tine.Errorf(tine.KindCorrupt, "the header's checksum does not hold")
	case binary.LittleEndian.Uint32(b[8:]) != 1 || binary.LittleEndian.Uint32(b[12:]) != blockBytes:
		return tine.Errorf(tine.KindVersion, "it has format %d with blocks of %d bytes", binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:]))
	case tine.SegmentID(b[16:32]) != id || binary.LittleEndian.Uint64(b[32:]) != generation:
		return tine.Errorf(tine.KindCorrupt, "its header is that of %s.%d", tine.SegmentID(b[16:32]), binary.LittleEndian.Uint64(b[32:]))
	}
	return nil
}

// readFoot reads the footer of a sealed file of the given length.
func readFoot(f io.ReaderAt, id tine.SegmentID, generation uint64, physical int64) (*runs, error) {
	bad := func(what string) error { return tine.Errorf(tine.KindCorrupt, "the footer %s", what) }
	if physical < headBytes+trailerBytes {
		return nil, bad("has no room")
	}
	var t [trailerBytes]byte
	if err := readAll(f, t[:], physical-trailerBytes); err != nil {
		return nil, err
	}
	if string(t[56:]) != "tinefoot" {
		return nil, bad("is not there")
	}
	end, phys, n := binary.LittleEndian.Uint64(t[24:]), binary.LittleEndian.Uint64(t[32:]), binary.LittleEndian.Uint64(t[40:])
	if phys != uint64(physical) || end > uint64(maxSegment) || n > uint64(physical-headBytes-trailerBytes)/runBytes {
		return nil, bad("contradicts the file")
	}
	b := make([]byte, int64(n)*runBytes, int64(n)*runBytes+trailerBytes)
	if err := readAll(f, b, physical-trailerBytes-int64(len(b))); err != nil {
		return nil, err
	}
	b = append(b, t[:52]...)
	if crc32.Checksum(b, castagnoli) != binary.LittleEndian.Uint32(t[52:]) {
		return nil, bad("has a checksum that does not hold")
	}
	if tine.SegmentID(t[:16]) != id || binary.LittleEndian.Uint64(t[16:]) != generation {
		return nil, bad("is that of another file")
	}
	r := &runs{end: int64(end)}
	next, blocks := int64(0), blocksOf(int64(end))
	for i := range int64(n) {
		first, count := binary.LittleEndian.Uint64(b[i*runBytes:]), binary.LittleEndian.Uint64(b[i*runBytes+8:])
		if count == 0 || first > uint64(blocks) || count > uint64(blocks)-first || int64(first) < next {
			return nil, bad("has runs that make no sense")
		}
		x := run{first: int64(first), count: int64(count)}
		if k := len(r.list); k > 0 {
			x.before = r.list[k-1].before + r.list[k-1].count
		}
		r.list = append(r.list, x)
		next = int64(first+count) + 1
	}
	if r.physical() != physical {
		return nil, bad("describes another length")
	}
	return r, nil
}

// blockSum is the checksum of a block: of segment, number and payload.
func blockSum(id tine.SegmentID, b int64, payload []byte) uint32 {
	var head [tine.IDSize + 8]byte
	copy(head[:], id[:])
	binary.LittleEndian.PutUint64(head[tine.IDSize:], uint64(b))
	return crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, payload)
}

// goodBlock reports that the bytes are the block with its checksum.
func goodBlock(id tine.SegmentID, b int64, raw []byte) bool {
	n := len(raw) - sumBytes
	return n >= 0 && blockSum(id, b, raw[:n]) == binary.LittleEndian.Uint32(raw[n:])
}

// batchBlocks is how many blocks are read at once.
const batchBlocks = 64

// verify reads every block of the layout and returns the bytes of those whose
// checksum does not hold. done is told how much was read.
func verify(f vfs.File, id tine.SegmentID, r *runs, done func(bytes int64) bool) ([]span, error) {
	var bad []span
	buf := make([]byte, batchBlocks*blockStride)
	for _, x := range r.list {
		for b := x.first; b < x.first+x.count; {
			n := min(batchBlocks, x.first+x.count-b)
			last := b + n - 1
			raw := buf[:(n-1)*blockStride+r.payload(last)+sumBytes]
			err := readAll(f, raw, headBytes+(x.before+b-x.first)*blockStride)
			if err != nil && tine.KindOf(err) != tine.KindCorrupt {
				return nil, err
			}
			for i := range n {
				size := r.payload(b+i) + sumBytes
				if err != nil || !goodBlock(id, b+i, raw[:size]) {
					bad = append(bad, span{(b + i) * blockBytes, (b+i)*blockBytes + size - sumBytes})
				}
				raw = raw[size:]
			}
			if !done(n * blockBytes) {
				return normal(bad), nil
			}
			b += n
		}
	}
	return normal(bad), nil
}
