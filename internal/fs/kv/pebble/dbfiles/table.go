package dbfiles

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"slices"

	pdb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/sstable/colblk"
	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/tine"
)

// Row is one entry of a table or log. Key and Value are the receiver's.
type Row struct {
	Key   []byte
	Seq   uint64
	Kind  pdb.InternalKeyKind
	Value []byte
}

// RangeDelete hides the rows of [Lower, Upper) that are older than Seq.
type RangeDelete struct {
	Lower, Upper []byte
	Seq          uint64
}

// Schema is how the store orders and packs its keys.
type Schema struct {
	Comparer *pdb.Comparer
	Keys     *colblk.KeySchema
}

// Table is a table's blocks, as far as they can be found.
type Table struct {
	schema Schema
	file   vfs.File
	size   int64
	data   []stretch
	ranges []stretch

	// Damage says what besides single blocks of rows cannot be read; "" if nothing.
	Damage string
	// Hidden is set if range deletions may be among that, so that what they
	// deleted comes back.
	Hidden bool
}

// stretch is where a block lies, or, with lost set, where none could be found.
type stretch struct {
	at, length int64
	lost       bool
}

// OpenTable looks where the blocks of a table are. It fails if the file cannot be
// read at all; a damaged one gives what is left of it. The caller closes it.
func OpenTable(fs vfs.FS, name string, s Schema) (*Table, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, tine.Errorf(tine.KindIO, "open %s: %w", name, err)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(tine.Errorf(tine.KindIO, "look at %s: %w", name, err), f.Close())
	}
	t := &Table{schema: s, file: f, size: st.Size()}
	if err := t.byIndex(); err != nil {
		if tine.KindOf(err) == tine.KindIO {
			return nil, errors.Join(err, f.Close())
		}
		t.Damage = err.Error()
		if err := t.byChecksum(); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return t, nil
}

// Close gives the file back.
func (t *Table) Close() error { return t.file.Close() }

// Blocks is how many blocks of rows there are, counting one for each place where
// there is none to be found.
func (t *Table) Blocks() int { return len(t.data) }

// readerAt is a file that is not closed with its reader, and tells an error of the
// device from a file that is too short.
type readerAt struct {
	vfs.File
	failed *error
}

func (r readerAt) Close() error { return nil }

func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.File.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		*r.failed = err
	}
	return n, err
}

// byIndex finds the blocks by the table's index, and checks the rest of them.
func (t *Table) byIndex() (err error) {
	var failed error
	defer func() {
		if r := recover(); r != nil { // Pebble's readers count on what a checksum has confirmed
			err = tine.Errorf(tine.KindCorrupt, "%v", r)
		}
		if failed != nil {
			err = tine.Errorf(tine.KindIO, "read a table: %w", failed)
		}
	}()
	in, err := sstable.NewSimpleReadable(readerAt{t.file, &failed})
	if err != nil {
		return tine.Errorf(tine.KindIO, "look at a table: %w", err)
	}
	r, err := sstable.NewReader(context.Background(), in, sstable.ReaderOptions{
		Comparer: t.schema.Comparer, KeySchemas: sstable.MakeKeySchemas(t.schema.Keys)})
	if err != nil {
		return tine.Errorf(tine.KindCorrupt, "%w", err)
	}
	defer r.Close()
	l, err := r.Layout()
	if err != nil {
		return tine.Errorf(tine.KindCorrupt, "%w", err)
	}
	for _, h := range l.Data {
		t.data = append(t.data, stretch{at: int64(h.Offset), length: int64(h.Length)})
	}
	if l.RangeDel.Length > 0 {
		t.ranges = []stretch{{at: int64(l.RangeDel.Offset), length: int64(l.RangeDel.Length)}}
	}
	for _, h := range l.Filter {
		if _, err := t.read(stretch{at: int64(h.Offset), length: int64(h.Length)}); err != nil {
			t.Damage = "its filter is damaged, " + err.Error()
		}
	}
	return nil
}

// read returns a block, unpacked. KindCorrupt if it is damaged, KindIO if the
// device fails.
func (t *Table) read(s stretch) ([]byte, error) {
	if s.lost || s.at < 0 || s.length < 0 || s.at+s.length+block.TrailerLen > t.size {
		return nil, tine.Errorf(tine.KindCorrupt, "there is no block at byte %d", s.at)
	}
	raw := make([]byte, s.length+block.TrailerLen)
	if _, err := t.file.ReadAt(raw, s.at); err != nil && !errors.Is(err, io.EOF) {
		return nil, tine.Errorf(tine.KindIO, "read a table: %w", err)
	}
	if masked(crc32.Checksum(raw[:s.length+1], castagnoli())) != binary.LittleEndian.Uint32(raw[s.length+1:]) {
		return nil, tine.Errorf(tine.KindCorrupt, "the checksum of the block at byte %d does not hold", s.at)
	}
	return unpack(raw[:s.length], raw[s.length])
}

// masked is the form in which Pebble stores a checksum.
func masked(sum uint32) uint32 { return (sum>>15 | sum<<17) + 0xa282ead8 }

// packings are the ways in which a block may be packed, as its trailer says them.
func packings() []byte {
	return []byte{byte(block.NoCompressionIndicator), byte(block.SnappyCompressionIndicator),
		byte(block.ZstdCompressionIndicator), byte(block.MinLZCompressionIndicator)}
}

