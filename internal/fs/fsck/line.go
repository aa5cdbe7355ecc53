package fsck

import (
	"slices"
	"sort"

	"tine.dev/tine/internal/fs/fsck/rowform"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// row is one row of a line with all its versions.
type row struct {
	line *line
	key  record.Logical
	vers []one // oldest first
}

// one is a version of a row.
type one struct {
	birth   tine.Epoch
	stratum int // index in the line's strata
	val     []byte
	err     error // why it cannot be decoded
	xs      []record.Extent
}

func (o *one) tomb() bool { return rowform.IsTombstone(o.val) }

// full is the key of the version.
func (r *row) full(o *one) []byte { return record.Key(r.line.rec.Strata[o.stratum], r.key, o.birth) }

// checkLine reads all rows of a line, each with all its versions.
func (w *world) checkLine(l *line) error {
	m, err := w.newMerger([]hop{{l, kv.Born{After: 0, UpTo: ^tine.Epoch(0)}}}, "")
	if err != nil {
		return err
	}
	defer m.close()
	for m.next() {
		w.rep.tick("rows", "rows", int64(len(m.vers)))
		w.rep.Stats.Rows += int64(len(m.vers))
		l.rows += int64(len(m.vers))
		r := &row{line: l, key: record.Logical(m.key)}
		good, known := rowform.Shape(r.key)
		for _, v := range m.vers {
			o := one{birth: v.birth, stratum: len(l.rec.Strata) - 1 - v.source, val: m.value(v)}
			switch {
			case !known:
				w.add("R009", place{line: l, key: r.full(&o)}, "table %#x", byte(r.key.Table()))
			case !good || !rowform.FileTable(r.key.Table()):
				key := r.full(&o)
				w.add("R001", place{line: l, key: key}, "a %s row with a key of %d bytes", rowform.TableName(r.key.Table()), len(key))
				w.mendIn(l.tree, func(f *repairer) { f.batchDelete(key, "removed it") })
			default:
				r.vers = append(r.vers, o)
			}
		}
		if len(r.vers) > 0 {
			w.checkRow(r)
		}
		if w.rep.ticks%4096 == 0 && w.ended() != nil {
			return nil
		}
	}
	return m.err()
}

// checkRow checks the versions of one row.
func (w *world) checkRow(r *row) {
	switch t := r.line.tree; r.key.Table() {
	case record.TableInode:
		if ino := r.key.Ino(); ino <= tine.MaxIno {
			t.maxIno = max(t.maxIno, ino)
		}
	case record.TableCookie:
		t.maxCookie = max(t.maxCookie, r.key.Number())
	}
	w.checkOrder(r)
	for i := range r.vers {
		w.checkVersion(r, &r.vers[i])
	}
	if r.key.Table() == record.TableChunk {
		xs := make([][]record.Extent, len(r.vers))
		for i := range r.vers {
			xs[i] = r.vers[i].xs
		}
		w.nameChunk(r.line, xs)
	}
	w.checkNeeded(r)
}

// checkOrder sorts the versions by birth. A look-up asks the newest stratum
// first and believes the first version that it finds.
func (w *world) checkOrder(r *row) {
	slices.SortStableFunc(r.vers, func(a, b one) int {
		if a.birth != b.birth {
			if a.birth < b.birth {
				return -1
			}
			return 1
		}
		return a.stratum - b.stratum
	})
	for i := 1; i < len(r.vers); {
		if r.line.tree.broken {
			return
		}
		a, b := &r.vers[i-1], &r.vers[i]
		here := place{line: r.line, key: r.full(a)}
		switch {
		case a.birth == b.birth:
			w.add("R007", here, "the %s row born at %s stands in strata %d and %d", rowform.TableName(r.key.Table()), a.birth, a.stratum, b.stratum)
			key := r.full(a)
			w.mendIn(r.line.tree, func(f *repairer) { f.batchDelete(key, "removed it") })
			r.vers = slices.Delete(r.vers, i-1, i)
			continue
		case a.stratum > b.stratum:
			w.add("R008", here, "the %s row born at %s hides the one born at %s", rowform.TableName(r.key.Table()), a.birth, b.birth)
			from, to, val := r.full(b), record.Key(r.line.rec.Strata[a.stratum], r.key, b.birth), slices.Clone(b.val)
			w.mendIn(r.line.tree, func(f *repairer) { f.batchMove(from, to, val) })
		}
		i++
	}
}

// checkVersion checks one version by itself.
func (w *world) checkVersion(r *row, o *one) {
	l := r.line
	if !l.tree.broken && (o.birth < l.rec.First || o.birth > l.rec.Epoch) {
		w.add("R006", place{line: l, key: r.full(o)}, "the %s row was born at %s; timeline %s has %s to %s",
			rowform.TableName(r.key.Table()), o.birth, l.id, l.rec.First, l.rec.Epoch)
		if birth := o.birth; birth > l.rec.Epoch && birth < tine.Head {
			w.mendIn(r.line.tree, func(f *repairer) { f.raiseEpoch(l, birth) })
		}
	}
	if o.tomb() {
		return
	}
	if o.err = rowform.Decodes(r.key.Table(), o.val); o.err != nil {
		w.undecodableVersion(r, o)
		return
	}
	if r.key.Table() != record.TableChunk {
		return
	}
	c, _ := record.DecodeChunk(o.val)
	o.xs = c.Extents
	w.checkExtents(r, o)
}

func (w *world) undecodableVersion(r *row, o *one) {
	here := w.placeOf(r, o)
	if tine.KindOf(o.err) == tine.KindVersion {
		w.newer = true
		w.add("R003", here, "%v", o.err)
		return
	}
	w.add("R002", here, "the %s row born at %s: %v", rowform.TableName(r.key.Table()), o.birth, o.err)
	if r.key.Table() == record.TableChunk {
		w.mendIn(r.line.tree, func(f *repairer) { f.loseChunk(r, o) })
	} else if o.birth > r.line.floor() {
		key := r.full(o)
		w.mendIn(r.line.tree, func(f *repairer) { f.dropVersion(r, o, key) })
	}
}

// placeOf says where a version shows: in the first view that has it.
func (w *world) placeOf(r *row, o *one) place {
	p := place{line: r.line, key: r.full(o), ino: r.key.Ino()}
	switch r.key.Table() {
	case record.TableDentry:
		p.in, p.name = r.key.Ino(), r.key.Name()
	case record.TableCounters:
		p.ino = 0
	}
	if r.line.broken {
		return p
	}
	for _, e := range r.line.pins {
		if e >= o.birth {
			p.view = &view{r.line, e}
			break
		}
	}
	return p
}

// checkExtents checks that the bytes which a chunk names are there.
func (w *world) checkExtents(r *row, o *one) {
	told := map[string]bool{}
	tell := func(code, format string, args ...any) {
		if !told[code] {
			told[code] = true
			w.add(code, w.placeOf(r, o), format, args...)
		}
	}
	at := int64(r.key.Number()) * tine.ChunkBytes
	lost := false
	for _, x := range o.xs {
		g := w.segs[x.Segment]
		switch s := (span{x.Off, x.Off + x.Len}); {
		case isLost(x):
			tell("D009", "%d bytes at %d", x.Len, at+x.Pos)
		case g == nil || !g.has:
			if w.salvageable(x.Segment) {
				w.add("S014", w.placeOf(r, o), "segment %s", x.Segment)
				w.mendIn(r.line.tree, func(f *repairer) { f.adoptFile(r.line, x) })
				break
			}
			tell("D005", "%d bytes at %d were in segment %s", x.Len, at+x.Pos, x.Segment)
			lost = true
		case g.tree != r.line.tree && r.line.tree.broken:
		case g.tree != r.line.tree:
			tell("D010", "%d bytes at %d are in segment %s of another tree, %s", x.Len, at+x.Pos, x.Segment, g.tree.id)
		case s.to > g.rec.End:
			tell("D006", "bytes %d to %d of segment %s, which ends at %d", s.from, s.to, g.id, g.rec.End)
			lost = true
		case g.lost:
			tell("D005", "%d bytes at %d were in segment %s", x.Len, at+x.Pos, x.Segment)
			lost = true
		case meets(g.bad, s):
			tell("D007", "%d bytes at %d are in segment %s, bytes %d to %d of it", x.Len, at+x.Pos, g.id, s.from, s.to)
			lost = !g.damaged // a file that is rebuilt is looked at again
		case meets(g.gone, s):
			tell("D008", "%d bytes at %d are in segment %s, bytes %d to %d of it", x.Len, at+x.Pos, g.id, s.from, s.to)
			lost = true
		case g.line != nil && !r.line.descends(g.line):
			tell("D010", "%d bytes at %d are in segment %s of timeline %s, from which this one does not descend", x.Len, at+x.Pos, g.id, g.line.id)
		}
	}
	if lost {
		w.mendIn(r.line.tree, func(f *repairer) { f.loseExtents(r, o) })
	}
}

// descends reports that the other is the line itself or an ancestor.
func (l *line) descends(other *line) bool {
	for n := l; n != nil; n = n.parent {
		if n == other {
			return true
		}
	}
	return false
}

// needed reports whether any pin shows a version that lives from birth until
// the next one's.
func (l *line) needed(birth, death tine.Epoch) bool {
	i := sort.Search(len(l.pins), func(i int) bool { return l.pins[i] >= birth })
	return i < len(l.pins) && l.pins[i] < death
}

// never is later than every pin.
const never = tine.Head + 1

// checkNeeded finds versions that nothing needs, and tombstones over nothing.
func (w *world) checkNeeded(r *row) {
	l := r.line
	for i := range r.vers {
		death := never
		if i+1 < len(r.vers) {
			death = r.vers[i+1].birth
		}
		o := &r.vers[i]
		if l.needed(o.birth, death) {
			continue
		}
		if l.tasks > 0 {
			w.rep.Stats.Waiting++
			continue
		}
		if l.head() == nil && o.birth > l.floor() {
			w.unheld(l)
			continue
		}
		if l.tree.broken {
			continue // who holds what is in doubt
		}
		key := r.full(o)
		w.add("L001", place{line: l, key: key}, "a %s row born at %s", rowform.TableName(r.key.Table()), o.birth)
		w.mendIn(r.line.tree, func(f *repairer) { f.freeVersion(r, o) })
	}
	if lowest := &r.vers[0]; lowest.tomb() && l.tasks == 0 && !l.unheld && !l.tree.broken {
		below := false
		if l.parent != nil {
			var err error
			if _, _, below, err = w.raw(view{l.parent, l.rec.Branch}, r.key); err != nil {
				w.fail(place{line: l}, err)
				return
			}
		}
		if !below {
			key := r.full(lowest)
			w.add("L002", place{line: l, key: key}, "of a %s row, born at %s", rowform.TableName(r.key.Table()), lowest.birth)
			w.mendIn(r.line.tree, func(f *repairer) { f.batchDelete(key, "removed it") })
		}
	}
}

// strayRows finds rows of files that no line has.
func (w *world) strayRows() {
	if !w.whole() {
		return
	}
	for _, s := range w.owners {
		if w.strata[s] != nil {
			continue
		}
		w.add("R004", place{key: s[:]}, "stratum %s", s)
		w.mend(func(f *repairer) { f.dropStratum(s) })
	}
}
