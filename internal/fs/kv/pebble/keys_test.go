package pebble

import (
	"bytes"
	"cmp"
	"math"
	"testing"

	pdb "github.com/cockroachdb/pebble/v2"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// rowKey makes the key of a row from any bytes: a name that ends in NUL, as
// the logical keys of package record do.
func rowKey(name []byte, e uint64) []byte {
	name = bytes.ReplaceAll(name, []byte{0}, []byte{1})
	return record.AppendEpoch(append(append([]byte("owner"), name...), 0), tine.Epoch(e))
}

func sign(n int) int { return max(-1, min(1, n)) }

// FuzzComparer holds the laws that Pebble builds on, for keys of rows: the
// order is that of the prefix, then of the epoch, newest first; what separates
// two keys lies between them and is a key; the interval of a block holds the
// epoch of every key in it.
func FuzzComparer(f *testing.F) {
	f.Add([]byte("a"), uint64(1), []byte("ab"), uint64(0))
	f.Add([]byte("a"), uint64(1), []byte("a"), uint64(math.MaxUint64))
	f.Add([]byte{0xff}, uint64(math.MaxUint64), []byte{}, uint64(math.MaxUint64-1))
	c := newComparer().EnsureDefaults()
	f.Fuzz(func(t *testing.T, n1 []byte, e1 uint64, n2 []byte, e2 uint64) {
		a, b := rowKey(n1, e1), rowKey(n2, e2)
		pa, pb := c.Split.Prefix(a), c.Split.Prefix(b)
		want := bytes.Compare(pa, pb)
		if want == 0 {
			want = cmp.Compare(e2, e1)
		}
		if got := c.Compare(a, b); sign(got) != want || c.Equal(a, b) != (want == 0) {
			t.Fatalf("compare %x, %x: %d, want %d", a, b, got, want)
		}
		if x, y := c.AbbreviatedKey(a), c.AbbreviatedKey(b); (x < y && want >= 0) || (x > y && want <= 0) {
			t.Fatalf("abbreviated keys of %x, %x sort otherwise", a, b)
		}
		if want < 0 {
			if s := c.Separator(nil, a, b); c.Compare(a, s) > 0 || c.Compare(s, b) >= 0 {
				t.Fatalf("separator %x of %x, %x", s, a, b)
			}
		}
		if s := c.Successor(nil, a); c.Compare(a, s) > 0 {
			t.Fatalf("successor %x of %x", s, a)
		}
		if s := c.ImmediateSuccessor(nil, pa); c.Compare(pa, s) >= 0 {
			t.Fatalf("immediate successor %x of %x", s, pa)
		}
		checkWriter(t, a, b, want)
		checkInterval(t, a, b, e1, e2)
	})
}

// checkWriter compares what the key writer reports with a plain computation,
// and reads back what it wrote.
func checkWriter(t *testing.T, a, b []byte, order int) {
	s := newSchema()
	w := s.NewKeyWriter()
	if order > 0 {
		a, b = b, a
	}
	for row, k := range [][]byte{a, b} {
		c := w.ComparePrev(k)
		if int(c.PrefixLen) != split(k) || (row == 0 && c.UserKeyComparison != 1) {
			t.Fatalf("row %d of %x: %v", row, k, c)
		}
		if row == 1 {
			same := bytes.Equal(a[:split(a)], b[:split(b)])
			if c.PrefixEqual() != same || sign(int(c.UserKeyComparison)) != bytes.Compare(b, a) {
				t.Fatalf("%x after %x: %v", b, a, c)
			}
		}
		w.WriteKey(row, k, c.PrefixLen, c.CommonPrefixLen)
		if got := w.MaterializeKey(nil, row); !bytes.Equal(got, k) {
			t.Fatalf("wrote %x, read %x", k, got)
		}
	}
}

func checkInterval(t *testing.T, a, b []byte, e1, e2 uint64) {
	c := newEpochCollector()
	for _, k := range [][]byte{a, b} {
		if err := c.AddPointKey(pdb.InternalKey{UserKey: k}, nil); err != nil {
			t.Fatal(err)
		}
	}
	prop, err := c.FinishDataBlock(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []uint64{e1, e2} {
		if e == 0 {
			continue // nothing is born in (x, 0]
		}
		hit, err := newEpochFilter(tine.Epoch(e-1), tine.Epoch(e)).Intersects(prop)
		if err != nil || !hit {
			t.Fatalf("the block of %x and %x is skipped for epoch %d (%v)", a, b, e, err)
		}
	}
	lo, hi := min(e1, e2), max(e1, e2)
	if hi < math.MaxUint64-3 {
		if hit, err := newEpochFilter(tine.Epoch(hi), tine.Epoch(hi+1)).Intersects(prop); err != nil || hit {
			t.Fatalf("a block of epochs up to %d is read for %d (%v)", hi, hi+1, err)
		}
	}
	if lo > 1 {
		if hit, err := newEpochFilter(tine.Epoch(0), tine.Epoch(lo-1)).Intersects(prop); err != nil || (hit && lo < math.MaxUint64) {
			t.Fatalf("a block of epochs from %d is read for %d (%v)", lo, lo-1, err)
		}
	}
}
