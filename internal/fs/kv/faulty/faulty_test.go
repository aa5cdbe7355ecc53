package faulty_test

import (
	"sync/atomic"
	"testing"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/faulty"
	"tine.dev/tine/internal/fs/kv/kvtest"
	"tine.dev/tine/internal/fs/kv/mem"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// TestContract: with an empty plan the wrapper is a store like any other.
func TestContract(t *testing.T) {
	kvtest.Run(t, kvtest.Driver{Open: func(*testing.T) kv.Store { return faulty.Wrap(mem.New(), faulty.Plan{}) }})
}

func put(s kv.Store, e tine.Epoch) error {
	b := s.NewBatch()
	b.Set(record.AppendEpoch([]byte("row"), e), nil)
	return s.Commit(b, true)
}

func newest(s kv.Store) (tine.Epoch, error) {
	n := s.Snapshot()
	defer n.Close()
	_, e, _, err := n.Newest([]byte("row"), tine.Head)
	return e, err
}

func wantKind(t *testing.T, what string, err error, k tine.ErrorKind) {
	t.Helper()
	if err == nil || tine.KindOf(err) != k {
		t.Errorf("%s: %v, want the kind %v", what, err, k)
	}
}

func TestCommitFaults(t *testing.T) {
	inner := mem.New()
	waited := int64(0)
	s := faulty.Wrap(inner, faulty.Plan{Commit: []faulty.Fault{
		{At: 2, Kind: tine.KindNoSpace},
		{At: 3, Wait: func(n int64) { waited = n }},
		{At: 4, Kind: tine.KindIO, Applied: true},
	}})
	if err := put(s, 1); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "second commit", put(s, 2), tine.KindNoSpace)
	if e, err := newest(s); e != 1 || err != nil {
		t.Errorf("a commit without space has happened: %d, %v", e, err)
	}
	if err := put(s, 3); err != nil || waited != 3 {
		t.Errorf("third commit: %v, waited at %d", err, waited)
	}
	wantKind(t, "fourth commit", put(s, 4), tine.KindIO)
	wantKind(t, "commit after poison", put(s, 5), tine.KindUnavailable)
	wantKind(t, "flush after poison", s.Flush(), tine.KindUnavailable)
	wantKind(t, "compact after poison", s.Compact([]byte("a"), []byte("b")), tine.KindUnavailable)
	_, err := newest(s)
	wantKind(t, "read after poison", err, tine.KindUnavailable)
	if e, err := newest(inner); e != 4 || err != nil {
		t.Errorf("underneath stands %d, %v; want the applied commit 4", e, err)
	}
}

func TestReadFaults(t *testing.T) {
	s := faulty.Wrap(mem.New(), faulty.Plan{Read: []faulty.Fault{{Every: 3, Kind: tine.KindCorrupt}}})
	for e := tine.Epoch(1); e <= 4; e++ {
		if err := put(s, e); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := newest(s); err != nil {
		t.Fatal(err)
	}
	n := s.Snapshot()
	c, err := n.Scan(nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if c.Next() {
			t.Error("a cursor goes on after an error")
		}
	}
	wantKind(t, "third read", c.Err(), tine.KindCorrupt)
	if _, err := newest(s); err != nil {
		t.Errorf("a failed read does not poison: %v", err)
	}
}

// TestSeed: the same seed fails the same calls, another seed others.
func TestSeed(t *testing.T) {
	run := func(seed uint64) (pattern uint64) {
		s := faulty.Wrap(mem.New(), faulty.Plan{Seed: seed, Commit: []faulty.Fault{{Percent: 30, Kind: tine.KindNoSpace}}})
		for i := range 64 {
			if put(s, tine.Epoch(i)) != nil {
				pattern |= 1 << i
			}
		}
		return pattern
	}
	a, b := run(7), run(7)
	if a != b || a == 0 || a == run(8) {
		t.Errorf("patterns %x, %x, %x", a, b, run(8))
	}
}

func TestBlockedCommit(t *testing.T) {
	entered, gate := make(chan struct{}), make(chan struct{})
	s := faulty.Wrap(mem.New(), faulty.Plan{Commit: []faulty.Fault{{At: 1, Wait: func(int64) { close(entered); <-gate }}}})
	var returned atomic.Bool
	done := make(chan error)
	go func() {
		err := put(s, 1)
		returned.Store(true)
		done <- err
	}()
	<-entered
	if e, err := newest(s); e != 0 || err != nil || returned.Load() {
		t.Errorf("a blocked commit has happened: %d, %v", e, err)
	}
	close(gate)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
