package segment

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/singleflight"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Remote finds sealed segments whose files are not on this device. It is safe
// for concurrent use.
type Remote interface {
	// OpenSegment opens one generation of a segment. It is called at the first
	// read, again after a failure, and after the segment was not read for long.
	// Errors: KindNotFound, KindCorrupt, KindUnavailable and whatever the place
	// has; the caller of ReadAt sees them as Handle.ReadAt says.
	OpenSegment(ctx context.Context, id tine.SegmentID, generation uint64) (RemoteSegment, error)
}

// RemoteSegment is a sealed segment elsewhere. It is safe for concurrent use
// and holds nothing that would have to be given back.
type RemoteSegment interface {
	// Payload returns which ranges of the payload are there, ascending, apart,
	// from block boundary to block boundary or the end; and the logical end.
	Payload() (present []Range, end int64)
	// ReadAt reads all of p from the logical offset off, verified, or fails.
	ReadAt(ctx context.Context, p []byte, off int64) error
}

// away stands in for the file of a segment that is not on this device. Opening
// takes requests to a store, so it is put off to the first read: Acquire is
// called under locks of the engine.
type away struct {
	from    Remote
	loc     record.Segment // as of who came first; a sealed row never changes
	opening singleflight.Group
	opened  atomic.Pointer[opened]
}

type opened struct {
	seg    RemoteSegment
	layout *layout // as the file has it, or would have
}

// open returns the segment, opened. Those who come meanwhile get the same
// result, so that a store that does not answer keeps them waiting once.
func (f *file) open(a *away) (*opened, error) {
	if o := a.opened.Load(); o != nil {
		return o, nil
	}
	v, err, _ := a.opening.Do("", func() (any, error) {
		seg, err := a.from.OpenSegment(f.s.life, f.key.id, f.key.generation)
		if err != nil {
			return nil, f.remoteError(err)
		}
		present, end := seg.Payload()
		runs, err := liveRuns(f.key.id, present, end)
		if err != nil {
			return nil, tine.Errorf(tine.KindCorrupt, "segment %s.%d in the store: %w", f.key.id, f.key.generation, err)
		}
		l := newLayout(runs, end)
		if end != a.loc.End || l.physical != a.loc.Physical {
			return nil, tine.Errorf(tine.KindCorrupt, "segment %s.%d in the store has %d bytes in a file of %d, its row says %d in %d",
				f.key.id, f.key.generation, end, l.physical, a.loc.End, a.loc.Physical)
		}
		o := &opened{seg, l}
		a.opened.Store(o)
		return o, nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*opened), nil
}

// readAway is Handle.ReadAt for a segment that is not on this device.
func (f *file) readAway(a *away, p []byte, off int64) error {
	o, err := f.open(a)
	if err != nil {
		return err
	}
	if off < 0 || off > o.layout.end || int64(len(p)) > o.layout.end-off {
		return f.rangeError(off, int64(len(p)), o.layout.end)
	}
	if len(p) == 0 {
		return nil
	}
	if err := o.seg.ReadAt(f.s.life, p, off); err != nil {
		return f.remoteError(err)
	}
	return nil
}

// remoteError gives an error of a store the kind that a reader of a file is to
// see: the data is damaged, or cannot be had now. An object that is not there
// is damage, for a row names it.
func (f *file) remoteError(err error) error {
	kind := tine.KindOf(err)
	switch kind {
	case tine.KindCorrupt, tine.KindVersion, tine.KindIO:
	case tine.KindNotFound, tine.KindRange:
		kind = tine.KindCorrupt
	default:
		kind = tine.KindUnavailable
	}
	return tine.Errorf(kind, "segment %s.%d, which is not on this device: %w", f.key.id, f.key.generation, err)
}

// sealed returns the layout of a sealed file, and the remote segment if the
// file is not on this device.
func (f *file) sealed() (*layout, RemoteSegment, error) {
	if a := f.away.Load(); a != nil {
		o, err := f.open(a)
		if err != nil {
			return nil, nil, err
		}
		return o.layout, o.seg, nil
	}
	l := f.layout.Load()
	if l == nil {
		return nil, nil, tine.Errorf(tine.KindInvalid, "segment %s is not sealed", f.key.id)
	}
	return l, nil, nil
}

// fetchBlocks fills raw with consecutive blocks of a remote segment, as they
// would lie in a file.
func (f *file) fetchBlocks(seg RemoteSegment, first, last, end int64, raw []byte) error {
	pooled, pool := f.s.buffer(last - first + 1)
	defer pool.Put(pooled)
	payload := (*pooled)[:(last-first)*BlockBytes+payloadLen(last, end)]
	if err := seg.ReadAt(f.s.life, payload, first*BlockBytes); err != nil {
		return f.remoteError(err)
	}
	for b := first; b <= last; b++ {
		n := payloadLen(b, end)
		copy(raw, payload[:n])
		putSum(f.seed, b, raw[:n+sumBytes])
		payload, raw = payload[n:], raw[n+sumBytes:]
	}
	return nil
}

// Segment returns which segment, and which generation of it, the Handle is for.
func (h *Handle) Segment() (id tine.SegmentID, generation uint64) {
	return h.f.key.id, h.f.key.generation
}

// Payload returns which ranges of the payload of a sealed segment are there,
// ascending and apart, from block boundary to block boundary or the end; and
// its logical end. All is there unless a repack has left something out.
// Errors: KindInvalid for a segment that is not sealed; of one that is not on
// this device, those of ReadAt.
func (h *Handle) Payload() (present []Range, end int64, err error) {
	l, _, err := h.f.sealed()
	if err != nil {
		return nil, 0, err
	}
	for _, r := range l.runs {
		off := r.start * BlockBytes
		present = append(present, Range{Off: off, Len: min(r.count*BlockBytes, l.end-off)})
	}
	return present, l.end, nil
}

// Evict removes the file of one generation of a sealed segment, which is from
// then on read from where Remote finds it: at once if nobody has it pinned, else
// when the last Handle lets go; whoever comes until then still reads the file.
// The caller has made sure that the bytes are safe elsewhere: nothing here can
// tell. It waits for no one. A file that does not exist is no error; after a crash
// it may be back.
// Errors: KindBusy for a segment with a Writer; KindIO; of a removal put
// off, they are logged.
func (s *Store) Evict(id tine.SegmentID, generation uint64) error {
	k := fileKey{id, generation}
	s.mu.Lock()
	f := s.files[k]
	switch {
	case f != nil && f.w != nil && f.layout.Load() == nil:
		s.mu.Unlock()
		return tine.Errorf(tine.KindBusy, "segment %s is being written", id)
	case f != nil && f.away.Load() != nil:
		s.mu.Unlock()
		return nil
	case f != nil && f.pins > 0:
		f.leaving = true
		s.mu.Unlock()
		return nil
	case f != nil:
		s.forget(f)
	}
	s.mu.Unlock()
	if f != nil {
		f.close()
	}
	return s.unlinkEvicted(k)
}

// unlinkEvicted removes the file of a segment that is read from elsewhere from
// now on. Who has opened it in between is done with it at the last release: the
// space comes back only when it is closed.
func (s *Store) unlinkEvicted(k fileKey) error {
	if err := s.unlink(s.path(k)); err != nil {
		return err
	}
	s.mu.Lock()
	f := s.files[k]
	idle := false
	if f != nil && f.away.Load() == nil {
		idle = f.pins == 0
		f.leaving = true
		if idle {
			s.forget(f)
		}
	}
	s.mu.Unlock()
	if idle {
		f.close()
	}
	return nil
}
