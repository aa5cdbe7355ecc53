package segment

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"tine.dev/tine/internal/fs/crashpoint"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// clone cuts the power: what was not flushed is there in none, half or all of
// its pages.
func clone(mem *vfs.MemFS, r *rand.Rand) *vfs.MemFS {
	return mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 30, 70, 100}[r.IntN(4)], RNG: r})
}

// checkCrash recovers what a crash left, with a second crash at every point of
// the recovery, and checks that all of it is what the rows promise, and that
// the outcome itself is durable.
func checkCrash(t *testing.T, r *rand.Rand, mem *vfs.MemFS, rows map[tine.SegmentID]*modelRow, data map[tine.SegmentID][]byte) {
	t.Helper()
	var again []*vfs.MemFS
	s := openStore(t, Options{FS: mem, Crash: func(crashpoint.Point) { again = append(again, clone(mem, r)) }})
	before := map[tine.SegmentID]*modelRow{}
	for id, row := range rows {
		c := *row
		before[id] = &c
	}
	after := recoverAll(t, s, rows, data)
	s.Close()
	flushed := openStore(t, Options{FS: mem.CrashClone(vfs.CrashCloneCfg{})})
	checkAll(t, flushed, after, data)
	flushed.Close()
	for _, m := range again {
		rows := map[tine.SegmentID]*modelRow{}
		for id, row := range before {
			c := *row
			rows[id] = &c
		}
		s := openStore(t, Options{FS: m})
		recoverAll(t, s, rows, data)
		s.Close()
	}
}

// TestCrash cuts at every crash point and between steps.
func TestCrash(t *testing.T) {
	r := newRand(t)
	seen := map[crashpoint.Point]int{}
	for range 5 {
		mem := vfs.NewCrashableMem()
		type cut struct {
			mem  *vfs.MemFS
			rows map[tine.SegmentID]*modelRow
		}
		var cuts []cut
		var e *engine
		take := func() {
			if e != nil { // the hook of Open comes before there are rows
				rows := e.rowsCopy()
				cuts = append(cuts, cut{clone(mem, r), rows})
			}
		}
		e = newEngine(t, r, mem, func(p crashpoint.Point) {
			seen[p]++
			take()
		})
		for range 120 {
			e.step()
			if r.IntN(10) == 0 {
				take()
			}
			for _, c := range cuts {
				checkCrash(t, r, c.mem, c.rows, e.data)
			}
			cuts = nil
		}
		e.s.Close()
	}
	for _, p := range []crashpoint.Point{
		crashpoint.SegmentCreated, crashpoint.SegmentWritten, crashpoint.SegmentSynced, crashpoint.SegmentSealing,
		crashpoint.SegmentSealed, crashpoint.RepackWritten,
	} {
		if seen[p] == 0 {
			t.Errorf("%v was never passed", p)
		}
	}
}

// TestCrashWhileAppending cuts at moments that nobody chose, while one
// goroutine appends and another commits.
func TestCrashWhileAppending(t *testing.T) {
	r := newRand(t)
	mem := vfs.NewCrashableMem()
	e := newEngine(t, rand.New(rand.NewPCG(r.Uint64(), 1)), mem, nil)
	e.append(1)
	w := e.w
	cr := rand.New(rand.NewPCG(r.Uint64(), 2))
	stop := make(chan struct{})
	var work sync.WaitGroup
	defer work.Wait()
	defer close(stop)
	// loop runs a step, and says so, until the test ends. Nobody waits for the
	// step that follows, so the cut falls somewhere into it.
	loop := func(step func() error) chan struct{} {
		did := make(chan struct{})
		work.Go(func() {
			for {
				if err := step(); err != nil {
					t.Error(err)
					close(did)
					return
				}
				select {
				case <-stop:
					return
				case did <- struct{}{}:
				}
			}
		})
		return did
	}
	appended := loop(func() error { return e.tryAppend(e.r.IntN(2 * BlockBytes)) })
	committed := loop(func() error { return e.commitUpto(w, w.End(), cr.Int64N(2*BlockBytes)) })
	for i := range 60 {
		select {
		case <-appended:
		case <-committed:
		}
		if i%4 != 0 {
			continue
		}
		// The rows first: all that they promise must hold of any later state.
		rows := e.rowsCopy()
		m := clone(mem, r)
		e.mu.Lock()
		data := maps.Clone(e.data)
		e.mu.Unlock()
		checkCrash(t, r, m, rows, data)
	}
}

