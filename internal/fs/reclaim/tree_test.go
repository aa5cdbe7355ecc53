package reclaim

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

var (
	flagSeed  = flag.Uint64("reclaim.seed", 1, "first seed of TestTreesAgainstWhatIsShown")
	flagSeeds = flag.Uint64("reclaim.seeds", 40, "how many seeds")
	flagSteps = flag.Int("reclaim.steps", 300, "steps with each seed")
)

// --- what users do -----------------------------------------------------------

func cutExtents(xs []record.Extent, from, to int64) []record.Extent {
	var out []record.Extent
	for _, x := range xs {
		if x.Pos < from {
			head := x
			head.Len = min(x.End(), from) - x.Pos
			out = append(out, head)
		}
		if x.End() > to {
			tail := x
			tail.Pos = max(x.Pos, to)
			tail.Off, tail.Len = x.Off+tail.Pos-x.Pos, x.End()-tail.Pos
			out = append(out, tail)
		}
	}
	return out
}

func (t *otree) part() (from, to int64) {
	from = t.r.Int64N(oracleChunk)
	return from, from + 1 + t.r.Int64N(oracleChunk-from)
}

// fresh makes an extent of bytes that nothing names yet.
func (t *otree) fresh(l *oline, pos, length int64) record.Extent {
	x := record.Extent{Pos: pos, Len: length, Segment: l.segment, Off: t.ends[l.segment], Birth: l.epoch}
	t.ends[l.segment] += length
	return x
}

func (t *otree) write(l *oline, key int) {
	from, to := t.part()
	xs := cutExtents(lookup(l, tine.Head, key), from, to)
	t.put(l, key, oversion{xs: append(xs, t.fresh(l, from, to-from))})
}

func (t *otree) punch(l *oline, key int) {
	from, to := t.part()
	old := lookup(l, tine.Head, key)
	if xs := cutExtents(old, from, to); len(xs) > 0 {
		t.put(l, key, oversion{xs: xs})
	} else if len(old) > 0 {
		t.put(l, key, oversion{tomb: true})
	}
}

// reflink copies a part of one key to a place of another or the same: own
// bytes are shared, others are copied.
func (t *otree) reflink(l *oline, from, to int) {
	lo, hi := t.part()
	if t.r.IntN(2) == 0 {
		lo, hi = 0, oracleChunk
	}
	shift := t.r.Int64N(oracleChunk-(hi-lo)+1) - lo
	var moved []record.Extent
	for _, x := range lookup(l, tine.Head, from) {
		y := x
		y.Pos = max(x.Pos, lo)
		y.Off, y.Len = x.Off+y.Pos-x.Pos, min(x.End(), hi)-y.Pos
		if y.Len <= 0 {
			continue
		}
		if l.owns(y.Segment) {
			t.share(y)
			y.Pos += shift
		} else {
			y = t.fresh(l, y.Pos+shift, y.Len)
		}
		moved = append(moved, y)
	}
	if len(moved) == 0 {
		return
	}
	xs := cutExtents(lookup(l, tine.Head, to), lo+shift, hi+shift)
	t.put(l, to, oversion{xs: append(xs, moved...)})
}

// share makes pieces of the bytes of an extent that are in none yet.
func (t *otree) share(x record.Extent) {
	t.shared++
	for o := x.Off; o < x.Off+x.Len; o++ {
		if t.pieceAt(place{x.Segment, o}) != nil {
			continue
		}
		end := o + 1
		for end < x.Off+x.Len && t.pieceAt(place{x.Segment, end}) == nil {
			end++
		}
		t.pieces[place{x.Segment, o}] = &opiece{len: end - o, runs: 1}
		o = end - 1
	}
}

func (t *otree) checkpoint(l *oline) tine.Epoch {
	l.checkpoints = append(l.checkpoints, l.epoch)
	l.epoch++
	return l.epoch - 1
}

func (t *otree) discardHead(l *oline) {
	l.head = false
	t.drop(l, tine.Head)
}

func (t *otree) pick() (string, *oline) {
	names := slices.Sorted(maps.Keys(t.disks))
	name := names[t.r.IntN(len(names))]
	return name, t.disks[name]
}

