package object

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/mem"
	"tine.dev/tine/internal/fs/cache"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/tine"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0 draws one")

// newRand returns a random source and prints how to get the same again.
func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay: go test ./internal/fs/object -run '^%s$' -seed %d", t.Name(), seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func wantKind(t testing.TB, err error, k tine.ErrorKind) {
	t.Helper()
	if err == nil || tine.KindOf(err) != k {
		t.Fatalf("want an error of kind %v, got %v (%v)", k, err, tine.KindOf(err))
	}
}

// model is a sealed segment in memory.
type model struct {
	id         tine.SegmentID
	generation uint64
	data       []byte
	present    []segment.Range
}

func (m *model) Segment() (tine.SegmentID, uint64) { return m.id, m.generation }

func (m *model) Payload() ([]segment.Range, int64, error) {
	return m.present, int64(len(m.data)), nil
}

func (m *model) has(off, n int64) bool {
	for _, r := range m.present {
		if r.Off <= off && off+n <= r.Off+r.Len {
			return true
		}
	}
	return n == 0
}

func (m *model) ReadAt(p []byte, off int64) error {
	if !m.has(off, int64(len(p))) {
		return tine.Errorf(tine.KindCorrupt, "%d bytes at %d are not there", len(p), off)
	}
	copy(p, m.data[off:])
	return nil
}

// newModel makes a segment of which some blocks are left out and some
// compress well.
func newModel(r *rand.Rand, n int64) *model {
	m := &model{id: tine.NewID[tine.SegmentID](time.Unix(1_700_000_000, r.Int64N(1e9))), generation: r.Uint64N(5), data: make([]byte, n)}
	random := rand.NewChaCha8([32]byte(binary.LittleEndian.AppendUint64(make([]byte, 24), r.Uint64())))
	for off := int64(0); off < n; off += segment.BlockBytes {
		b := m.data[off:min(n, off+segment.BlockBytes)]
		noise := r.IntN(3) * len(b) / 2
		_, _ = random.Read(b[:noise]) // it never fails
		for i := noise; i < len(b); i++ {
			b[i] = byte(i / 100)
		}
	}
	off := int64(0)
	for off < n {
		length := segment.BlockBytes * (1 + r.Int64N(1+r.Int64N(40)))
		m.present = append(m.present, segment.Range{Off: off, Len: min(length, n-off)})
		off += length
		if r.IntN(4) > 0 {
			off += segment.BlockBytes * (1 + r.Int64N(1+r.Int64N(30)))
		} else {
			off += 64 * segment.BlockBytes
		}
	}
	return m
}

// wholeModel is a segment with all of its blocks, which do not compress.
func wholeModel(n int64) *model {
	m := &model{id: tine.NewID[tine.SegmentID](time.Unix(1_700_000_000, 5)), data: make([]byte, n)}
	noise := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16), 9})
	_, _ = noise.Read(m.data) // it never fails
	m.present = []segment.Range{{Off: 0, Len: n}}
	return m
}

// request is one Get that a driver saw.
type request struct{ off, n int64 }

// watch is a driver that writes down every Get, and may hold it up or change
// what comes.
type watch struct {
	blob.Driver
	mu    sync.Mutex
	gets  []request
	gate  func(request)                           // called before a Get goes on
	alter func(key blob.Key, off int64, b []byte) // called on what a Get brings
}

func (w *watch) Get(ctx context.Context, key blob.Key, opt blob.GetOptions) ([]byte, blob.Info, error) {
	q := request{opt.Range.Offset, opt.Range.Length}
	w.mu.Lock()
	w.gets = append(w.gets, q)
	gate, alter := w.gate, w.alter
	w.mu.Unlock()
	if gate != nil {
		gate(q)
	}
	b, info, err := w.Driver.Get(ctx, key, opt)
	if alter != nil && err == nil {
		alter(key, opt.Range.Offset, b)
		info.Checked = false // the checks under test are those of this package
	}
	return b, info, err
}

// taken returns the requests since the last time.
func (w *watch) taken() []request {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.gets
	w.gets = nil
	return g
}

func total(requests []request) (n int64) {
	for _, q := range requests {
		n += q.n
	}
	return n
}

// once is a policy without waiting.
func once(attempts int) blob.Options {
	return blob.Options{PartBytes: 1 << 20, Retry: blob.Policy{Attempts: attempts, Budget: 1 << 20,
		Sleep: func(context.Context, time.Duration) error { return nil }}}
}

// newStore returns a store over a driver, with a new cache in memory.
func newStore(t testing.TB, d blob.Driver, o blob.Options) *Store {
	t.Helper()
	c, err := cache.Open(cache.Options{MemoryBytes: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := New(Options{Blobs: blob.NewStore(d, o), Cache: c})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func watched(t testing.TB) (*Store, *watch) {
	t.Helper()
	w := &watch{Driver: mem.New(mem.Options{})}
	return newStore(t, w, once(1)), w
}

func write(t testing.TB, s *Store, m *model) Info {
	t.Helper()
	info, err := s.Write(context.Background(), m)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func open(t testing.TB, s *Store, m *model, size int64) *Reader {
	t.Helper()
	r, err := s.Open(context.Background(), m.id, m.generation, size)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func read(t testing.TB, r *Reader, m *model, off, n int64) {
	t.Helper()
	p := make([]byte, n)
	if err := r.ReadAt(context.Background(), p, off); err != nil {
		t.Fatalf("%d bytes at %d: %v", n, off, err)
	}
	if !bytes.Equal(p, m.data[off:off+n]) {
		t.Fatalf("%d bytes at %d are wrong", n, off)
	}
}