// TestAppendDuringFlush appends between the flush of the file and that of its
// directory: what comes then is not flushed, and must not count as such.
func TestAppendDuringFlush(t *testing.T) {
	mem := vfs.NewCrashableMem()
	var during func()
	inj := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync && during != nil {
			fn := during
			during = nil
			fn()
		}
		return nil
	})
	s := openStore(t, Options{FS: errorfs.Wrap(mem, inj)})
	w := create(t, s)
	data := random(5*BlockBytes, 1)
	mustAppend(t, w, data[:2*BlockBytes])
	during = func() { mustAppend(t, w, data[2*BlockBytes:]) }
	if _, err := w.Harden(w.End(), 0); err != nil {
		t.Fatal(err)
	}
	h, err := w.Harden(w.End(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if during != nil || h.Synced != 5*BlockBytes {
		t.Fatalf("synced %d", h.Synced)
	}
	after := openStore(t, Options{FS: mem.CrashClone(vfs.CrashCloneCfg{})})
	row, err := after.Recover(w.ID(), record.Segment{State: record.SegmentOpen, End: 5 * BlockBytes, Synced: h.Synced}, h.Tails)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, after, w.ID(), row, 0, row.End), data) {
		t.Fatal("wrong bytes")
	}
}

// TestRecoverRefuses gives recovery rows, tails and files that do not belong
// together.
func TestRecoverRefuses(t *testing.T) {
	s := openStore(t, Options{FS: vfs.NewMem()})
	id := newID()
	tail := func(off int64, n int) record.Tail { return record.Tail{Segment: id, Off: off, Bytes: make([]byte, n)} }
	for name, c := range map[string]struct {
		loc   record.Segment
		tails []record.Tail
	}{
		"gap at the start":  {record.Segment{End: 10}, []record.Tail{tail(1, 9)}},
		"gap in the middle": {record.Segment{End: 10}, []record.Tail{tail(0, 4), tail(5, 5)}},
		"end missing":       {record.Segment{End: 10}, []record.Tail{tail(0, 9)}},
		"no tails":          {record.Segment{End: 10}, nil},
		"foreign tail":      {record.Segment{End: 10}, []record.Tail{{Segment: newID(), Bytes: make([]byte, 10)}}},
		"synced in a block": {record.Segment{End: 10, Synced: 5}, []record.Tail{tail(0, 10)}},
		"synced past end":   {record.Segment{End: 10, Synced: BlockBytes}, nil},
		"file missing":      {record.Segment{End: BlockBytes, Synced: BlockBytes}, nil},
	} {
		c.loc.State = record.SegmentOpen
		_, err := s.Recover(id, c.loc, c.tails)
		if tine.KindOf(err) != tine.KindCorrupt || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	row, err := s.Recover(id, record.Segment{State: record.SegmentOpen, End: 10}, []record.Tail{tail(0, 7), tail(2, 3), tail(4, 100)})
	if err != nil || row.End != 10 {
		t.Fatalf("%+v, %v", row, err)
	}
	if again, err := s.Recover(id, row, nil); err != nil || again != row {
		t.Fatalf("%+v, %v", again, err)
	}
	wantKind(t, mustErr(s.Recover(id, record.Segment{State: record.SegmentOpen, End: 2 * BlockBytes, Synced: 2 * BlockBytes}, nil)), tine.KindCorrupt)
}

func mustErr(_ record.Segment, err error) error { return err }
