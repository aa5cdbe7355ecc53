package run

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"io"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/tine"
)

// Merge writes one run that does what runs do, which are given oldest first. With
// bottom, nothing lies below them, and deletions are left out, so that only rows
// remain. It streams: of each run it holds a window of a table in memory, and
// what a Writer holds. The runs stay. Errors: those of Writer and of Tables.
func Merge(ctx context.Context, cfg Config, runs [][]Table, bottom bool) ([]Table, error) {
	w := NewWriter(ctx, cfg)
	defer w.Abort()
	m := &merger{}
	defer m.close()
	for age, tables := range runs {
		c := &runCursor{ctx: ctx, store: cfg.Store, tables: tables, age: age}
		m.all = append(m.all, c)
		ok, err := c.next()
		if err != nil {
			return nil, err
		}
		if ok {
			m.ahead = append(m.ahead, c)
		}
	}
	heap.Init(m)
	for len(m.ahead) > 0 {
		if err := m.step(w, bottom); err != nil {
			return nil, err
		}
	}
	return w.Finish()
}

// merger merges runs. A range deletion comes before what stands at its lower bound,
// and those of one run are disjoint; so when a key is looked at, the last range that
// each run has come to is the only one of that run that may hold the key.
type merger struct {
	all   []*runCursor // oldest first
	ahead []*runCursor // a heap: those with a change to come
	last  []byte       // the last key that was settled
	any   bool         // last is set
}

// step settles the next change.
func (m *merger) step(w *Writer, bottom bool) error {
	c := m.ahead[0]
	change := c.change
	if err := m.settle(w, c.age, change, bottom); err != nil {
		return err
	}
	ok, err := c.next()
	switch {
	case err != nil:
		return err
	case ok:
		heap.Fix(m, 0)
	default:
		heap.Pop(m)
	}
	return nil
}

func (m *merger) settle(w *Writer, age int, c kv.Change, bottom bool) error {
	if c.Kind == kv.ChangeDeleteRange {
		m.all[age].end = append(m.all[age].end[:0], c.Value...)
		if bottom {
			return nil
		}
		return w.Add(c)
	}
	if m.any && bytes.Equal(c.Key, m.last) {
		return nil // a newer run has settled it
	}
	m.last, m.any = append(m.last[:0], c.Key...), true
	for _, newer := range m.all[age+1:] {
		if bytes.Compare(c.Key, newer.end) < 0 {
			return nil // deleted since
		}
	}
	if c.Kind == kv.ChangeDelete && (bottom || bytes.Compare(c.Key, m.all[age].end) < 0) {
		return nil
	}
	return w.Add(c)
}

func (m *merger) close() {
	for _, c := range m.all {
		c.close()
	}
}

// The heap's order: by key; at one key range deletions first, then the newer run.
func (m *merger) Less(i, j int) bool {
	a, b := m.ahead[i], m.ahead[j]
	if c := bytes.Compare(a.change.Key, b.change.Key); c != 0 {
		return c < 0
	}
	if ra, rb := a.change.Kind == kv.ChangeDeleteRange, b.change.Kind == kv.ChangeDeleteRange; ra != rb {
		return ra
	}
	return a.age > b.age
}
func (m *merger) Len() int      { return len(m.ahead) }
func (m *merger) Swap(i, j int) { m.ahead[i], m.ahead[j] = m.ahead[j], m.ahead[i] }
func (m *merger) Push(c any)    { m.ahead = append(m.ahead, c.(*runCursor)) }
func (m *merger) Pop() any {
	c := m.ahead[len(m.ahead)-1]
	m.ahead = m.ahead[:len(m.ahead)-1]
	return c
}

// runCursor reads a run from its start to its end.
type runCursor struct {
	ctx    context.Context
	store  *blob.Store
	tables []Table // that are not yet open
	age    int     // 0 is the oldest run
	open   *pebble.TableCursor
	change kv.Change // the next one
	end    []byte    // of the last range deletion that was returned
}

// next moves to the next change; false at the end.
func (c *runCursor) next() (bool, error) {
	for {
		if c.open == nil {
			if len(c.tables) == 0 {
				return false, nil
			}
			var err error
			if c.open, err = openWhole(c.ctx, c.store, c.tables[0]); err != nil {
				return false, err
			}
		}
		change, err := c.open.Next()
		switch {
		case err == nil:
			c.change = change
			return true, nil
		case !errors.Is(err, io.EOF):
			return false, err
		}
		if err := c.open.Close(); err != nil {
			return false, err
		}
		c.open, c.tables = nil, c.tables[1:]
	}
}

func (c *runCursor) close() {
	if c.open != nil {
		_ = c.open.Close() // it was only read
	}
}

// openWhole opens a table to be read from start to end.
func openWhole(ctx context.Context, store *blob.Store, t Table) (*pebble.TableCursor, error) {
	r, err := NewTables(store, nil).open(ctx, t.Key, t.ObjectBytes)
	if err != nil {
		return nil, err
	}
	return pebble.OpenTable(ctx, &ahead{table: r})
}

// Check reads a table wholly: every frame under its checksum, every block of rows
// under its own, and that its rows are in order, in its parts, and as many as it says.
// Errors: tine.KindCorrupt, and those of Tables.
func Check(ctx context.Context, store *blob.Store, t Table) error {
	c, err := openWhole(ctx, store, t)
	if err != nil {
		return err
	}
	err = checkChanges(c, t)
	if cerr := c.Close(); err == nil {
		err = cerr
	}
	return err
}

func checkChanges(c *pebble.TableCursor, t Table) error {
	var counts [4]int64
	var last []byte
	part := 0
	for {
		change, err := c.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		counts[change.Kind]++
		upper := change.Key
		if change.Kind == kv.ChangeDeleteRange {
			upper = change.Value
		}
		for part < len(t.Parts) && bytes.Compare(t.Parts[part].Upper, change.Key) <= 0 {
			part++
		}
		switch {
		case last != nil && bytes.Compare(change.Key, last) < 0:
			return tine.Errorf(tine.KindCorrupt, "table %s: the change at %x comes after that at %x", t.Key, change.Key, last)
		case part == len(t.Parts) || bytes.Compare(change.Key, t.Parts[part].Lower) < 0 || bytes.Compare(upper, t.Parts[part].Upper) > 0:
			return tine.Errorf(tine.KindCorrupt, "table %s: the change at %x is in none of its parts", t.Key, change.Key)
		}
		last = append(last[:0], change.Key...)
	}
	if counts[kv.ChangeSet] != t.Rows || counts[kv.ChangeDelete] != t.Deletes || counts[kv.ChangeDeleteRange] != t.Ranges {
		return tine.Errorf(tine.KindCorrupt, "table %s holds %d rows, %d deletions and %d deleted ranges, and should hold %d, %d and %d",
			t.Key, counts[kv.ChangeSet], counts[kv.ChangeDelete], counts[kv.ChangeDeleteRange], t.Rows, t.Deletes, t.Ranges)
	}
	return nil
}
