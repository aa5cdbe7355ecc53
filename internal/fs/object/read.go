package object

import (
	"context"
	"slices"
	"sort"
	"sync"

	"tine.dev/tine/internal/fs/cache"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/tine"
)

// Reader reads one segment object. It is safe for concurrent use and holds only
// memory: the index, 40 bytes a frame.
type Reader struct {
	s     *Store
	place place
	index *index
	ahead ahead
}

// batchFrames bounds the frames that one read has on their way at a time: 8 MiB.
const batchFrames = 32

// Payload implements segment.RemoteSegment.
func (r *Reader) Payload() (present []segment.Range, end int64) {
	return r.index.present(), r.index.end
}

// Info tells of the object.
func (r *Reader) Info() Info {
	return (&body{index: r.index}).info(r.place)
}

// ReadAt reads len(p) bytes of payload from the logical offset off: all of
// them, or an error and nothing to be used of p. It waits for the frames that p
// touches and no others.
// Errors: KindCorrupt for bytes that are damaged, that a repack has left out
// or that lie beyond the end; KindNotFound if the object is gone;
// KindInterrupted when ctx ends; KindUnavailable if the store does not answer;
// and the others of blob.Store.
func (r *Reader) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || off > r.index.end || int64(len(p)) > r.index.end-off {
		return r.place.wrong(tine.Errorf(tine.KindCorrupt, "%d bytes at %d are outside its %d bytes", len(p), off, r.index.end).
			WithHint("this is a bug of tine: a row names bytes that were never written"))
	}
	for len(p) > 0 {
		window := off / FrameBytes
		n := min(int64(len(p)), (window+batchFrames)*FrameBytes-off)
		if err := r.readBatch(ctx, p[:n], off); err != nil {
			return err
		}
		p, off = p[n:], off+n
	}
	return nil
}

