package stratum

import (
	"bytes"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/mem"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// world is some strata of one line, and what they hold: of each row the
// versions, oldest first.
type world struct {
	store  kv.Store
	strata []*Stratum
	rows   map[record.Logical][]Version
	in     map[*Stratum]int // versions
}

// newWorld puts a few hundred random versions into three strata. A version lies
// in one of them, whatever its birth.
func newWorld(t *testing.T, r *rand.Rand) *world {
	t.Helper()
	w := &world{store: mem.New(), rows: map[record.Logical][]Version{}, in: map[*Stratum]int{}}
	t.Cleanup(func() { w.store.Close() })
	for i := range 3 {
		w.strata = append(w.strata, New(tine.StratumID{byte(i + 1)}))
	}
	b := w.store.NewBatch()
	for range 60 {
		k := record.InodeKey(tine.Ino(r.IntN(40)))
		if r.IntN(2) == 0 {
			k = record.ChunkKey(tine.Ino(r.IntN(40)), uint64(r.IntN(3)))
		}
		if w.rows[k] != nil {
			continue
		}
		for e := tine.Epoch(1); e < 20; e += tine.Epoch(1 + r.IntN(6)) {
			v := Version{Birth: e, Val: []byte{1, byte(e), byte(r.IntN(200))}}
			if r.IntN(4) == 0 {
				v = Version{Birth: e, Tomb: true}
			}
			s := w.strata[r.IntN(3)]
			w.in[s]++
			w.rows[k] = append(w.rows[k], v)
			b.Set(record.Key(s.ID, k, e), Encode(v.Val, v.Tomb))
		}
	}
	if err := w.store.Commit(b, false); err != nil {
		t.Fatal(err)
	}
	return w
}

func same(a, b []Version) bool {
	return slices.EqualFunc(a, b, func(a, b Version) bool {
		return a.Birth == b.Birth && a.Tomb == b.Tomb && bytes.Equal(a.Val, b.Val)
	})
}

// check compares everything that reads versions with what was put in.
func (w *world) check(t *testing.T, r *rand.Rand) {
	t.Helper()
	snap := w.store.Snapshot()
	defer snap.Close()
	chunks := record.TableKey(record.TableChunk)
	var walked []record.Logical
	err := EachRow(snap, w.strata, chunks, func(k record.Logical, vs []Version) error {
		walked = append(walked, k)
		if !same(vs, w.rows[k]) {
			t.Errorf("row %x is walked with %v, want %v", k, vs, w.rows[k])
		}
		return nil
	})
	var want []record.Logical
	for k, vs := range w.rows {
		if k.Table() == record.TableChunk {
			want = append(want, k)
		}
		if got, err := Versions(snap, w.strata, k); err != nil || !same(got, vs) {
			t.Errorf("row %x has %v, %v; want %v", k, got, err, vs)
		}
	}
	slices.Sort(want)
	if err != nil || !slices.Equal(walked, want) {
		t.Errorf("the rows %x are walked, %v; want %x", walked, err, want)
	}
	after := tine.Epoch(r.IntN(18))
	born := kv.Born{After: after, UpTo: after + tine.Epoch(1+r.IntN(6))}
	w.checkBorn(t, snap, born)
}

// checkBorn compares the keys born in an interval.
func (w *world) checkBorn(t *testing.T, snap kv.Snapshot, born kv.Born) {
	t.Helper()
	all, tombs := map[record.Logical]bool{}, map[record.Logical]bool{}
	for k, vs := range w.rows {
		for _, v := range vs {
			if v.Birth > born.After && v.Birth <= born.UpTo {
				all[k] = true
				tombs[k] = tombs[k] || v.Tomb
			}
		}
	}
	maps.DeleteFunc(tombs, func(_ record.Logical, tomb bool) bool { return !tomb })
	keys, some, someTombs := map[record.Logical]bool{}, map[record.Logical]bool{}, map[record.Logical]bool{}
	for _, s := range w.strata {
		for k, err := range s.Keys(snap, "", born) {
			if err != nil {
				t.Fatal(err)
			}
			keys[k] = true
		}
		for onlyTombs, into := range map[bool]map[record.Logical]bool{false: some, true: someTombs} {
			for cursor := s.ID[:]; cursor != nil; {
				ks, next, err := s.SomeKeys(snap, cursor, born, onlyTombs, 3)
				if err != nil || len(ks) > 3 || next != nil && len(ks) < 3 {
					t.Fatalf("%d keys of at most 3, more to come: %v; %v", len(ks), next != nil, err)
				}
				for _, k := range ks {
					into[k] = true
				}
				cursor = next
			}
		}
	}
	if !maps.Equal(keys, all) || !maps.Equal(some, all) || !maps.Equal(someTombs, tombs) {
		t.Errorf("born in %v: %d keys, %d in steps, %d with tombstones; want %d and %d", born, len(keys), len(some), len(someTombs), len(all), len(tombs))
	}
}

// TestReadingAndFolding reads random strata in every way, folds one into
// another, with filters, and reads again.
func TestReadingAndFolding(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 8))
		w := newWorld(t, r)
		w.check(t, r)
		snap := w.store.Snapshot()
		for _, s := range w.strata {
			if made, err := s.MakeFilter(snap, maphash.MakeSeed()); err != nil || !made || !s.Filtered() {
				t.Fatalf("seed %d: filter made %v, %v", seed, made, err)
			}
		}
		snap.Close()
		w.check(t, r)
		from, into := w.strata[0], w.strata[1+r.IntN(2)]
		if done, err := from.Fold(w.store, into); err != nil || !done {
			t.Fatalf("seed %d: folded %v, %v", seed, done, err)
		}
		w.check(t, r)
		snap = w.store.Snapshot()
		any, err := from.Has(snap, nil)
		n, err2 := into.Count(snap, 1<<20)
		snap.Close()
		if want := w.in[from] + w.in[into]; err != nil || err2 != nil || any || n != want {
			t.Errorf("seed %d: after the fold, something left: %v, %v; %d moved or there before, %v; want %d", seed, any, err, n, err2, want)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestFoldInSteps folds more than one batch: a row is never cut in two.
func TestFoldInSteps(t *testing.T) {
	store := mem.New()
	defer store.Close()
	from, into := New(tine.StratumID{1}), New(tine.StratumID{2})
	b := store.NewBatch()
	const rows, versions = 500, 5
	for i := range rows {
		for e := range versions {
			b.Set(record.Key(from.ID, record.InodeKey(tine.Ino(i)), tine.Epoch(e+1)), []byte{1})
		}
	}
	if err := store.Commit(b, false); err != nil {
		t.Fatal(err)
	}
	for steps := 1; ; steps++ {
		done, err := from.Fold(store, into)
		if err != nil {
			t.Fatal(err)
		}
		snap := store.Snapshot()
		left, err := from.Count(snap, 1<<20)
		moved, err2 := into.Count(snap, 1<<20)
		snap.Close()
		if err != nil || err2 != nil || left+moved != rows*versions || moved%versions != 0 || done != (left == 0) {
			t.Fatalf("step %d: %d left, %d moved, done %v; %v, %v", steps, left, moved, done, err, err2)
		}
		if done {
			if steps < 3 {
				t.Errorf("it took %d steps", steps)
			}
			return
		}
	}
}

// TestCursorShowsAnEpoch compares a cursor with the versions.
func TestCursorShowsAnEpoch(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 9))
		w := newWorld(t, r)
		for _, s := range w.strata[1:] { // all into one
			if _, err := s.Fold(w.store, w.strata[0]); err != nil {
				t.Fatal(err)
			}
		}
		snap := w.store.Snapshot()
		limit := tine.Epoch(r.IntN(22))
		from, end := record.InodeKey(tine.Ino(r.IntN(20))), record.ChunkKey(tine.Ino(r.IntN(40)), 1)
		c, err := w.strata[0].Cursor(snap, from, end, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range slices.Sorted(maps.Keys(w.rows)) {
			shown := slices.DeleteFunc(slices.Clone(w.rows[k]), func(v Version) bool { return v.Birth > limit })
			if k < from || k >= end || len(shown) == 0 {
				continue
			}
			got, ok, err := c.Peek()
			if want := shown[len(shown)-1:]; err != nil || !ok || got != k || !same([]Version{c.Version()}, want) {
				t.Fatalf("seed %d: at %x there is %x, %v, %v, %v; want %v", seed, k, got, c.Version(), ok, err, want)
			}
			c.Next()
		}
		if k, ok, err := c.Peek(); ok || err != nil {
			t.Errorf("seed %d: %x comes after the end, %v", seed, k, err)
		}
		c.Close()
		snap.Close()
	}
}
