package timeline

import (
	"slices"
	"sync/atomic"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/stratum"
	"tine.dev/tine/internal/tine"
)

// View is a line as it is at an epoch: frozen, or the head, which moves.
type View struct {
	line  *line
	epoch tine.Epoch // tine.Head for the head
	path  atomic.Pointer[path]
}

// path is what a view's look-ups ask, in order, as of a version of the tree's
// topology. Limits are the view's epoch or a branch epoch, never the range of
// a stratum: rows move between the strata of one line (folding), and a path
// collected before the move must find them after it.
type path struct {
	version uint64
	hops    []hop
}

type hop struct {
	line   *line
	strata []*stratum.Stratum // newest first
	limit  tine.Epoch
	stored bool // the line had rows when the path was made; it has for ever then
}

// bare reports that no row of the hop's line has ever been committed, so that
// its strata need not be asked: a fork costs its readers nothing until it is
// written.
func (h *hop) bare() bool { return !h.stored && h.line.bare() }

// hops returns the view's path, computing it when the topology has changed.
func (v *View) hops() []hop {
	t := v.line.tree
	if p := v.path.Load(); p != nil && p.version == t.version.Load() {
		return p.hops
	}
	t.topo.RLock()
	defer t.topo.RUnlock()
	p := &path{version: t.version.Load()}
	limit := v.epoch
	for l := v.line.root(); l != nil; {
		strata := slices.Clone(l.strata)
		slices.Reverse(strata)
		p.hops = append(p.hops, hop{l, strata, limit, !l.bare()})
		limit = l.branch
		if l.parent == nil {
			break
		}
		l = l.parent.root()
	}
	v.path.Store(p)
	return p.hops
}

// Found is what a look-up gives.
type Found = stratum.Found

// What a look-up finds.
const (
	Nothing   = stratum.Nothing
	Tombstone = stratum.Tombstone
	Value     = stratum.Value
)

// Reader looks up rows of a view. It is made for one operation, with line.mu
// held at least for reading until close.
//
// The order in which it collects what it asks makes it safe against
// everything that runs beside it (I11): first the path, then the layers, then the
// snapshot. A layer is dropped only after it is applied, so a row is in a
// layer that the Reader holds or in the snapshot that it takes later. A
// stratum leaves the path only after its rows were moved, so a later snapshot
// has them where the path leads. A filter is only as wide as the rows were when it
// is asked, and the snapshot has its moment at its first read: if a fold moved rows
// between the two, what was looked up is looked up again.
type Reader struct {
	view   *View
	hops   []hop
	layers []held // of the hops that have some, nearest first
	open   *layer // the line's own open layer; nil for frozen views
	snap   kv.Snapshot
	folds  uint64 // see tree.folds, as it was before the first filter was asked
	key    []byte
}

// held are the layers of one hop, oldest first.
type held struct {
	hop    int
	layers []*layer
}

// reader returns a Reader of the view; the caller holds line.mu.
func (v *View) reader() *Reader {
	r := &Reader{view: v, hops: v.hops(), folds: v.line.tree.folds.Load()}
	for i := range r.hops {
		if ys := r.hops[i].line.layers(); len(ys) > 0 {
			r.layers = append(r.layers, held{i, ys})
		}
	}
	if l := r.hops[0].line; v.epoch == tine.Head {
		r.open = l.open
	}
	return r
}

func (r *Reader) close() {
	if r.snap != nil {
		r.snap.Close()
		r.snap = nil
	}
}

func (r *Reader) snapshot() kv.Snapshot {
	if r.snap == nil {
		r.snap = r.view.line.tree.engine.Rows.Snapshot()
	}
	return r.snap
}

// Get finds the newest version of the row in the view. The value is a copy.
func (r *Reader) Get(l record.Logical) (Found, error) { return r.at(l, tine.Head) }

// at finds the newest version not after limit, a restriction that holds on
// every hop: it is how the version under a version is found.
func (r *Reader) at(l record.Logical, limit tine.Epoch) (Found, error) {
	fresh := r.snap == nil
	f, err := r.walk(l, limit)
	if err == nil && fresh && r.folded() {
		return r.walk(l, limit)
	}
	return f, err
}

// folded reports that the snapshot may be younger than what filters have said.
func (r *Reader) folded() bool {
	return r.snap != nil && (r.folds%2 == 1 || r.view.line.tree.folds.Load() != r.folds)
}

