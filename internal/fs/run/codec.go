package run

import (
	"bytes"
	"encoding/binary"
	"math"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// tablesFormat is the newest format of a list of tables: the format byte, the number
// of tables, and for each its key, the four numbers and its parts; of a part the
// length and bytes of the lower bound, then those of the upper one, or length 0 if that
// is the end of all that starts with the lower one, and the estimate of its bytes.
// Numbers are unsigned varints.
const tablesFormat = 1

// AppendTables appends the encoding of a run's list of tables.
func AppendTables(b []byte, tables []Table) []byte {
	b = append(b, tablesFormat)
	b = binary.AppendUvarint(b, uint64(len(tables)))
	for _, t := range tables {
		b = appendBytes(b, []byte(t.Key))
		for _, n := range []int64{t.ObjectBytes, t.Rows, t.Deletes, t.Ranges, int64(len(t.Parts))} {
			b = binary.AppendUvarint(b, uint64(n))
		}
		for _, p := range t.Parts {
			b = appendBytes(b, p.Lower)
			if bytes.Equal(p.Upper, record.PrefixEnd(p.Lower)) {
				b = appendBytes(b, nil)
			} else {
				b = appendBytes(b, p.Upper)
			}
			b = binary.AppendUvarint(b, uint64(p.Bytes))
		}
	}
	return b
}

func appendBytes(b, p []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(p))), p...)
}

// DecodeTables decodes a run's list of tables, all of b. The tables and their parts
// are in order and do not overlap. Errors: tine.KindCorrupt, tine.KindVersion.
func DecodeTables(b []byte) ([]Table, error) {
	if len(b) == 0 || b[0] == 0 {
		return nil, tine.Errorf(tine.KindCorrupt, "a list of tables is damaged")
	}
	if b[0] > tablesFormat {
		return nil, tine.Errorf(tine.KindVersion, "a list of tables has format %d; this program knows up to %d", b[0], tablesFormat).
			WithHint("run a newer tine on this disk")
	}
	d := decoder{b: b[1:]}
	var tables []Table
	var last []byte
	for range d.count() {
		t := Table{Key: blob.Key(d.bytes())}
		t.ObjectBytes, t.Rows, t.Deletes, t.Ranges = d.number(), d.number(), d.number(), d.number()
		for range d.count() {
			p := kv.Part{Span: kv.Span{Lower: d.bytes(), Upper: d.bytes()}, Bytes: d.number()}
			if len(p.Upper) == 0 {
				p.Upper = record.PrefixEnd(p.Lower)
			}
			if bytes.Compare(p.Lower, p.Upper) >= 0 || bytes.Compare(p.Lower, last) < 0 {
				d.failed = true
				break
			}
			last = p.Upper
			t.Parts = append(t.Parts, p)
		}
		if d.failed || len(t.Parts) == 0 || t.ObjectBytes < trailerBytes(0) || t.Key.Check() != nil {
			d.failed = true
			break
		}
		tables = append(tables, t)
	}
	if d.failed || len(d.b) > 0 {
		return nil, tine.Errorf(tine.KindCorrupt, "a list of tables is damaged")
	}
	return tables, nil
}

// decoder reads varints and byte strings; the first failure sticks.
type decoder struct {
	b      []byte
	failed bool
}

// number reads a number that an int64 can hold.
func (d *decoder) number() int64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > math.MaxInt64 {
		d.failed, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return int64(v)
}

// count reads a number of items, of which each takes a byte at least.
func (d *decoder) count() int {
	n := d.number()
	if n > int64(len(d.b)) {
		d.failed, d.b = true, nil
		return 0
	}
	return int(n)
}

// bytes reads a byte string: a part of the input, not a copy.
func (d *decoder) bytes() []byte {
	n := d.number()
	if n > int64(len(d.b)) {
		d.failed, d.b = true, nil
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}
