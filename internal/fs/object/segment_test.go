package object

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/blob/faulty"
	"tine.dev/tine/internal/fs/blob/mem"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/tine"
)

// held is a segment of a store on the device, and what it should have.
type held struct {
	id   tine.SegmentID
	loc  record.Segment
	data []byte
	live []segment.Range
}

func (h *held) acquire(t *testing.T, files *segment.Store, from segment.Remote) *segment.Handle {
	t.Helper()
	p, err := files.AcquireFrom(h.id, h.loc, from)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (h *held) check(t *testing.T, files *segment.Store, from segment.Remote) {
	t.Helper()
	p := h.acquire(t, files, from)
	defer p.Release()
	for _, l := range h.live {
		b := make([]byte, l.Len)
		if err := p.ReadAt(b, l.Off); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, h.data[l.Off:l.Off+l.Len]) {
			t.Fatalf("%d bytes at %d of %v.%d are wrong", l.Len, l.Off, h.id, h.loc.Generation)
		}
	}
}

func (h *held) upload(t *testing.T, files *segment.Store, s *Store) {
	t.Helper()
	p := h.acquire(t, files, nil)
	defer p.Release()
	if _, err := s.Write(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	if err := files.Evict(h.id, h.loc.Generation); err != nil {
		t.Fatal(err)
	}
}

// TestSegmentsThatAreAway uploads and evicts segments and goes on with them:
// reads, repacks, uploads of what was repacked, all of it with files that come
// and go.
func TestSegmentsThatAreAway(t *testing.T) {
	r := newRand(t)
	w := faulty.Wrap(mem.New(mem.Options{}), faulty.Plan{})
	s := newStore(t, w, once(2))
	files, err := segment.Open(segment.Options{FS: vfs.NewMem(), Dir: "segments", OpenFiles: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	var all []*held
	for range 4 {
		all = append(all, newHeld(t, files, r))
	}
	for range 3 {
		for _, h := range all {
			h.upload(t, files, s)
		}
		if n := files.DiskBytes(); n != 0 {
			t.Fatalf("%d bytes are left on the device", n)
		}
		for _, h := range all {
			h.check(t, files, s)
			h.repack(t, files, s, r)
			h.check(t, files, nil)
		}
	}
	h := all[0]
	h.upload(t, files, s)
	s.Forget(h.id, h.loc.Generation)
	w.SetPlan(faulty.Plan{Faults: []faulty.Fault{{Ops: faulty.Reads, What: faulty.Busy, Every: 1}}})
	p := h.acquire(t, files, s)
	wantKind(t, p.ReadAt(make([]byte, 1), h.live[0].Off), tine.KindUnavailable)
	w.SetPlan(faulty.Plan{Faults: []faulty.Fault{{Ops: faulty.Reads, What: faulty.Vanished, Every: 1}}})
	wantKind(t, p.ReadAt(make([]byte, 1), h.live[0].Off), tine.KindCorrupt)
	w.SetPlan(faulty.Plan{})
	p.Release()
	h.check(t, files, s)
}

func newHeld(t *testing.T, files *segment.Store, r *rand.Rand) *held {
	t.Helper()
	w, err := files.Create(tine.NewID[tine.SegmentID](time.Unix(1_700_000_000, 0)), time.Unix(1_700_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	h := &held{id: w.ID(), data: newModel(r, 1+r.Int64N(4<<20)).data}
	if _, err := w.Append(h.data); err != nil {
		t.Fatal(err)
	}
	if h.loc, err = w.Seal(); err != nil {
		t.Fatal(err)
	}
	h.live = []segment.Range{{Off: 0, Len: int64(len(h.data))}}
	return h
}

// repack leaves a part of what is live.
func (h *held) repack(t *testing.T, files *segment.Store, s *Store, r *rand.Rand) {
	t.Helper()
	var live []segment.Range
	for _, l := range h.live {
		for off := l.Off; off < l.Off+l.Len; {
			n := min(1+r.Int64N(400<<10), l.Off+l.Len-off)
			if r.IntN(3) > 0 || len(live) == 0 {
				live = append(live, segment.Range{Off: off, Len: n})
			}
			off += n
		}
	}
	old := h.loc
	loc, err := files.RepackFrom(h.id, old, slices.Clone(live), s, 0)
	if err != nil {
		t.Fatal(err)
	}
	h.loc, h.live = loc, live
	if err := files.Remove(h.id, old.Generation); err != nil {
		t.Fatal(err)
	}
	s.Forget(h.id, old.Generation)
	if err := files.Check(h.id, loc); err != nil {
		t.Fatal(err)
	}
}
