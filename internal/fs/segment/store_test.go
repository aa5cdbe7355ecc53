package segment

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/crashpoint"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

var testTime = time.Unix(1_700_000_000, 42)

func newID() tine.SegmentID { return tine.NewID[tine.SegmentID](testTime) }

func openStore(t testing.TB, o Options) *Store {
	t.Helper()
	if o.Dir == "" {
		o.Dir = "data/segments"
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func create(t testing.TB, s *Store) *Writer {
	t.Helper()
	w, err := s.Create(newID(), testTime)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func mustAppend(t testing.TB, w *Writer, p []byte) int64 {
	t.Helper()
	off, err := w.Append(p)
	if err != nil {
		t.Fatal(err)
	}
	return off
}

func mustSeal(t testing.TB, w *Writer) record.Segment {
	t.Helper()
	row, err := w.Seal()
	if err != nil {
		t.Fatal(err)
	}
	return row
}

func read(t testing.TB, s *Store, id tine.SegmentID, loc record.Segment, off, n int64) []byte {
	t.Helper()
	h, err := s.Acquire(id, loc)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	p := make([]byte, n)
	if err := h.ReadAt(p, off); err != nil {
		t.Fatalf("read %d at %d: %v", n, off, err)
	}
	return p
}

func wantKind(t testing.TB, err error, k tine.ErrorKind) {
	t.Helper()
	if err == nil || tine.KindOf(err) != k {
		t.Fatalf("want an error of kind %v, got %v (%v)", k, err, tine.KindOf(err))
	}
}

func random(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

func fileBytes(t testing.TB, fsys vfs.FS, path string) []byte {
	t.Helper()
	f, err := fsys.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, st.Size())
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

func putBytes(t testing.TB, fsys vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSizes appends in all the ways that meet block boundaries differently
// and reads everything back, open, sealed and in another process.
func TestSizes(t *testing.T) {
	const b = BlockBytes
	for _, sizes := range [][]int{
		{}, {0}, {1}, {b - 1}, {b}, {b + 1}, {2 * b}, {3*b - 1, 1}, {1, b - 1, b}, {5, 2 * b, 7},
		{b - 1, 1, 1}, {100, maxBatchBlocks*b + 17, 3}, {maxBatchBlocks * b}, {1, 2*maxBatchBlocks*b + b - 1},
	} {
		mem := vfs.NewMem()
		s := openStore(t, Options{FS: mem})
		w := create(t, s)
		open := record.Segment{State: record.SegmentOpen}
		var model []byte
		for i, n := range sizes {
			p := random(n, uint64(i))
			if off := mustAppend(t, w, p); off != int64(len(model)) {
				t.Fatalf("%v: append at %d, want %d", sizes, off, len(model))
			}
			model = append(model, p...)
			if got := read(t, s, w.ID(), open, 0, w.End()); !bytes.Equal(got, model) {
				t.Fatalf("%v: open segment reads wrong", sizes)
			}
		}
		row := mustSeal(t, w)
		if row.End != int64(len(model)) || row.State != record.SegmentSealed {
			t.Fatalf("%v: sealed as %+v", sizes, row)
		}
		if again := mustSeal(t, w); again != row {
			t.Fatalf("sealing again gave %+v, not %+v", again, row)
		}
		if got := read(t, s, w.ID(), open, 0, row.End); !bytes.Equal(got, model) {
			t.Fatalf("%v: sealed segment reads wrong by the old row", sizes)
		}
		if s.DiskBytes() != row.Physical {
			t.Fatalf("%v: %d bytes on the device, row says %d", sizes, s.DiskBytes(), row.Physical)
		}
		s2 := openStore(t, Options{FS: mem})
		if got := read(t, s2, w.ID(), row, 0, row.End); !bytes.Equal(got, model) {
			t.Fatalf("%v: sealed segment reads wrong in the next process", sizes)
		}
		if err := s2.Check(w.ID(), row); err != nil {
			t.Fatal(err)
		}
		if s2.DiskBytes() != row.Physical {
			t.Fatalf("%v: counted %d bytes, row says %d", sizes, s2.DiskBytes(), row.Physical)
		}
	}
}

func TestReadOutside(t *testing.T) {
	s := openStore(t, Options{FS: vfs.NewMem()})
	w := create(t, s)
	mustAppend(t, w, random(20000, 1))
	h, err := s.Acquire(w.ID(), record.Segment{State: record.SegmentOpen})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	check := func() {
		t.Helper()
		wantKind(t, h.ReadAt(make([]byte, 2), 19999), tine.KindCorrupt)
		wantKind(t, h.ReadAt(make([]byte, 1), -1), tine.KindCorrupt)
		wantKind(t, h.ReadAt(make([]byte, 1), 1<<62), tine.KindCorrupt)
		if err := h.ReadAt(nil, 20000); err != nil {
			t.Fatal(err)
		}
	}
	check()
	mustSeal(t, w)
	check()
	_, err = w.Append([]byte("x"))
	wantKind(t, err, tine.KindInvalid)
}

// TestHarden follows one segment through rides and flushes.
func TestHarden(t *testing.T) {
	s := openStore(t, Options{FS: vfs.NewMem()})
	w := create(t, s)
	data := random(100_000, 2)
	harden := func(upto, tailMax, synced int64, tails ...int64) {
		t.Helper()
		h, err := w.Harden(upto, tailMax)
		if err != nil {
			t.Fatal(err)
		}
		if h.Synced != synced || h.DropTailsBelow != synced || w.Synced() != synced {
			t.Fatalf("synced %d, drop %d, want %d", h.Synced, h.DropTailsBelow, synced)
		}
		var got []int64
		for _, tl := range h.Tails {
			got = append(got, tl.Off, tl.Off+int64(len(tl.Bytes)))
			if tl.Segment != w.ID() || !bytes.Equal(tl.Bytes, data[tl.Off:tl.Off+int64(len(tl.Bytes))]) {
				t.Fatalf("the tail at %d has wrong bytes", tl.Off)
			}
		}
		if len(got) != len(tails) || len(got) > 0 && (got[0] != tails[0] || got[1] != tails[1]) {
			t.Fatalf("tails %v, want %v", got, tails)
		}
	}
	harden(0, 1000, 0)
	mustAppend(t, w, data[:100])
	harden(100, 1000, 0, 0, 100)
	harden(100, 1000, 0)
	mustAppend(t, w, data[100:20000])
	harden(20000, 65536, 0, 100, 20000) // small enough to ride, block boundary or not
	mustAppend(t, w, data[20000:21000])
	harden(21000, 1000, BlockBytes, 20000, 21000) // a flush; the rest rode in part before
	harden(20500, 1000, BlockBytes)
	mustAppend(t, w, data[21000:90000])
	harden(40000, 0, 2*BlockBytes, 32768, 40000) // flushes all blocks, reports those asked for
	flushes := w.durableNow()
	harden(89000, 20000, 5*BlockBytes, 81920, 89000) // without a flush
	if w.durableNow() != flushes {
		t.Fatal("a flush that was not needed")
	}
	_, err := w.Harden(90001, 0)
	wantKind(t, err, tine.KindInvalid)
	mustSeal(t, w)
	harden(90000, 0, 5*BlockBytes, 89000, 90000)
}

func (w *Writer) durableNow() int64 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.durable
}

func TestUnsyncedBound(t *testing.T) {
	flushes := 0
	s := openStore(t, Options{FS: vfs.NewMem(), MaxUnsyncedBytes: 8 * BlockBytes, Crash: func(p crashpoint.Point) {
		if p == crashpoint.SegmentSynced {
			flushes++
		}
	}})
	w := create(t, s)
	for i := range 100 {
		mustAppend(t, w, random(BlockBytes, uint64(i)))
		if unsynced := w.End() - w.durableNow(); unsynced > 10*BlockBytes {
			t.Fatalf("%d bytes unsynced", unsynced)
		}
	}
	if flushes < 5 || flushes > 12 {
		t.Fatalf("%d flushes", flushes)
	}
}

func TestRemoveWaitsForPins(t *testing.T) {
	mem := vfs.NewMem()
	s := openStore(t, Options{FS: mem})
	w := create(t, s)
	data := random(50000, 4)
	mustAppend(t, w, data)
	row := mustSeal(t, w)
	path := s.path(fileKey{id: w.ID()})
	h, err := s.Acquire(w.ID(), row)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(w.ID(), 0); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, len(data))
	if err := h.ReadAt(p, 0); err != nil || !bytes.Equal(p, data) {
		t.Fatalf("a pinned file is not readable: %v", err)
	}
	if _, err := mem.Stat(path); err != nil {
		t.Fatal("removed while pinned")
	}
	_, err = s.Acquire(w.ID(), row)
	wantKind(t, err, tine.KindNotFound)
	h.Release()
	if _, err := mem.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("not removed at release")
	}
	if s.DiskBytes() != 0 {
		t.Fatalf("%d bytes counted", s.DiskBytes())
	}
	if err := s.Remove(w.ID(), 0); err != nil {
		t.Fatal(err)
	}
	_, err = s.Acquire(w.ID(), row)
	wantKind(t, err, tine.KindNotFound)
}

// TestOpenFiles reads many segments through few descriptors.
func TestOpenFiles(t *testing.T) {
	s := openStore(t, Options{FS: vfs.NewMem(), OpenFiles: 3})
	type seg struct {
		id   tine.SegmentID
		row  record.Segment
		data []byte
	}
	var segs []seg
	for i := range 10 {
		w := create(t, s)
		d := random(30000, uint64(i))
		mustAppend(t, w, d)
		segs = append(segs, seg{w.ID(), mustSeal(t, w), d})
	}
	r := rand.New(rand.NewPCG(5, 5))
	var held []*Handle
	for range 300 {
		g := segs[r.IntN(len(segs))]
		if !bytes.Equal(read(t, s, g.id, g.row, 0, g.row.End), g.data) {
			t.Fatal("wrong bytes")
		}
		h, err := s.Acquire(g.id, g.row)
		if err != nil {
			t.Fatal(err)
		}
		if held = append(held, h); len(held) > 5 {
			held[0].Release()
			held = held[1:]
		}
		if n := len(s.files); n > 3+5 {
			t.Fatalf("%d files open", n)
		}
	}
	for _, h := range held {
		h.Release()
	}
	if n := len(s.files); n > 3 {
		t.Fatalf("%d files open with none in use", n)
	}
}

func TestFilesAndStrangers(t *testing.T) {
	mem := vfs.NewMem()
	s := openStore(t, Options{FS: mem})
	w := create(t, s)
	mustAppend(t, w, []byte("hello"))
	row := mustSeal(t, w)
	putBytes(t, mem, "data/segments/stranger", []byte("x"))
	putBytes(t, mem, "data/segments/"+shard(w.ID())+"/stranger.txt", []byte("x"))
	putBytes(t, mem, s.path(fileKey{id: w.ID()})+"0", []byte("not the canonical number"))
	seen := 0
	err := s.Files(func(id tine.SegmentID, gen uint64, n int64) error {
		seen++
		if id != w.ID() || gen != 0 || n != row.Physical {
			t.Fatalf("saw %v.%d of %d bytes", id, gen, n)
		}
		return nil
	})
	if err != nil || seen != 1 {
		t.Fatalf("%d files, %v", seen, err)
	}
	stop := errors.New("stop")
	if err := s.Files(func(tine.SegmentID, uint64, int64) error { return stop }); err != stop {
		t.Fatal(err)
	}
}
