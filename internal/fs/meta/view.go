package meta

import (
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/timeline"
)

// View is a disk's head, or a frozen epoch of it, with the file system's
// operations.
type View struct{ *timeline.View }

// reader and txn are the rows of a view, as this package's rules use them.
type (
	reader struct{ *timeline.Reader }
	txn    struct {
		reader
		*timeline.Txn
	}
)

func (v View) read(fn func(*reader) error) error {
	return v.View.Read(func(r *timeline.Reader) error { return fn(&reader{r}) })
}

func (v View) change(fn func(*txn) error) error {
	return v.View.Change(func(t *timeline.Txn) error { return fn(newTxn(t)) })
}

func newTxn(t *timeline.Txn) *txn { return &txn{reader{t.Reader}, t} }

// The reader that a txn embeds and the one that its timeline.Txn embeds are
// the same; these say which name is meant.

func (t *txn) Get(k record.Logical) (timeline.Found, error) { return t.Txn.Get(k) }

func (t *txn) Scan(from, end record.Logical, fn func(record.Logical, timeline.Found) (bool, error)) error {
	return t.Txn.Scan(from, end, fn)
}
