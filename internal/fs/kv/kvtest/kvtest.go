// Package kvtest is the contract of the key-value seam as a test suite. Every
// driver runs it; what a driver may do differently is not in it.
package kvtest

import (
	"bytes"
	"fmt"
	"testing"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Driver tells the suite how to get at a driver.
type Driver struct {
	// Open returns an empty store.
	Open func(t *testing.T) kv.Store
	// Reopen closes s and opens what it has left; nil if nothing survives.
	Reopen func(t *testing.T, s kv.Store) kv.Store
}

// Run runs the suite.
func Run(t *testing.T, d Driver) {
	tests := []struct {
		name string
		run  func(*testing.T, Driver)
	}{
		{"Newest", testNewest}, {"ScanBounds", testScanBounds}, {"ScanOfPrefix", testScanOfPrefix},
		{"BornAndTombstones", testBornAndTombstones}, {"SnapshotIsOneMoment", testSnapshotIsOneMoment},
		{"BatchOrder", testBatchOrder}, {"Misuse", testMisuse}, {"EdgeEpochs", testEdgeEpochs},
		{"LargeValues", testLargeValues}, {"Concurrent", testConcurrent}, {"Closed", testClosed},
		{"Random", testRandom}, {"Changes", testChanges},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) { tc.run(t, d) })
	}
}

