package segment

import (
	"encoding/binary"
	"hash/crc32"

	"tine.dev/tine/internal/tine"
)

// The segment file, format 1. All integers are little-endian and unsigned
// unless said otherwise; every checksum is CRC-32C (Castagnoli).
//
//	file = header, block ..., footer
//
// An open segment has no footer yet. A sealed one ends in its footer.
//
// # Header: 64 bytes
//
//	offset size
//	 0      8   magic "tineseg1"
//	 8      4   format: 1
//	12      4   payload bytes of a full block: 16384
//	16     16   segment id
//	32      8   generation: 0 for the file that was appended to, higher after a repack
//	40      8   created: signed nanoseconds since 1970
//	48     12   zero
//	60      4   checksum of bytes 0 to 59
//
// # Block: 16388 bytes; the last one of a sealed segment may be shorter
//
//	offset size
//	 0      n   payload: 16384 bytes, or what is left up to the logical end
//	 n      4   checksum of segment id (16), block number (8), payload (n)
//
// Block b holds the payload from logical offset b*16384. The number is part of
// the checksum so that a block at the wrong place, or of another segment, is
// as wrong as a damaged one. The generation is not, so that a repack copies
// blocks as they are. Blocks follow each other without gaps, in the order of
// their numbers: in a segment never repacked, block b lies at byte
// 64 + b*16388; after a repack, where its run says.
//
// # Footer: 16 bytes for each run, then a trailer of 64 bytes
//
// A run is a maximal sequence of consecutive block numbers that are present.
// Runs are in ascending order and never touch. A segment never repacked has
// one run, or none if it is empty.
//
//	offset size
//	 0      8   number of the first block
//	 8      8   how many blocks, at least 1
//
// The trailer:
//
//	offset size
//	 0     16   segment id
//	16      8   generation
//	24      8   logical end: length of the whole payload, blocks left out included
//	32      8   physical end: length of the file, this trailer included
//	40      8   how many runs
//	48      4   zero
//	52      4   checksum of all runs and of bytes 0 to 51 of the trailer
//	56      8   magic "tinefoot"
//
// The location row's Physical tells where the trailer ends. A file can be
// longer than that: a recovery that shortens a segment on a file system
// without truncation leaves old bytes behind, which nothing reads.
const (
	// BlockBytes is the payload of a full block.
	BlockBytes = 16384
	// blockPhysical is a full block with its checksum.
	blockPhysical = BlockBytes + sumBytes

	sumBytes      = 4
	headerBytes   = 64
	runBytes      = 16
	trailerBytes  = 64
	formatVersion = 1
	headerMagic   = "tineseg1"
	trailerMagic  = "tinefoot"

	// maxEnd bounds logical offsets so that sums of them never overflow.
	maxEnd = 1 << 60
)

// castagnoli is the table of the checksum; it is never written.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the decoded first 64 bytes of a file.
type header struct {
	id         tine.SegmentID
	generation uint64
	created    int64 // nanoseconds since 1970
}

func (h header) encode() []byte {
	b := make([]byte, headerBytes)
	copy(b, headerMagic)
	binary.LittleEndian.PutUint32(b[8:], formatVersion)
	binary.LittleEndian.PutUint32(b[12:], BlockBytes)
	copy(b[16:], h.id[:])
	binary.LittleEndian.PutUint64(b[32:], h.generation)
	binary.LittleEndian.PutUint64(b[40:], uint64(h.created))
	binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
	return b
}

