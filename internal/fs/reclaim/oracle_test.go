package reclaim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// This file is a tree of lines in the smallest form that has all that the
// rules speak of: keys with versions, pins, children, drops that run in steps
// beside everything else, and lines that continue others. It frees by the
// rules of this package and by nothing else; tree_test.go judges it by looking
// at what every head and checkpoint shows.

const (
	oracleKeys  = 5
	oracleChunk = 24 // bytes of address space of a key
)

type oversion struct {
	birth tine.Epoch
	xs    []record.Extent
	tomb  bool
}

type oline struct {
	id          int
	parent      *oline
	branch      tine.Epoch
	epoch       tine.Epoch
	head        bool
	rows        map[int][]oversion
	checkpoints []tine.Epoch
	children    []*oline
	owned       map[tine.SegmentID]bool
	segment     tine.SegmentID // that it writes to
	tasks       int
}

func (l *oline) pins() []tine.Epoch {
	ps := slices.Clone(l.checkpoints)
	for _, c := range l.children {
		ps = append(ps, c.branch)
	}
	slices.Sort(ps)
	ps = slices.Compact(ps)
	if l.head {
		ps = append(ps, tine.Head)
	}
	return ps
}

// floor is the newest epoch whose versions must not be replaced.
func (l *oline) floor() tine.Epoch {
	newest := l.branch
	for _, p := range l.pins() {
		if p < tine.Head {
			newest = max(newest, p)
		}
	}
	return newest
}

func (l *oline) owns(s tine.SegmentID) bool { return l.owned[s] }

type opiece struct{ len, runs int64 }

type otask struct {
	line  *oline
	epoch tine.Epoch
	keys  []int // that are still to be looked at; nil: it has not started
}

type otree struct {
	r       *rand.Rand
	lines   []*oline
	merged  map[*oline]*oline
	disks   map[string]*oline
	made    int
	ends    map[tine.SegmentID]int64
	freed   map[place]bool
	pieces  map[place]*opiece
	tasks   []*otask
	absorbs int
	shared  int
	fault   ofault
	quiet   bool // one line, with many checkpoints: versions lie close
}

// ofault is a deliberate mistake in the rules.
type ofault int

const (
	faultNone       ofault = iota
	faultNeighbours        // a version's bytes go though a neighbour names them
	faultRuns              // a freed version never lets two runs join
	faultInterval          // only the dropped pin's own epoch is looked at
	faultFloor             // pins do not keep versions from being replaced
)

func newOracle(seed uint64) *otree {
	t := &otree{r: rand.New(rand.NewPCG(seed, 7)), quiet: seed%2 == 0, merged: map[*oline]*oline{}, disks: map[string]*oline{},
		ends: map[tine.SegmentID]int64{}, freed: map[place]bool{}, pieces: map[place]*opiece{}}
	l := t.newLine(nil, 0)
	l.head, t.disks["d0"] = true, l
	return t
}

func (t *otree) newLine(parent *oline, branch tine.Epoch) *oline {
	t.made++
	seg := tine.SegmentID{byte(t.made >> 8), byte(t.made)}
	l := &oline{id: t.made, parent: parent, branch: branch, epoch: branch + 1, rows: map[int][]oversion{},
		owned: map[tine.SegmentID]bool{seg: true}, segment: seg}
	t.lines = append(t.lines, l)
	if parent != nil {
		parent.children = append(parent.children, l)
	}
	return l
}

func (t *otree) root(l *oline) *oline {
	for t.merged[l] != nil {
		l = t.merged[l]
	}
	return l
}

// lookup finds what a view shows of a key; nil for nothing.
func lookup(l *oline, at tine.Epoch, key int) []record.Extent {
	for ; l != nil; at, l = l.branch, l.parent {
		for _, v := range slices.Backward(l.rows[key]) {
			if v.birth <= at {
				return v.xs
			}
		}
	}
	return nil
}

// --- freeing -----------------------------------------------------------------

func (t *otree) free(rs []SegRange) {
	for _, r := range rs {
		for o := r.Off; o < r.End(); o++ {
			if t.pieceAt(place{r.Segment, o}) != nil {
				continue // freed by its count
			}
			t.freeByte(place{r.Segment, o})
		}
	}
}

func (t *otree) freeByte(p place) {
	if t.freed[p] {
		panic(fmt.Sprintf("byte %d of %v is freed twice", p.off, p.seg))
	}
	t.freed[p] = true
}

// pieceAt returns the place of the piece that a byte belongs to, or nil.
func (t *otree) pieceAt(p place) *place {
	for at, piece := range t.pieces {
		if at.seg == p.seg && at.off <= p.off && p.off < at.off+piece.len {
			return &at
		}
	}
	return nil
}

// count changes the runs of every piece of the line by what delta says of it.
func (t *otree) count(l *oline, delta func(names func([]record.Extent) bool) int64) {
	for at, p := range t.pieces {
		if !l.owns(at.seg) {
			continue
		}
		p.runs += delta(func(xs []record.Extent) bool { return Names(xs, at.seg, at.off, p.len) })
		if p.runs < 0 {
			panic("a piece has fewer than no runs")
		}
		if p.runs == 0 {
			delete(t.pieces, at)
			for o := at.off; o < at.off+p.len; o++ {
				t.freeByte(place{at.seg, o})
			}
		}
	}
}

func extentsAt(vs []oversion, i int) []record.Extent {
	if i < 0 || i >= len(vs) {
		return nil
	}
	return vs[i].xs
}

