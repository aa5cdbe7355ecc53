package dbfiles

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/tine"
)

// VerifyTable reads a whole table and calls fn for what is wrong with it, until that
// returns an error, which is returned. KindIO if the file cannot be read.
func VerifyTable(fs vfs.FS, name string, s Schema, fn func(kv.Damage) error) error {
	t, err := OpenTable(fs, name, s)
	if err != nil {
		return err
	}
	defer t.Close()
	w := NewWalk(t, fs.PathBase(name), fn)
	for {
		if _, ok, err := w.Next(); err != nil || !ok {
			return err
		}
	}
}

// Walk goes through the rows of a table, and tells what cannot be read.
type Walk struct {
	// Ranges are the table's range deletions, as far as they can be read.
	Ranges []RangeDelete

	t      *Table
	file   string
	tell   func(kv.Damage) error
	block  int
	rows   []Row
	last   []byte // key of the last row that was read
	missed int    // blocks since that cannot be
	why    string
	told   bool
}

// NewWalk begins a walk. The file's name is for what is told.
func NewWalk(t *Table, file string, tell func(kv.Damage) error) *Walk {
	return &Walk{t: t, file: file, tell: tell}
}

// ReadRanges reads the range deletions, and tells what is wrong besides single blocks.
// The walk does it before its first row unless it was done.
func (w *Walk) ReadRanges() (err error) {
	w.told = true
	if w.Ranges, err = w.t.RangeDeletes(); err != nil {
		return err
	}
	if w.t.Damage == "" {
		return nil
	}
	what := fmt.Sprintf("the table %s is damaged: %s", w.file, w.t.Damage)
	if w.t.Hidden {
		what += "; deletions of whole ranges may be lost, so that what they deleted comes back"
	}
	return w.tell(kv.Damage{File: w.file, What: what})
}

// Next returns the next row; ok is false at the end. Errors: KindIO, and what tell
// returned.
func (w *Walk) Next() (r Row, ok bool, err error) {
	if !w.told {
		if err := w.ReadRanges(); err != nil {
			return r, false, err
		}
	}
	for len(w.rows) == 0 {
		if w.block == w.t.Blocks() {
			return r, false, w.tellMissed(nil)
		}
		rows, err := w.t.Rows(w.block)
		w.block++
		switch {
		case err == nil:
			w.rows = rows
		case tine.KindOf(err) == tine.KindIO:
			return r, false, err
		default:
			w.missed++
			w.why = err.Error()
		}
	}
	r = w.rows[0]
	if err := w.tellMissed(r.Key); err != nil {
		return r, false, err
	}
	w.rows, w.last = w.rows[1:], r.Key
	return r, true, nil
}

// tellMissed tells of blocks before a key that cannot be read.
func (w *Walk) tellMissed(upper []byte) error {
	if w.missed == 0 {
		return nil
	}
	d := kv.Damage{File: w.file, Lost: true, Lower: w.last, Upper: upper,
		What: fmt.Sprintf("the table %s is damaged: %d of %d blocks of rows cannot be read: %s", w.file, w.missed, w.t.Blocks(), w.why)}
	w.missed = 0
	return w.tell(d)
}
