package run_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/faulty"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/run"
	"tine.dev/tine/internal/tine"
)

// prefixOf is the row of a name in a tree's one stratum.
func prefixOf(owner byte, i int) []byte {
	return record.AppendKey(nil, [tine.IDSize]byte{'o', owner}, record.DentryKey(1, fmt.Sprintf("name-%07d", i)))
}

func set(owner byte, i int, e tine.Epoch) kv.Change {
	return kv.Change{Kind: kv.ChangeSet, Key: record.AppendEpoch(prefixOf(owner, i), e), Value: fmt.Appendf(nil, "%c/%d@%d", owner, i, e)}
}

// find reads one row.
func find(s kv.Store, owner byte, i int) (string, error) {
	n := s.Snapshot()
	defer n.Close()
	v, _, ok, err := n.Newest(prefixOf(owner, i), tine.Head)
	if err == nil && !ok {
		return "", nil
	}
	return string(v), err
}

func writeRun(t testing.TB, o *objects, name string, tableBytes int64, changes ...kv.Change) []run.Table {
	t.Helper()
	f := run.NewFold()
	for _, c := range changes {
		must(t, f.Add(c))
	}
	w := run.NewWriter(context.Background(), config(o, name, tableBytes))
	defer w.Abort()
	must(t, f.Write(w))
	r, err := w.Finish()
	must(t, err)
	return r
}

func many(owners string, n int, e tine.Epoch) (out []kv.Change) {
	for i := range n {
		for _, o := range []byte(owners) {
			out = append(out, set(o, i, e))
		}
	}
	return out
}

// logged counts what is logged as a warning or worse.
type logged struct {
	slog.Handler
	lines *atomic.Int64
}

func (l logged) Enabled(context.Context, slog.Level) bool { return true }
func (l logged) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		l.lines.Add(1)
	}
	return nil
}

// TestStoreFails has the object store fail in every way while a row store reads from it: the
// reads that need it fail with the right kind; rows of other trees, whose owners lie
// between those of the failing one, do not; compactions that fail do no harm; and all
// is well when the object store is.
func TestStoreFails(t *testing.T) {
	for _, tc := range []struct {
		name string
		kind tine.ErrorKind
		what faulty.What
	}{
		{"unavailable", tine.KindUnavailable, faulty.Busy},
		{"denied", tine.KindUnavailable, faulty.Denied},
		{"gone", tine.KindCorrupt, faulty.Vanished},
		{"truncated", tine.KindCorrupt, faulty.Truncated},
		{"wrong bytes", tine.KindCorrupt, faulty.WrongBytes},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := newObjects(t)
			base := writeRun(t, o, "0", 64<<10, many("ac", 3000, 1)...)
			next := writeRun(t, o, "1", 64<<10, many("ac", 3000, 2)...)
			s := openRows(t, run.NewTables(o.Store, nil))
			var lines atomic.Int64
			s.opt.Logger = slog.New(logged{slog.DiscardHandler, &lines})
			s.opt.OnPoison = func(err error) { t.Errorf("poisoned: %v", err) }
			s.reopen(t)
			s.commit(t, many("bd", 3000, 1))
			o.faulty.SetPlan(faulty.Plan{Faults: []faulty.Fault{{Ops: faulty.Get, What: tc.what, Every: 1}}})
			s.adopt(t, base, next)
			storeFails(t, s, tc.kind)
			if n := lines.Load(); n > 3 {
				t.Errorf("%d lines in the log", n)
			}
			o.faulty.SetPlan(faulty.Plan{})
			for i := 0; i < 3000; i += 500 {
				for _, owner := range []byte("abcd") {
					want := fmt.Sprintf("%c/%d@%d", owner, i, map[bool]int{true: 2, false: 1}[owner == 'a' || owner == 'c'])
					if v, err := find(s, owner, i); v != want || err != nil {
						t.Fatalf("the store is well, and row %c/%d is %q (%v), want %q", owner, i, v, err, want)
					}
				}
			}
			must(t, s.Store.(kv.Adopter).Localize(context.Background(), []byte("o"), []byte("p")))
			must(t, s.Compact([]byte("o"), []byte("p")))
		})
	}
}

func storeFails(t *testing.T, s *rows, kind tine.ErrorKind) {
	t.Helper()
	check := func() {
		t.Helper()
		for _, owner := range []byte("ac") {
			_, err := find(s, owner, 7)
			wantKind(t, "a row outside", err, kind)
			n := s.Snapshot()
			c, err := n.Scan(prefixOf(owner, 0)[:4], prefixOf(owner+1, 0)[:4], nil)
			must(t, err)
			if c.Next() {
				t.Fatalf("a scan finds %x", c.Key())
			}
			wantKind(t, "a scan", c.Err(), kind)
			_ = c.Close() // tells once more of the error
			must(t, n.Close())
		}
		for _, owner := range []byte("bd") {
			if v, err := find(s, owner, 7); v != fmt.Sprintf("%c/7@1", owner) || err != nil {
				t.Fatalf("row %c/7 of another tree is %q (%v)", owner, v, err)
			}
			n := s.Snapshot()
			if got := strings.Count(dump(t, n, prefixOf(owner, 0)[:16], record.PrefixEnd(prefixOf(owner, 0)[:16]), nil), "\n"); got == 0 {
				t.Fatalf("a scan of the rows of %c finds none", owner)
			}
			must(t, n.Close())
		}
	}
	check()
	// Deletions and rows on top, flushed: compactions now want to read outside.
	for e := tine.Epoch(3); e < 6; e++ {
		s.commit(t, []kv.Change{set('a', 5000, e), set('c', 5000, e)})
		must(t, s.Flush())
	}
	err := s.Compact([]byte("o"), []byte("p"))
	wantKind(t, "a compaction", err, kind)
	err = s.Store.(kv.Adopter).Localize(context.Background(), []byte("o"), []byte("p"))
	wantKind(t, "localize", err, kind)
	check()
	s.reopen(t)
	check()
	b := s.NewBatch()
	b.Set(set('a', 5001, 1).Key, []byte("x"))
	must(t, s.Commit(b, true))
}

