package segment

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// elsewhere is a Remote in memory.
type elsewhere struct {
	mu    sync.Mutex
	kept  map[fileKey]*keptSegment
	fails error                           // of every request, if set
	wait  func(ctx context.Context) error // called by every read, if set
	opens atomic.Int64
}

func newElsewhere() *elsewhere { return &elsewhere{kept: map[fileKey]*keptSegment{}} }

type keptSegment struct {
	e       *elsewhere
	present []Range
	end     int64
	data    []byte // zeros where nothing is there
}

func (e *elsewhere) failure(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.wait != nil {
		return e.wait(ctx)
	}
	return e.fails
}

func (e *elsewhere) OpenSegment(ctx context.Context, id tine.SegmentID, generation uint64) (RemoteSegment, error) {
	e.opens.Add(1)
	if err := e.failure(ctx); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	k := e.kept[fileKey{id, generation}]
	if k == nil {
		return nil, tine.Errorf(tine.KindNotFound, "there is no %s.%d", id, generation)
	}
	return k, nil
}

func (k *keptSegment) Payload() ([]Range, int64) { return k.present, k.end }

func (k *keptSegment) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := k.e.failure(ctx); err != nil {
		return err
	}
	copy(p, k.data[off:])
	return nil
}

// take keeps what the handle has.
func (e *elsewhere) take(h *Handle) error {
	present, end, err := h.Payload()
	if err != nil {
		return err
	}
	k := &keptSegment{e: e, present: present, end: end, data: make([]byte, end)}
	for _, r := range present {
		if err := h.ReadAt(k.data[r.Off:r.Off+r.Len], r.Off); err != nil {
			return err
		}
	}
	id, generation := h.Segment()
	e.mu.Lock()
	e.kept[fileKey{id, generation}] = k
	e.mu.Unlock()
	return nil
}

func sealedSegment(t testing.TB, s *Store, n int) (tine.SegmentID, record.Segment, []byte) {
	t.Helper()
	w := create(t, s)
	data := random(n, uint64(n))
	mustAppend(t, w, data)
	return w.ID(), mustSeal(t, w), data
}

