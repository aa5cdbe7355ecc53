package pebble

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	pdb "github.com/cockroachdb/pebble/v2"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// creatorID is what Pebble wants to know of stores that share tables which they
// have made; none is ever shared here. It is stored with the first adoption and
// cannot change.
const creatorID = 1

// Adopt has Pebble ingest the tables as external ones: it notes their names and
// bounds, one virtual table for each part, and gives the group one moment. Of a
// group each table lands on the lowest level that has nothing in its bounds, the
// next group's above it. Which level that is follows from bounds alone, unless a
// part lies within that of an older table: then Pebble looks for rows in it.
//
// A table of the store's own that reaches over a part is split there, and none that
// is written afterwards does so, see endOf.
//
// Parts are cleared by excising them from the levels, not by a range deletion:
// that would stay between what was there and the groups, push the groups up into
// level 0, and so have all of them compacted, that is read, at once.
func (s *store) Adopt(ctx context.Context, groups [][]kv.Table) error {
	if err := s.check(); err != nil {
		return err
	}
	var all [][]pdb.ExternalFile
	var spans []kv.Span
	for _, g := range groups {
		files, err := externalFiles(g)
		if err != nil {
			return err
		}
		if len(files) > 0 {
			all = append(all, files)
		}
		for _, f := range files {
			spans = append(spans, kv.Span{Lower: f.StartKey, Upper: f.EndKey})
		}
	}
	if err := s.Clear(ctx, spans); err != nil || len(all) == 0 {
		return err
	}
	return s.background("adopt tables", func() error {
		if err := s.db.SetCreatorID(creatorID); err != nil {
			return err
		}
		s.noteBounds(spans...)
		for _, files := range all {
			if err := interrupted(ctx); err != nil {
				return err
			}
			if _, err := s.db.IngestExternalFiles(ctx, files); err != nil {
				return cmp.Or(interrupted(ctx), err)
			}
		}
		return nil
	})
}

// externalFiles returns what Pebble takes for a group of tables.
func externalFiles(group []kv.Table) ([]pdb.ExternalFile, error) {
	var files []pdb.ExternalFile
	for _, t := range group {
		for _, p := range t.Parts {
			if err := checkSpan(p.Span); err != nil {
				return nil, err
			}
			files = append(files, pdb.ExternalFile{
				ObjName: t.Name, Size: uint64(max(p.Bytes, 1)), StartKey: p.Lower, EndKey: p.Upper, HasPointKey: true,
			})
		}
	}
	slices.SortFunc(files, func(a, b pdb.ExternalFile) int { return bytes.Compare(a.StartKey, b.StartKey) })
	for i := 1; i < len(files); i++ {
		if bytes.Compare(files[i-1].EndKey, files[i].StartKey) > 0 {
			return nil, tine.Errorf(tine.KindInvalid, "tables %s and %s of one group overlap", files[i-1].ObjName, files[i].ObjName)
		}
	}
	return files, nil
}

// checkSpan refuses bounds that Pebble cannot cut at.
func checkSpan(s kv.Span) error {
	for _, k := range [][]byte{s.Lower, s.Upper} {
		if split(k) != len(k) {
			return tine.Errorf(tine.KindInvalid, "the bound %x is longer than the prefix of a row", k)
		}
	}
	if bytes.Compare(s.Lower, s.Upper) >= 0 {
		return tine.Errorf(tine.KindInvalid, "the range [%x, %x) is empty", s.Lower, s.Upper)
	}
	return nil
}

func interrupted(ctx context.Context) error {
	if ctx.Err() != nil {
		return tine.Errorf(tine.KindInterrupted, "%w", context.Cause(ctx))
	}
	return nil
}

// Clear excises the ranges in which there is something.
func (s *store) Clear(ctx context.Context, spans []kv.Span) error {
	if err := s.check(); err != nil {
		return err
	}
	for _, sp := range spans {
		if err := checkSpan(sp); err != nil {
			return err
		}
	}
	return s.background("clear ranges", func() error {
		for _, sp := range s.occupied(merged(spans)) {
			if err := interrupted(ctx); err != nil {
				return err
			}
			err := s.db.Excise(ctx, pdb.KeyRange{Start: sp.Lower, End: sp.Upper})
			s.changes.Add(1)
			if err != nil {
				return cmp.Or(interrupted(ctx), err)
			}
		}
		return nil
	})
}

// merged returns the spans sorted, those that touch as one.
func merged(spans []kv.Span) []kv.Span {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b kv.Span) int { return bytes.Compare(a.Lower, b.Lower) })
	out := spans[:0]
	for _, sp := range spans {
		if n := len(out); n > 0 && bytes.Compare(sp.Lower, out[n-1].Upper) <= 0 {
			if bytes.Compare(sp.Upper, out[n-1].Upper) > 0 {
				out[n-1].Upper = sp.Upper
			}
			continue
		}
		out = append(out, sp)
	}
	return out
}

