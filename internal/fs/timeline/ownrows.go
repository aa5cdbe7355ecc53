package timeline

import (
	"iter"
	"maps"
	"slices"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/stratum"
)

// OwnRows reads the rows of a line itself, without what it inherits, as of the
// moment of a Survey. It needs no lock: the layers that it looks into are
// sealed, and its snapshot is as of the moment at which they were taken.
type OwnRows struct{ r *Reader }

// Versions returns all versions of a row that the line has, oldest first.
func (o *OwnRows) Versions(k record.Logical) ([]stratum.Version, error) { return o.r.versions(k) }

// Keys yields the keys with a prefix of which the line has a version born in the
// interval, some of them more than once. An error ends it.
func (o *OwnRows) Keys(p record.Logical, born kv.Born) iter.Seq2[record.Logical, error] {
	return func(yield func(record.Logical, error) bool) {
		for _, y := range o.r.own() {
			if y.epoch <= born.After || y.epoch > born.UpTo {
				continue
			}
			it := y.rows.Iter()
			for ok := it.Seek(p); ok && it.Key() < p.End(); ok = it.Next() {
				if !yield(it.Key(), nil) {
					return
				}
			}
		}
		if o.r.hops[0].bare() {
			return
		}
		for _, s := range o.r.hops[0].strata {
			for k, err := range s.Keys(o.r.snapshot(), p, born) {
				if !yield(k, err) || err != nil {
					return
				}
			}
		}
	}
}

// Each calls fn for every row with a prefix of which the line has any version,
// with all of its versions, oldest first. It reads every stratum once from end
// to end.
func (o *OwnRows) Each(p record.Logical, fn func(record.Logical, []stratum.Version) error) error {
	pending := map[record.Logical]struct{}{} // rows of layers that no stratum has shown yet
	for _, y := range o.r.own() {
		for k := range y.frees {
			pending[k] = struct{}{}
		}
		it := y.rows.Iter()
		for ok := it.Seek(p); ok && it.Key() < p.End(); ok = it.Next() {
			pending[it.Key()] = struct{}{}
		}
	}
	visit := func(k record.Logical, vs []stratum.Version) error {
		for _, y := range o.r.own() {
			vs = y.amend(k, vs)
		}
		delete(pending, k)
		if len(vs) == 0 {
			return nil
		}
		return fn(k, vs)
	}
	if h := &o.r.hops[0]; !h.bare() {
		if err := stratum.EachRow(o.r.snapshot(), h.strata, p, visit); err != nil {
			return err
		}
	}
	for _, k := range slices.Sorted(maps.Keys(pending)) {
		if k.Table() == p.Table() {
			if err := visit(k, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
