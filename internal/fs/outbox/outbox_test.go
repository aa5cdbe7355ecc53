package outbox_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"tine.dev/tine/internal/fs/journal"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/faulty"
	"tine.dev/tine/internal/fs/kv/mem"
	"tine.dev/tine/internal/fs/outbox"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

var (
	tree    = tine.TreeID{1}
	stratum = tine.StratumID{2}
	codec   = journal.NewCodec()
)

func row(ino int) []byte { return record.Key(stratum, record.InodeKey(tine.Ino(ino)), 1) }

func set(o *outbox.Outbox, ino int, v uint64) error {
	b := o.NewBatch()
	b.Set(row(ino), binary.BigEndian.AppendUint64(nil, v))
	return o.Commit(b, true)
}

// entries reads the outbox: number and changes.
func entries(t *testing.T, o *outbox.Outbox, after, upTo uint64) (got []string) {
	t.Helper()
	err := o.Each(after, upTo, func(e outbox.Entry) error {
		return codec.Each(e.Packed, func(c kv.Change) error {
			got = append(got, fmt.Sprintf("%d: %d %x %x", e.Sequence, c.Kind, c.Key, c.Value))
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestDependentCommitsAreInOrder: of commits that each wait for another to
// return, entries are numbered in that order, and no number is settled while a
// smaller one is under way.
func TestDependentCommitsAreInOrder(t *testing.T) {
	hold, let := make(chan struct{}), make(chan struct{})
	rows := faulty.Wrap(mem.New(), faulty.Plan{Commit: []faulty.Fault{{At: 2, Wait: func(int64) { close(hold); <-let }, Kind: tine.KindInternal}}})
	o, err := outbox.Open(rows, tree, 0, codec)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(set(o, 1, 1))
	var late sync.WaitGroup
	late.Go(func() { must(set(o, 2, 2)) })
	<-hold
	must(set(o, 3, 3))
	if settled, newest := o.Settled(); settled != 1 || newest != 3 {
		t.Errorf("settled %d of %d while number 2 is under way", settled, newest)
	}
	close(let)
	late.Wait()
	if settled, newest := o.Settled(); settled != 3 || newest != 3 {
		t.Errorf("settled %d of %d", settled, newest)
	}
	want := []string{
		fmt.Sprintf("1: 1 %x %016x", row(1), 1), fmt.Sprintf("2: 1 %x %016x", row(2), 2), fmt.Sprintf("3: 1 %x %016x", row(3), 3),
	}
	if got := entries(t, o, 0, 0); !slices.Equal(got, want) {
		t.Errorf("the entries are %q", got)
	}
	if got := entries(t, o, 1, 2); !slices.Equal(got, want[1:2]) {
		t.Errorf("entry 2 is %q", got)
	}
	must(o.Remove(record.Shipped{Number: 1, Term: 1, Sequence: 2}))
	again, err := outbox.Open(rows, tree, 2, codec)
	must(err)
	if got := entries(t, again, 0, 0); !slices.Equal(got, want[2:]) {
		t.Errorf("after the first two are removed: %q", got)
	}
	must(set(again, 4, 4))
	if _, newest := again.Settled(); newest != 4 {
		t.Errorf("an outbox that is opened again goes on with %d", newest)
	}
	if s, ok, err := outbox.Shipped(rows, tree); err != nil || !ok || s.Sequence != 2 {
		t.Errorf("shipped: %+v, %v, %v", s, ok, err)
	}
}

// TestRefusedCommitsLeaveNothing: a batch for which there is no room leaves no
// entry, and holds up nothing.
func TestRefusedCommitsLeaveNothing(t *testing.T) {
	rows := faulty.Wrap(mem.New(), faulty.Plan{Commit: []faulty.Fault{{At: 2, Kind: tine.KindNoSpace}}})
	o, err := outbox.Open(rows, tree, 0, codec)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []error{nil, tine.ErrNoSpace, nil} {
		if err := set(o, i, 0); !errors.Is(err, want) {
			t.Errorf("commit %d: %v", i, err)
		}
	}
	if settled, _ := o.Settled(); settled != 3 {
		t.Errorf("settled: %d", settled)
	}
	if got := entries(t, o, 0, 0); len(got) != 2 {
		t.Errorf("the entries are %q", got)
	}
}

// TestWhatIsOfThisMachine: of open segments another machine is told that
// nothing of them is in a file, and tail rows of this one do not travel; what
// another machine got as tails goes when the segment is sealed or dropped.
func TestWhatIsOfThisMachine(t *testing.T) {
	o, err := outbox.Open(mem.New(), tree, 0, codec)
	if err != nil {
		t.Fatal(err)
	}
	id := tine.SegmentID{5}
	loc := record.Segment{State: record.SegmentOpen, End: 100, Synced: 50}
	elsewhere := loc
	elsewhere.Synced = 0
	sealed := record.Segment{State: record.SegmentSealed, End: 100, Synced: 100, Physical: 300}
	key := record.Key(tree, record.IDKey(record.TableSegment, id), 0)
	tails := record.AppendKey(nil, tree, record.IDKey(record.TableTail, id))
	drop := fmt.Sprintf("3 %x %x", tails, record.PrefixEnd(tails))
	for i, tc := range []struct {
		build func(kv.Batch)
		want  []string
	}{
		{func(b kv.Batch) {
			b.Set(record.Key(tree, record.OffsetKey(record.TableTail, id, 50), 0), []byte("tail"))
			b.Set(key, loc.Append(nil))
		}, []string{fmt.Sprintf("1 %x %x", key, elsewhere.Append(nil))}},
		{func(b kv.Batch) { b.Delete(record.Key(tree, record.OffsetKey(record.TableTail, id, 50), 0)) }, nil},
		{func(b kv.Batch) { b.Set(key, sealed.Append(nil)) }, []string{fmt.Sprintf("1 %x %x", key, sealed.Append(nil)), drop}},
		{func(b kv.Batch) { b.Delete(key) }, []string{fmt.Sprintf("2 %x ", key), drop}},
		{func(b kv.Batch) { b.DeleteRange(tree[:], record.PrefixEnd(tree[:])) }, []string{fmt.Sprintf("3 %x %x", tree[:], record.PrefixEnd(tree[:]))}},
	} {
		_, before := o.Settled()
		b := o.NewBatch()
		tc.build(b)
		if err := o.Commit(b, true); err != nil {
			t.Fatal(err)
		}
		got := entries(t, o, before, 0)
		for i := range got {
			got[i] = got[i][3:]
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("batch %d travels as %q, want %q", i, got, tc.want)
		}
	}
}

// TestFlushesThatAreNeeded: what was committed with a flush, or before one that began later, is not
// flushed again.
func TestFlushesThatAreNeeded(t *testing.T) {
	rows := faulty.Wrap(mem.New(), faulty.Plan{})
	o, err := outbox.Open(rows, tree, 0, codec)
	if err != nil {
		t.Fatal(err)
	}
	commit := func(sync bool) {
		t.Helper()
		b := o.NewBatch()
		b.Set(row(1), nil)
		if err := o.Commit(b, sync); err != nil {
			t.Fatal(err)
		}
	}
	for i, tc := range []struct {
		syncs []bool
		flush bool
	}{
		{[]bool{true}, false}, {[]bool{false, true}, false}, {[]bool{true, false}, true}, {nil, false}, {[]bool{false}, true}, {[]bool{true, true}, false},
	} {
		for _, sync := range tc.syncs {
			commit(sync)
		}
		settled, _ := o.Settled()
		before := rows.Commits()
		if err := o.Firm(settled); err != nil {
			t.Fatal(err)
		}
		if flushed := rows.Commits() > before; flushed != tc.flush {
			t.Errorf("case %d: flushed %v, want %v", i, flushed, tc.flush)
		}
	}
}
