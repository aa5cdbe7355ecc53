package segment

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/crashpoint"
	"tine.dev/tine/internal/fs/record"
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
	t.Logf("replay: go test ./internal/fs/segment -run '^%s$' -seed %d", t.Name(), seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// modelRow is what a real engine keeps of a segment in its rows.
type modelRow struct {
	loc   record.Segment
	tails []record.Tail
	live  []Range // what rows may name; all below End until a repack
}

// engine drives a store as the real one does, with rows in memory that are
// "durable" at the moment they are set, and remembers every byte.
type engine struct {
	t    *testing.T
	r    *rand.Rand
	mem  *vfs.MemFS
	hook crashpoint.Hook
	s    *Store

	mu   sync.Mutex // rows, data
	rows map[tine.SegmentID]*modelRow
	data map[tine.SegmentID][]byte

	w *Writer
}

func newEngine(t *testing.T, r *rand.Rand, mem *vfs.MemFS, hook crashpoint.Hook) *engine {
	e := &engine{t: t, r: r, mem: mem, hook: hook, rows: map[tine.SegmentID]*modelRow{}, data: map[tine.SegmentID][]byte{}}
	e.open()
	return e
}

func (e *engine) open() {
	e.s = openStore(e.t, Options{
		FS: e.mem, OpenFiles: 2, Crash: e.hook, PushBytes: 3 * BlockBytes, MaxUnsyncedBytes: 12 * BlockBytes,
	})
}

// rowsCopy is the rows as a crash at this moment would leave them.
func (e *engine) rowsCopy() map[tine.SegmentID]*modelRow {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := map[tine.SegmentID]*modelRow{}
	for id, r := range e.rows {
		c[id] = &modelRow{r.loc, slices.Clone(r.tails), slices.Clone(r.live)}
	}
	return c
}

func (e *engine) append(n int) {
	e.t.Helper()
	if err := e.tryAppend(n); err != nil {
		e.t.Fatal(err)
	}
}

// tryAppend is append for goroutines that may not end the test.
func (e *engine) tryAppend(n int) error {
	if e.w == nil {
		w, err := e.s.Create(newID(), testTime)
		if err != nil {
			return err
		}
		e.w = w
	}
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(e.r.Uint32())
	}
	id := e.w.ID()
	e.mu.Lock()
	at := len(e.data[id])
	e.data[id] = append(e.data[id], p...) // before, for a crash in the middle
	e.mu.Unlock()
	off, err := e.w.Append(p)
	if err == nil && off != int64(at) {
		err = fmt.Errorf("appended at %d, want %d", off, at)
	}
	return err
}

// commit makes the open segment durable up to a random point not before the
// last one.
func (e *engine) commit(tailMax int64) {
	if e.w == nil {
		return
	}
	upto := e.w.End()
	if row := e.rows[e.w.ID()]; row != nil {
		upto -= e.r.Int64N(upto - row.loc.End + 1)
	}
	if err := e.commitUpto(e.w, upto, tailMax); err != nil {
		e.t.Fatal(err)
	}
}

func (e *engine) commitUpto(w *Writer, upto, tailMax int64) error {
	h, err := w.Harden(upto, tailMax)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	row := e.rows[w.ID()]
	if row == nil {
		row = &modelRow{loc: record.Segment{State: record.SegmentOpen, Created: testTime.UnixNano()}}
		e.rows[w.ID()] = row
	}
	row.loc.End, row.loc.Synced = max(row.loc.End, upto), h.Synced
	row.tails = append(slices.DeleteFunc(slices.Clone(row.tails), func(t record.Tail) bool {
		return t.Off+int64(len(t.Bytes)) <= h.DropTailsBelow
	}), h.Tails...)
	row.live = []Range{{0, row.loc.End}}
	return nil
}

func (e *engine) seal() {
	if e.w == nil {
		return
	}
	row, err := e.w.Seal()
	if err != nil {
		e.t.Fatal(err)
	}
	e.mu.Lock()
	e.rows[e.w.ID()] = &modelRow{loc: row, live: []Range{{0, row.End}}}
	e.mu.Unlock()
	e.w = nil
}

func (e *engine) repack() {
	for id, row := range e.rows {
		if row.loc.State != record.SegmentSealed || row.loc.End == 0 {
			continue
		}
		var live []Range
		for _, l := range row.live {
			if l.Len > 1 && e.r.IntN(3) > 0 {
				a := e.r.Int64N(l.Len)
				live = append(live, Range{l.Off, a}, Range{l.Off + a + (l.Len-a)/2, (l.Len - a) / 2})
			}
		}
		next, err := e.s.Repack(id, row.loc, live)
		if err != nil {
			e.t.Fatal(err)
		}
		old := row.loc.Generation
		e.mu.Lock()
		e.rows[id] = &modelRow{loc: next, live: live}
		e.mu.Unlock()
		if err := e.s.Remove(id, old); err != nil {
			e.t.Fatal(err)
		}
		return
	}
}

func (e *engine) readSome() {
	for id, row := range e.rows {
		e.readOne(id, row)
	}
	if e.w != nil {
		n := e.w.End()
		if got := read(e.t, e.s, e.w.ID(), record.Segment{State: record.SegmentOpen}, 0, n); !bytes.Equal(got, e.data[e.w.ID()][:n]) {
			e.t.Fatal("the open segment reads wrong")
		}
	}
}