func (t *otree) freeVersion(l *oline, key, i int) {
	vs := l.rows[key]
	older, self, newer := extentsAt(vs, i-1), extentsAt(vs, i), extentsAt(vs, i+1)
	if t.fault == faultNeighbours {
		t.free(Released(self, older, nil, l.owns))
	} else {
		t.free(Released(self, older, newer, l.owns))
	}
	t.count(l, func(names func([]record.Extent) bool) int64 {
		if t.fault == faultRuns && !names(self) {
			return 0
		}
		return RunsOnFree(names(older), names(self), names(newer))
	})
	l.rows[key] = slices.Delete(slices.Clone(vs), i, i+1)
	if len(vs) == 1 {
		delete(l.rows, key)
	}
}

// put gives a key of the line's head another value.
func (t *otree) put(l *oline, key int, v oversion) {
	vs := l.rows[key]
	v.birth = l.epoch
	floor := l.floor()
	if t.fault == faultFloor {
		floor = l.branch
	}
	n := len(vs)
	if n > 0 && vs[n-1].birth > floor {
		old, older := vs[n-1].xs, extentsAt(vs, n-2)
		t.free(Released(old, older, v.xs, l.owns))
		t.count(l, func(names func([]record.Extent) bool) int64 {
			return RunsOnReplace(names(older), names(old), names(v.xs))
		})
		l.rows[key] = append(slices.Clone(vs[:n-1]), v)
	} else {
		older := extentsAt(vs, n-1)
		t.count(l, func(names func([]record.Extent) bool) int64 { return RunsOnAdd(names(older), names(v.xs)) })
		l.rows[key] = append(slices.Clone(vs), v)
	}
	t.dropTombstones(l, key)
}

// dropTombstones removes a key's lowest tombstones that have nothing below.
func (t *otree) dropTombstones(l *oline, key int) {
	for vs := l.rows[key]; len(vs) > 0 && vs[0].tomb && !inherits(l, key); vs = l.rows[key] {
		t.freeVersion(l, key, 0)
	}
}

// inherits reports whether anything, a tombstone included, lies below a line.
func inherits(l *oline, key int) bool {
	for at, p := l.branch, l.parent; p != nil; at, p = p.branch, p.parent {
		for _, v := range p.rows[key] {
			if v.birth <= at {
				return true
			}
		}
	}
	return false
}

// drop notes that a pin was given back by one holder.
func (t *otree) drop(l *oline, p tine.Epoch) {
	l = t.root(l)
	if slices.Contains(l.pins(), p) {
		return
	}
	l.tasks++
	t.tasks = append(t.tasks, &otask{line: l, epoch: p})
}

// work runs a part of the oldest drop; crash makes it start over.
func (t *otree) work(crash bool) {
	k := t.tasks[0]
	l := t.root(k.line)
	pins := l.pins()
	if k.keys == nil || crash {
		k.keys = slices.Collect(maps.Keys(l.rows))
	}
	if len(pins) > 0 && !slices.Contains(pins, k.epoch) && len(k.keys) > 0 {
		after, upTo := DropInterval(pins, k.epoch)
		if t.fault == faultInterval {
			after = max(after, upTo-1)
		}
		t.freeBorn(l, k.keys[0], pins, after, upTo)
		k.keys = k.keys[1:]
		return
	}
	t.tasks = t.tasks[1:]
	if l.tasks--; l.tasks == 0 && len(pins) == 0 {
		t.remove(l)
	}
}

func (t *otree) freeBorn(l *oline, key int, pins []tine.Epoch, after, upTo tine.Epoch) {
	for i := 0; i < len(l.rows[key]); {
		vs := l.rows[key]
		death := Forever
		if i+1 < len(vs) {
			death = vs[i+1].birth
		}
		if b := vs[i].birth; b > after && b <= upTo && !Needed(b, death, pins) {
			t.freeVersion(l, key, i)
		} else {
			i++
		}
	}
	t.dropTombstones(l, key)
}

// remove takes away a line that nothing holds, with all its segments.
func (t *otree) remove(l *oline) {
	t.lines = slices.DeleteFunc(t.lines, func(x *oline) bool { return x == l })
	for seg := range l.owned {
		for o := range t.ends[seg] {
			t.freed[place{seg, o}] = true
		}
		maps.DeleteFunc(t.pieces, func(p place, _ *opiece) bool { return p.seg == seg })
	}
	if p := l.parent; p != nil {
		p.children = slices.DeleteFunc(p.children, func(x *oline) bool { return x == l })
		t.drop(p, l.branch)
	}
}

// absorb lets a child continue a line that has no head.
func (t *otree) absorb(l *oline) {
	pins := l.pins()
	if l.head || l.tasks > 0 || len(pins) == 0 {
		return
	}
	p := pins[len(pins)-1]
	var heirs []*oline
	for _, c := range l.children {
		if c.branch == p {
			heirs = append(heirs, c)
		}
	}
	if len(heirs) == 0 {
		return
	}
	c := heirs[t.r.IntN(len(heirs))]
	t.absorbs++
	for key, vs := range c.rows {
		l.rows[key] = append(slices.Clone(l.rows[key]), vs...)
	}
	maps.Copy(l.owned, c.owned)
	l.children = slices.DeleteFunc(l.children, func(x *oline) bool { return x == c })
	for _, g := range c.children {
		g.parent = l
	}
	l.children = append(l.children, c.children...)
	l.checkpoints = append(l.checkpoints, c.checkpoints...)
	l.head, l.epoch, l.segment, l.tasks = c.head, c.epoch, c.segment, c.tasks
	t.merged[c] = l
	t.lines = slices.DeleteFunc(t.lines, func(x *oline) bool { return x == c })
	for name, d := range t.disks {
		if d == c {
			t.disks[name] = l
		}
	}
	for key := range maps.Clone(l.rows) {
		t.dropTombstones(l, key)
	}
	t.drop(l, p)
}
