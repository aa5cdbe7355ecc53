package object

import (
	"bytes"
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/dir"
	"tine.dev/tine/internal/fs/blob/faulty"
	"tine.dev/tine/internal/fs/blob/mem"
	"tine.dev/tine/internal/fs/cache"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/tine"
)

// TestModel writes random segments, most of them repacked, and reads them, on
// stores that are well, that fail now and then, and that are a directory.
func TestModel(t *testing.T) {
	r := newRand(t)
	onDisk, err := dir.Open(t.TempDir(), dir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// Wrong bytes three times in a row are damage, and must stay unlikely.
	bad := faulty.Wrap(mem.New(mem.Options{}), faulty.Plan{Seed: r.Uint64(), Faults: []faulty.Fault{
		{Ops: faulty.Get, What: faulty.WrongBytes, Percent: 1}, {Ops: faulty.Get, What: faulty.Truncated, Percent: 10},
		{Ops: faulty.All, What: faulty.Busy, Percent: 10}, {Ops: faulty.Put | faulty.Complete, What: faulty.LostAck, Percent: 20},
	}})
	for _, d := range []blob.Driver{mem.New(mem.Options{}), bad, onDisk} {
		t.Run(d.Traits().Name[:3], func(t *testing.T) {
			s := newStore(t, d, once(30))
			for _, n := range []int64{0, 1, 5000, segment.BlockBytes, FrameBytes, FrameBytes + 1, r.Int64N(9 << 20), r.Int64N(9 << 20)} {
				m := newModel(r, n)
				info := write(t, s, m)
				if again := write(t, s, m); !again.Found || again.Bytes != info.Bytes || info.Found {
					t.Fatalf("written as %+v, then as %+v", info, again)
				}
				readSome(t, s, m, r, info.Bytes)
			}
		})
	}
	if bad.Injected() == 0 {
		t.Fatal("nothing went wrong")
	}
}

// readSome reads random ranges of a segment, whole runs among them.
func readSome(t *testing.T, s *Store, m *model, r *rand.Rand, size int64) {
	t.Helper()
	if info, err := s.Verify(context.Background(), m.id, m.generation); err != nil || info.Bytes != size {
		t.Fatalf("%+v, %v", info, err)
	}
	rd := open(t, s, m, size*r.Int64N(2))
	present, end := rd.Payload()
	sum := int64(0)
	for i, p := range present {
		sum += p.Len
		if i > 0 && present[i-1].Off+present[i-1].Len >= p.Off || !m.has(p.Off, p.Len) {
			t.Fatalf("%v are there of %v", present, m.present)
		}
	}
	if end != int64(len(m.data)) || sum != rd.Info().Payload {
		t.Fatalf("%d bytes of %d, %+v", sum, end, rd.Info())
	}
	read(t, rd, m, end, 0)
	for range 60 {
		if len(m.present) == 0 {
			break
		}
		p := m.present[r.IntN(len(m.present))]
		off := p.Off + r.Int64N(p.Len)
		n := 1 + r.Int64N(p.Off+p.Len-off)
		if r.IntN(2) == 0 {
			n = min(n, 5000)
		}
		read(t, rd, m, off, n)
	}
	for range 20 {
		off := r.Int64N(end + 2*segment.BlockBytes)
		n := 1 + r.Int64N(3*segment.BlockBytes)
		if !m.has(off, n) {
			wantKind(t, rd.ReadAt(context.Background(), make([]byte, n), off), tine.KindCorrupt)
		}
	}
}

// TestOnlyWhatIsNeeded counts what reads fetch.
func TestOnlyWhatIsNeeded(t *testing.T) {
	s, w := watched(t)
	m := wholeModel(20 * FrameBytes)
	info := write(t, s, m)
	w.taken()
	r := open(t, s, m, info.Bytes)
	if got := w.taken(); len(got) != 1 || got[0].n != tailBytes || got[0].off+got[0].n != info.Bytes {
		t.Fatalf("opening asked for %v", got)
	}
	frame := func(i int64) request { return request{headerBytes + i*FrameBytes, FrameBytes} }
	want := func(what string, requests ...request) {
		t.Helper()
		got := w.taken()
		if len(got) != len(requests) {
			t.Fatalf("%s asked for %v, want %v", what, got, requests)
		}
		for i := range got {
			if got[i] != requests[i] {
				t.Fatalf("%s asked for %v, want %v", what, got, requests)
			}
		}
	}
	read(t, r, m, 5*FrameBytes+100, 10)
	want("a small read", frame(5))
	read(t, r, m, 5*FrameBytes+FrameBytes-10, 10)
	want("another in the same frame")
	read(t, r, m, 12*FrameBytes-1, 2)
	want("a read across two frames", request{frame(11).off, 2 * FrameBytes})
	open(t, s, m, 0)
	want("opening again")
	// A frame that is on its way into the cache at that moment is still handed out.
	var got []request
	for end := time.Now().Add(10 * time.Second); len(got) == 0 && time.Now().Before(end); got = w.taken() {
		s.Forget(m.id, m.generation)
		read(t, r, m, 5*FrameBytes, 10)
	}
	if len(got) != 1 || got[0] != frame(5) {
		t.Fatalf("a read of what was forgotten asked for %v", got)
	}
	// The cached frame, and 2 MiB, part the requests: 0 to 4, 6 to 13, 14 to 19.
	read(t, r, m, 0, 20*FrameBytes)
	if got := w.taken(); len(got) != 3 || total(got) != 19*FrameBytes {
		t.Fatalf("a read of everything asked for %v", got)
	}
}

// TestParallel checks that the ranges of one read are asked for at the same
// time: each is answered only once all have come.
func TestParallel(t *testing.T) {
	s, w := watched(t)
	m := wholeModel(30 * FrameBytes)
	write(t, s, m)
	r := open(t, s, m, 0)
	var all sync.WaitGroup
	all.Add(4)
	w.mu.Lock()
	w.gate = func(request) {
		all.Done()
		all.Wait()
	}
	w.mu.Unlock()
	read(t, r, m, 0, 30*FrameBytes)
}

// TestManyReaders has readers of several kinds on few frames in memory. Run it with -race.
func TestManyReaders(t *testing.T) {
	random := newRand(t)
	c, err := cache.Open(cache.Options{Dir: t.TempDir(), MaxBytes: 2 << 20, MemoryBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := New(Options{Blobs: blob.NewStore(mem.New(mem.Options{}), once(1)), Cache: c})
	if err != nil {
		t.Fatal(err)
	}
	m := newModel(random, 8<<20)
	write(t, s, m)
	rd := open(t, s, m, 0)
	var wg sync.WaitGroup
	for g := range 6 {
		r := rand.New(rand.NewPCG(random.Uint64(), 2))
		wg.Go(func() {
			for range 40 {
				p := m.present[r.IntN(len(m.present))]
				step := min(p.Len, 1+r.Int64N(200<<10))
				for off := p.Off; off+step <= p.Off+p.Len; off += step {
					b := make([]byte, step)
					ctx, cancel := context.WithCancel(context.Background())
					if g == 0 {
						cancel()
					}
					err := rd.ReadAt(ctx, b, off)
					cancel()
					if err == nil && !bytes.Equal(b, m.data[off:off+step]) || err != nil && (g > 0 || tine.KindOf(err) != tine.KindInterrupted) {
						t.Errorf("%d bytes at %d: %v", step, off, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestOneLeavesASpan has two readers of frames that come with one request, of
// whom the one who made it gives up.
func TestOneLeavesASpan(t *testing.T) {
	for range 20 {
		s, w := watched(t)
		m := wholeModel(2 * FrameBytes)
		write(t, s, m)
		r := open(t, s, m, 0)
		first, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		w.mu.Lock()
		w.gate = func(request) {
			once.Do(func() {
				close(first)
				<-release
			})
		}
		w.mu.Unlock()
		ctx, giveUp := context.WithCancel(context.Background())
		var both sync.WaitGroup
		both.Go(func() {
			wantInterrupted := r.ReadAt(ctx, make([]byte, 2*FrameBytes), 0)
			if tine.KindOf(wantInterrupted) != tine.KindInterrupted {
				t.Error(wantInterrupted)
			}
		})
		<-first
		for !s.cache.Has(r.cacheKey(1)) {
			runtime.Gosched()
		}
		shared := s.cache.Stats().Shared
		both.Go(func() { read(t, r, m, FrameBytes+1, 100) })
		for s.cache.Stats().Shared == shared {
			runtime.Gosched()
		}
		giveUp()
		for s.cache.Has(r.cacheKey(0)) {
			runtime.Gosched()
		}
		close(release)
		both.Wait()
	}
}

// TestErrors has what a store can do to a reader and to a writer.
func TestErrors(t *testing.T) {
	ctx := context.Background()
	back := mem.New(mem.Options{})
	d := faulty.Wrap(back, faulty.Plan{})
	m := wholeModel(3 * FrameBytes)
	fresh := func() *Store { return newStore(t, d, once(2)) }
	s := fresh()
	_, err := s.Open(ctx, m.id, m.generation, 0)
	wantKind(t, err, tine.KindNotFound)
	_, err = s.Verify(ctx, m.id, m.generation)
	wantKind(t, err, tine.KindNotFound)
	info := write(t, s, m)
	_, err = fresh().Open(ctx, m.id, m.generation, info.Bytes-1)
	wantKind(t, err, tine.KindCorrupt)
	_, err = fresh().Open(ctx, m.id, m.generation, info.Bytes+1)
	wantKind(t, err, tine.KindCorrupt)
	for _, c := range []struct {
		what faulty.What
		kind tine.ErrorKind
	}{
		{faulty.Busy, tine.KindUnavailable}, {faulty.Throttled, tine.KindUnavailable}, {faulty.Truncated, tine.KindCorrupt},
		{faulty.WrongBytes, tine.KindCorrupt}, {faulty.Vanished, tine.KindNotFound}, {faulty.Denied, tine.KindAccess},
	} {
		s := fresh()
		r := open(t, s, m, info.Bytes)
		d.SetPlan(faulty.Plan{Faults: []faulty.Fault{{Ops: faulty.Get, What: c.what, Every: 1}}})
		err := r.ReadAt(ctx, make([]byte, 10), 1000)
		wantKind(t, err, c.kind)
		if !bytes.Contains([]byte(err.Error()), []byte(Key(m.id, m.generation))) {
			t.Errorf("the error does not name the object: %v", err)
		}
		_, err = fresh().Open(ctx, m.id, m.generation, info.Bytes)
		if c.what != faulty.WrongBytes || err != nil { // the bit may lie in a frame, which came along with the index
			wantKind(t, err, c.kind)
		}
		d.SetPlan(faulty.Plan{})
		read(t, r, m, 1000, 10) // what failed is not kept
	}
	// A wrong object under the key.
	other := *m
	other.generation++
	if err := back.Copy(ctx, Key(m.id, m.generation), Key(m.id, other.generation)); err != nil {
		t.Fatal(err)
	}
	_, err = fresh().Open(ctx, m.id, other.generation, 0)
	wantKind(t, err, tine.KindCorrupt)
}

// TestWriteAgain has an object under the key already.
func TestWriteAgain(t *testing.T) {
	ctx := context.Background()
	d := mem.New(mem.Options{})
	s := newStore(t, d, once(1))
	m := newModel(newRand(t), 3<<20)
	first := write(t, s, m)
	// The same payload, compressed otherwise.
	if err := s.blobs.Delete(ctx, first.Key); err != nil {
		t.Fatal(err)
	}
	b, err := s.build(ctx, s.place(m.id, m.generation), m)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.index.frames {
		f := &b.index.frames[i]
		f.codec, f.stored, f.sum = codecRaw, uint32(f.payload(b.index.end)), f.plain
		b.parts[i+1] = part{size: int64(f.stored), read: func(p []byte, off int64) error { return readFrame(m, *f, p, off) }}
	}
	tail := b.index.encodeEnd()
	parts := b.parts
	parts[len(parts)-1] = part{data: tail, size: int64(len(tail))}
	b.parts = nil
	for _, p := range parts {
		p.at = 0
		b.add(p)
	}
	if _, err := s.blobs.Put(ctx, first.Key, b, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	if again := write(t, s, m); !again.Found || again.Bytes != b.Size() || again.Bytes == first.Bytes {
		t.Fatalf("%+v, then %+v", first, again)
	}
	readSome(t, s, m, newRand(t), b.Size())
	// Another payload.
	m.data[m.present[0].Off] ^= 1
	_, err = s.Write(ctx, m)
	wantKind(t, err, tine.KindConflict)
	m.data[m.present[0].Off] ^= 1
	m.present = m.present[1:]
	_, err = s.Write(ctx, m)
	wantKind(t, err, tine.KindConflict)
}

func TestBadSources(t *testing.T) {
	ctx := context.Background()
	s, _ := watched(t)
	for _, present := range [][]segment.Range{
		{{Off: 1, Len: segment.BlockBytes}}, {{Off: 0, Len: 5}}, {{Off: 0, Len: 4 * segment.BlockBytes}}, {{Off: -segment.BlockBytes, Len: segment.BlockBytes}},
		{{Off: segment.BlockBytes, Len: segment.BlockBytes}, {Off: 0, Len: segment.BlockBytes}},
		{{Off: 0, Len: 2 * segment.BlockBytes}, {Off: segment.BlockBytes, Len: segment.BlockBytes}}, {{Off: 0}},
	} {
		m := wholeModel(2*segment.BlockBytes + 7)
		m.present = present
		_, err := s.Write(ctx, m)
		wantKind(t, err, tine.KindInvalid)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err := s.Write(ended, wholeModel(100))
	wantKind(t, err, tine.KindInterrupted)
	_, err = New(Options{})
	wantKind(t, err, tine.KindInvalid)
}

// TestWritesWait holds as many writes up as may be under way, and one more
// gives up waiting.
func TestWritesWait(t *testing.T) {
	s, _ := watched(t)
	held, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	for range cap(s.writes) {
		wg.Go(func() { _, _ = s.Write(context.Background(), slow{wholeModel(100), held, release}) })
		<-held
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := s.Write(ctx, wholeModel(100))
	wantKind(t, err, tine.KindInterrupted)
	close(release)
	wg.Wait()
}

// slow is a source that stops at its first read.
type slow struct {
	*model
	held, release chan struct{}
}

func (s slow) ReadAt(p []byte, off int64) error {
	s.held <- struct{}{}
	<-s.release
	return tine.Errorf(tine.KindIO, "given up")
}