func acquire(t testing.TB, s *Store, id tine.SegmentID, loc record.Segment, from Remote) *Handle {
	t.Helper()
	h, err := s.AcquireFrom(id, loc, from)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func wantBytes(t testing.TB, h *Handle, data []byte, off, n int64) {
	t.Helper()
	p := make([]byte, n)
	if err := h.ReadAt(p, off); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(p, data[off:off+n]) {
		t.Fatalf("%d bytes at %d are wrong", n, off)
	}
}

func (s *Store) exists(id tine.SegmentID, generation uint64) bool {
	_, err := s.o.FS.Stat(s.path(fileKey{id, generation}))
	return !errors.Is(err, fs.ErrNotExist)
}

func TestEvict(t *testing.T) {
	s := openStore(t, Options{FS: vfs.NewMem()})
	e := newElsewhere()
	w := create(t, s)
	wantKind(t, s.Evict(w.ID(), 0), tine.KindBusy)
	h, err := s.Acquire(w.ID(), record.Segment{State: record.SegmentOpen})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = h.Payload()
	wantKind(t, err, tine.KindInvalid)
	h.Release()

	id, row, data := sealedSegment(t, s, 5*BlockBytes+77)
	h = acquire(t, s, id, row, e)
	if err := e.take(h); err != nil {
		t.Fatal(err)
	}
	if err := s.Evict(id, 0); err != nil {
		t.Fatal(err)
	}
	other := acquire(t, s, id, row, e)
	wantBytes(t, other, data, 3, 40000)
	other.Release()
	if !s.exists(id, 0) || e.opens.Load() != 0 {
		t.Fatal("a file that is pinned was evicted")
	}
	h.Release()
	if s.exists(id, 0) {
		t.Fatal("the last release has not evicted the file")
	}
	for range 2 {
		h = acquire(t, s, id, row, e)
		wantBytes(t, h, data, 3, 40000)
		wantBytes(t, h, data, row.End, 0)
		wantKind(t, h.ReadAt(make([]byte, 2), row.End-1), tine.KindCorrupt)
		if present, end, err := h.Payload(); err != nil || end != row.End || len(present) != 1 || present[0] != (Range{0, row.End}) {
			t.Fatalf("%v of %d, %v", present, end, err)
		}
		if err := s.Evict(id, 0); err != nil {
			t.Fatal(err)
		}
		h.Release()
	}
	if e.opens.Load() != 1 {
		t.Fatalf("opened %d times", e.opens.Load())
	}
	wantKind(t, s.Check(id, row), tine.KindNotFound)
	if err := s.Remove(id, 0); err != nil {
		t.Fatal(err)
	}
	_, err = s.Acquire(id, row)
	wantKind(t, err, tine.KindNotFound)
	open := row
	open.State = record.SegmentOpen
	_, err = s.AcquireFrom(id, open, e)
	wantKind(t, err, tine.KindNotFound)
}

// removing calls hook before each removal of a file.
type removing struct {
	vfs.FS
	hook func()
}

func (r *removing) Remove(name string) error {
	if h := r.hook; h != nil {
		r.hook = nil
		h()
	}
	return r.FS.Remove(name)
}

// TestOpenedWhileEvicted opens the file at the last moment: it is read, and
// closed with the last release, or its space would not come back.
func TestOpenedWhileEvicted(t *testing.T) {
	for _, early := range []bool{false, true} {
		fsys := &removing{FS: vfs.NewMem()}
		s := openStore(t, Options{FS: fsys})
		e := newElsewhere()
		id, row, data := sealedSegment(t, s, 3*BlockBytes)
		h := acquire(t, s, id, row, e)
		if err := e.take(h); err != nil {
			t.Fatal(err)
		}
		h.Release()
		fsys.hook = func() {
			h = acquire(t, s, id, row, e)
			if early {
				h.Release()
			}
		}
		if err := s.Evict(id, 0); err != nil {
			t.Fatal(err)
		}
		if !early {
			wantBytes(t, h, data, 5, BlockBytes)
			h.Release()
		}
		if len(s.files) != 0 || e.opens.Load() != 0 {
			t.Fatalf("%d files lie open, %d are read from elsewhere", len(s.files), e.opens.Load())
		}
	}
}

// TestAwayErrors has what a store can say, and what a reader sees of it.
func TestAwayErrors(t *testing.T) {
	s := openStore(t, Options{FS: vfs.NewMem()})
	e := newElsewhere()
	id, row, data := sealedSegment(t, s, 3*BlockBytes)
	h := acquire(t, s, id, row, e)
	if err := e.take(h); err != nil {
		t.Fatal(err)
	}
	h.Release()
	if err := s.Evict(id, 0); err != nil {
		t.Fatal(err)
	}
	h = acquire(t, s, id, row, e)
	defer h.Release()
	kinds := map[tine.ErrorKind]tine.ErrorKind{
		tine.KindNotFound: tine.KindCorrupt, tine.KindRange: tine.KindCorrupt, tine.KindCorrupt: tine.KindCorrupt,
		tine.KindVersion: tine.KindVersion, tine.KindIO: tine.KindIO, tine.KindAccess: tine.KindUnavailable,
		tine.KindUnavailable: tine.KindUnavailable, tine.KindInterrupted: tine.KindUnavailable, tine.KindInternal: tine.KindUnavailable,
	}
	try := func() {
		t.Helper()
		for from, to := range kinds {
			e.fails = tine.Errorf(from, "injected").WithHint("what to do")
			err := h.ReadAt(make([]byte, 1), 0)
			wantKind(t, err, to)
			if tine.HintOf(err) != "what to do" {
				t.Fatalf("the hint is lost of %v", err)
			}
			_, err = s.RepackFrom(id, row, []Range{{0, 1}}, e, 0)
			wantKind(t, err, to)
		}
		e.fails = nil
	}
	try()
	k := e.kept[fileKey{id, 0}]
	k.end--
	wantKind(t, h.ReadAt(make([]byte, 1), 0), tine.KindCorrupt)
	k.end++
	k.present = []Range{{0, BlockBytes}}
	wantKind(t, h.ReadAt(make([]byte, 1), 0), tine.KindCorrupt)
	k.present = []Range{{0, 9 * BlockBytes}}
	wantKind(t, h.ReadAt(make([]byte, 1), 0), tine.KindCorrupt)
	k.present = []Range{{0, k.end}}
	wantBytes(t, h, data, 5, BlockBytes)
	try() // it is open now
	if n := 0; s.Files(func(tine.SegmentID, uint64, int64) error { n++; return nil }) != nil || n != 0 {
		t.Fatalf("%d files are left of repacks that failed", n)
	}
}

// TestCloseEndsRemoteReads has a store that does not answer.
func TestCloseEndsRemoteReads(t *testing.T) {
	s := openStore(t, Options{FS: vfs.NewMem()})
	e := newElsewhere()
	id, row, _ := sealedSegment(t, s, 10)
	if err := s.Evict(id, 0); err != nil {
		t.Fatal(err)
	}
	began := make(chan struct{})
	e.wait = func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		return tine.Errorf(tine.KindInterrupted, "%w", ctx.Err())
	}
	h := acquire(t, s, id, row, e)
	defer h.Release()
	got := make(chan error)
	go func() { got <- h.ReadAt(make([]byte, 1), 0) }()
	<-began
	s.Close()
	wantKind(t, <-got, tine.KindUnavailable)
}

