package depot_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/faulty"
	"tine.dev/tine/internal/fs/blob/mem"
	"tine.dev/tine/internal/fs/depot"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/object"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

var (
	seed   = flag.Uint64("depot.seed", 0, "the first seed; 0: 1")
	rounds = flag.Int("depot.rounds", 12, "how many seeds")
)

// patient makes a store that tries for as long as the plan is bad, without
// waiting.
func patient() blob.Options {
	return blob.Options{Retry: blob.Policy{Attempts: 4, First: time.Microsecond, Longest: time.Microsecond, Budget: 1 << 30}}
}

// TestWhatIsShipped plays machines that own a tree one after the other, over a store that
// fails now and then: what another machine takes up is a state that the tree had
// (P2), not older than what Sync has promised (P1), with all file data that its
// rows name (J1).
func TestWhatIsShipped(t *testing.T) {
	first := max(*seed, 1)
	for n := first; n < first+uint64(*rounds); n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			d := mem.New(mem.Options{PageLimit: 3})
			bad := faulty.Wrap(d, faulty.Plan{Seed: n, Faults: []faulty.Fault{
				{Ops: faulty.All, What: faulty.Busy, Percent: 5}, {Ops: faulty.Put, What: faulty.LostAck, Percent: 10},
				{Ops: faulty.Put, What: faulty.Late, Percent: 5, After: 3}, {Ops: faulty.Get, What: faulty.WrongBytes, Percent: 3}, {Ops: faulty.Get, What: faulty.Truncated, Percent: 3},
			}})
			w := newWorld(t, n, blob.NewStore(bad, patient()), blob.NewStore(d, blob.Options{}), false)
			for range 4 {
				for range 20 + w.rng.IntN(200) {
					w.step()
					switch w.rng.IntN(25) {
					case 0:
						w.sync()
					case 1:
						w.restart()
					}
				}
				w.takeOver()
			}
			w.tree.Close()
		})
	}
}

// TestWhatStaysInTheStore plays the same over a store that works, where what is of
// no use any more goes at once: at the end nothing is there but what the manifest and the
// rows name, and the newest journal object.
func TestWhatStaysInTheStore(t *testing.T) {
	first := max(*seed, 1)
	for n := first; n < first+uint64(*rounds); n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			store := blob.NewStore(mem.New(mem.Options{PageLimit: 3}), patient())
			w := newWorld(t, n, store, store, true)
			for range 4 {
				for range 20 + w.rng.IntN(200) {
					w.step()
					if w.rng.IntN(25) == 0 {
						w.sync()
					}
				}
				w.sync()
				w.tree.Close()
				w.takeOver()
			}
			var left []string
			for range 50 { // graves go one object later than what they are of
				w.commit(w.someRows()...)
				w.sync()
				if left = w.useless(); len(left) == 0 {
					break
				}
			}
			if len(left) > 0 {
				t.Errorf("%q", left)
			}
			w.tree.Close()
		})
	}
}

