package object

import (
	"context"
	"strconv"

	"github.com/klauspost/compress/zstd"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/cache"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/tine"
)

// Options say where objects lie and what may be under way.
type Options struct {
	Blobs *blob.Store
	Cache *cache.Cache // may be shared with other stores
	// Writes is how many segments may be written at a time; others wait. Each
	// holds its compressed frames in memory, less than the segment has bytes, and
	// what Blobs takes for an upload. 0: 2.
	Writes int
}

// Store is the segments that lie in one object store. It is safe for
// concurrent use, and implements segment.Remote.
type Store struct {
	blobs  *blob.Store
	cache  *cache.Cache
	enc    *zstd.Encoder
	dec    *zstd.Decoder
	writes chan struct{} // one taken by each write
}

// New returns the store. It makes no request.
func New(o Options) (*Store, error) {
	if o.Blobs == nil || o.Cache == nil {
		return nil, tine.Errorf(tine.KindInvalid, "segment objects need a store and a cache")
	}
	if o.Writes <= 0 {
		o.Writes = 2
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(o.Writes),
		zstd.WithEncoderCRC(false), zstd.WithWindowSize(FrameBytes), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, tine.Errorf(tine.KindInternal, "zstd: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(FrameBytes), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, tine.Errorf(tine.KindInternal, "zstd: %w", err)
	}
	return &Store{blobs: o.Blobs, cache: o.Cache, enc: enc, dec: dec, writes: make(chan struct{}, o.Writes)}, nil
}

// Key is where one generation of a segment lies in a store:
// segments/S/SEGMENT.GENERATION, S being the last two characters of the id,
// which are random and so spread the keys.
func Key(id tine.SegmentID, generation uint64) blob.Key {
	return blob.Key(Prefix(id) + strconv.FormatUint(generation, 10))
}

// Prefix is what stands before the generation in the keys of a segment.
func Prefix(id tine.SegmentID) string {
	s := id.String()
	return "segments/" + s[len(s)-2:] + "/" + s + "."
}

// place is an object and what the cache calls it. Stores may share a cache, and
// a tree that was copied has segments of the same names in two of them.
type place struct {
	id         tine.SegmentID
	generation uint64
	key        blob.Key
	name       string
}

func (s *Store) place(id tine.SegmentID, generation uint64) place {
	key := Key(id, generation)
	return place{id, generation, key, s.blobs.Name() + " " + string(key)}
}

// wrong is the error for an object that is not what it should be. It keeps kind
// and hint of err.
func (p place) wrong(err error) error {
	return tine.Errorf(tine.KindOf(err), "segment object %s: %w", p.key, err)
}

// indexFrame is the number under which the cache has the index of an object.
const indexFrame = -1

// tailBytes is what is read of an object to find its index: enough for 2,700
// frames.
const tailBytes = 64 << 10

// Open returns a Reader of one generation of a segment. size is the length of
// the object, or 0 if it is not known, which costs a request more. The index
// comes from the cache or with one request, two if it is very long.
// Errors: KindNotFound if there is no object; KindCorrupt if it is damaged or
// of another segment; KindVersion; KindUnavailable and the others of
// blob.Store.
func (s *Store) Open(ctx context.Context, id tine.SegmentID, generation uint64, size int64) (*Reader, error) {
	p := s.place(id, generation)
	b, err := s.cache.Get(ctx, cache.Key{Object: p.name, Frame: indexFrame}, func(ctx context.Context) ([]byte, error) {
		return s.fetchEnd(ctx, p, size)
	})
	if err != nil {
		return nil, err
	}
	x, err := decodeEnd(b, size)
	if err != nil {
		return nil, p.wrong(err)
	}
	return &Reader{s: s, place: p, index: x}, nil
}

// OpenSegment implements segment.Remote.
func (s *Store) OpenSegment(ctx context.Context, id tine.SegmentID, generation uint64) (segment.RemoteSegment, error) {
	r, err := s.Open(ctx, id, generation, 0)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Forget drops what the cache has of an object, which is to be removed from
// the store or was.
func (s *Store) Forget(id tine.SegmentID, generation uint64) {
	s.cache.Drop(s.place(id, generation).name)
}

// fetchEnd reads index and trailer of an object and checks them.
func (s *Store) fetchEnd(ctx context.Context, p place, size int64) ([]byte, error) {
	var end []byte
	err := again(func() (err error) {
		end, err = s.tryEnd(ctx, p, size)
		return err
	})
	if err != nil {
		return nil, p.wrong(err)
	}
	return end, nil
}

func (s *Store) tryEnd(ctx context.Context, p place, size int64) ([]byte, error) {
	if size == 0 {
		info, err := s.blobs.Stat(ctx, p.key)
		if err != nil {
			return nil, err
		}
		size = info.Size
	}
	if size < headerBytes+trailerBytes {
		return nil, tine.Errorf(tine.KindCorrupt, "%d bytes are too few", size)
	}
	b, err := s.get(ctx, p, max(0, size-tailBytes), min(size, tailBytes))
	if err != nil {
		return nil, err
	}
	n, err := endBytes(b)
	if err != nil {
		return nil, err
	}
	switch {
	case n > size-headerBytes:
		return nil, tine.Errorf(tine.KindCorrupt, "its trailer is damaged")
	case n > int64(len(b)):
		if b, err = s.get(ctx, p, size-n, n); err != nil {
			return nil, err
		}
	default:
		b = append([]byte(nil), b[int64(len(b))-n:]...) // the cache keeps it
	}
	x, err := decodeEnd(b, size)
	if err != nil {
		return nil, err
	}
	if x.id != p.id || x.generation != p.generation {
		return nil, tine.Errorf(tine.KindCorrupt, "it holds segment %s.%d", x.id, x.generation)
	}
	return b, nil
}

// get reads a range of an object. One that is shorter than it was said to be is
// damaged.
func (s *Store) get(ctx context.Context, p place, off, n int64) ([]byte, error) {
	b, _, err := s.blobs.Get(ctx, p.key, blob.Range{Offset: off, Length: n}, "")
	if tine.KindOf(err) == tine.KindRange {
		return nil, tine.Errorf(tine.KindCorrupt, "it is too short: %w", err)
	}
	return b, err
}

// tries is how often bytes are asked for that come damaged.
const tries = 3

// again calls f until what comes is not damaged.
func again(f func() error) error {
	for n := 1; ; n++ {
		err := f()
		if err == nil || tine.KindOf(err) != tine.KindCorrupt || n == tries {
			return err
		}
	}
}
