package pebble_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"tine.dev/tine/internal/fs/kv/kvtest"
	"tine.dev/tine/internal/fs/kv/pebble"
)

// TestCrashWhileOpening cuts the power at every call to the file system of an opening,
// and of the closing after it: what is left always opens again, with all that was
// durable before.
func TestCrashWhileOpening(t *testing.T) {
	seed := kvtest.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 3))
	base := vfs.NewCrashableMem()
	s := open(t, pebble.Options{Dir: "db", FS: base, MemTableBytes: 32 << 10})
	b := s.NewBatch()
	for row := range crashRows {
		b.Set(crashKey(0, row, 1), []byte{1})
	}
	if err := s.Commit(b, true); err != nil {
		t.Fatal(err)
	}
	killed := base.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for at, done := 1, false; !done; at++ {
		fs := killed.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
		var mu sync.Mutex
		calls := 0
		var cut *vfs.MemFS
		watched := errorfs.Wrap(fs, errorfs.InjectorFunc(func(errorfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if calls++; calls == at {
				cut = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[rng.IntN(3)], RNG: rng})
			}
			return nil
		}))
		again := open(t, pebble.Options{Dir: "db", FS: watched})
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		if done = cut == nil; done {
			t.Logf("%d calls", calls)
			break
		}
		after, err := pebble.Open(pebble.Options{Dir: "db", FS: cut})
		if err != nil {
			t.Fatalf("cut at call %d: %v", at, err)
		}
		checkCrash(t, after, 0, 1, "cut while opening")
		if err := after.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
