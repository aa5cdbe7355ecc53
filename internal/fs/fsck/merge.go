package fsck

import (
	"bytes"
	"slices"

	"tine.dev/tine/internal/fs/fsck/rowform"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// merger walks several strata in the order of the logical keys and gathers all
// versions of one row at a time.
type merger struct {
	sources []*source
	key     []byte    // logical key of the present row
	vers    []version // its versions: the first source's first, newest first in each
	arena   []byte    // their values
	rows    int64     // versions seen so far
}

type source struct {
	scan    kv.Scan
	n       int // order: the first source is asked first when a row is looked up
	logical []byte
	ended   bool
}

// version is one version of the present row.
type version struct {
	birth    tine.Epoch
	source   int
	from, to int // in the arena
}

// newMerger scans the strata of the hops, as a look-up asks them: each hop's
// strata from the newest, with the rows born in its interval.
func (w *world) newMerger(hops []hop, prefix record.Logical) (*merger, error) {
	m := &merger{}
	for _, h := range hops {
		for i := len(h.line.rec.Strata) - 1; i >= 0; i-- {
			born := h.born
			lower := record.AppendKey(nil, h.line.rec.Strata[i], prefix)
			scan, err := w.snap.Scan(lower, record.PrefixEnd(lower), &born)
			if err != nil {
				m.close()
				return nil, err
			}
			s := &source{scan: scan, n: len(m.sources)}
			m.sources = append(m.sources, s)
			s.next()
		}
	}
	return m, nil
}

func (m *merger) close() {
	for _, s := range m.sources {
		_ = s.scan.Close()
	}
}

// next moves to the next row whose key has all its parts.
func (s *source) next() {
	for s.scan.Next() {
		k := s.scan.Key()
		if len(k) > tine.IDSize+record.EpochLen {
			s.logical = k[tine.IDSize : len(k)-record.EpochLen]
			return
		}
	}
	s.ended, s.logical = true, nil
}

// next gathers the versions of the next row; false at the end or after an
// error.
func (m *merger) next() bool {
	var best []byte
	for _, s := range m.sources {
		if !s.ended && (best == nil || bytes.Compare(s.logical, best) < 0) {
			best = s.logical
		}
	}
	if best == nil {
		return false
	}
	m.key = append(m.key[:0], best...)
	m.vers, m.arena = m.vers[:0], m.arena[:0]
	for _, s := range m.sources {
		for !s.ended && bytes.Equal(s.logical, m.key) {
			_, birth, _ := record.SplitEpoch(s.scan.Key())
			from := len(m.arena)
			m.arena = append(m.arena, s.scan.Value()...)
			m.vers = append(m.vers, version{birth, s.n, from, len(m.arena)})
			m.rows++
			s.next()
		}
	}
	return true
}

func (m *merger) value(v version) []byte { return m.arena[v.from:v.to:v.to] }

// err returns the error that ended the walk.
func (m *merger) err() error {
	for _, s := range m.sources {
		if err := s.scan.Err(); err != nil {
			return err
		}
	}
	return nil
}

// hop is a line on the way of a look-up, and which of its rows count.
type hop struct {
	line *line
	born kv.Born
}

// view is a line at an epoch; tine.Head for the head.
type view struct {
	line *line
	at   tine.Epoch
}

// hops returns the view's line and its ancestors.
func (v view) hops() []hop {
	var hs []hop
	limit := v.at
	for l := v.line; l != nil; l = l.parent {
		if l.rows > 0 || l == v.line {
			hs = append(hs, hop{l, kv.Born{After: 0, UpTo: limit}})
		}
		limit = min(limit, l.rec.Branch)
	}
	return hs
}

// raw finds the newest version of a row in a view, a tombstone included.
func (w *world) raw(v view, l record.Logical) (val []byte, birth tine.Epoch, ok bool, err error) {
	limit := v.at
	for n := v.line; n != nil; n = n.parent {
		if n.rows > 0 {
			for i := len(n.rec.Strata) - 1; i >= 0; i-- {
				w.key = record.AppendKey(w.key[:0], n.rec.Strata[i], l)
				val, birth, ok, err = w.snap.Newest(w.key, limit)
				if ok || err != nil {
					return bytes.Clone(val), birth, ok, err
				}
			}
		}
		limit = min(limit, n.rec.Branch)
	}
	return nil, 0, false, nil
}

// lookup finds what a view shows of a row. The value is a copy.
func (w *world) lookup(v view, l record.Logical) (val []byte, birth tine.Epoch, ok bool, err error) {
	val, birth, ok, err = w.raw(v, l)
	if ok && rowform.IsTombstone(val) {
		return nil, birth, false, err
	}
	return val, birth, ok, err
}

// eachIn calls fn for every row that a view shows with the prefix, in order,
// until it returns false. The value is fn's only during the call.
func (w *world) eachIn(v view, p record.Logical, fn func(record.Logical, []byte) bool) error {
	m, err := w.newMerger(v.hops(), p)
	if err != nil {
		return err
	}
	defer m.close()
	for m.next() {
		val := m.value(m.vers[0])
		l := record.Logical(m.key)
		if good, _ := rowform.Shape(l); !good || rowform.IsTombstone(val) {
			continue
		}
		if !fn(l, val) {
			return nil
		}
	}
	return m.err()
}

// span is a run of bytes of a segment: [from, to).
type span struct{ from, to int64 }

func (s span) len() int64 { return s.to - s.from }

func bySpan(a, b span) int {
	switch {
	case a.from != b.from:
		return int(min(1, max(-1, a.from-b.from)))
	default:
		return int(min(1, max(-1, a.to-b.to)))
	}
}

// normal sorts spans and joins those that touch or overlap, in place.
func normal(ss []span) []span {
	if len(ss) < 2 {
		return ss
	}
	slices.SortFunc(ss, bySpan)
	out := ss[:1]
	for _, s := range ss[1:] {
		if last := &out[len(out)-1]; s.from <= last.to {
			last.to = max(last.to, s.to)
		} else {
			out = append(out, s)
		}
	}
	return out
}

// without returns what of a is not in b; both are normal.
func without(a, b []span) []span {
	var out []span
	k := 0
	for _, s := range a {
		for k < len(b) && b[k].to <= s.from {
			k++
		}
		for i := k; i < len(b) && b[i].from < s.to; i++ {
			if b[i].from > s.from {
				out = append(out, span{s.from, b[i].from})
			}
			s.from = min(b[i].to, s.to)
		}
		if s.from < s.to {
			out = append(out, s)
		}
	}
	return out
}

// total is how many bytes normal spans have.
func total(ss []span) int64 {
	var n int64
	for _, s := range ss {
		n += s.len()
	}
	return n
}

// meets reports whether any of the normal spans overlaps s.
func meets(ss []span, s span) bool {
	i, _ := slices.BinarySearchFunc(ss, s, func(a, b span) int {
		if a.to <= b.from {
			return -1
		}
		return 1
	})
	return i < len(ss) && ss[i].from < s.to
}