func open(t *testing.T, d Driver) kv.Store {
	s := d.Open(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

var owner = [tine.IDSize]byte{'o', 'w', 'n', 'e', 'r'}

// at is a place among the names of one directory: the start of all rows whose
// name starts with s.
func at(s string) []byte {
	return append(record.AppendKey(nil, owner, record.InoPrefix(record.TableDentry, 1)), s...)
}

// prefix is the key, without epoch, of the row of a name.
func prefix(name string) []byte { return append(at(name), 0) }

func key(name string, e tine.Epoch) []byte { return record.AppendEpoch(prefix(name), e) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func commit(t testing.TB, s kv.Store, sync bool, build func(kv.Batch)) {
	t.Helper()
	b := s.NewBatch()
	build(b)
	must(t, s.Commit(b, sync))
}

func put(t testing.TB, s kv.Store, name string, epochs ...tine.Epoch) {
	t.Helper()
	commit(t, s, false, func(b kv.Batch) {
		for _, e := range epochs {
			b.Set(key(name, e), fmt.Appendf(nil, "%s@%d", name, e))
		}
	})
}

// rows reads all rows of a scan as text, one a line.
func rows(t testing.TB, n kv.Snapshot, lower, upper []byte, born *kv.Born) string {
	t.Helper()
	c, err := n.Scan(lower, upper, born)
	must(t, err)
	defer c.Close()
	var out bytes.Buffer
	for c.Next() {
		fmt.Fprintf(&out, "%x=%x\n", c.Key(), c.Value())
	}
	must(t, c.Err())
	return out.String()
}

func wantRows(t testing.TB, n kv.Snapshot, lower, upper []byte, born *kv.Born, want ...[]byte) {
	t.Helper()
	c, err := n.Scan(lower, upper, born)
	must(t, err)
	defer c.Close()
	for i := range want {
		if !c.Next() {
			t.Fatalf("the scan ended after %d of %d rows (%v)", i, len(want), c.Err())
		}
		if !bytes.Equal(c.Key(), want[i]) {
			t.Fatalf("row %d is %q, want %q", i, c.Key(), want[i])
		}
	}
	if c.Next() {
		t.Fatalf("%q comes after the last row wanted", c.Key())
	}
	must(t, c.Err())
}

func wantNewest(t testing.TB, n kv.Snapshot, name string, limit, birth tine.Epoch) {
	t.Helper()
	v, e, ok, err := n.Newest(prefix(name), limit)
	must(t, err)
	switch {
	case birth == 0 && ok:
		t.Fatalf("newest %q at %d is born %d, want none", name, limit, e)
	case birth != 0 && (!ok || e != birth || string(v) != fmt.Sprintf("%s@%d", name, birth)):
		t.Fatalf("newest %q at %d is %q born %d (%v), want born %d", name, limit, v, e, ok, birth)
	}
}

// settle runs check on the store as it is, after a flush, after a compaction
// and after a re-opening: rows mean the same wherever they lie.
func settle(t *testing.T, d Driver, s kv.Store, check func(kv.Store)) {
	t.Helper()
	check(s)
	must(t, s.Flush())
	check(s)
	must(t, s.Compact([]byte{0}, []byte{0xff}))
	check(s)
	if d.Reopen != nil {
		s = d.Reopen(t, s)
		defer func() { must(t, s.Close()) }()
		check(s)
	}
}

func testNewest(t *testing.T, d Driver) {
	s := open(t, d)
	put(t, s, "row-a", 3, 7, 20)
	put(t, s, "row-b", 5)
	put(t, s, "row-d", 9)
	settle(t, d, s, func(s kv.Store) {
		n := s.Snapshot()
		defer n.Close()
		for _, w := range []struct {
			name         string
			limit, birth tine.Epoch
		}{
			{"row-a", 2, 0}, {"row-a", 3, 3}, {"row-a", 6, 3}, {"row-a", 7, 7}, {"row-a", 19, 7},
			{"row-a", 20, 20}, {"row-a", tine.Head, 20}, {"row-b", 4, 0}, {"row-b", 5, 5},
			{"row-c", tine.Head, 0}, {"row-d", 8, 0}, {"row-d", 9, 9}, {"row-", tine.Head, 0}, {"zzz", 1, 0},
			{"row-a", 8, 7}, // back again: a reader may ask in any order
		} {
			wantNewest(t, n, w.name, w.limit, w.birth)
		}
	})
}

func testScanBounds(t *testing.T, d Driver) {
	s := open(t, d)
	put(t, s, "a0", 1, 2)
	put(t, s, "b0", 1)
	put(t, s, "c0", 4)
	settle(t, d, s, func(s kv.Store) {
		n := s.Snapshot()
		defer n.Close()
		a2, a1, b1, c4 := key("a0", 2), key("a0", 1), key("b0", 1), key("c0", 4)
		wantRows(t, n, nil, nil, nil, a2, a1, b1, c4)
		wantRows(t, n, at("a"), at("b"), nil, a2, a1)
		wantRows(t, n, a1, c4, nil, a1, b1)
		wantRows(t, n, a2, a2, nil)
		wantRows(t, n, at("c"), at("a"), nil)
		wantRows(t, n, at("d"), nil, nil)
		c, err := n.Scan(a1, c4, nil)
		must(t, err)
		defer c.Close()
		if !c.Seek(b1) || !bytes.Equal(c.Key(), b1) || string(c.Value()) != "b0@1" {
			t.Fatal("seek to a row")
		}
		if !c.Seek(at("a")) || !bytes.Equal(c.Key(), a1) {
			t.Fatal("a seek before the scan's start must land on its first row")
		}
		if !c.Next() || !bytes.Equal(c.Key(), b1) || c.Next() || c.Next() {
			t.Fatal("next after a seek")
		}
		if c.Seek(c4) || c.Seek(at("zz")) || c.Err() != nil {
			t.Fatal("a seek beyond the scan's end finds nothing")
		}
		if !c.Seek(b1) {
			t.Fatal("a cursor at its end can be moved back")
		}
	})
}

// testScanOfPrefix starts scans at bare prefixes of many lengths, in a store
// of many blocks: bytes at the end of a prefix are not an epoch.
func testScanOfPrefix(t *testing.T, d Driver) {
	s := open(t, d)
	const groups, per = 64, 40
	name := func(g, i int) string { return fmt.Sprintf("group-%010d/%06d", g, i) }
	for g := range groups {
		commit(t, s, false, func(b kv.Batch) {
			for i := range per {
				b.Set(key(name(g, i), tine.Epoch(1+i%3)), bytes.Repeat([]byte{byte(i)}, 50))
			}
		})
	}
	settle(t, d, s, func(s kv.Store) {
		n := s.Snapshot()
		defer n.Close()
		for g := range groups {
			group := at(fmt.Sprintf("group-%010d/", g))
			var want [][]byte
			for i := range per {
				want = append(want, key(name(g, i), tine.Epoch(1+i%3)))
			}
			wantRows(t, n, group, record.PrefixEnd(group), nil, want...)
			for cut := 1; cut <= record.EpochLen+2; cut++ {
				full := want[per/2]
				wantRows(t, n, full[:len(full)-cut], record.PrefixEnd(group), nil, want[per/2:]...)
			}
		}
	})
}

// testBornAndTombstones deletes old rows by a commit much later: the tombstone
// lies in other blocks, and in other files, than what it hides.
func testBornAndTombstones(t *testing.T, d Driver) {
	s := open(t, d)
	name := func(i int) string { return fmt.Sprintf("row-%06d", i) }
	const n = 3000
	for e := tine.Epoch(1); e <= 3; e++ {
		commit(t, s, false, func(b kv.Batch) {
			for i := range n {
				b.Set(key(name(i), e), bytes.Repeat([]byte{byte(e)}, 30))
			}
		})
		must(t, s.Flush())
	}
	must(t, s.Compact([]byte{0}, []byte{0xff}))
	// Few tombstones of epoch 2 among many new rows of epoch 900.
	commit(t, s, false, func(b kv.Batch) {
		for i := 0; i < n; i++ {
			b.Set(key(name(i), 900), []byte("new"))
			if i%10 == 0 {
				b.Delete(key(name(i), 2))
			}
		}
		b.DeleteRange(at(name(1000)), at(name(1100)))
	})
	settle(t, d, s, func(s kv.Store) {
		sn := s.Snapshot()
		defer sn.Close()
		for e := tine.Epoch(1); e <= 4; e++ {
			var want [][]byte
			for i := range n {
				gone := i >= 1000 && i < 1100
				if e <= 3 && !gone && (e != 2 || i%10 != 0) {
					want = append(want, key(name(i), e))
				}
			}
			wantRows(t, sn, nil, nil, &kv.Born{After: e - 1, UpTo: e}, want...)
		}
		wantRows(t, sn, nil, nil, &kv.Born{After: 3, UpTo: 899})
		wantRows(t, sn, nil, nil, &kv.Born{After: 5, UpTo: 2})
	})
}

func testSnapshotIsOneMoment(t *testing.T, d Driver) {
	s := open(t, d)
	put(t, s, "a0", 1)
	put(t, s, "b0", 1)
	n := s.Snapshot()
	defer n.Close()
	wantNewest(t, n, "a0", tine.Head, 1)
	commit(t, s, false, func(b kv.Batch) {
		b.DeleteRange(at("a"), at("z"))
		b.Set(key("c0", 2), []byte("c0@2"))
	})
	must(t, s.Flush())
	must(t, s.Compact([]byte{0}, []byte{0xff}))
	wantNewest(t, n, "a0", tine.Head, 1)
	wantNewest(t, n, "c0", tine.Head, 0)
	wantRows(t, n, nil, nil, nil, key("a0", 1), key("b0", 1))
	later := s.Snapshot()
	wantRows(t, later, nil, nil, nil, key("c0", 2))
	must(t, later.Close())
	c, err := n.Scan(nil, nil, nil)
	must(t, err)
	if !c.Next() || !bytes.Equal(c.Key(), key("a0", 1)) {
		t.Fatal("a scan of an old snapshot sees its moment")
	}
	wantNewest(t, n, "b0", 5, 1) // a point read while the scan is open
	if !c.Next() || !bytes.Equal(c.Key(), key("b0", 1)) {
		t.Fatal("a scan is not moved by point reads")
	}
	must(t, c.Close())
}

func testBatchOrder(t *testing.T, d Driver) {
	s := open(t, d)
	commit(t, s, true, func(b kv.Batch) {
		k := key("a0", 1)
		b.Set(k, []byte("x"))
		b.Delete(k)
		b.Set(key("b0", 1), []byte("y"))
		b.DeleteRange(at("b"), at("c"))
		b.Set(key("b0", 2), []byte("b0@2"))
		v := []byte("c0@1")
		k = key("c0", 1)
		b.Set(k, v)
		v[0], k[0] = 'X', 'X' // the batch has its own copy
		if b.Len() != 6 || b.Size() == 0 {
			t.Errorf("len %d, size %d", b.Len(), b.Size())
		}
	})
	commit(t, s, true, func(kv.Batch) {})
	n := s.Snapshot()
	defer n.Close()
	wantRows(t, n, nil, nil, nil, key("b0", 2), key("c0", 1))
	wantNewest(t, n, "c0", 1, 1)
}

func testMisuse(t *testing.T, d Driver) {
	s := open(t, d)
	b := s.NewBatch()
	b.Set(key("a0", 1), nil)
	must(t, s.Commit(b, false))
	if err := s.Commit(b, false); err == nil {
		t.Error("a batch can be committed twice")
	}
	b = s.NewBatch()
	b.Delete(key("a0", 1))
	b.Discard()
	n := s.Snapshot()
	v, _, ok, err := n.Newest(prefix("a0"), 1)
	if !ok || len(v) != 0 || err != nil {
		t.Error("an empty value is a value")
	}
	must(t, n.Close())
	must(t, n.Close())
	must(t, s.Snapshot().Close())
	must(t, s.Compact([]byte("b"), []byte("a")))
}

func testEdgeEpochs(t *testing.T, d Driver) {
	s := open(t, d)
	top := ^tine.Epoch(0)
	put(t, s, "a0", 0, 1, tine.Head, top-1, top)
	settle(t, d, s, func(s kv.Store) {
		n := s.Snapshot()
		defer n.Close()
		wantNewest(t, n, "a0", top, top)
		wantNewest(t, n, "a0", top-1, top-1)
		wantNewest(t, n, "a0", tine.Head, tine.Head)
		if _, e, ok, err := n.Newest(prefix("a0"), 0); !ok || e != 0 || err != nil {
			t.Fatal("epoch 0")
		}
		wantRows(t, n, nil, nil, &kv.Born{After: top - 1, UpTo: top}, key("a0", top))
		wantRows(t, n, nil, nil, &kv.Born{After: top - 2, UpTo: top}, key("a0", top), key("a0", top-1))
		wantRows(t, n, nil, nil, &kv.Born{After: 0, UpTo: 1}, key("a0", 1))
		wantRows(t, n, nil, nil, &kv.Born{After: top, UpTo: top})
	})
}

func testLargeValues(t *testing.T, d Driver) {
	s := open(t, d)
	big := bytes.Repeat([]byte("0123456789abcdef"), 256<<10) // 4 MiB
	commit(t, s, true, func(b kv.Batch) {
		b.Set(key("a0", 1), big)
		b.Set(key("a0", 2), big[:100])
	})
	settle(t, d, s, func(s kv.Store) {
		n := s.Snapshot()
		defer n.Close()
		for e, want := range map[tine.Epoch][]byte{1: big, 2: big[:100]} {
			v, _, _, err := n.Newest(prefix("a0"), e)
			must(t, err)
			if !bytes.Equal(v, want) {
				t.Fatalf("the value of epoch %d has %d bytes, want %d", e, len(v), len(want))
			}
		}
	})
}
