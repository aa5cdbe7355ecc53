package object

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/tine"
)

// The segment object, format 1. All integers are little-endian and unsigned;
// every checksum is CRC-32C (Castagnoli).
//
//	object = header, frame ..., entry ..., trailer
//
// # Header: 64 bytes
//
//	offset size
//	 0      8   magic "tineobj1"
//	 8      4   format: 1
//	12      4   payload bytes of a window: 262144
//	16     16   segment id
//	32      8   generation
//	40      8   logical end
//	48     12   zero
//	60      4   checksum of bytes 0 to 59
//
// # Frame
//
// The payload of a segment is divided into windows of 262144 bytes: window w
// starts at logical offset w*262144. A window is 16 blocks, those of package segment, of
// 16384 bytes each; the last block of the segment may be shorter. A frame is
// what is there of one window: the blocks that no repack has left out, one after
// the other. It is stored as it is, or compressed. Frames follow each other
// without gaps, in the order of their windows; a window of which nothing is there has
// none.
//
// # Entry of the index: 24 bytes for each frame
//
//	offset size
//	 0      4   window
//	 4      2   which blocks are there: bit i for block 16*window+i
//	 6      1   codec: 0 stored as it is, 1 a frame of zstd (RFC 8878)
//	 7      1   cipher: 0 none; others are for later
//	 8      4   length as stored: of codec 0 that of the payload, of others less
//	12      4   checksum of the bytes as stored
//	16      4   checksum of the payload
//	20      4   zero
//
// The checksum of the payload tells a wrong decoder from damage, and lets a
// writer see that an object has the same payload, however it was compressed.
//
// # Trailer: 64 bytes
//
//	offset size
//	 0     16   segment id
//	16      8   generation
//	24      8   logical end
//	32      8   length of the object, this trailer included
//	40      4   how many frames
//	44      8   zero
//	52      4   checksum of all entries and of bytes 0 to 51 of the trailer
//	56      8   magic "tineobjx"
//
// A reader starts from the end. It meets the header only when it verifies the
// whole; the header is for whoever has the object and not its key.
const (
	// FrameBytes is the most payload that a frame has.
	FrameBytes = windowBlocks * segment.BlockBytes

	windowBlocks  = 16
	headerBytes   = 64
	entryBytes    = 24
	trailerBytes  = 64
	formatVersion = 1
	headerMagic   = "tineobj1"
	trailerMagic  = "tineobjx"

	codecRaw  = 0
	codecZstd = 1

	// maxEnd is what windows can number.
	maxEnd = FrameBytes << 32
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// frame is an entry of the index.
type frame struct {
	window  uint32
	present uint16
	codec   uint8
	stored  uint32
	sum     uint32 // of the bytes as stored
	plain   uint32 // of the payload
	at      int64  // where it starts in the object; not in the entry
}

// index is what the end of an object says.
type index struct {
	id         tine.SegmentID
	generation uint64
	end        int64 // logical
	size       int64 // of the object
	frames     []frame
}

// payload is how many bytes of payload the frame has in a segment with the
// logical end.
func (f frame) payload(end int64) int64 {
	n := int64(bits.OnesCount16(f.present)) * segment.BlockBytes
	last := int64(f.window)*windowBlocks + int64(bits.Len16(f.present)) // block after the last
	return n - max(0, last*segment.BlockBytes-end)
}

// offset is where block i of the window lies in the frame's payload. The block
// is there.
func (f frame) offset(i int64) int64 {
	return int64(bits.OnesCount16(f.present&(1<<i-1))) * segment.BlockBytes
}

// has reports whether blocks first to last of the window are there.
func (f frame) has(first, last int64) bool {
	want := uint16(1<<(last+1)-1) &^ uint16(1<<first-1)
	return f.present&want == want
}

// encodeHeader returns the first bytes of the object.
func (x *index) encodeHeader() []byte {
	b := make([]byte, headerBytes)
	copy(b, headerMagic)
	binary.LittleEndian.PutUint32(b[8:], formatVersion)
	binary.LittleEndian.PutUint32(b[12:], FrameBytes)
	copy(b[16:], x.id[:])
	binary.LittleEndian.PutUint64(b[32:], x.generation)
	binary.LittleEndian.PutUint64(b[40:], uint64(x.end))
	binary.LittleEndian.PutUint32(b[60:], checksum(b[:60]))
	return b
}

// checkHeader checks the first bytes of the object against its end.
func (x *index) checkHeader(b []byte) error {
	if len(b) != headerBytes || string(b[:8]) != headerMagic || checksum(b[:60]) != binary.LittleEndian.Uint32(b[60:]) {
		return tine.Errorf(tine.KindCorrupt, "its header is damaged")
	}
	if v, n := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:]); v != formatVersion || n != FrameBytes {
		return newer("format %d with windows of %d bytes", v, n)
	}
	if string(b) != string(x.encodeHeader()) {
		return tine.Errorf(tine.KindCorrupt, "its header and its end are of different segments")
	}
	return nil
}

func newer(format string, args ...any) error {
	return tine.Errorf(tine.KindVersion, "it has "+format+", which this program does not know", args...).
		WithHint("run a newer tine on this store")
}

