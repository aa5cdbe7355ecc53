package object

import (
	"context"
	"io"
	"slices"
	"sort"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/tine"
)

// Source is a sealed segment to be written. *segment.Handle is one. It must
// give the same bytes until the write returns.
type Source interface {
	Segment() (id tine.SegmentID, generation uint64)
	// Payload returns which ranges are there, ascending, apart, from block
	// boundary to block boundary or the end; and the logical end.
	Payload() (present []segment.Range, end int64, err error)
	// ReadAt reads all of p, verified, or fails.
	ReadAt(p []byte, off int64) error
}

// Info tells of an object.
type Info struct {
	Key     blob.Key
	Bytes   int64 // of the object
	Payload int64 // bytes of the segment that are in it
	Frames  int
	Found   bool // Write: it was there already
}

// gain is the share of a frame that compressing must save, or it is stored as
// it is: 1/20.
const gain = 20

// Write puts a segment into the store, durably, unless it is there. Compressing
// runs on one CPU. It may be repeated after any error, and after a crash.
// Errors: KindConflict if another payload lies under the key, which means that
// two have made a generation of their own of one segment; those of the source and
// of blob.Store.
func (s *Store) Write(ctx context.Context, src Source) (Info, error) {
	select {
	case s.writes <- struct{}{}:
		defer func() { <-s.writes }()
	case <-ctx.Done():
		return Info{}, tine.Errorf(tine.KindInterrupted, "writing a segment object: %w", context.Cause(ctx))
	}
	id, generation := src.Segment()
	p := s.place(id, generation)
	b, err := s.build(ctx, p, src)
	if err != nil {
		return Info{}, p.wrong(err)
	}
	info := b.info(p)
	_, err = s.blobs.Put(ctx, p.key, b, blob.Condition{Absent: true})
	if tine.KindOf(err) == tine.KindExists {
		info.Found = true
		info.Bytes, err = s.compare(ctx, p, b.index)
	}
	if err != nil {
		return Info{}, p.wrong(err)
	}
	return info, nil
}

// compare checks that the object that is there has the payload of x, and
// returns its length. It looks past the cache.
func (s *Store) compare(ctx context.Context, p place, x *index) (int64, error) {
	end, err := s.fetchEnd(ctx, p, 0)
	if err != nil {
		return 0, err
	}
	there, err := decodeEnd(end, 0)
	if err != nil {
		return 0, err
	}
	same := there.end == x.end && slices.EqualFunc(there.frames, x.frames, func(a, b frame) bool {
		return a.window == b.window && a.present == b.present && a.plain == b.plain
	})
	if !same {
		return 0, tine.Errorf(tine.KindConflict, "another payload lies under its key").
			WithHint("two servers have written this generation of the segment: check that only one of them owns the disk")
	}
	return there.size, nil
}

// body is an object to be sent: its bytes in the order of parts. Compressed
// frames are kept; the others are read again, for they are not worth the memory.
type body struct {
	index *index
	parts []part
}

type part struct {
	at   int64 // in the object
	size int64
	data []byte // nil for a frame that is stored as it is
	read func(p []byte, off int64) error
}

// info tells of the object.
func (b *body) info(p place) Info {
	i := Info{Key: p.key, Bytes: b.index.size, Frames: len(b.index.frames)}
	for _, f := range b.index.frames {
		i.Payload += f.payload(b.index.end)
	}
	return i
}

// Size implements blob.Body.
func (b *body) Size() int64 { return b.index.size }

// ReadAt implements blob.Body.
func (b *body) ReadAt(p []byte, off int64) (int, error) {
	i := sort.Search(len(b.parts), func(i int) bool { return b.parts[i].at+b.parts[i].size > off })
	n := 0
	for ; n < len(p) && i < len(b.parts); i++ {
		part := &b.parts[i]
		skip := off + int64(n) - part.at
		to := p[n:min(len(p), n+int(part.size-skip))]
		if part.data != nil {
			copy(to, part.data[skip:])
		} else if err := part.read(to, skip); err != nil {
			return n, err
		}
		n += len(to)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// build compresses the source frame by frame and makes the index.
func (s *Store) build(ctx context.Context, p place, src Source) (*body, error) {
	present, end, err := src.Payload()
	if err != nil {
		return nil, err
	}
	if end > maxEnd {
		return nil, tine.Errorf(tine.KindTooBig, "a segment of %d bytes", end)
	}
	x := &index{id: p.id, generation: p.generation, end: end}
	for _, r := range present {
		if err := x.mark(r); err != nil {
			return nil, err
		}
	}
	b := &body{index: x, parts: make([]part, 0, len(x.frames)+2)}
	b.add(part{data: x.encodeHeader(), size: headerBytes})
	plain, packed := make([]byte, FrameBytes), make([]byte, 0, 2*FrameBytes)
	for i := range x.frames {
		if err := blob.Interrupted(ctx, "put", p.key); err != nil {
			return nil, err
		}
		f := &x.frames[i]
		payload := plain[:f.payload(end)]
		if err := readFrame(src, *f, payload, 0); err != nil {
			return nil, err
		}
		f.plain = checksum(payload)
		packed = s.enc.EncodeAll(payload, packed[:0])
		if len(packed) <= len(payload)-len(payload)/gain {
			f.codec, f.stored, f.sum = codecZstd, uint32(len(packed)), checksum(packed)
			b.add(part{data: slices.Clone(packed), size: int64(len(packed))})
			continue
		}
		f.stored, f.sum = uint32(len(payload)), f.plain
		b.add(part{size: int64(len(payload)), read: func(p []byte, off int64) error { return readFrame(src, *f, p, off) }})
	}
	tail := x.encodeEnd()
	b.add(part{data: tail, size: int64(len(tail))})
	return b, nil
}

func (b *body) add(p part) {
	if n := len(b.parts); n > 0 {
		p.at = b.parts[n-1].at + b.parts[n-1].size
	}
	b.parts = append(b.parts, p)
}

// readFrame reads a part of a frame's payload from the source: block by
// block, those that follow each other with one call.
func readFrame(src Source, f frame, p []byte, off int64) error {
	at := int64(0) // of the block in the payload
	var run []byte // what is to be read with one call
	var from int64
	for i := range int64(windowBlocks) {
		if f.present>>i&1 == 0 {
			continue
		}
		skip := max(0, off-at)
		at += segment.BlockBytes
		if skip >= segment.BlockBytes || len(p) == 0 {
			continue
		}
		logical := (int64(f.window)*windowBlocks+i)*segment.BlockBytes + skip
		n := min(int64(len(p)), segment.BlockBytes-skip)
		if len(run) > 0 && from+int64(len(run)) == logical {
			run = run[:int64(len(run))+n]
		} else {
			if err := readRun(src, run, from); err != nil {
				return err
			}
			run, from = p[:n], logical
		}
		p = p[n:]
	}
	return readRun(src, run, from)
}

func readRun(src Source, run []byte, from int64) error {
	if len(run) == 0 {
		return nil
	}
	return src.ReadAt(run, from)
}