func (t *otree) fork(l *oline) {
	at := l.epoch
	if len(l.checkpoints) > 0 && t.r.IntN(2) == 0 {
		at = l.checkpoints[t.r.IntN(len(l.checkpoints))]
	} else {
		l.epoch++
	}
	c := t.newLine(l, at)
	c.head, t.disks[fmt.Sprintf("d%d", t.made)] = true, c
}

func (t *otree) removeCheckpoint() {
	l := t.lines[t.r.IntN(len(t.lines))]
	if len(l.checkpoints) == 0 {
		return
	}
	i := t.r.IntN(len(l.checkpoints))
	e := l.checkpoints[i]
	l.checkpoints = slices.Delete(l.checkpoints, i, i+1)
	t.drop(l, e)
}

func (t *otree) rollback(name string, l *oline) {
	type target struct {
		line *oline
		at   tine.Epoch
	}
	var targets []target
	for x, limit := l, l.epoch; x != nil; limit, x = x.branch, x.parent {
		for _, e := range x.checkpoints {
			if e <= limit {
				targets = append(targets, target{x, e})
			}
		}
	}
	if len(targets) == 0 {
		return
	}
	to := targets[t.r.IntN(len(targets))]
	if t.r.IntN(10) < 7 {
		t.checkpoint(l)
	}
	n := t.newLine(to.line, to.at)
	n.head, t.disks[name] = true, n
	t.discardHead(l)
}

func (t *otree) promote(name string, l *oline) {
	other, fork := t.pick()
	if other == name {
		return
	}
	if t.r.IntN(10) < 7 {
		t.checkpoint(l)
	}
	delete(t.disks, other)
	t.disks[name] = fork
	t.discardHead(l)
}

func (t *otree) step() {
	name, l := t.pick()
	key := t.r.IntN(oracleKeys)
	dice := t.r.IntN(100)
	if t.quiet && dice >= 58 && dice < 81 {
		dice = []int{32, 46, 51, 64}[dice%4] // a reflink, deletion, checkpoint or its removal instead
	}
	switch {
	case dice < 25:
		t.write(l, key)
	case dice < 32:
		t.punch(l, key)
	case dice < 46:
		t.reflink(l, key, t.r.IntN(oracleKeys))
	case dice < 51:
		if len(lookup(l, tine.Head, key)) > 0 {
			t.put(l, key, oversion{tomb: true})
		}
	case dice < 58:
		t.checkpoint(l)
	case dice < 64:
		if len(t.disks) < 6 {
			t.fork(l)
		}
	case dice < 70:
		t.removeCheckpoint()
	case dice < 73:
		if len(t.disks) > 1 {
			delete(t.disks, name)
			t.discardHead(l)
		}
	case dice < 78:
		t.rollback(name, l)
	case dice < 81:
		t.promote(name, l)
	case dice < 96:
		if len(t.tasks) > 0 {
			t.work(t.r.IntN(6) == 0)
		}
	default:
		t.absorb(t.lines[t.r.IntN(len(t.lines))])
	}
}

