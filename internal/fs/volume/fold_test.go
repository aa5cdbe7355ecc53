package volume_test

import (
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/kv"
	kvmem "tine.dev/tine/internal/fs/kv/mem"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// meeting is a row store in which a fold and a look-up meet: the fold, about to read
// what it moves, waits until a look-up is about to read its first row, and that waits
// until the fold has moved the rows.
type meeting struct {
	kv.Store
	folding, parked, moved chan struct{}
	fold, park, move       sync.Once
	armed                  chan struct{} // closed when they are to meet
}

func (m *meeting) on() bool {
	select {
	case <-m.armed:
		return true
	default:
		return false
	}
}

func isFold() bool { return strings.Contains(string(debug.Stack()), "stratum.(*Stratum).Fold(") }

func isLookup() bool { return strings.Contains(string(debug.Stack()), "volume.(*Session).Lookup(") }

func (m *meeting) Snapshot() kv.Snapshot { return &metSnapshot{m.Store.Snapshot(), m} }

func (m *meeting) Commit(b kv.Batch, sync bool) error {
	folds := m.on() && isFold()
	err := m.Store.Commit(b, sync)
	if folds {
		m.move.Do(func() { close(m.moved) })
	}
	return err
}

type metSnapshot struct {
	kv.Snapshot
	m *meeting
}

func (s *metSnapshot) Scan(lower, upper []byte, born *kv.Born) (kv.Scan, error) {
	s.meet()
	return s.Snapshot.Scan(lower, upper, born)
}

func (s *metSnapshot) Newest(prefix []byte, limit tine.Epoch) ([]byte, tine.Epoch, bool, error) {
	s.meet()
	return s.Snapshot.Newest(prefix, limit)
}

func (s *metSnapshot) meet() {
	m := s.m
	switch {
	case !m.on():
	case isFold():
		m.fold.Do(func() { close(m.folding); <-m.parked })
	case isLookup():
		m.park.Do(func() { close(m.parked); <-m.moved })
	}
}

// TestFoldBesideALookUp: a name that is looked up while its row is moved to another
// stratum is there (I11), though filters were asked before and rows are read after.
func TestFoldBesideALookUp(t *testing.T) {
	const rounds = 6
	met := 0
	for at := range rounds {
		m := &meeting{Store: kvmem.New(), folding: make(chan struct{}), parked: make(chan struct{}), moved: make(chan struct{}), armed: make(chan struct{})}
		h := open(t, volume.Options{Dir: t.TempDir(), Rows: m, Manual: true, UndoKeep: 1})
		if _, err := h.CreateDisk(ctx, me, "d"); err != nil {
			t.Fatal(err)
		}
		for r := range rounds {
			s := attach(t, h, "d")
			_, dir, err := s.Mkdir(root, volume.Root, fmt.Sprint("d", r), 0o755)
			must(t, err)
			for n := range 1 + 2*r { // the older, the smaller: they move to the newer
				f, _, _, err := s.Create(root, dir, fmt.Sprint("f", n), 0o644, false)
				must(t, err)
				must(t, f.Close())
			}
			must(t, s.Detach(ctx))
			cp := fmt.Sprint("cp", r)
			if _, err := h.Checkpoint(ctx, me, "d", cp, "", volume.WaitDurable); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Rollback(ctx, me, "d", cp); err != nil {
				t.Fatal(err)
			}
			must(t, h.RemoveCheckpoint(ctx, me, "d", cp))
		}
		s := attach(t, h, "d")
		_, dir, err := s.Lookup(volume.Root, fmt.Sprint("d", at)) // nothing newer has rows of it
		must(t, err)
		close(m.armed)
		idle := make(chan error, 1)
		go func() { idle <- h.ReclaimIdle(ctx) }()
		select {
		case <-m.folding:
			if _, _, err := s.Lookup(dir, "f0"); err != nil {
				t.Errorf("f0 of d%d, while its row is moved: %v", at, err)
			}
			m.park.Do(func() { close(m.parked) }) // it may have read nothing
			met++
			must(t, <-idle)
		case err := <-idle:
			must(t, err)
		case <-time.After(time.Minute):
			t.Fatal("background work does not end")
		}
		must(t, s.Detach(ctx))
		must(t, h.Close(ctx))
	}
	if met == 0 {
		t.Error("nothing was folded")
	}
}
