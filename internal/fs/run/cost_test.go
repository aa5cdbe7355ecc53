package run_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/run"
	"tine.dev/tine/internal/tine"
)

// TestColdRow finds one row in a run of very many, with nothing in memory or on the
// device. The row store also looks at the last frame of each table, in the
// background; that is counted apart.
func TestColdRow(t *testing.T) {
	n := 300000
	if os.Getenv("TINE_LONG") != "" {
		n = 1000000
	}
	o := newObjects(t)
	w := run.NewWriter(context.Background(), config(o, "0", 0))
	defer w.Abort()
	start := time.Now()
	for i := range n {
		must(t, w.Add(set('a', i, 1)))
	}
	r, err := w.Finish()
	must(t, err)
	var bytes int64
	for _, one := range r {
		bytes += one.ObjectBytes
	}
	t.Logf("%d rows in %d tables of %d bytes in all, written in %v", n, len(r), bytes, time.Since(start).Round(time.Millisecond))
	for _, i := range []int{0, n / 2, n - 1, n} {
		o.count.reset()
		s := openRows(t, run.NewTables(o.Store, newMemory()))
		s.adopt(t, r)
		v, err := find(s, 'a', i)
		must(t, err)
		if want := fmt.Sprintf("a/%d@1", i); i < n && v != want || i == n && v != "" {
			t.Fatalf("row %d is %q", i, v)
		}
		o.count.mu.Lock()
		most := 0
		for _, n := range o.count.byKey {
			most = max(most, n)
		}
		gets, read := o.count.gets, o.count.bytes
		o.count.mu.Unlock()
		background := int64(len(r)) * run.FrameBytes
		t.Logf("row %d: %d requests for its table; %d and %d bytes with those of the background", i, most, gets, read)
		if most >= 6 || read-background >= 2<<20 {
			t.Errorf("row %d took %d requests for its table and %d bytes in all", i, most, read)
		}
	}
}

// TestScanAhead scans a run from start to end: requests are large.
func TestScanAhead(t *testing.T) {
	o := newObjects(t)
	r := writeRun(t, o, "0", 0, many("a", 50000, 1)...)
	var bytes int64
	for _, one := range r {
		bytes += one.ObjectBytes
	}
	s := openRows(t, run.NewTables(o.Store, newMemory()))
	s.adopt(t, r)
	n := s.Snapshot()
	defer n.Close()
	c, err := n.Scan(nil, nil, nil)
	must(t, err)
	defer c.Close()
	rows := 0
	for c.Next() {
		rows++
	}
	must(t, c.Err())
	gets, read := o.count.reset()
	t.Logf("%d rows, %d bytes: %d requests, %d bytes read", rows, bytes, gets, read)
	if rows != 50000 || gets > 12 || read > 2*bytes {
		t.Errorf("%d rows took %d requests and %d bytes of %d", rows, gets, read, bytes)
	}
}

// TestAdoptMany adopts a hundred tables and one of a thousand owners.
func TestAdoptMany(t *testing.T) {
	o := newObjects(t)
	run100 := writeRun(t, o, "0", 1, many("a", 100, 1)...)
	var changes []kv.Change
	for i := range 1000 {
		id := [tine.IDSize]byte{'p', byte(i >> 8), byte(i)}
		changes = append(changes, kv.Change{Kind: kv.ChangeSet, Key: record.Key(id, record.InodeKey(1), 1), Value: []byte("x")})
	}
	owners := writeRun(t, o, "1", 0, changes...)
	if len(run100) != 100 || len(owners) != 1 || len(owners[0].Parts) != 1000 {
		t.Fatalf("%d and %d tables, %d parts", len(run100), len(owners), len(owners[0].Parts))
	}
	for name, r := range map[string][]run.Table{"100 tables": run100, "1,000 owners": owners} {
		o.count.reset()
		s := openRows(t, run.NewTables(o.Store, newMemory()))
		start := time.Now()
		s.adopt(t, r)
		gets, _ := o.count.reset()
		t.Logf("%s: adopted in %v, %d requests, %d bytes of manifest entry", name, time.Since(start).Round(100*time.Microsecond), gets, len(run.AppendTables(nil, r)))
	}
}