func fail(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// --- the judge ---------------------------------------------------------------

// shown returns the bytes that some head or checkpoint shows, and fails if one
// of them is free or a piece is counted wrongly. Failing is panicking: judge
// makes a sentence of it.
func (t *otree) shown() map[place]bool {
	seen := map[place]bool{}
	for _, l := range t.lines {
		views := slices.Clone(l.checkpoints)
		if l.head {
			views = append(views, tine.Head)
		}
		for _, at := range views {
			for key := range oracleKeys {
				for p := range placesOf(lookup(l, at, key)) {
					if t.freed[p] {
						fail("byte %d of %v is free, but line %d shows it at %v", p.off, p.seg, l.id, at)
					}
					seen[p] = true
				}
			}
		}
		for at, p := range t.pieces {
			if l.owns(at.seg) {
				if n := runsOf(l, at, p.len); n != p.runs {
					fail("piece %v has %d runs, counted as %d", at, n, p.runs)
				}
			}
		}
	}
	return seen
}

func runsOf(l *oline, at place, length int64) int64 {
	var n int64
	for _, vs := range l.rows {
		var named []bool
		for _, v := range vs {
			named = append(named, Names(v.xs, at.seg, at.off, length))
		}
		n += countRuns(named)
	}
	return n
}

// views is what each checkpoint shows, for comparison over a step.
func (t *otree) views() map[string]string {
	all := map[string]string{}
	for _, l := range t.lines {
		for _, at := range l.checkpoints {
			var vs [][]record.Extent
			for key := range oracleKeys {
				vs = append(vs, lookup(l, at, key))
			}
			all[fmt.Sprintf("line %d at %d", l.id, at)] = fmt.Sprint(vs)
		}
	}
	return all
}

func (t *otree) settle() {
	for again := true; again; {
		again = false
		for len(t.tasks) > 0 {
			t.work(false)
			again = true
		}
		for _, l := range slices.Clone(t.lines) {
			before := t.absorbs
			if t.merged[l] == nil {
				t.absorb(l)
			}
			again = again || t.absorbs != before
		}
	}
}

// judge runs one tree and returns what is wrong with it, or "".
func judge(seed uint64, steps int, fault ofault) (t *otree, wrong string) {
	t = newOracle(seed)
	t.fault = fault
	defer func() {
		if r := recover(); r != nil {
			wrong = fmt.Sprint(r)
		}
	}()
	for range steps {
		before, absorbed := t.views(), t.absorbs
		t.step()
		t.shown()
		for name, now := range t.views() {
			if was, ok := before[name]; ok && was != now && t.absorbs == absorbed {
				panic(fmt.Sprintf("%s showed %s and shows %s", name, was, now))
			}
		}
	}
	t.end()
	return t, ""
}

func TestTreesAgainstWhatIsShown(t *testing.T) {
	absorbs, shared := 0, 0
	t.Logf("seeds from %d, %d of them, %d steps each; -reclaim.seed, .seeds and .steps choose others", *flagSeed, *flagSeeds, *flagSteps)
	for seed := *flagSeed; seed < *flagSeed+*flagSeeds; seed++ {
		tree, wrong := judge(seed, *flagSteps, faultNone)
		if wrong != "" {
			t.Fatalf("seed %d: %s", seed, wrong)
		}
		absorbs, shared = absorbs+tree.absorbs, shared+tree.shared
	}
	if absorbs == 0 || shared == 0 {
		t.Errorf("%d lines were absorbed and %d extents shared: the test does not test", absorbs, shared)
	}
}

// TestWrongRulesAreFound breaks the rules one at a time.
func TestWrongRulesAreFound(t *testing.T) {
	for fault := faultNeighbours; fault <= faultFloor; fault++ {
		found := false
		for seed := uint64(1); seed <= 100 && !found; seed++ {
			_, wrong := judge(seed, 200, fault)
			found = wrong != ""
		}
		if !found {
			t.Errorf("no tree found fault %d", fault)
		}
	}
}

// end gives up all but one disk. Then nothing is kept that is not shown, and
// the line stands alone.
func (t *otree) end() {
	for slices.ContainsFunc(t.lines, func(l *oline) bool { return len(l.checkpoints) > 0 }) {
		t.removeCheckpoint()
		for len(t.tasks) > 0 {
			t.work(false)
		}
	}
	for len(t.disks) > 1 {
		name, l := t.pick()
		delete(t.disks, name)
		t.discardHead(l)
	}
	t.settle()
	if len(t.lines) != 1 {
		fail("%d lines are left", len(t.lines))
	}
	seen := t.shown()
	for at, p := range t.pieces {
		used := false
		for o := at.off; o < at.off+p.len; o++ {
			used = used || seen[place{at.seg, o}]
		}
		for o := at.off; used && o < at.off+p.len; o++ {
			seen[place{at.seg, o}] = true
		}
	}
	for seg, end := range t.ends {
		for o := range end {
			if p := (place{seg, o}); !t.freed[p] && !seen[p] {
				fail("byte %d of %v is not shown and not free", o, seg)
			}
		}
	}
}
