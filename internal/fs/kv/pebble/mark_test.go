package pebble_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/tine"
)

// TestDamagedLog changes a byte anywhere in the part of a log that was durable
// when the process died. The store must not open as if nothing had happened; with
// CutLog it opens at a state that it had.
func TestDamagedLog(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for round := range 20 {
		mem := vfs.NewCrashableMem()
		s := open(t, pebble.Options{Dir: "db", FS: mem})
		commits := 1 + rnd.IntN(30)
		for i := range commits {
			b := s.NewBatch()
			b.Set(key(fmt.Sprintf("row-%02d", i), 1), make([]byte, rnd.IntN([]int{100, 5000, 90_000}[rnd.IntN(3)])))
			if err := s.Commit(b, true); err != nil {
				t.Fatal(err)
			}
		}
		// Dead at this moment, with all that was written: so all of the log is durable.
		died := func() *vfs.MemFS {
			return mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(seed, 2))})
		}
		good, bad := died(), died()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if n := rowsIn(t, pebble.Options{Dir: "db", FS: good}); n != commits {
			t.Fatalf("round %d: %d of %d commits are left after a crash", round, n, commits)
		}
		what := flipLog(t, bad, rnd)
		_, err := pebble.Open(pebble.Options{Dir: "db", FS: bad})
		wantKind(t, "open with damage in "+what, err, tine.KindCorrupt)
		if tine.HintOf(err) == "" {
			t.Error("no hint")
		}
		left := rowsIn(t, pebble.Options{Dir: "db", FS: bad, CutLog: true})
		if left >= commits {
			t.Errorf("round %d: %d of %d commits after the log was cut off, for %s", round, left, commits, what)
		}
		if n := rowsIn(t, pebble.Options{Dir: "db", FS: bad}); n != left {
			t.Errorf("round %d: %d of %d commits when opened again", round, n, left)
		}
	}
}

// rowsIn opens a store, counts its rows, which must be the first that were
// committed, and closes it.
func rowsIn(t *testing.T, o pebble.Options) (n int) {
	t.Helper()
	s := open(t, o)
	snap := s.Snapshot()
	for ; n < 100; n++ {
		_, _, ok, err := snap.Newest(prefix(fmt.Sprintf("row-%02d", n)), 1)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
	}
	if err := snap.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return n
}

// flipLog changes one bit of the newest log and says where.
func flipLog(t *testing.T, fs *vfs.MemFS, rnd *rand.Rand) string {
	t.Helper()
	names, err := fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	newest := ""
	for _, n := range names {
		if strings.HasSuffix(n, ".log") && n > newest {
			newest = n
		}
	}
	name := fs.PathJoin("db", newest)
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil || len(b) == 0 {
		t.Fatalf("%s has %d bytes, %v", name, len(b), err)
	}
	at := rnd.IntN(len(b))
	b[at] ^= 1 << rnd.IntN(8)
	if _, err := f.WriteAt(b[at:at+1], int64(at)); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s, byte %d of %d", name, at, len(b))
}
