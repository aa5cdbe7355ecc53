package salvage

import (
	"bytes"
	"cmp"
	"container/heap"
	"errors"
	"slices"

	pdb "github.com/cockroachdb/pebble/v2"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/fs/kv/pebble/dbfiles"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// origin says where a row comes from, later ones being newer where the numbers leave
// it open.
type origin int

const (
	fromMoved origin = iota // a log whose rows may be in tables already
	fromTable
	fromLog
	origins
)

// source is a run of rows in the order of their keys.
type source struct {
	row  dbfiles.Row
	from origin
	next func() (dbfiles.Row, bool, error)
}

// sources is a heap by key.
type sources []*source

func (h sources) Len() int           { return len(h) }
func (h sources) Less(i, j int) bool { return bytes.Compare(h[i].row.Key, h[j].row.Key) < 0 }
func (h sources) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *sources) Push(x any)        { *h = append(*h, x.(*source)) }
func (h *sources) Pop() any {
	s := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return s
}

// merger gives the newest state of each row.
type merger struct {
	heap   sources
	ranges []dbfiles.RangeDelete // by lower bound
	active []dbfiles.RangeDelete // that begin at or before the present key
	open   []*dbfiles.Table
}

// merge opens everything that was found.
func (s *surveyed) merge() (*merger, error) {
	m := &merger{}
	passed := uint64(0) // the largest number in a table
	for _, n := range s.tables {
		t, err := dbfiles.OpenTable(s.fs, s.fs.PathJoin(s.dir, pebble.TableName(n)), s.schema)
		if err != nil {
			m.close()
			return nil, err
		}
		m.open = append(m.open, t)
		w := dbfiles.NewWalk(t, pebble.TableName(n), s.tell)
		if err := w.ReadRanges(); err != nil {
			m.close()
			return nil, err
		}
		m.ranges = append(m.ranges, w.Ranges...)
		if !s.whole {
			if passed, err = largest(t, w.Ranges, passed); err != nil {
				m.close()
				return nil, err
			}
		}
		if err := m.add(fromTable, w.Next); err != nil {
			m.close()
			return nil, err
		}
	}
	for _, l := range s.logs {
		if err := m.addLog(l, passed); err != nil {
			m.close()
			return nil, err
		}
	}
	slices.SortFunc(m.ranges, func(a, b dbfiles.RangeDelete) int { return bytes.Compare(a.Lower, b.Lower) })
	return m, nil
}

// largest returns the largest sequence number in a table, or what it is given.
func largest(t *dbfiles.Table, ranges []dbfiles.RangeDelete, passed uint64) (uint64, error) {
	for _, r := range ranges {
		passed = max(passed, r.Seq)
	}
	for i := range t.Blocks() {
		rows, err := t.Rows(i)
		if err != nil && tine.KindOf(err) == tine.KindIO {
			return 0, err
		}
		for _, r := range rows {
			passed = max(passed, r.Seq)
		}
	}
	return passed, nil
}

func (m *merger) add(from origin, next func() (dbfiles.Row, bool, error)) error {
	row, ok, err := next()
	if err == nil && ok {
		heap.Push(&m.heap, &source{row, from, next})
	}
	return err
}

// addLog adds the rows of a log with numbers that the tables have not passed.
func (m *merger) addLog(l *log, passed uint64) error {
	var rows []dbfiles.Row
	for _, b := range l.batches {
		for _, r := range b.rows {
			switch {
			case r.Seq <= passed:
			case r.Kind == pdb.InternalKeyKindRangeDelete:
				m.ranges = append(m.ranges, dbfiles.RangeDelete{Lower: r.Key, Upper: r.Value, Seq: r.Seq})
			default:
				rows = append(rows, r)
			}
		}
	}
	slices.SortFunc(rows, func(a, b dbfiles.Row) int {
		return cmp.Or(bytes.Compare(a.Key, b.Key), cmp.Compare(b.Seq, a.Seq))
	})
	from := fromLog
	if l.moved {
		from = fromMoved
	}
	return m.add(from, func() (r dbfiles.Row, ok bool, err error) {
		if len(rows) == 0 {
			return r, false, nil
		}
		r, rows = rows[0], rows[1:]
		return r, true, nil
	})
}

