package pebble

import (
	"bytes"
	"math"
	"testing"

	pdb "github.com/cockroachdb/pebble/v2"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// FuzzComparer holds the laws that Pebble builds on, for any bytes: the order
// is that of the prefix, then of what follows it, and what separates two keys
// lies between them. For two keys of rows: the interval of a block holds the
// epoch of every key in it.
func FuzzComparer(f *testing.F) {
	var owner [tine.IDSize]byte
	for _, l := range logicals() {
		full := record.Key(owner, l, 7)
		f.Add(full, full[:len(full)-3], uint64(1), uint64(math.MaxUint64))
		f.Add(full[:len(full)-10], append(full, 0), uint64(0), uint64(5))
	}
	f.Add([]byte("b"), []byte("a0"), uint64(math.MaxUint64), uint64(math.MaxUint64-1))
	c := newComparer().EnsureDefaults()
	f.Fuzz(func(t *testing.T, a, b []byte, e1, e2 uint64) {
		pa, pb := c.Split.Prefix(a), c.Split.Prefix(b)
		want := bytes.Compare(pa, pb)
		if want == 0 {
			want = c.ComparePointSuffixes(a[len(pa):], b[len(pb):])
		}
		if got := c.Compare(a, b); got != want || c.Equal(a, b) != (want == 0) {
			t.Fatalf("compare %x, %x: %d, want %d", a, b, got, want)
		}
		if len(pa) < len(a) && (c.Compare(pa, a) >= 0 || c.Split(pa) != len(pa)) {
			t.Fatalf("%x is not the prefix of %x", pa, a)
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
		checkInterval(t, record.AppendEpoch(bytes.Clone(a), tine.Epoch(e1)), record.AppendEpoch(bytes.Clone(b), tine.Epoch(e2)), e1, e2)
	})
}

// logicals are logical keys of every table that has a shape of its own.
func logicals() []record.Logical {
	var id [tine.IDSize]byte
	id[3] = 9
	l := []record.Logical{
		record.InodeKey(1), record.OrphanKey(2), record.DentryKey(3, "name"), record.DentryKey(0, "\xff"), record.XattrKey(4, "user.a"),
		record.CookieKey(5, 6), record.ChunkKey(7, 0), record.LinkKey(8, 9, "name"), record.TableKey(record.TableCounters),
		record.TableKey(record.TableTree), record.TaskKey(10), record.OutboxKey(10), record.TableKey(record.TableShipped), record.LogKey(tine.DiskID(id), 11),
		record.OffsetKey(record.TableTail, tine.SegmentID(id), 0), record.OffsetKey(record.TablePiece, tine.SegmentID(id), 12),
	}
	for _, t := range []record.Table{record.TableTimeline, record.TableCheckpoint, record.TableSegment, record.TableLive, record.TableAlias, record.TableDisk, record.TableGrave} {
		l = append(l, record.IDKey(t, id))
	}
	return l
}

// TestSplitRows checks that the prefix of every kind of row is its whole key
// without the epoch, whatever the epoch.
func TestSplitRows(t *testing.T) {
	owner := [tine.IDSize]byte{1, 2, 3}
	for _, l := range logicals() {
		for _, e := range []tine.Epoch{0, 1, tine.Head, math.MaxUint64} {
			full := record.Key(owner, l, e)
			if got, want := split(full), len(full)-record.EpochLen; got != want {
				t.Errorf("table %#x: a key of %d bytes is split at %d, want %d", byte(l.Table()), len(full), got, want)
			}
			for n := range full {
				if got := split(full[:n]); got != min(n, len(full)-record.EpochLen) {
					t.Errorf("table %#x: the first %d bytes are split at %d", byte(l.Table()), n, got)
				}
			}
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