func (r *Reader) walk(l record.Logical, limit tine.Epoch) (Found, error) {
	if r.open != nil && r.open.epoch <= limit {
		if e, ok := r.open.rows.Get(l); ok {
			return e.found(r.open.epoch), nil
		}
	}
	hash := stratum.HashOf(r.view.line.tree.engine.seed, l)
	above := r.layers // those of this hop and the ones behind it
	for i := range r.hops {
		h := &r.hops[i]
		upTo := min(limit, h.limit)
		if len(above) > 0 && above[0].hop == i {
			if f, ok := above[0].newest(l, upTo); ok {
				return f, nil
			}
			above = above[1:]
		}
		if h.bare() {
			continue
		}
		for _, s := range h.strata {
			if s.Lacks(hash) {
				continue
			}
			r.key = record.AppendKey(r.key[:0], s.ID, l)
			v, birth, ok, err := r.snapshot().Newest(r.key, upTo)
			if err != nil {
				return Found{}, err
			}
			if ok {
				return stratum.Decode(v, birth).Found(), nil
			}
		}
	}
	return Found{}, nil
}

// newest finds the newest version not after upTo in the layers.
func (y *held) newest(l record.Logical, upTo tine.Epoch) (Found, bool) {
	for _, y := range slices.Backward(y.layers) {
		if y.epoch > upTo {
			continue
		}
		if e, ok := y.rows.Get(l); ok {
			return e.found(y.epoch), true
		}
	}
	return Found{}, false
}

// own returns the layers of the reader's own line, oldest first.
func (r *Reader) own() []*layer { return r.layersOf(0) }

// layersOf returns the layers of one hop, oldest first.
func (r *Reader) layersOf(hop int) []*layer {
	for _, y := range r.layers {
		if y.hop == hop {
			return y.layers
		}
	}
	return nil
}

func (e *entry) found(birth tine.Epoch) Found {
	switch {
	case e.gone:
		return Found{}
	case e.tomb:
		return Found{Birth: birth, Kind: Tombstone}
	}
	return Found{Val: e.val, Birth: birth, Kind: Value}
}

// bare reports that no row of the line has ever been committed.
func (l *line) bare() bool { return !l.state.stored.Load() }

// versions returns all versions of the row in the reader's own line, oldest
// first, with what its layers have changed.
func (r *Reader) versions(l record.Logical) ([]stratum.Version, error) {
	var vs []stratum.Version
	if h := &r.hops[0]; !h.bare() {
		var err error
		if vs, err = stratum.Versions(r.snapshot(), h.strata, l); err != nil {
			return nil, err
		}
	}
	for _, y := range r.own() {
		vs = y.amend(l, vs)
	}
	if r.open != nil {
		vs = r.open.amend(l, vs)
	}
	return vs, nil
}

// amend applies what the layer does to the versions of one row.
func (y *layer) amend(l record.Logical, vs []stratum.Version) []stratum.Version {
	for _, birth := range y.frees[l] {
		vs = slices.DeleteFunc(vs, func(v stratum.Version) bool { return v.Birth == birth })
	}
	e, ok := y.rows.Get(l)
	if !ok {
		return vs
	}
	vs = slices.DeleteFunc(vs, func(v stratum.Version) bool { return v.Birth == e.replaces || v.Birth == y.epoch })
	if !e.gone {
		vs = append(vs, stratum.Version{Birth: y.epoch, Val: e.val, Tomb: e.tomb})
	}
	return vs
}

// Scan calls fn for the newest version of each row whose logical key is in
// [from, end), in order, tombstones left out, until fn returns false.
func (r *Reader) Scan(from, end record.Logical, fn func(record.Logical, Found) (bool, error)) error {
	fresh := r.snap == nil
	sources, err := r.sources(from, end)
	if err == nil && fresh && r.folded() {
		closeAll(sources)
		sources, err = r.sources(from, end)
	}
	defer closeAll(sources)
	if err != nil {
		return err
	}
	return stratum.Merge(sources, func(k record.Logical, f Found) (bool, error) {
		if f.Kind != Value {
			return true, nil
		}
		return fn(k, f)
	})
}

func closeAll(sources []source) {
	for _, s := range sources {
		s.Close()
	}
}

// sources returns what a scan merges, newest first; with an error those that there
// are until then.
func (r *Reader) sources(from, end record.Logical) (all []source, err error) {
	add := func(s source) { all = append(all, s) }
	group := stratum.Group(from, end)
	hash := stratum.HashOf(r.view.line.tree.engine.seed, group)
	above := r.layers
	if r.open != nil {
		add(newLayerSource(r.open, from, end))
	}
	for i := range r.hops {
		h := &r.hops[i]
		if len(above) > 0 && above[0].hop == i {
			for _, y := range slices.Backward(above[0].layers) {
				if y.epoch <= h.limit {
					add(newLayerSource(y, from, end))
				}
			}
			above = above[1:]
		}
		if h.bare() {
			continue
		}
		for _, s := range h.strata {
			if group != "" && s.Lacks(hash) {
				continue
			}
			src, err := s.Cursor(r.snapshot(), from, end, h.limit)
			if err != nil {
				return all, err
			}
			add(src)
		}
	}
	return all, nil
}
