package run

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Config says where a run is written, and how.
type Config struct {
	Store *blob.Store
	// Prefix stands before the keys of the tables, which are Prefix/0, Prefix/1 and
	// so on. It is of this run alone: an object that is there is never replaced.
	Prefix blob.Key
	// TableBytes is how large a table may get, about; 0: 8 MiB. One row may make it
	// larger; one of very many small rows ends before.
	TableBytes int64
	// Uploads is how many tables may be on their way to the store at once, each of
	// which is held in memory, besides the one that is being filled; 0: 3.
	Uploads int
}

func (c *Config) setDefaults() {
	if c.TableBytes <= 0 {
		c.TableBytes = 8 << 20
	}
	if c.Uploads <= 0 {
		c.Uploads = 3
	}
}

// Writer writes a run from a sorted set of changes. Not safe for concurrent use.
//
// A run exists when Finish has returned; whoever does not get there leaves
// objects behind that nothing names, to be swept by their prefix.
type Writer struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelCauseFunc
	slots  chan struct{}
	sent   sync.WaitGroup
	tables []*Table // all that were cut

	w      *pebble.TableWriter // nil between tables
	buf    *bytes.Buffer
	table  *Table
	lower  []byte    // of the table, if it was cut off the one before; nil for the first
	part   int64     // w.Size when the last part began
	open   kv.Change // the range deletion that has begun and not ended; no Key if there is none
	prefix []byte    // of the row that was added last
	// The key that was added last, and whether it is that of a row.
	last    []byte
	lastRow bool
}

// NewWriter returns a writer of a run. ctx is for all of it.
func NewWriter(ctx context.Context, cfg Config) *Writer {
	cfg.setDefaults()
	w := &Writer{cfg: cfg, slots: make(chan struct{}, cfg.Uploads)}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	return w
}

// Add adds the next change: in the order of keys, each key once, a range deletion
// before what stands at its lower bound. Range deletions may overlap; they all count as
// one moment with everything else. Deletions of keys that no row can have are left out.
// Errors: tine.KindInvalid; those of blob.Store.Put, for a table before.
func (w *Writer) Add(c kv.Change) error {
	if err := w.failed(); err != nil {
		return err
	}
	prefix, isRow := pebble.RowPrefix(c.Key)
	ranged := c.Kind == kv.ChangeDeleteRange
	order := bytes.Compare(c.Key, w.last)
	switch {
	case ranged && bytes.Compare(c.Key, c.Value) >= 0, c.Kind == kv.ChangeDelete && !isRow:
		return nil
	case !ranged && !isRow:
		return tine.Errorf(tine.KindInvalid, "the key %x is not that of a row", c.Key)
	case w.last != nil && (order < 0 || order == 0 && w.lastRow):
		return tine.Errorf(tine.KindInvalid, "the change at %x comes after that at %x", c.Key, w.last)
	}
	if w.full() && !bytes.Equal(prefix, w.prefix) {
		if err := w.cut(prefix); err != nil {
			return err
		}
	}
	if err := w.endRange(c.Key); err != nil {
		return err
	}
	upper := ownerEnd(c.Key)
	if ranged {
		upper = boundAfter(c.Value)
	}
	if err := w.cover(c.Key, upper); err != nil {
		return err
	}
	w.last, w.lastRow = append(w.last[:0], c.Key...), !ranged
	w.prefix = append(w.prefix[:0], prefix...)
	switch c.Kind {
	case kv.ChangeDeleteRange:
		w.beginRange(c)
		return nil
	case kv.ChangeSet:
		w.table.Rows++
	case kv.ChangeDelete:
		w.table.Deletes++
	}
	return w.w.Add(c)
}

// maxTableRows bounds the Bloom filter of a table, which a row store reads as a whole to find
// one row: 10 bits a row, a quarter of a MiB.
const maxTableRows = 200000

// full reports whether the table is to be cut.
func (w *Writer) full() bool {
	return w.w != nil && (w.table.Rows+w.table.Deletes >= maxTableRows || w.w.Size() >= w.cfg.TableBytes)
}

// beginRange makes a range deletion part of the open one. It is written when it
// has ended, for the table may be cut inside it.
func (w *Writer) beginRange(c kv.Change) {
	switch {
	case w.open.Key == nil:
		w.open = kv.Change{Kind: c.Kind, Key: bytes.Clone(c.Key), Value: bytes.Clone(c.Value)}
	case bytes.Compare(c.Value, w.open.Value) > 0:
		w.open.Value = bytes.Clone(c.Value)
	}
}

// endRange writes the open range deletion if it ends before key; nil is the end of all.
func (w *Writer) endRange(key []byte) error {
	if w.open.Key == nil || key != nil && bytes.Compare(w.open.Value, key) >= 0 {
		return nil
	}
	c := w.open
	w.open = kv.Change{}
	w.table.Ranges++
	return w.w.Add(c)
}