// readBatch reads what lies in at most batchFrames windows.
func (r *Reader) readBatch(ctx context.Context, p []byte, off int64) error {
	from, to, err := r.locate(off, int64(len(p)))
	if err != nil {
		return err
	}
	r.readAhead(from, to, off, int64(len(p)))
	if to-from == 1 {
		return r.readFrame(ctx, from, &span{r: r, from: from, to: to}, p, off)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	errs := make([]error, to-from)
	var wg sync.WaitGroup
	for _, sp := range r.spans(from, to) {
		for i := sp.from; i < sp.to; i++ {
			start := int64(r.index.frames[i].window) * FrameBytes
			skip := max(0, start-off)
			part := p[skip:min(int64(len(p)), start+FrameBytes-off)]
			wg.Go(func() {
				if errs[i-from] = r.readFrame(ctx, i, sp, part, off+skip); errs[i-from] != nil {
					cancel(errs[i-from]) // who waits for the others need not
				}
			})
		}
	}
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil && slices.ContainsFunc(errs, func(e error) bool { return e == cause }) {
		return cause // the first
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// locate returns which frames the range touches, and checks that all of it is
// there.
func (r *Reader) locate(off, n int64) (from, to int, err error) {
	frames := r.index.frames
	first, last := off/segment.BlockBytes, (off+n-1)/segment.BlockBytes
	from = sort.Search(len(frames), func(i int) bool { return int64(frames[i].window) >= first/windowBlocks })
	to = from
	for w := first / windowBlocks; w <= last/windowBlocks; w++ {
		lo, hi := max(first-w*windowBlocks, 0), min(last-w*windowBlocks, windowBlocks-1)
		if to == len(frames) || int64(frames[to].window) != w || !frames[to].has(lo, hi) {
			return 0, 0, r.place.wrong(tine.Errorf(tine.KindCorrupt, "some of %d bytes at %d are not in it", n, off).
				WithHint("this is a bug of tine: a row names bytes that a repack has left out"))
		}
		to++
	}
	return from, to, nil
}

// readFrame reads a part of the payload that lies in frame i.
func (r *Reader) readFrame(ctx context.Context, i int, sp *span, p []byte, off int64) error {
	data, err := r.s.cache.Get(ctx, r.cacheKey(i), func(ctx context.Context) ([]byte, error) { return sp.frame(ctx, i) })
	if err != nil {
		return err
	}
	f := r.index.frames[i]
	block := off/segment.BlockBytes - int64(f.window)*windowBlocks
	copy(p, data[f.offset(block)+off%segment.BlockBytes:]) // blocks that follow each other do so here too
	return nil
}

func (r *Reader) cacheKey(i int) cache.Key {
	return cache.Key{Object: r.place.name, Frame: int64(r.index.frames[i].window)}
}

// spanBytes bounds one request for several frames. Larger ones save little
// beside a store's latency, and keep the last frame waiting for the first.
const spanBytes = 2 << 20

// spans divides frames into those that one request gets: that lie together and
// are not in the cache. Each that is in the cache has a span of its own, which asks for
// nothing unless the frame has gone meanwhile.
func (r *Reader) spans(from, to int) []*span {
	var out []*span
	var sp *span
	size := int64(0)
	for i := from; i < to; i++ {
		n := int64(r.index.frames[i].stored)
		if r.s.cache.Has(r.cacheKey(i)) {
			out = append(out, &span{r: r, from: i, to: i + 1, there: true})
			sp = nil
			continue
		}
		if sp == nil || size+n > spanBytes {
			sp, size = &span{r: r, from: i, turn: make(chan struct{}, 1)}, 0
			out = append(out, sp)
		}
		sp.to, size = i+1, size+n
	}
	return out
}

// span is frames that come with one request, made by who asks first for one of them.
type span struct {
	r        *Reader
	from, to int
	there    bool          // it was in the cache when it was made
	turn     chan struct{} // held by who makes the request; nil for one frame
	raw      []byte        // set by who held turn
	err      error         // the same
}

// frame returns the payload of frame i, asking again for bytes that came
// damaged.
func (sp *span) frame(ctx context.Context, i int) ([]byte, error) {
	r := sp.r
	f := r.index.frames[i]
	var payload []byte
	first := true
	err := again(func() error {
		raw, at := []byte(nil), f.at
		var err error
		if first && sp.to-sp.from > 1 {
			at = r.index.frames[sp.from].at
			raw, err = sp.bytes(ctx)
		} else {
			raw, err = r.s.get(ctx, r.place, f.at, int64(f.stored))
		}
		first = false
		if err != nil {
			return err
		}
		payload, err = r.s.unpack(f, raw[f.at-at:][:f.stored], r.index.end)
		return err
	})
	if err != nil {
		return nil, r.place.wrong(err)
	}
	return payload, nil
}

// bytes returns the frames as stored. If he who makes the request is no longer
// waited for, the next makes it.
func (sp *span) bytes(ctx context.Context) ([]byte, error) {
	select {
	case sp.turn <- struct{}{}:
		defer func() { <-sp.turn }()
	case <-ctx.Done():
		return nil, tine.Errorf(tine.KindInterrupted, "%w", context.Cause(ctx))
	}
	if sp.raw != nil || sp.err != nil {
		return sp.raw, sp.err
	}
	first, last := sp.r.index.frames[sp.from], sp.r.index.frames[sp.to-1]
	raw, err := sp.r.s.get(ctx, sp.r.place, first.at, last.at+int64(last.stored)-first.at)
	if err == nil || ctx.Err() == nil {
		sp.raw, sp.err = raw, err
	}
	return raw, err
}

// unpack checks a frame as stored and returns its payload, in memory of its own.
func (s *Store) unpack(f frame, stored []byte, end int64) ([]byte, error) {
	if got := checksum(stored); got != f.sum {
		return nil, tine.Errorf(tine.KindCorrupt, "window %d has checksum %08x, its bytes give %08x", f.window, f.sum, got).
			WithHint("the file read now is damaged; an older checkpoint may still have it, else restore the object from a backup of the store")
	}
	payload := make([]byte, 0, f.payload(end))
	if f.codec == codecRaw {
		return append(payload, stored...), nil
	}
	payload, err := s.dec.DecodeAll(stored, payload)
	if err != nil {
		return nil, tine.Errorf(tine.KindCorrupt, "window %d cannot be decompressed: %v", f.window, err)
	}
	if int64(len(payload)) != f.payload(end) || checksum(payload) != f.plain {
		return nil, tine.Errorf(tine.KindCorrupt, "window %d is not what was compressed", f.window)
	}
	return payload, nil
}

// Verify reads a whole object, past the cache, and checks every byte of it. It
// returns the first thing that is wrong.
// Errors: as of Open and Reader.ReadAt.
func (s *Store) Verify(ctx context.Context, id tine.SegmentID, generation uint64) (Info, error) {
	p := s.place(id, generation)
	end, err := s.fetchEnd(ctx, p, 0)
	if err != nil {
		return Info{}, err
	}
	x, err := decodeEnd(end, 0)
	if err != nil {
		return Info{}, p.wrong(err)
	}
	err = again(func() error {
		b, err := s.get(ctx, p, 0, headerBytes)
		if err != nil {
			return err
		}
		return x.checkHeader(b)
	})
	if err != nil {
		return Info{}, p.wrong(err)
	}
	r := &Reader{s: s, place: p, index: x}
	for from := 0; from < len(x.frames); {
		sp := &span{r: r, from: from, to: from + 1, turn: make(chan struct{}, 1)}
		for size := int64(x.frames[from].stored); sp.to < len(x.frames); sp.to++ {
			if size += int64(x.frames[sp.to].stored); size > spanBytes {
				break
			}
		}
		for ; from < sp.to; from++ {
			if _, err := sp.frame(ctx, from); err != nil {
				return Info{}, err
			}
		}
	}
	return r.Info(), nil
}