// occupied returns the spans that have anything in them that adoption could meet:
// rows, or a table outside, of which only the bounds are looked at, for it may not
// be readable. What deletions have left behind in local files does no harm.
func (s *store) occupied(spans []kv.Span) []kv.Span {
	if len(spans) == 0 {
		return nil
	}
	tables, err := s.external()
	if err != nil {
		return spans
	}
	var taken []kv.Span
	for _, t := range tables {
		for _, p := range t.Parts {
			taken = append(taken, p.Span)
		}
	}
	taken = merged(taken)
	var out []kv.Span
	for _, sp := range spans {
		i, _ := slices.BinarySearchFunc(taken, sp.Lower, func(t kv.Span, k []byte) int {
			return cmp.Or(bytes.Compare(t.Upper, k), -1) // the first that ends after k
		})
		if i < len(taken) && bytes.Compare(taken[i].Lower, sp.Upper) < 0 || s.hasRows(sp) {
			out = append(out, sp)
		}
	}
	return out
}

// hasRows reports whether a span has rows, or may have some.
func (s *store) hasRows(sp kv.Span) bool {
	it, err := s.db.NewIterWithContext(s.outside.reading, &pdb.IterOptions{KeyTypes: pdb.IterKeyTypePointsOnly, LowerBound: sp.Lower, UpperBound: sp.Upper})
	if err != nil {
		return true
	}
	found := it.First()
	return it.Close() != nil || found
}

// Adopted lists the tables outside.
func (s *store) Adopted() (tables []kv.Table, err error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	err = s.background("list adopted tables", func() (err error) {
		tables, err = s.external()
		return err
	})
	if err != nil {
		return nil, err // an abandoned call may still write to tables
	}
	return tables, nil
}

// noteBounds tells the tables that are written from now on where those outside lie, and will.
func (s *store) noteBounds(more ...kv.Span) {
	tables, err := s.external()
	if err != nil {
		return // the bounds stay as they were
	}
	for _, t := range tables {
		for _, p := range t.Parts {
			more = append(more, p.Span)
		}
	}
	s.outside.note(more)
}

// external returns the tables outside by name, with the parts that are in use.
func (s *store) external() ([]kv.Table, error) {
	names := map[uint64]string{}
	parts := map[string][]kv.Part{}
	levels, err := s.db.SSTables() // first: what it returns can only be fewer than are known afterwards
	if err != nil {
		return nil, err
	}
	for _, meta := range s.db.ObjProvider().List() {
		if meta.IsExternal() {
			names[uint64(meta.DiskFileNum)] = meta.Remote.CustomObjectName
			parts[meta.Remote.CustomObjectName] = nil
		}
	}
	for _, level := range levels {
		for _, t := range level {
			if name, ok := names[uint64(t.BackingSSTNum)]; ok {
				sp := kv.Span{Lower: bytes.Clone(t.Smallest.UserKey), Upper: bytes.Clone(t.Largest.UserKey)}
				if !t.Largest.IsExclusiveSentinel() {
					sp.Upper = record.PrefixEnd(sp.Upper)
				}
				parts[name] = append(parts[name], kv.Part{Span: sp, Bytes: int64(t.Size)})
			}
		}
	}
	out := make([]kv.Table, 0, len(parts))
	for name, p := range parts {
		slices.SortFunc(p, func(a, b kv.Part) int { return bytes.Compare(a.Lower, b.Lower) })
		out = append(out, kv.Table{Name: name, Parts: p})
	}
	slices.SortFunc(out, func(a, b kv.Table) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Localize has Pebble rewrite the external tables of the range, one at a time.
func (s *store) Localize(ctx context.Context, lower, upper []byte) error {
	if err := s.check(); err != nil {
		return err
	}
	if bytes.Compare(lower, upper) >= 0 {
		return nil
	}
	return s.background("localize rows", func() error {
		defer s.noteBounds()
		return s.watched(ctx, lower, upper, func(ctx context.Context) error {
			return s.db.Download(ctx, []pdb.DownloadSpan{{StartKey: bytes.Clone(lower), EndKey: bytes.Clone(upper)}})
		})
	})
}

// watched makes a call that waits for background work in a range. If that cannot read a
// table there, the call ends with the table's error.
func (s *store) watched(ctx context.Context, lower, upper []byte, call func(context.Context) error) error {
	tables, err := s.external()
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, t := range tables {
		for _, p := range t.Parts {
			if bytes.Compare(p.Lower, upper) < 0 && bytes.Compare(lower, p.Upper) < 0 {
				names[t.Name] = true
			}
		}
	}
	inner, done := s.outside.watch(ctx, names)
	defer done()
	if err = call(inner); err == nil || inner.Err() == nil {
		return err
	}
	return cmp.Or(interrupted(ctx), context.Cause(inner))
}
