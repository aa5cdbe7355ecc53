package pebble

import (
	"context"
	"errors"
	"io"

	pdb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/objstorage"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/colblk"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// tableFormat returns the options that decide how rows lie in a table: the same
// for the store's own tables and for those that are written to be adopted.
func tableFormat() *pdb.Options {
	comparer := newComparer()
	schema := colblk.DefaultKeySchema(comparer, bundleRows)
	po := &pdb.Options{
		Comparer:                comparer,
		KeySchema:               schema.Name,
		KeySchemas:              sstable.MakeKeySchemas(&schema),
		BlockPropertyCollectors: []func() pdb.BlockPropertyCollector{newEpochCollector},
		FormatMajorVersion:      Format,
	}
	for i := range po.Levels {
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		po.Levels[i].BlockSize = 16 << 10
		po.Levels[i].IndexBlockSize = 32 << 10
	}
	return po
}

// RowPrefix returns the part of a key that all versions of its row share, and
// whether the key is that of a row at all: a store takes no others. Of keys that
// are not, it is the part before what would be taken for an epoch.
func RowPrefix(key []byte) (prefix []byte, row bool) {
	n := split(key)
	return key[:n], n+record.EpochLen <= len(key)
}

// TableWriter writes rows and deletions as one table that a store can adopt: in
// the order of keys, compressed harder than the store's own, for such a table
// is written once and carried over a network. All of a table's changes happen at
// one moment: its range deletions delete nothing of its own. Not safe for
// concurrent use.
type TableWriter struct{ w *sstable.Writer }

// NewTableWriter returns a writer to out, which it never closes.
func NewTableWriter(out io.Writer) *TableWriter {
	po := tableFormat()
	po.EnsureDefaults()
	// As for level 0: in a table that is written for the lowest level deletions are
	// marked as obsolete, and readers pass over them.
	o := po.MakeWriterOptions(0, po.FormatMajorVersion.MaxTableFormat())
	o.Compression = sstable.ZstdCompression
	o.DisableValueBlocks = true // as in the store: see pebbleOptions
	return &TableWriter{w: sstable.NewWriter(&plainWritable{out}, o)}
}

// Add appends a change. Sets and deletions must come in strictly ascending order
// of keys, range deletions, disjoint, in that of their lower bounds.
func (t *TableWriter) Add(c kv.Change) error {
	var err error
	switch c.Kind {
	case kv.ChangeSet:
		if _, ok := RowPrefix(c.Key); !ok {
			return tine.Errorf(tine.KindInvalid, "the key %x is not that of a row", c.Key)
		}
		err = t.w.Set(c.Key, c.Value)
	case kv.ChangeDelete:
		err = t.w.Delete(c.Key)
	case kv.ChangeDeleteRange:
		err = t.w.DeleteRange(c.Key, c.Value)
	default:
		return tine.Errorf(tine.KindInvalid, "a change of kind %d is not known", c.Kind)
	}
	if err != nil {
		return tine.Errorf(tine.KindInternal, "write a table: %w", err)
	}
	return nil
}

// Size estimates how many bytes the table would have if it ended here.
func (t *TableWriter) Size() int64 { return int64(t.w.Raw().EstimatedSize()) }

// Close ends the table. A table without any change is a table too, but cannot be adopted.
func (t *TableWriter) Close() error {
	if err := t.w.Close(); err != nil {
		return tine.Errorf(tine.KindIO, "end a table: %w", err)
	}
	return nil
}

// plainWritable gives Pebble a plain writer.
type plainWritable struct{ out io.Writer }

func (p *plainWritable) Write(b []byte) error {
	_, err := p.out.Write(b)
	return err
}

func (p *plainWritable) Finish() error { return nil }
func (p *plainWritable) Abort()        {}

// TableCursor reads a table from its start to its end, each byte of its rows under
// its checksum. Not safe for concurrent use.
type TableCursor struct {
	r      *sstable.Reader
	rows   sstable.Iterator
	ranges []kv.Change // that are not yet returned
	next   func() (kv.Change, bool, error)
	row    kv.Change
	ready  bool // row is set
}

// OpenTable opens a table that a TableWriter has written; it closes r with the
// cursor, and when it fails. Errors: those of r; KindCorrupt.
func OpenTable(ctx context.Context, r kv.TableReader) (*TableCursor, error) {
	c := &TableCursor{}
	if err := c.open(ctx, r); err != nil {
		return nil, errors.Join(translate("open a table", err), c.Close())
	}
	return c, nil
}

func (c *TableCursor) open(ctx context.Context, r kv.TableReader) (err error) {
	po := tableFormat()
	po.EnsureDefaults()
	if c.r, err = sstable.NewReader(ctx, &plainReadable{ctx: ctx, r: r}, po.MakeReaderOptions()); err != nil {
		return errors.Join(err, r.Close())
	}
	if c.rows, err = c.r.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles); err != nil {
		return err
	}
	first := true
	c.next = func() (kv.Change, bool, error) {
		row := c.rows.Next
		if first {
			first, row = false, c.rows.First
		}
		pair := row()
		if pair == nil {
			return kv.Change{}, false, c.rows.Error()
		}
		change := kv.Change{Kind: kv.ChangeSet, Key: pair.K.UserKey}
		switch pair.K.Kind() {
		case pdb.InternalKeyKindSet:
			change.Value, _, err = pair.Value(nil)
			return change, true, err
		case pdb.InternalKeyKindDelete:
			change.Kind = kv.ChangeDelete
			return change, true, nil
		}
		return kv.Change{}, false, tine.Errorf(tine.KindCorrupt, "a table holds a change of kind %s", pair.K.Kind())
	}
	return c.readRanges(ctx)
}