// cover sees that there is a table and that its parts reach from key to upper. A part
// is widened to whole owners, so that the parts of a small run and of a large one are
// the same mostly: then a row store need not look into one to place the other.
func (w *Writer) cover(key, upper []byte) error {
	if upper == nil {
		return tine.Errorf(tine.KindInvalid, "nothing can be put at %x: no key comes after its owner", key)
	}
	lower := bytes.Clone(ownerStart(key))
	if bytes.Compare(lower, w.lower) < 0 {
		lower = w.lower
	}
	if w.w == nil {
		w.buf = bytes.NewBuffer(make([]byte, 0, w.cfg.TableBytes+w.cfg.TableBytes/8))
		w.w, w.table, w.part = pebble.NewTableWriter(w.buf), &Table{}, 0
	}
	if n := len(w.table.Parts); n > 0 {
		if p := &w.table.Parts[n-1]; bytes.Compare(lower, p.Upper) <= 0 {
			if bytes.Compare(upper, p.Upper) > 0 {
				p.Upper = upper
			}
			return nil
		}
	}
	w.endPart()
	w.table.Parts = append(w.table.Parts, kv.Part{Span: kv.Span{Lower: lower, Upper: upper}})
	return nil
}

// endPart notes how many bytes the last part has.
func (w *Writer) endPart() {
	size := w.w.Size()
	if n := len(w.table.Parts); n > 0 {
		w.table.Parts[n-1].Bytes = max(1, size-w.part)
	}
	w.part = size
}

func ownerStart(key []byte) []byte { return key[:min(len(key), tine.IDSize)] }

// ownerEnd returns the end of all keys of the owner of key; nil if there is none.
func ownerEnd(key []byte) []byte { return record.PrefixEnd(ownerStart(key)) }

// boundAfter returns a bound for a part that a deletion up to upper lies in.
func boundAfter(upper []byte) []byte {
	if len(upper) <= tine.IDSize {
		return bytes.Clone(upper)
	}
	return ownerEnd(upper)
}

// cut ends the table before the row of prefix at; an open range deletion goes on in
// the next one.
func (w *Writer) cut(at []byte) error {
	at = bytes.Clone(at)
	rest := w.open
	if w.open.Key != nil && bytes.Compare(w.open.Value, at) > 0 {
		w.open.Value = at
	} else {
		rest = kv.Change{}
	}
	p := &w.table.Parts[len(w.table.Parts)-1]
	if bytes.Compare(p.Upper, at) > 0 {
		p.Upper = at
	}
	w.lower = p.Upper
	if err := w.end(); err != nil || rest.Key == nil {
		return err
	}
	rest.Key = at
	w.open = rest
	return w.cover(at, boundAfter(rest.Value))
}

// end ends the table and sends it on its way.
func (w *Writer) end() error {
	if w.w == nil {
		return nil
	}
	if err := w.endRange(nil); err != nil {
		return err
	}
	w.endPart()
	if err := w.w.Close(); err != nil {
		return err
	}
	t, object := w.table, seal(w.buf.Bytes())
	w.w, w.table, w.buf = nil, nil, nil
	t.Key = w.cfg.Prefix + "/" + blob.Key(strconv.Itoa(len(w.tables)))
	t.ObjectBytes = int64(len(object))
	w.tables = append(w.tables, t)
	select {
	case w.slots <- struct{}{}:
	case <-w.ctx.Done():
		return w.failed()
	}
	w.sent.Go(func() {
		defer func() { <-w.slots }()
		if _, err := w.cfg.Store.Put(w.ctx, t.Key, bytes.NewReader(object), blob.Condition{Absent: true}); err != nil {
			w.cancel(err)
		}
	})
	return nil
}

// failed returns why nothing more can be written, if so.
func (w *Writer) failed() error {
	err := context.Cause(w.ctx)
	var typed *tine.Error
	if err == nil || errors.As(err, &typed) {
		return err
	}
	return tine.Errorf(tine.KindInterrupted, "writing a run: %w", err)
}

// Finish ends the run and returns its tables, in order, when all of them are durable
// in the store; none for an empty run. The writer must not be used again.
func (w *Writer) Finish() ([]Table, error) {
	err := w.end()
	w.sent.Wait()
	if err = cmp.Or(err, w.failed()); err != nil {
		w.cancel(nil)
		return nil, err
	}
	w.cancel(nil)
	run := make([]Table, 0, len(w.tables))
	for _, t := range w.tables {
		run = append(run, *t)
	}
	return run, nil
}

// Abort gives up a run that is not finished; it waits for what is on its way. After
// Finish it does nothing.
func (w *Writer) Abort() {
	w.cancel(nil)
	w.sent.Wait()
}