func (e *engine) readOne(id tine.SegmentID, row *modelRow) {
	for _, l := range row.live {
		if l.Len == 0 {
			continue
		}
		off := l.Off + e.r.Int64N(l.Len)
		n := 1 + e.r.Int64N(l.Off+l.Len-off)
		if got := read(e.t, e.s, id, row.loc, off, n); !bytes.Equal(got, e.data[id][off:off+n]) {
			e.t.Fatalf("%v reads wrong at %d", id, off)
		}
	}
}

// step does one random thing.
func (e *engine) step() {
	switch e.r.IntN(12) {
	case 0, 1, 2:
		e.append(e.r.IntN(3000))
	case 3, 4:
		e.append(e.r.IntN(5 * BlockBytes))
	case 5:
		e.append(BlockBytes * e.r.IntN(3))
	case 6, 7, 8:
		e.commit(e.r.Int64N(3 * BlockBytes))
	case 9:
		if e.r.IntN(3) == 0 {
			e.seal()
		}
	case 10:
		if e.r.IntN(3) == 0 {
			e.repack()
		}
	case 11:
		e.readSome()
	}
}

// TestModel is the engine against what it remembers, with clean reopenings:
// an open segment is recovered from its row and tails.
func TestModel(t *testing.T) {
	r := newRand(t)
	for range 4 {
		e := newEngine(t, r, vfs.NewMem(), nil)
		for i := range 300 {
			e.step()
			if i%60 != 59 {
				continue
			}
			e.s.Close()
			e.w = nil
			e.open()
			rows := recoverAll(t, e.s, e.rowsCopy(), e.data)
			e.rows = rows
		}
	}
}

// recoverAll does what an engine does at start, and checks that every byte
// that the rows promise is there.
func recoverAll(t *testing.T, s *Store, rows map[tine.SegmentID]*modelRow, data map[tine.SegmentID][]byte) map[tine.SegmentID]*modelRow {
	t.Helper()
	for id, row := range rows {
		if err := s.Check(id, row.loc); err != nil {
			t.Fatalf("before recovery: %v", err)
		}
		loc, err := s.Recover(id, row.loc, row.tails)
		if err != nil {
			t.Fatalf("recover %+v: %v", row.loc, err)
		}
		if loc.End != row.loc.End || loc.State != record.SegmentSealed || loc.Created != testTime.UnixNano() {
			t.Fatalf("recovered %+v as %+v", row.loc, loc)
		}
		row.loc, row.tails = loc, nil
	}
	type stray struct {
		id  tine.SegmentID
		gen uint64
	}
	var strays []stray
	err := s.Files(func(id tine.SegmentID, gen uint64, _ int64) error {
		if row := rows[id]; row == nil || row.loc.Generation != gen {
			strays = append(strays, stray{id, gen})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range strays {
		if err := s.Remove(f.id, f.gen); err != nil {
			t.Fatal(err)
		}
	}
	checkAll(t, s, rows, data)
	return rows
}

func checkAll(t *testing.T, s *Store, rows map[tine.SegmentID]*modelRow, data map[tine.SegmentID][]byte) {
	t.Helper()
	for id, row := range rows {
		if err := s.Check(id, row.loc); err != nil {
			t.Fatal(err)
		}
		for _, l := range row.live {
			if got := read(t, s, id, row.loc, l.Off, l.Len); !bytes.Equal(got, data[id][l.Off:l.Off+l.Len]) {
				t.Fatalf("%v: %d bytes at %d are wrong", id, l.Len, l.Off)
			}
		}
	}
}

// TestAppendWhileReading has writers, readers, a committer and finally a seal
// at work on one segment at once. Run it with -race.
func TestAppendWhileReading(t *testing.T) {
	s := openStore(t, Options{FS: vfs.NewMem(), PushBytes: 2 * BlockBytes, MaxUnsyncedBytes: 20 * BlockBytes})
	w := create(t, s)
	type piece struct {
		off  int64
		n    int
		fill byte
	}
	pieces := make(chan piece, 4096)
	var writers, readers sync.WaitGroup
	for g := range 3 {
		writers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 7))
			for i := range 150 {
				p := bytes.Repeat([]byte{byte(i + g)}, 1+r.IntN(2*BlockBytes))
				off, err := w.Append(p)
				if err != nil {
					t.Error(err)
					return
				}
				pieces <- piece{off, len(p), byte(i + g)}
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			h, err := s.Acquire(w.ID(), record.Segment{State: record.SegmentOpen})
			if err != nil {
				t.Error(err)
				return
			}
			defer h.Release()
			for pc := range pieces {
				p := make([]byte, pc.n)
				if err := h.ReadAt(p, pc.off); err != nil {
					t.Error(err)
				}
				if !bytes.Equal(p, bytes.Repeat([]byte{pc.fill}, pc.n)) {
					t.Errorf("%d bytes at %d are wrong", pc.n, pc.off)
				}
			}
		})
	}
	done := make(chan struct{})
	var committer sync.WaitGroup
	committer.Go(func() {
		for i := int64(0); ; i++ {
			select {
			case <-done:
				return
			default:
			}
			if _, err := w.Harden(w.End(), i%40000); err != nil {
				t.Error(err)
				return
			}
		}
	})
	writers.Wait()
	if _, err := w.Seal(); err != nil {
		t.Error(err)
	}
	close(done)
	committer.Wait()
	close(pieces)
	readers.Wait()
	if _, err := w.Harden(w.End(), 0); err != nil {
		t.Error(fmt.Errorf("harden after seal: %w", err))
	}
}