func (c *TableCursor) readRanges(ctx context.Context) error {
	it, err := c.r.NewRawRangeDelIter(ctx, sstable.NoFragmentTransforms, sstable.NoReadEnv)
	if err != nil || it == nil {
		return err
	}
	defer it.Close()
	s, err := it.First()
	for ; s != nil && err == nil; s, err = it.Next() {
		s := s.Clone()
		c.ranges = append(c.ranges, kv.Change{Kind: kv.ChangeDeleteRange, Key: s.Start, Value: s.End})
	}
	return err
}

// Next returns the next change, in the order of keys, a range deletion before what
// stands at its lower bound; io.EOF at the end. The bytes of a set or a deletion are
// valid until the next call, those of a range deletion for good.
func (c *TableCursor) Next() (kv.Change, error) {
	if !c.ready && c.next != nil {
		row, ok, err := c.next()
		if err != nil {
			return kv.Change{}, translate("read a table", err)
		}
		if c.row, c.ready = row, ok; !ok {
			c.next = nil
		}
	}
	if len(c.ranges) > 0 && (!c.ready || string(c.ranges[0].Key) <= string(c.row.Key)) {
		d := c.ranges[0]
		c.ranges = c.ranges[1:]
		return d, nil
	}
	if !c.ready {
		return kv.Change{}, io.EOF
	}
	c.ready = false
	return c.row, nil
}

// Close closes the cursor and its table.
func (c *TableCursor) Close() error {
	var err error
	if c.rows != nil {
		err = c.rows.Close()
	}
	if c.r != nil {
		err = errors.Join(err, c.r.Close())
	}
	c.rows, c.r, c.next = nil, nil, nil
	return err
}

// plainReadable gives Pebble a table to read.
type plainReadable struct {
	ctx context.Context // of the one who reads the table through, for iterators carry none
	r   kv.TableReader
}

func (p *plainReadable) ReadAt(_ context.Context, b []byte, off int64) error {
	return p.r.ReadAt(p.ctx, b, off)
}
func (p *plainReadable) Close() error { return p.r.Close() }
func (p *plainReadable) Size() int64  { return p.r.Size() }
func (p *plainReadable) NewReadHandle(objstorage.ReadBeforeSize) objstorage.ReadHandle {
	h := objstorage.MakeNoopReadHandle(p)
	return &h
}