// decodeHeader reads a header. The magic and checksum come first, so that a
// version this program does not know is told from damage.
func decodeHeader(b []byte) (header, error) {
	var h header
	if len(b) != headerBytes || string(b[:8]) != headerMagic {
		return h, tine.Errorf(tine.KindCorrupt, "the segment header has no magic")
	}
	if got, want := crc32.Checksum(b[:60], castagnoli), binary.LittleEndian.Uint32(b[60:]); got != want {
		return h, tine.Errorf(tine.KindCorrupt, "the segment header has checksum %08x, its bytes give %08x", want, got)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != formatVersion {
		return h, tine.Errorf(tine.KindVersion, "the segment has format %d; this program knows %d", v, formatVersion).
			WithHint("run a newer tine on this data directory")
	}
	if n := binary.LittleEndian.Uint32(b[12:]); n != BlockBytes {
		return h, tine.Errorf(tine.KindVersion, "the segment has blocks of %d bytes; this program knows %d", n, BlockBytes).
			WithHint("run a newer tine on this data directory")
	}
	for _, z := range b[48:60] {
		if z != 0 {
			return h, tine.Errorf(tine.KindCorrupt, "the segment header has bytes where zeros belong")
		}
	}
	copy(h.id[:], b[16:])
	h.generation = binary.LittleEndian.Uint64(b[32:])
	h.created = int64(binary.LittleEndian.Uint64(b[40:]))
	return h, nil
}

// run is a sequence of consecutive blocks that are present.
type run struct {
	start  int64 // number of the first block
	count  int64
	before int64 // how many blocks lie before it in the file
}

// layout says where the blocks of a sealed segment lie.
type layout struct {
	runs     []run
	end      int64 // logical
	physical int64
}

// blocksFor is how many blocks hold a payload of n bytes.
func blocksFor(n int64) int64 { return (n + BlockBytes - 1) / BlockBytes }

// payloadLen is how many bytes of payload block b of a segment with the given
// logical end has.
func payloadLen(b, end int64) int64 { return min(BlockBytes, end-b*BlockBytes) }

// newLayout makes the layout of a sealed segment from its runs, whose before
// it fills in.
func newLayout(runs []run, end int64) *layout {
	l := &layout{runs: runs, end: end}
	var blocks, missing int64
	for i := range runs {
		runs[i].before = blocks
		blocks += runs[i].count
		if last := runs[i].start + runs[i].count - 1; (last+1)*BlockBytes > end {
			missing = (last+1)*BlockBytes - end
		}
	}
	l.physical = headerBytes + blocks*blockPhysical - missing + int64(len(runs))*runBytes + trailerBytes
	return l
}

// wholeLayout is the layout of a segment with all of its blocks.
func wholeLayout(end int64) *layout {
	if end == 0 {
		return newLayout(nil, 0)
	}
	return newLayout([]run{{count: blocksFor(end)}}, end)
}

// footerOff is where the footer starts.
func (l *layout) footerOff() int64 {
	return l.physical - trailerBytes - int64(len(l.runs))*runBytes
}

// find returns the run that has block b.
func find(runs []run, b int64) (run, bool) {
	lo, hi := 0, len(runs)
	for lo < hi {
		m := (lo + hi) / 2
		if runs[m].start+runs[m].count <= b {
			lo = m + 1
		} else {
			hi = m
		}
	}
	if lo < len(runs) && runs[lo].start <= b {
		return runs[lo], true
	}
	return run{}, false
}

// encodeFooter returns the footer of the file.
func (l *layout) encodeFooter(id tine.SegmentID, generation uint64) []byte {
	b := make([]byte, 0, int64(len(l.runs))*runBytes+trailerBytes)
	for _, r := range l.runs {
		b = binary.LittleEndian.AppendUint64(b, uint64(r.start))
		b = binary.LittleEndian.AppendUint64(b, uint64(r.count))
	}
	b = append(b, id[:]...)
	b = binary.LittleEndian.AppendUint64(b, generation)
	b = binary.LittleEndian.AppendUint64(b, uint64(l.end))
	b = binary.LittleEndian.AppendUint64(b, uint64(l.physical))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(l.runs)))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return append(b, trailerMagic...)
}

// trailer is the decoded end of a sealed file, before its runs are known.
type trailer struct {
	id         tine.SegmentID
	generation uint64
	end        int64
	physical   int64
	runs       int64
}

// decodeTrailer reads the trailer of a file that is physical bytes long. It
// checks what must hold for the runs to be read; decodeFooter checks the rest.
func decodeTrailer(b []byte, physical int64) (trailer, error) {
	var t trailer
	if len(b) != trailerBytes || string(b[56:]) != trailerMagic {
		return t, tine.Errorf(tine.KindCorrupt, "the segment has no footer")
	}
	copy(t.id[:], b)
	t.generation = binary.LittleEndian.Uint64(b[16:])
	end, phys, runs := binary.LittleEndian.Uint64(b[24:]), binary.LittleEndian.Uint64(b[32:]), binary.LittleEndian.Uint64(b[40:])
	if end > maxEnd || phys != uint64(physical) || runs > uint64(physical)/runBytes {
		return t, tine.Errorf(tine.KindCorrupt, "the segment footer is damaged")
	}
	t.end, t.physical, t.runs = int64(end), int64(phys), int64(runs)
	return t, nil
}

// decodeFooter reads the whole footer: all runs and the trailer.
func decodeFooter(b []byte, t trailer) (*layout, error) {
	damaged := tine.Errorf(tine.KindCorrupt, "the segment footer is damaged")
	if int64(len(b)) != t.runs*runBytes+trailerBytes {
		return nil, damaged
	}
	tr := b[t.runs*runBytes:]
	if got, want := crc32.Checksum(b[:len(b)-12], castagnoli), binary.LittleEndian.Uint32(tr[52:]); got != want {
		return nil, tine.Errorf(tine.KindCorrupt, "the segment footer has checksum %08x, its bytes give %08x", want, got)
	}
	if binary.LittleEndian.Uint32(tr[48:]) != 0 {
		return nil, damaged
	}
	runs := make([]run, t.runs)
	next, blocks := int64(0), uint64(blocksFor(t.end))
	for i := range runs {
		start, count := binary.LittleEndian.Uint64(b[i*runBytes:]), binary.LittleEndian.Uint64(b[i*runBytes+8:])
		if start > blocks || count == 0 || count > blocks-start || int64(start) < next {
			return nil, damaged
		}
		runs[i] = run{start: int64(start), count: int64(count)}
		next = int64(start+count) + 1
	}
	l := newLayout(runs, t.end)
	if l.physical != t.physical {
		return nil, damaged
	}
	return l, nil
}

// sumSeed starts the checksums of a segment's blocks.
func sumSeed(id tine.SegmentID) uint32 { return crc32.Checksum(id[:], castagnoli) }

// blockSum is the checksum of a block. The number goes in by hand because
// handing a small array to the library would put it on the heap.
func blockSum(seed uint32, block int64, payload []byte) uint32 {
	c := ^seed
	for shift := 0; shift < 64; shift += 8 {
		c = castagnoli[byte(c)^byte(block>>shift)] ^ c>>8
	}
	return crc32.Update(^c, castagnoli, payload)
}

// putSum writes the checksum of b's payload, all but its last four bytes,
// into those.
func putSum(seed uint32, block int64, b []byte) {
	n := len(b) - sumBytes
	binary.LittleEndian.PutUint32(b[n:], blockSum(seed, block, b[:n]))
}
