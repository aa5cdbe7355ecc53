package pebble_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/kvtest"
	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// TestCrash cuts the power at random moments, with random parts of what was
// not synced on the device. Each of the writers numbers its commits and
// writes the number into several rows: after the crash its rows must all show
// one number, and one not before its last synced commit.
func TestCrash(t *testing.T) {
	seed := kvtest.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 2))
	fs := vfs.NewCrashableMem()
	s := open(t, pebble.Options{Dir: "db", FS: fs, MemTableBytes: 32 << 10, CacheBytes: 1 << 20})
	const writers, cuts = 4, 12
	var durable [writers]atomic.Uint64
	var total atomic.Uint64
	tick := make(chan struct{})
	stop := make(chan struct{})
	var all sync.WaitGroup
	for w := range writers {
		r := rand.New(rand.NewPCG(seed, uint64(10+w)))
		all.Go(func() { crashWriter(t, s, w, r, stop, tick, &durable[w], &total) })
	}
	for cut := range cuts {
		for range 20 + rng.IntN(60) {
			<-tick
		}
		var floor [writers]uint64
		for w := range writers {
			floor[w] = durable[w].Load()
		}
		percent := []int{0, 0, 30, 50, 100}[rng.IntN(5)]
		clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
		again := open(t, pebble.Options{Dir: "db", FS: clone})
		for w := range writers {
			checkCrash(t, again, w, floor[w], fmt.Sprintf("cut %d, %d%%", cut, percent))
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	go func() {
		for range tick {
		}
	}()
	all.Wait()
	close(tick)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d commits, %d cuts", total.Load(), cuts)
}

const crashRows = 5

func crashKey(w, row int, e tine.Epoch) []byte {
	return key(fmt.Sprintf("writer-%d/%d", w, row), e)
}

func crashWriter(t *testing.T, s kv.Store, w int, r *rand.Rand, stop, tick chan struct{}, durable, total *atomic.Uint64) {
	for n := uint64(1); ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		b := s.NewBatch()
		for row := range crashRows {
			b.Set(crashKey(w, row, tine.Epoch(n)), bytes.Repeat([]byte{byte(n)}, 10+r.IntN(200)))
			if n > 3 {
				b.Delete(crashKey(w, row, tine.Epoch(n-3)))
			}
		}
		sync := r.IntN(3) == 0
		if err := s.Commit(b, sync); err != nil {
			t.Error(err)
			return
		}
		if sync {
			durable.Store(n)
		}
		total.Add(1)
		tick <- struct{}{}
	}
}

func checkCrash(t *testing.T, s kv.Store, w int, floor uint64, at string) {
	t.Helper()
	n := s.Snapshot()
	defer n.Close()
	var first tine.Epoch
	for row := range crashRows {
		k := crashKey(w, row, 0)
		v, e, ok, err := n.Newest(k[:len(k)-record.EpochLen], tine.Head)
		if err != nil {
			t.Fatal(err)
		}
		if ok && v[0] != byte(e) {
			t.Fatalf("%s: a row of commit %d has the value of another", at, e)
		}
		if row == 0 {
			first = e
		}
		if e != first {
			t.Fatalf("%s: writer %d shows commit %d in row 0 and %d in row %d", at, w, first, e, row)
		}
	}
	if uint64(first) < floor {
		t.Fatalf("%s: writer %d is at commit %d; commit %d was durable", at, w, first, floor)
	}
	c, err := n.Scan(crashKey(w, 0, tine.Head), crashKey(w, crashRows, tine.Head), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	count := 0
	for c.Next() {
		count++
	}
	if want := crashRows * int(min(first, 3)); count != want || c.Err() != nil {
		t.Fatalf("%s: writer %d at commit %d has %d rows, want %d (%v)", at, w, first, count, want, c.Err())
	}
}
