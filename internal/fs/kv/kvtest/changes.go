package kvtest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"tine.dev/tine/internal/fs/kv"
)

// testChanges reads a batch back: its changes, in order, make another batch
// that does the same.
func testChanges(t *testing.T, d Driver) {
	s := open(t, d)
	build := func(b kv.Batch) {
		b.Set(key("a", 1), []byte("one"))
		b.Set(key("a", 2), nil)
		b.Delete(key("b", 1))
		b.DeleteRange(at("c"), at("d"))
		b.Set(key("c", 1), []byte("after the range"))
		b.Set(key("a", 1), []byte("again"))
	}
	b := s.NewBatch()
	build(b)
	var got []string
	again := s.NewBatch()
	must(t, b.Changes(func(c kv.Change) error {
		got = append(got, fmt.Sprintf("%d %x %s", c.Kind, c.Key, c.Value))
		c.Apply(again)
		return nil
	}))
	want := []string{
		fmt.Sprintf("1 %x one", key("a", 1)),
		fmt.Sprintf("1 %x ", key("a", 2)),
		fmt.Sprintf("2 %x ", key("b", 1)),
		fmt.Sprintf("3 %x %s", at("c"), at("d")),
		fmt.Sprintf("1 %x after the range", key("c", 1)),
		fmt.Sprintf("1 %x again", key("a", 1)),
	}
	if !slices.Equal(got, want) {
		t.Errorf("the changes are %q, want %q", got, want)
	}
	put(t, s, "b", 1)
	put(t, s, "c", 2)
	must(t, s.Commit(again, false))
	n := s.Snapshot()
	defer n.Close()
	wantRows(t, n, at(""), at("zz"), nil, key("a", 2), key("a", 1), key("c", 1))

	stop := errors.New("stop")
	calls := 0
	if err := b.Changes(func(kv.Change) error { calls++; return stop }); !errors.Is(err, stop) || calls != 1 {
		t.Errorf("stopped by %v after %d calls", err, calls)
	}
	b.Discard()
}
