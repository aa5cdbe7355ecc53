package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/zstd"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/tine"
)

// # A list of changes
//
// Changes follow each other in the order of the commits. Of each, integers being
// unsigned varints:
//
//	kind    one byte: 1 set, 2 delete, 3 delete a range
//	shared  how many bytes its key has in common with the start of the key before it
//	rest    length and bytes of the rest of the key
//	value   kinds 1 and 3: length and bytes of the value, or of the range's end
//
// A key is at most maxKeyBytes long. The key before the first is empty.
//
// # A packed list
//
//	codec   one byte: 0 the list itself, 1 compressed by zstd
//	length  of the list, unsigned varint
//	bytes
//
// # A journal object, format 1
//
// Integers of fixed size are little-endian; checksums are CRC-32C.
//
//	offset size
//	 0      8   magic "tinejrnl"
//	 8      4   format: 1
//	12      4   zero
//	16     16   tree
//	32     16   server that wrote it
//	48      8   number of the object
//	56      8   term
//	64      8   sequence of the first outbox entry in it; 0: none
//	72      8   sequence of the last
//	80      8   created: signed nanoseconds since 1970, by the server's clock
//	88      4   checksum of the whole object before; 0 for number 1
//	92      4   checksum of bytes 0 to 91
//	96      n   a packed list of changes
//	96+n    4   checksum of everything before it
const (
	formatVersion = 1
	magic         = "tinejrnl"
	headerBytes   = 96
	maxKeyBytes   = 4096

	// MaxListBytes bounds a list of changes, so that a damaged length does not make a
	// reader allocate.
	MaxListBytes = 1 << 30
)

// EmptyBytes is the length of an object without changes, such as that of a term.
const EmptyBytes = headerBytes + 2 + 4

const (
	codecPlain = 0
	codecZstd  = 1
)

// smallList is the length from which a list is worth compressing.
const smallList = 512

// Codec packs and unpacks lists. It holds the buffers of the compressor, which
// are dear to make; one for each server is enough. Safe for concurrent use.
type Codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

// NewCodec returns a codec.
func NewCodec() *Codec {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(fmt.Sprintf("zstd refuses fixed options: %v", err))
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(MaxListBytes))
	if err != nil {
		panic(fmt.Sprintf("zstd refuses fixed options: %v", err))
	}
	return &Codec{enc, dec}
}

// List builds a list of changes. The zero value is empty. Not safe for
// concurrent use.
type List struct {
	b    []byte
	last []byte
	n    int
}

// Len returns the number of changes; Size their bytes before compression.
func (l *List) Len() int { return l.n }

// Size is beside Len.
func (l *List) Size() int { return len(l.b) }

// Add appends a change. Its bytes are copied.
func (l *List) Add(c kv.Change) {
	shared := 0
	for shared < len(l.last) && shared < len(c.Key) && l.last[shared] == c.Key[shared] {
		shared++
	}
	l.b = append(l.b, byte(c.Kind))
	l.b = binary.AppendUvarint(l.b, uint64(shared))
	l.b = appendBytes(l.b, c.Key[shared:])
	if c.Kind != kv.ChangeDelete {
		l.b = appendBytes(l.b, c.Value)
	}
	l.last = append(l.last[:0], c.Key...)
	l.n++
}

// Pack appends a list in packed form.
func (c *Codec) Pack(dst []byte, l *List) []byte {
	if len(l.b) >= smallList {
		z := c.enc.EncodeAll(l.b, nil)
		if len(z) < len(l.b) {
			dst = append(dst, codecZstd)
			dst = binary.AppendUvarint(dst, uint64(len(l.b)))
			return append(dst, z...)
		}
	}
	dst = append(dst, codecPlain)
	dst = binary.AppendUvarint(dst, uint64(len(l.b)))
	return append(dst, l.b...)
}

// Each calls fn for every change of a packed list, in order. The bytes are
// valid until fn returns.
// Errors: KindCorrupt, and what fn returns.
func (c *Codec) Each(packed []byte, fn func(kv.Change) error) error {
	b, err := c.unpack(packed)
	if err != nil {
		return err
	}
	d := decoder{b: b}
	var key []byte
	for len(d.b) > 0 {
		ch := kv.Change{Kind: kv.ChangeKind(d.byte())}
		shared := d.uint()
		if shared > uint64(len(key)) {
			return damaged()
		}
		key = append(key[:shared], d.bytes()...)
		ch.Key = key
		switch ch.Kind {
		case kv.ChangeSet, kv.ChangeDeleteRange:
			ch.Value = d.bytes()
		case kv.ChangeDelete:
		default:
			return damaged()
		}
		if d.failed || len(key) == 0 || len(key) > maxKeyBytes {
			return damaged()
		}
		if err := fn(ch); err != nil {
			return err
		}
	}
	return nil
}