// useless lists what nobody needs.
func (w *world) useless() (left []string) {
	w.t.Helper()
	useful := map[blob.Key]bool{}
	for id, f := range w.segs {
		useful[object.Key(id, f.loc.Generation)] = true
	}
	journals := 0
	for e, err := range w.clean.All(ctx, blob.ListOptions{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		switch {
		case strings.HasPrefix(string(e.Key), "segments/") && !useful[e.Key]:
			left = append(left, string(e.Key))
		case strings.Contains(string(e.Key), "/journal/"):
			journals++
		}
	}
	if limit := int(w.opts.CutObjects) + 2 + w.terms; journals > limit {
		left = append(left, fmt.Sprintf("%d journal objects, and a cut is made at %d", journals, w.opts.CutObjects))
	}
	snap := w.rows.Snapshot()
	defer snap.Close()
	lower := record.AppendKey(nil, treeID, record.TableKey(record.TableGrave))
	scan, err := snap.Scan(lower, record.PrefixEnd(lower), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer scan.Close()
	for scan.Next() {
		left = append(left, fmt.Sprintf("grave %x", scan.Key()))
	}
	return left
}

// TestSleeperIsTold has a server sleep while another takes its tree up, and removes the
// journal as it was then: when it wakes up, its next object is refused.
func TestSleeperIsTold(t *testing.T) {
	store := blob.NewStore(mem.New(mem.Options{}), patient())
	w := newWorld(t, 1, store, store, true)
	for range 50 {
		w.step()
	}
	w.sync()
	w.tree.Close()
	awake := w.options()
	awake.Server, awake.Delay = w.opts.Server, -1
	sleeper, _, err := depot.New(awake).Resume(w.rows, treeID, w)
	if err != nil {
		t.Fatal(err)
	}
	old, segs := w.rows, w.segs
	w.takeOver()
	numbers := func() (n int) {
		for _, err := range store.All(ctx, blob.ListOptions{Prefix: "trees/" + treeID.String() + "/journal/"}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	most := 0
	for range 500 {
		w.step()
		w.sync()
		if n := numbers(); n < most {
			break // what the sleeper knew is cut and removed
		} else {
			most = n
		}
	}
	w.tree.Close()

	w.rows, w.tree = old, sleeper
	w.alter(func() { w.segs = segs })
	w.commit(w.someRows()...)
	if err := sleeper.Sync(ctx); tine.KindOf(err) != tine.KindStale {
		t.Errorf("it believes that the tree is its own still: %v", err)
	}
	sleeper.Close()
}

// TestCopiedDataDirectory has two servers go on with copies of one data directory: the
// one that ships later is refused, and does not take the other's object for its own.
func TestCopiedDataDirectory(t *testing.T) {
	for _, more := range []bool{false, true} {
		store := blob.NewStore(mem.New(mem.Options{}), patient())
		w := newWorld(t, 1, store, store, false)
		for range 30 {
			w.step()
		}
		w.sync()
		w.tree.Close()
		twins := [2]*depot.Tree{}
		for i := range twins {
			rows := newRows(t, store)
			copyRows(t, w.rows, rows)
			o := w.options()
			o.Server, o.Delay = w.opts.Server, -1
			var err error
			if twins[i], _, err = depot.New(o).Resume(rows, treeID, w); err != nil {
				t.Fatal(err)
			}
		}
		put := func(x *depot.Tree, text string) {
			t.Helper()
			b := x.Rows().NewBatch()
			b.Set(record.Key(strata[0], record.InodeKey(7), 1), []byte(text))
			if err := x.Rows().Commit(b, true); err != nil {
				t.Fatal(err)
			}
		}
		put(twins[0], "one")
		if more {
			put(twins[0], "one more")
		}
		if err := twins[0].Sync(ctx); err != nil {
			t.Fatal(err)
		}
		put(twins[1], "two")
		if err := twins[1].Sync(ctx); tine.KindOf(err) != tine.KindStale {
			t.Errorf("a copy of the data directory goes on too: %v", err)
		}
		for _, x := range twins {
			x.Close()
		}
	}
}

func copyRows(t *testing.T, from, to kv.Store) {
	t.Helper()
	snap := from.Snapshot()
	defer snap.Close()
	scan, err := snap.Scan(nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer scan.Close()
	b := to.NewBatch()
	for scan.Next() {
		b.Set(scan.Key(), scan.Value())
	}
	if err := errors.Join(scan.Err(), to.Commit(b, true)); err != nil {
		t.Fatal(err)
	}
}

// sync waits until the store has everything. The engine goes on meanwhile, for
// a segment that is asked for is sealed by it.
func (w *world) sync() {
	w.t.Helper()
	at := len(w.history) - 1
	done := make(chan error, 1)
	go func() { done <- w.tree.Sync(ctx) }()
	for {
		select {
		case err := <-done:
			if err != nil {
				w.t.Fatal(err)
			}
			w.synced = max(w.synced, at)
			return
		case <-w.asks:
			w.step()
		}
	}
}

// restart is a server that was killed and is started again: its segments are
// recovered, which seals them.
func (w *world) restart() {
	w.t.Helper()
	w.tree.Close()
	o := w.options()
	o.Server = w.opts.Server
	w.server(o)
	var ok bool
	var err error
	if w.tree, ok, err = depot.New(w.opts).Resume(w.rows, treeID, w); err != nil || !ok {
		w.t.Fatal(ok, err)
	}
	w.recover()
}

// takeOver has another machine take the tree up, looks at what it has got, and
// goes on there.
func (w *world) takeOver() {
	w.t.Helper()
	zombie := w.tree
	rows := newRows(w.t, w.clean)
	w.server(w.options())
	w.terms++
	var tree *depot.Tree
	for try := 1; ; try++ {
		var err error
		if tree, err = depot.New(w.opts).Claim(ctx, rows, treeID, w); err == nil {
			break
		}
		if try == 1000 {
			w.t.Fatalf("it cannot be taken up: %v", err)
		}
		switch tine.KindOf(err) {
		case tine.KindUnavailable, tine.KindCorrupt, tine.KindConflict: // the store's, and the zombie's doing
		case tine.KindNotFound:
			if w.synced > 0 {
				w.t.Fatal(err)
			}
			w.sync() // nothing has come there yet
		default:
			w.t.Fatal(err)
		}
	}
	got := show(w.t, rows)
	at := slices.Index(w.history[w.synced:], got)
	if at < 0 {
		w.t.Fatalf("what was taken up is no state that the tree had since commit %d of %d:\n%s\nthe newest is:\n%s", w.synced, len(w.history), got, w.history[len(w.history)-1])
	}
	if !w.eager {
		zombie.Close()
	}
	w.rows, w.tree = rows, tree
	w.history, w.synced = []string{got}, 0
	w.adopt()
	w.recover()
}

// adopt takes the segments of the rows over, as the store has them.
func (w *world) adopt() {
	w.t.Helper()
	segs := map[tine.SegmentID]*file{}
	snap := w.rows.Snapshot()
	defer snap.Close()
	lower := record.AppendKey(nil, treeID, record.TableKey(record.TableSegment))
	scan, err := snap.Scan(lower, record.PrefixEnd(lower), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer scan.Close()
	for scan.Next() {
		_, l, _, err := record.SplitKey(scan.Key())
		if err != nil {
			w.t.Fatal(err)
		}
		id, _ := l.ID()
		loc, err := record.DecodeSegment(scan.Value())
		if err != nil {
			w.t.Fatal(err)
		}
		var p []byte
		switch {
		case loc.State == record.SegmentOpen:
			p = w.tails(id, loc.End)
		case loc.End > 0:
			if p, _, err = w.clean.Get(ctx, object.Key(id, loc.Generation), blob.Range{}, ""); err != nil {
				w.t.Fatalf("a row names a segment that the store does not have: %v", err)
			}
		}
		had := w.segs[id]
		if had == nil {
			w.segs[id] = &file{files: map[uint64][]byte{}}
			had = w.segs[id]
		}
		for _, whole := range had.files {
			if int64(len(whole)) < loc.End || !bytes.Equal(p, whole[:loc.End]) {
				w.t.Fatalf("segment %s has other bytes in the store: %d of %d", id, len(p), loc.End)
			}
		}
		segs[id] = &file{loc: loc, files: map[uint64][]byte{loc.Generation: bytes.Clone(p)}}
	}
	w.alter(func() { w.segs = segs })
}

// tails puts together what the tail rows have of an open segment.
func (w *world) tails(id tine.SegmentID, end int64) []byte {
	w.t.Helper()
	snap := w.rows.Snapshot()
	defer snap.Close()
	lower := record.AppendKey(nil, treeID, record.IDKey(record.TableTail, id))
	scan, err := snap.Scan(lower, record.PrefixEnd(lower), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer scan.Close()
	var p []byte
	for scan.Next() {
		_, l, _, err := record.SplitKey(scan.Key())
		if err != nil {
			w.t.Fatal(err)
		}
		_, off := l.ID()
		if int(off) > len(p) {
			w.t.Fatalf("the tails of segment %s have a hole at %d", id, len(p))
		}
		p = append(p[:off], scan.Value()...)
	}
	if int64(len(p)) < end {
		w.t.Fatalf("the tails of segment %s end at %d, its row at %d", id, len(p), end)
	}
	return p[:end]
}

// recover seals the open segments, as a start does.
func (w *world) recover() {
	for {
		id, f := w.pick(record.SegmentOpen)
		if f == nil {
			return
		}
		w.alter(func() { f.files[0] = f.files[0][:f.loc.End] })
		w.seal(id, f)
	}
}
