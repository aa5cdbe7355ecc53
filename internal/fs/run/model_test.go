package run_test

import (
	"context"
	"fmt"
	"testing"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/kvtest"
	"tine.dev/tine/internal/fs/run"
)

// TestModel applies random changes to a store, and cuts runs from the same changes, as
// a shipper does: perhaps a base first, then folds; merges some; has an empty store adopt
// them; and compares the two, also after further changes, compactions and re-openings.
func TestModel(t *testing.T) {
	seed := kvtest.Seed(t)
	rounds := 6
	if testing.Short() {
		rounds = 3
	}
	for i := range rounds {
		m := &model{t: t, source: newSource(seed + uint64(i)), objects: newObjects(t), bytes: []int64{1, 4 << 10, 8 << 20}[i%3]}
		m.run()
	}
}

type model struct {
	t *testing.T
	*source
	objects *objects
	bytes   int64 // of a table
	want    *rows
	runs    [][]run.Table
	written int
}

func (m *model) config() run.Config {
	m.written++
	return config(m.objects, fmt.Sprint(m.written), m.bytes)
}

func (m *model) run() {
	t := m.t
	m.want = openRows(t, nil)
	if m.rng.IntN(2) == 0 {
		for range m.rng.IntN(40) {
			m.want.commit(t, m.batch())
		}
		m.base()
	}
	for range 1 + m.rng.IntN(5) {
		m.fold(m.rng.IntN(40))
	}
	for len(m.runs) > 1 && m.rng.IntN(3) > 0 {
		m.merge()
	}
	tables := 0
	for _, r := range m.runs {
		tables += len(r)
		for _, one := range r {
			must(t, run.Check(context.Background(), m.objects.Store, one))
		}
		again, err := run.DecodeTables(run.AppendTables(nil, r))
		must(t, err)
		if fmt.Sprint(again) != fmt.Sprint(r) {
			t.Fatalf("a run is decoded as %v, was %v", again, r)
		}
	}
	got := openRows(t, run.NewTables(m.objects.Store, newMemory()))
	n := m.rng.IntN(3)
	t.Logf("%d cut off", n)
	for range n { // adoptions that a crash cuts off, perhaps of runs that are no more
		got.adopt(t, m.runs[:m.rng.IntN(len(m.runs)+1)]...)
	}
	got.adopt(t, m.runs...)
	m.same(t, "adopted", got, m.want)
	t.Logf("%d runs, %d tables, %d bytes outside", len(m.runs), tables, got.Metrics().Outside)
	m.goOn(got)
}

// base writes the rows of the moment.
func (m *model) base() {
	n := m.want.Snapshot()
	defer n.Close()
	scan, err := n.Scan(nil, nil, nil)
	must(m.t, err)
	defer scan.Close()
	w := run.NewWriter(context.Background(), m.config())
	defer w.Abort()
	for scan.Next() {
		must(m.t, w.Add(kv.Change{Kind: kv.ChangeSet, Key: scan.Key(), Value: scan.Value()}))
	}
	must(m.t, scan.Err())
	base, err := w.Finish()
	must(m.t, err)
	for _, one := range base {
		if one.Deletes+one.Ranges != 0 {
			m.t.Fatalf("a base with %d deletions", one.Deletes+one.Ranges)
		}
	}
	m.runs = append(m.runs, base)
}

func (m *model) fold(batches int) {
	f := run.NewFold()
	for range batches {
		changes := m.batch()
		m.want.commit(m.t, changes)
		for _, c := range changes {
			must(m.t, f.Add(c))
		}
	}
	w := run.NewWriter(context.Background(), m.config())
	defer w.Abort()
	must(m.t, f.Write(w))
	r, err := w.Finish()
	must(m.t, err)
	m.runs = append(m.runs, r)
}

// merge replaces some neighbours by one run.
func (m *model) merge() {
	from := m.rng.IntN(len(m.runs) - 1)
	to := from + 2 + m.rng.IntN(len(m.runs)-from-1)
	merged, err := run.Merge(context.Background(), m.config(), m.runs[from:to], from == 0)
	must(m.t, err)
	for _, one := range merged {
		if from == 0 && one.Deletes+one.Ranges != 0 {
			m.t.Fatalf("the bottom run has %d deletions", one.Deletes+one.Ranges)
		}
	}
	m.runs = append(append(append([][]run.Table{}, m.runs[:from]...), merged), m.runs[to:]...)
}

// goOn changes both stores alike.
func (m *model) goOn(got *rows) {
	t := m.t
	for range 25 {
		switch r := m.rng.IntN(20); {
		case r < 12:
			changes := m.batch()
			got.commit(t, changes)
			m.want.commit(t, changes)
		case r < 14:
			must(t, got.Flush())
		case r < 15:
			must(t, got.Compact(m.cut()[:2], []byte("z")))
		case r < 16:
			got.reopen(t)
		case r < 17:
			p := m.pick()
			must(t, got.Store.(kv.Adopter).Localize(context.Background(), p[:2], append(p[:2:2], 0xff)))
		default:
			m.same(t, "later", got, m.want)
		}
	}
	m.same(t, "at the end", got, m.want)
	must(t, got.Store.(kv.Adopter).Localize(context.Background(), []byte{0}, []byte("z")))
	m.same(t, "localized", got, m.want)
	tables, err := got.Store.(kv.Adopter).Adopted()
	must(t, err)
	for _, one := range tables { // a table may still be named, for a reader in the background
		if len(one.Parts) > 0 {
			t.Fatalf("after all is localized, table %s is needed for %v", one.Name, one.Parts)
		}
	}
	m.objects.count.reset()
	got.reopen(t)
	m.same(t, "localized and opened", got, m.want)
	if n, _ := m.objects.count.reset(); n != 0 || got.Metrics().Outside != 0 {
		t.Fatalf("%d requests, %d bytes outside after all is localized", n, got.Metrics().Outside)
	}
}