// encodeEnd returns the index and trailer, and sets the length of the object.
func (x *index) encodeEnd() []byte {
	b := make([]byte, 0, len(x.frames)*entryBytes+trailerBytes)
	x.size = headerBytes + int64(cap(b))
	for _, f := range x.frames {
		x.size += int64(f.stored)
		b = binary.LittleEndian.AppendUint32(b, f.window)
		b = binary.LittleEndian.AppendUint16(b, f.present)
		b = append(b, f.codec, 0)
		b = binary.LittleEndian.AppendUint32(b, f.stored)
		b = binary.LittleEndian.AppendUint32(b, f.sum)
		b = binary.LittleEndian.AppendUint32(b, f.plain)
		b = binary.LittleEndian.AppendUint32(b, 0)
	}
	b = append(b, x.id[:]...)
	b = binary.LittleEndian.AppendUint64(b, x.generation)
	b = binary.LittleEndian.AppendUint64(b, uint64(x.end))
	b = binary.LittleEndian.AppendUint64(b, uint64(x.size))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(x.frames)))
	b = binary.LittleEndian.AppendUint64(b, 0)
	b = binary.LittleEndian.AppendUint32(b, checksum(b))
	return append(b, trailerMagic...)
}

// endBytes returns how long the index and trailer are, of which b is the end,
// at least the trailer.
func endBytes(b []byte) (int64, error) {
	if len(b) < trailerBytes || string(b[len(b)-8:]) != trailerMagic {
		return 0, tine.Errorf(tine.KindCorrupt, "it does not end as a segment object does")
	}
	t := b[len(b)-trailerBytes:]
	n := int64(binary.LittleEndian.Uint32(t[40:]))*entryBytes + trailerBytes
	if size := binary.LittleEndian.Uint64(t[32:]); size > 1<<62 || int64(size) < headerBytes+n {
		return 0, tine.Errorf(tine.KindCorrupt, "its trailer is damaged")
	}
	return n, nil
}

// decodeEnd reads the index and trailer, which b is. size is the length of the
// object, or 0 if it is not known.
func decodeEnd(b []byte, size int64) (*index, error) {
	damaged := tine.Errorf(tine.KindCorrupt, "its index is damaged")
	n, err := endBytes(b)
	if err != nil {
		return nil, err
	}
	t := b[len(b)-trailerBytes:]
	if n != int64(len(b)) || checksum(b[:n-12]) != binary.LittleEndian.Uint32(t[52:]) {
		return nil, damaged
	}
	end := binary.LittleEndian.Uint64(t[24:])
	x := &index{
		id: tine.SegmentID(t[:16]), generation: binary.LittleEndian.Uint64(t[16:]), end: int64(end),
		size: int64(binary.LittleEndian.Uint64(t[32:])), frames: make([]frame, (n-trailerBytes)/entryBytes),
	}
	if end > maxEnd || binary.LittleEndian.Uint64(t[44:]) != 0 || size != 0 && size != x.size {
		return nil, damaged
	}
	at := int64(headerBytes)
	for i := range x.frames {
		f, err := decodeEntry(b[i*entryBytes:][:entryBytes], x.end)
		if err != nil {
			return nil, err
		}
		if i > 0 && f.window <= x.frames[i-1].window {
			return nil, damaged
		}
		f.at = at
		at += int64(f.stored)
		x.frames[i] = f
	}
	if at+n != x.size {
		return nil, damaged
	}
	return x, nil
}

// decodeEntry reads one entry of an object with the logical end.
func decodeEntry(b []byte, end int64) (frame, error) {
	f := frame{
		window: binary.LittleEndian.Uint32(b), present: binary.LittleEndian.Uint16(b[4:]), codec: b[6],
		stored: binary.LittleEndian.Uint32(b[8:]), sum: binary.LittleEndian.Uint32(b[12:]), plain: binary.LittleEndian.Uint32(b[16:]),
	}
	if f.codec > codecZstd || b[7] != 0 {
		return f, newer("codec %d and cipher %d", f.codec, b[7])
	}
	last := int64(f.window)*windowBlocks + int64(bits.Len16(f.present)) - 1
	if f.present == 0 || last*segment.BlockBytes >= end || f.stored == 0 || binary.LittleEndian.Uint32(b[20:]) != 0 {
		return f, tine.Errorf(tine.KindCorrupt, "its index is damaged")
	}
	if n := f.payload(end); int64(f.stored) > n || (f.codec == codecRaw) != (int64(f.stored) == n) {
		return f, tine.Errorf(tine.KindCorrupt, "its index is damaged")
	}
	return f, nil
}

// mark notes that a range of the payload is there, in frames that are in order.
func (x *index) mark(r segment.Range) error {
	stop := r.Off + r.Len
	if r.Off < 0 || r.Len <= 0 || stop > x.end || r.Off%segment.BlockBytes != 0 || stop%segment.BlockBytes != 0 && stop != x.end {
		return tine.Errorf(tine.KindInvalid, "%d bytes at %d are no blocks of a segment of %d bytes", r.Len, r.Off, x.end)
	}
	for b := r.Off / segment.BlockBytes; b*segment.BlockBytes < stop; b++ {
		window, bit := uint32(b/windowBlocks), uint16(1)<<(b%windowBlocks)
		n := len(x.frames)
		if n == 0 || x.frames[n-1].window < window {
			x.frames = append(x.frames, frame{window: window})
			n++
		}
		f := &x.frames[n-1]
		if f.window != window || f.present >= bit {
			return tine.Errorf(tine.KindInvalid, "the ranges of a segment are not in order at %d", r.Off)
		}
		f.present |= bit
	}
	return nil
}

// present is the reverse of mark: the ranges that are there, as long as they
// can be.
func (x *index) present() []segment.Range {
	var out []segment.Range
	for _, f := range x.frames {
		for i := range int64(windowBlocks) {
			if f.present>>i&1 == 0 {
				continue
			}
			off := (int64(f.window)*windowBlocks + i) * segment.BlockBytes
			n := min(segment.BlockBytes, x.end-off)
			if k := len(out); k > 0 && out[k-1].Off+out[k-1].Len == off {
				out[k-1].Len += n
			} else {
				out = append(out, segment.Range{Off: off, Len: n})
			}
		}
	}
	return out
}
