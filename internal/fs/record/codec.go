package record

import (
	"encoding/binary"

	"tine.dev/tine/internal/tine"
)

// encoder appends the primitive forms: unsigned varints, zigzag varints, and
// byte strings with a length before them.
type encoder struct{ b []byte }

func (e *encoder) u8(v uint8)             { e.b = append(e.b, v) }
func (e *encoder) uint(v uint64)          { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) int(v int64)            { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) str(s string)           { e.uint(uint64(len(s))); e.b = append(e.b, s...) }
func (e *encoder) id(p [tine.IDSize]byte) { e.b = append(e.b, p[:]...) }

func (e *encoder) bool(v bool) {
	if v {
		e.u8(1)
	} else {
		e.u8(0)
	}
}

// decoder reads what encoder wrote. The first failure sticks; every read
// after it gives a zero value, so that decoders check once, at the end.
type decoder struct {
	b      []byte
	failed bool
}

func (d *decoder) fail() { d.failed, d.b = true, nil }

func (d *decoder) u8() uint8 {
	if len(d.b) < 1 {
		d.fail()
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// bytes returns a part of the input, not a copy.
func (d *decoder) bytes() []byte {
	n := d.uint()
	if d.failed || n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) str() string { return string(d.bytes()) }

func (d *decoder) id() (p [tine.IDSize]byte) {
	if len(d.b) < len(p) {
		d.fail()
		return p
	}
	copy(p[:], d.b)
	d.b = d.b[len(p):]
	return p
}

func (d *decoder) bool() bool {
	switch d.u8() {
	case 0:
		return false
	case 1:
		return true
	}
	d.fail()
	return false
}

// count reads a number of items of at least size bytes each, and fails when
// the input cannot hold so many: a damaged count must not make the decoder
// allocate.
func (d *decoder) count(size int) int {
	n := d.uint()
	if d.failed || n > uint64(len(d.b)/size) {
		d.fail()
		return 0
	}
	return int(n)
}

// format reads the format byte and reports whether it is one of 1..newest.
func (d *decoder) format(what string, newest uint8) error {
	v := d.u8()
	if d.failed || v == 0 {
		return tine.Errorf(tine.KindCorrupt, "%s row is damaged", what)
	}
	if v > newest {
		return tine.Errorf(tine.KindVersion, "%s row has format %d; this program knows up to %d", what, v, newest).
			WithHint("run a newer tine on this data directory")
	}
	return nil
}

// finish reports damage: a failed read, or bytes left over.
func (d *decoder) finish(what string) error {
	if d.failed || len(d.b) != 0 {
		return tine.Errorf(tine.KindCorrupt, "%s row is damaged", what)
	}
	return nil
}