func unpack(b []byte, packing byte) (out []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = tine.Errorf(tine.KindCorrupt, "unpack a block: %v", r)
		}
	}()
	if !slices.Contains(packings(), packing) {
		return nil, tine.Errorf(tine.KindCorrupt, "a block is packed in the unknown way %d", packing)
	}
	how := block.CompressionIndicator(packing)
	if how == block.NoCompressionIndicator {
		return b, nil
	}
	n, err := block.DecompressedLen(how, b)
	if err == nil && n > maxBlock {
		err = errors.New("it is too large")
	}
	if err == nil {
		out = make([]byte, n)
		err = block.DecompressInto(how, b, out)
	}
	if err != nil {
		return nil, tine.Errorf(tine.KindCorrupt, "unpack a block: %w", err)
	}
	return out, nil
}

// maxBlock bounds the bytes of an unpacked block: one that holds one row may be as
// large as the largest row.
const maxBlock = 16 << 20

// Rows returns the rows of block i in order. KindCorrupt if the block is damaged;
// KindIO if the device fails.
func (t *Table) Rows(i int) ([]Row, error) {
	b, err := t.read(t.data[i])
	if err != nil {
		return nil, err
	}
	return t.schema.rows(b)
}

func (s Schema) rows(b []byte) (rows []Row, err error) {
	defer func() {
		if r := recover(); r != nil {
			rows, err = nil, tine.Errorf(tine.KindCorrupt, "a block of rows has no sense: %v", r)
		}
	}()
	if !s.holdsRows(b) {
		return nil, tine.Errorf(tine.KindCorrupt, "it is no block of rows")
	}
	var d colblk.DataBlockDecoder
	d.Init(s.Keys, b)
	var it colblk.DataBlockIter
	it.InitOnce(s.Keys, s.Comparer, nil) // no value lies outside of its block
	if err := it.Init(&d, block.NoTransforms); err != nil {
		return nil, tine.Errorf(tine.KindCorrupt, "%w", err)
	}
	for kv := it.First(); kv != nil; kv = it.Next() {
		rows = append(rows, Row{Key: bytes.Clone(kv.K.UserKey), Seq: uint64(kv.K.SeqNum()), Kind: kv.K.Kind(), Value: bytes.Clone(kv.V.InPlaceValue())})
	}
	return rows, nil
}

// RangeDeletes returns the table's range deletions. If they cannot be read, Hidden
// is set. KindIO if the device fails.
func (t *Table) RangeDeletes() ([]RangeDelete, error) {
	var all []RangeDelete
	for _, s := range t.ranges {
		b, err := t.read(s)
		if tine.KindOf(err) == tine.KindIO && err != nil {
			return nil, err
		}
		var some []RangeDelete
		if err == nil {
			some, err = rangeDeletes(b)
		}
		if err != nil {
			t.Hidden = true
			t.Damage = "its range deletions are damaged: " + err.Error()
		}
		all = append(all, some...)
	}
	return all, nil
}

func rangeDeletes(b []byte) (all []RangeDelete, err error) {
	defer func() {
		if r := recover(); r != nil {
			all, err = nil, tine.Errorf(tine.KindCorrupt, "%v", r)
		}
	}()
	if !holdsRanges(b) {
		return nil, tine.Errorf(tine.KindCorrupt, "it is no block of range deletions")
	}
	v := block.Alloc(len(b), nil)
	copy(v.BlockData(), b)
	if err := colblk.InitKeyspanBlockMetadata(v.BlockMetadata(), v.BlockData()); err != nil {
		v.Release()
		return nil, tine.Errorf(tine.KindCorrupt, "%w", err)
	}
	it := colblk.NewKeyspanIter(bytes.Compare, v.MakeHandle(), block.NoFragmentTransforms)
	defer it.Close()
	span, err := it.First()
	for ; span != nil && err == nil; span, err = it.Next() {
		for _, k := range span.Keys {
			if k.Kind() == pdb.InternalKeyKindRangeDelete {
				all = append(all, RangeDelete{bytes.Clone(span.Start), bytes.Clone(span.End), uint64(k.SeqNum())})
			}
		}
	}
	return all, err
}

// holdsRows tells a block of rows from others by its columns.
func (s Schema) holdsRows(b []byte) bool {
	want := slices.Clone(s.Keys.ColumnTypes)
	want = append(want, colblk.DataTypeUint, colblk.DataTypeBool, colblk.DataTypeBytes, colblk.DataTypeBool, colblk.DataTypeBool)
	return hasColumns(b, int(s.Keys.HeaderSize)+4, want)
}

func holdsRanges(b []byte) bool {
	return hasColumns(b, 4, []colblk.DataType{colblk.DataTypeBytes, colblk.DataTypeUint, colblk.DataTypeUint, colblk.DataTypeBytes, colblk.DataTypeBytes})
}

// holdsPairs tells the properties of a table and the list of its other blocks.
func holdsPairs(b []byte) bool {
	return hasColumns(b, 0, []colblk.DataType{colblk.DataTypeBytes, colblk.DataTypeBytes})
}

// hasColumns checks the head of a block: after a head of its own kind, a version
// (1 byte), the number of columns (2), that of rows (4), and for each column its
// type (1) and where it begins (4).
func hasColumns(b []byte, own int, want []colblk.DataType) bool {
	const head, column = 7, 5
	at := own + head
	if len(b) < at+len(want)*column || b[own] != 1 || int(binary.LittleEndian.Uint16(b[own+1:])) != len(want) {
		return false
	}
	if binary.LittleEndian.Uint32(b[own+3:]) > math.MaxInt32/64 {
		return false
	}
	from := uint32(at + len(want)*column)
	for i, kind := range want {
		begins := binary.LittleEndian.Uint32(b[at+i*column+1:])
		if colblk.DataType(b[at+i*column]) != kind || begins < from || int64(begins) > int64(len(b)) {
			return false
		}
		from = begins
	}
	return true
}