// TestOthersGoOn has a tree's tables be out of reach while other trees write much, around and
// between its rows, and it too: nobody waits for anything.
func TestOthersGoOn(t *testing.T) {
	o := newObjects(t)
	base, next := writeRun(t, o, "0", 0, many("ace", 1000, 1)...), writeRun(t, o, "1", 0, many("ace", 1000, 2)...)
	for _, tc := range []struct {
		name, writers string
		runs          [][]run.Table
	}{
		{"others", "bd", [][]run.Table{base, next}},
		{"itself", "abcde", [][]run.Table{base}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := openRows(t, run.NewTables(o.Store, nil))
			s.commit(t, many("bd", 100, 1))
			must(t, s.Flush())
			must(t, s.Compact([]byte("o"), []byte("p"))) // one table around all
			o.faulty.SetPlan(faulty.Plan{Faults: []faulty.Fault{{Ops: faulty.Get, What: faulty.Busy, Every: 1}}})
			defer o.faulty.SetPlan(faulty.Plan{})
			s.adopt(t, tc.runs...)
			const rounds = 60 // several times what would make commits wait for compactions
			for e := range tine.Epoch(rounds) {
				s.commit(t, many(tc.writers, 100, e+10))
				must(t, s.Flush())
			}
			for _, owner := range []byte("bd") {
				if v, err := find(s, owner, 99); v != fmt.Sprintf("%c/99@%d", owner, rounds+9) || err != nil {
					t.Fatalf("row %c/99 is %q (%v)", owner, v, err)
				}
			}
			_, err := find(s, 'a', 500)
			wantKind(t, "a row outside", err, tine.KindUnavailable)
		})
	}
}

// TestNoTables opens a store without the place that its rows lie in.
func TestNoTables(t *testing.T) {
	o := newObjects(t)
	s := openRows(t, run.NewTables(o.Store, nil))
	s.adopt(t, writeRun(t, o, "0", 0, many("ac", 10, 1)...))
	s.commit(t, many("b", 10, 1))
	s.opt.Tables = nil
	s.reopen(t)
	_, err := find(s, 'a', 1)
	wantKind(t, "a row outside", err, tine.KindUnavailable)
	if v, err := find(s, 'b', 1); v != "b/1@1" || err != nil {
		t.Fatalf("row b/1 is %q (%v)", v, err)
	}
}

// TestDamagedOnTheWay has every third answer damaged: all reads succeed, for what is
// damaged is read again, and nothing of it gets into the cache. Then the cache rots.
func TestDamagedOnTheWay(t *testing.T) {
	o := newObjects(t)
	r := writeRun(t, o, "0", 0, many("a", 20000, 1)...)
	for _, what := range []faulty.What{faulty.WrongBytes, faulty.Truncated, faulty.Busy} {
		o.faulty.SetPlan(faulty.Plan{Faults: []faulty.Fault{{Ops: faulty.Get, What: what, Every: 3}}})
		cache := newMemory()
		s := openRows(t, run.NewTables(o.Store, cache))
		s.adopt(t, r)
		for i := 0; i < 20000; i += 1000 {
			if v, err := find(s, 'a', i); v != fmt.Sprintf("a/%d@1", i) || err != nil {
				t.Fatalf("row %d is %q (%v)", i, v, err)
			}
		}
		cache.mu.Lock()
		for name, data := range cache.frames {
			data = bytes.Clone(data)
			data[len(data)/2] ^= 1
			cache.frames[name] = data
		}
		cache.mu.Unlock()
		s.reopen(t)
		for i := 0; i < 20000; i += 1000 {
			if v, err := find(s, 'a', i); v != fmt.Sprintf("a/%d@1", i) || err != nil {
				t.Fatalf("row %d of a cache that rots is %q (%v)", i, v, err)
			}
		}
		if o.faulty.Injected() == 0 {
			t.Fatal("nothing went wrong")
		}
	}
}

// TestEveryByte flips one bit in each of many places of an object: Check and Merge must see it,
// wherever it is, but in the padding.
func TestEveryByte(t *testing.T) {
	o := newObjects(t)
	r := writeRun(t, o, "0", 0, many("abc", 400, 1)...)
	one := r[0]
	must(t, run.Check(context.Background(), o.Store, one))
	whole, _, err := o.Get(context.Background(), one.Key, blob.Range{}, "")
	must(t, err)
	for at := 0; at < len(whole); at += 1 + len(whole)/300 {
		bad := bytes.Clone(whole)
		bad[at] ^= 0x10
		_, err := o.Put(context.Background(), one.Key, bytes.NewReader(bad), blob.Condition{})
		must(t, err)
		wantKind(t, fmt.Sprintf("check, byte %d of %d", at, len(whole)), run.Check(context.Background(), o.Store, one), tine.KindCorrupt)
	}
	_, err = run.Merge(context.Background(), config(o, "1", 0), [][]run.Table{r}, true)
	wantKind(t, "merge", err, tine.KindCorrupt)
	_, err = o.Put(context.Background(), one.Key, bytes.NewReader(whole), blob.Condition{})
	must(t, err)
	short := one
	short.Rows--
	wantKind(t, "check of a wrong count", run.Check(context.Background(), o.Store, short), tine.KindCorrupt)
	must(t, o.Delete(context.Background(), one.Key))
	wantKind(t, "check of nothing", run.Check(context.Background(), o.Store, one), tine.KindCorrupt)
}