func damaged() error { return tine.Errorf(tine.KindCorrupt, "a list of changes is damaged") }

func (c *Codec) unpack(p []byte) ([]byte, error) {
	if len(p) < 2 {
		return nil, damaged()
	}
	n, used := binary.Uvarint(p[1:])
	if used <= 0 || n > MaxListBytes {
		return nil, damaged()
	}
	body := p[1+used:]
	switch p[0] {
	case codecPlain:
		if uint64(len(body)) != n {
			return nil, damaged()
		}
		return body, nil
	case codecZstd:
		out, err := c.dec.DecodeAll(body, make([]byte, 0, min(n, 1<<20)))
		if err != nil || uint64(len(out)) != n {
			return nil, damaged()
		}
		return out, nil
	}
	return nil, tine.Errorf(tine.KindVersion, "a list of changes is packed in a way (%d) that this program does not know", p[0]).
		WithHint("run a newer tine")
}

// Header is what a journal object says of itself.
type Header struct {
	Tree     tine.TreeID
	Server   tine.ServerID
	Number   uint64
	Term     uint64
	First    uint64 // sequences of the outbox entries in it; 0: none
	Last     uint64
	Created  int64  // nanoseconds since 1970
	Previous uint32 // checksum of the object before; 0 for number 1
}

// Encode returns the object.
func (c *Codec) Encode(h Header, l *List) []byte {
	b := make([]byte, headerBytes, headerBytes+len(l.b)/2+64)
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[8:], formatVersion)
	copy(b[16:], h.Tree[:])
	copy(b[32:], h.Server[:])
	for i, v := range []uint64{h.Number, h.Term, h.First, h.Last, uint64(h.Created)} {
		binary.LittleEndian.PutUint64(b[48+8*i:], v)
	}
	binary.LittleEndian.PutUint32(b[88:], h.Previous)
	binary.LittleEndian.PutUint32(b[92:], Checksum(b[:92]))
	b = c.Pack(b, l)
	return binary.LittleEndian.AppendUint32(b, Checksum(b))
}

// Decode reads an object and returns its packed list, for Each.
// Errors: KindCorrupt, KindVersion.
func Decode(b []byte) (Header, []byte, error) {
	var h Header
	if len(b) < headerBytes+4 || string(b[:8]) != magic {
		return h, nil, tine.Errorf(tine.KindCorrupt, "it is no journal object")
	}
	if Checksum(b[:92]) != binary.LittleEndian.Uint32(b[92:]) {
		return h, nil, tine.Errorf(tine.KindCorrupt, "the header of the journal object is damaged")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != formatVersion {
		return h, nil, tine.Errorf(tine.KindVersion, "the journal object has format %d; this program knows %d", v, formatVersion).
			WithHint("run a newer tine on this store")
	}
	end := len(b) - 4
	if Checksum(b[:end]) != binary.LittleEndian.Uint32(b[end:]) {
		return h, nil, tine.Errorf(tine.KindCorrupt, "the journal object is damaged")
	}
	copy(h.Tree[:], b[16:])
	copy(h.Server[:], b[32:])
	u := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	h.Number, h.Term, h.First, h.Last, h.Created = u(48), u(56), u(64), u(72), int64(u(80))
	h.Previous = binary.LittleEndian.Uint32(b[88:])
	if h.Number == 0 || h.Last < h.First || binary.LittleEndian.Uint32(b[12:]) != 0 {
		return h, nil, tine.Errorf(tine.KindCorrupt, "the journal object contradicts itself")
	}
	return h, b[headerBytes:end], nil
}

// Checksum is that of a whole object, which the next one carries.
func Checksum(object []byte) uint32 { return crc32.Checksum(object, castagnoli) }

// castagnoli is the table of the checksum; it is never written.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendBytes(b, p []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(p)))
	return append(b, p...)
}

// decoder reads what List has written. A failure sticks.
type decoder struct {
	b      []byte
	failed bool
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.failed = true
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.failed, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) bytes() []byte {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.failed, d.b = true, nil
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}
