package kvtest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"tine.dev/tine/internal/tine"
)

// testConcurrent has writers move two rows of one batch together, and readers
// that must never see them apart.
func testConcurrent(t *testing.T, d Driver) {
	s := open(t, d)
	const writers, rounds = 4, 60
	stop := make(chan struct{})
	var readers, all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for e := tine.Epoch(1); e <= rounds; e++ {
				b := s.NewBatch()
				b.Set(key(fmt.Sprintf("left-%d", w), e), []byte("l"))
				b.Set(key(fmt.Sprintf("right-%d", w), e), []byte("r"))
				if err := s.Commit(b, e%16 == 0); err != nil {
					t.Error(err)
					return
				}
				n := s.Snapshot()
				if _, got, ok, err := n.Newest(prefix(fmt.Sprintf("left-%d", w)), tine.Head); !ok || got != e || err != nil {
					t.Errorf("a commit that returned is not seen: %d, want %d (%v)", got, e, err)
				}
				_ = n.Close()
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				n := s.Snapshot()
				w := i % writers
				_, l, _, err1 := n.Newest(prefix(fmt.Sprintf("left-%d", w)), tine.Head)
				_, r, _, err2 := n.Newest(prefix(fmt.Sprintf("right-%d", w)), tine.Head)
				if l != r || err1 != nil || err2 != nil {
					t.Errorf("torn batch: left %d, right %d (%v, %v)", l, r, err1, err2)
				}
				_ = n.Close()
			}
		})
	}
	readers.Go(func() {
		for range 5 {
			if err := s.Flush(); err != nil {
				t.Error(err)
			}
			_ = s.Metrics()
		}
	})
	all.Wait()
	close(stop)
	readers.Wait()
}

func testClosed(t *testing.T, d Driver) {
	s := d.Open(t)
	put(t, s, "a0", 1)
	must(t, s.Close())
	must(t, s.Close())
	unavailable := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, &tine.Error{Kind: tine.KindUnavailable}) {
			t.Errorf("%s on a closed store: %v", what, err)
		}
	}
	_, _, _, err := s.Snapshot().Newest(prefix("a0"), 1)
	unavailable("newest", err)
	_, err = s.Snapshot().Scan(nil, nil, nil)
	unavailable("scan", err)
	unavailable("flush", s.Flush())
	unavailable("compact", s.Compact([]byte("a"), []byte("b")))
	b := s.NewBatch()
	b.Set(key("a0", 2), nil)
	unavailable("commit", s.Commit(b, true))
	_ = s.Metrics()
}