func (m *merger) close() {
	for _, t := range m.open {
		_ = t.Close() // was only read
	}
}

// next returns the newest state of the next key; ok is false at the end. A key that
// was deleted has live unset.
func (m *merger) next() (key, value []byte, live, ok bool, err error) {
	if len(m.heap) == 0 {
		return nil, nil, false, false, nil
	}
	key = m.heap[0].row.Key
	var best [origins]*dbfiles.Row
	for len(m.heap) > 0 && bytes.Equal(m.heap[0].row.Key, key) {
		s := m.heap[0]
		if r := s.row; best[s.from] == nil || r.Seq > best[s.from].Seq {
			best[s.from] = &r
		}
		if s.row, ok, err = s.next(); err != nil {
			return nil, nil, false, false, err
		}
		if ok {
			heap.Fix(&m.heap, 0)
		} else {
			heap.Pop(&m.heap)
		}
	}
	r := newest(best)
	live = (r.Kind == pdb.InternalKeyKindSet || r.Kind == pdb.InternalKeyKindSetWithDelete) && r.Seq >= m.deleted(key)
	return key, r.Value, live, true, nil
}

// newest picks among the newest rows of a key from each origin.
func newest(best [origins]*dbfiles.Row) *dbfiles.Row {
	moved, table := best[fromMoved], best[fromTable]
	switch {
	case best[fromLog] != nil:
		return best[fromLog]
	case table == nil:
		return moved
	case moved == nil || table.Seq == 0 || table.Seq >= moved.Seq:
		return table
	}
	return moved
}

// deleted returns up to which sequence number range deletions hide a key; keys come
// in ascending order.
func (m *merger) deleted(key []byte) (seq uint64) {
	for len(m.ranges) > 0 && bytes.Compare(m.ranges[0].Lower, key) <= 0 {
		m.active, m.ranges = append(m.active, m.ranges[0]), m.ranges[1:]
	}
	m.active = slices.DeleteFunc(m.active, func(r dbfiles.RangeDelete) bool { return bytes.Compare(r.Upper, key) <= 0 })
	for _, r := range m.active {
		seq = max(seq, r.Seq)
	}
	return seq
}

const (
	batchBytes = 4 << 20
	tellEvery  = 16 << 10 // rows
)

// write writes the newest state of all rows into a store of its own, durably.
func (o Options) write(s *surveyed) (rows int64, err error) {
	m, err := s.merge()
	if err != nil {
		return 0, err
	}
	defer m.close()
	po := o.Store
	po.Dir += partialEnd
	store, err := pebble.Open(po)
	if err != nil {
		return 0, err
	}
	if rows, err = o.copyRows(store, m, s); err == nil {
		err = store.Flush()
	}
	return rows, errors.Join(err, store.Close())
}

func (o Options) copyRows(store kv.Store, m *merger, s *surveyed) (rows int64, err error) {
	b := store.NewBatch()
	defer func() { b.Discard() }()
	for {
		key, value, live, ok, err := m.next()
		if err != nil {
			return rows, err
		}
		if !ok {
			break
		}
		if !live || len(key) < s.schema.Comparer.Split(key)+record.EpochLen { // no store takes such a key, so none has written it
			continue
		}
		b.Set(key, value)
		if rows++; o.Progress != nil && rows%tellEvery == 0 {
			o.Progress(rows)
		}
		if b.Size() >= batchBytes {
			err := store.Commit(b, false)
			b = store.NewBatch()
			if err != nil {
				return rows, err
			}
		}
	}
	err = store.Commit(b, true)
	b = store.NewBatch()
	return rows, err
}