// TestEvictWhileReading evicts segments again and again while they are read
// and repacked: the bytes are always right, and no file lies open that is gone.
// Run it with -race.
func TestEvictWhileReading(t *testing.T) {
	r := newRand(t)
	s := openStore(t, Options{FS: vfs.NewMem(), OpenFiles: 3})
	e := newElsewhere()
	for range 4 {
		id, first, data := sealedSegment(t, s, 6*BlockBytes+100+r.IntN(1000))
		var loc atomic.Pointer[record.Segment]
		loc.Store(&first)
		stop := make(chan struct{})
		var readers sync.WaitGroup
		for range 3 {
			r := rand.New(rand.NewPCG(r.Uint64(), 1))
			readers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					row := loc.Load()
					h, err := s.AcquireFrom(id, *row, e)
					if err != nil {
						if tine.KindOf(err) != tine.KindNotFound || loc.Load() == row {
							t.Error(err)
							return
						}
						continue
					}
					off := r.Int64N(row.End)
					p := make([]byte, 1+r.Int64N(row.End-off))
					if err := h.ReadAt(p, off); err != nil || !bytes.Equal(p, data[off:off+int64(len(p))]) {
						t.Errorf("%d bytes at %d: %v", len(p), off, err)
					}
					h.Release()
				}
			})
		}
		for range 6 {
			evictAndRepack(t, s, e, id, &loc)
		}
		close(stop)
		readers.Wait()
		s.mu.Lock()
		for k, f := range s.files {
			if k.id == id && f.rd != nil && k.generation != loc.Load().Generation {
				t.Errorf("%s.%d lies open", id, k.generation)
			}
		}
		s.mu.Unlock()
	}
	n := 0
	if err := s.Files(func(tine.SegmentID, uint64, int64) error { n++; return nil }); err != nil || n != 4 {
		t.Fatalf("%d files, %v", n, err)
	}
}

// evictAndRepack sends a segment away, and brings it back as a whole.
func evictAndRepack(t *testing.T, s *Store, e *elsewhere, id tine.SegmentID, loc *atomic.Pointer[record.Segment]) {
	t.Helper()
	old := *loc.Load()
	h := acquire(t, s, id, old, e)
	if err := e.take(h); err != nil {
		t.Fatal(err)
	}
	h.Release()
	if err := s.Evict(id, old.Generation); err != nil {
		t.Fatal(err)
	}
	h = acquire(t, s, id, old, e)
	if err := h.ReadAt(make([]byte, 1), 0); err != nil {
		t.Fatal(err)
	}
	h.Release()
	row, err := s.RepackFrom(id, old, []Range{{0, old.End}}, e, 0)
	if err != nil {
		t.Fatal(err)
	}
	if row.Physical != old.Physical || row.Generation != old.Generation+1 {
		t.Fatalf("%+v was repacked to %+v", old, row)
	}
	if err := s.Check(id, row); err != nil {
		t.Fatal(err)
	}
	loc.Store(&row)
	if err := s.Remove(id, old.Generation); err != nil {
		t.Fatal(err)
	}
}
