package run_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/kvtest"
	"tine.dev/tine/internal/fs/kv/mem"
	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/run"
	"tine.dev/tine/internal/tine"
)

// TestAdoptionCutOff cuts the power at many moments of an adoption. What is there then are
// the first groups, each as a whole; adopting again makes all of them be there. When
// the adoption has returned nothing of it is lost.
func TestAdoptionCutOff(t *testing.T) {
	seed := kvtest.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 3))
	o := newObjects(t)
	var groups [][]kv.Table
	const rowsOf = 10
	for g := range 4 { // each writes all rows anew and deletes one of the group before
		changes := append(many("ace", rowsOf, tine.Epoch(g+2)), kv.Change{Kind: kv.ChangeDelete, Key: set('a', 0, tine.Epoch(g+1)).Key})
		groups = append(groups, run.Adoptables(writeRun(t, o, fmt.Sprint(g), 1, changes...)))
	}
	disk := vfs.NewCrashableMem()
	open := func(fs vfs.FS) kv.Store {
		s, err := pebble.Open(pebble.Options{Dir: "db", FS: fs, MemTableBytes: 64 << 10, Tables: run.NewTables(o.Store, newMemory())})
		must(t, err)
		return s
	}
	cut := &powerCuts{disk: disk, rng: rng}
	s := open(errorfs.Wrap(disk, cut))
	b := s.NewBatch()
	set('b', 0, 1).Apply(b)
	must(t, s.Commit(b, true))
	cut.armed.Store(true)
	must(t, s.(kv.Adopter).Adopt(context.Background(), groups))
	cut.armed.Store(false)
	seen := map[int]int{}
	check := func(fs vfs.FS, least int) {
		again := open(fs)
		n := groupsIn(t, again, rowsOf)
		seen[n]++
		if n < least {
			t.Fatalf("%d groups are there, want %d", n, least)
		}
		must(t, again.(kv.Adopter).Adopt(context.Background(), groups))
		if n := groupsIn(t, again, rowsOf); n != len(groups) {
			t.Fatalf("%d groups are there after the adoption was repeated", n)
		}
		must(t, again.Close())
	}
	check(disk.CrashClone(vfs.CrashCloneCfg{}), len(groups))
	for _, fs := range cut.states {
		check(fs, 0)
	}
	must(t, s.Close())
	t.Logf("groups found after a crash, and how often: %v", seen)
	if len(seen) < 3 {
		t.Errorf("no crash was in the middle: %v", seen)
	}
}

// powerCuts keeps what a power cut would leave at each third change of the files.
type powerCuts struct {
	disk    *vfs.MemFS
	armed   atomic.Bool
	mu      sync.Mutex
	rng     *rand.Rand
	states  []vfs.FS
	changes int
}

func (p *powerCuts) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && p.armed.Load() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.changes++; p.changes%3 != 0 {
			return nil
		}
		p.states = append(p.states, p.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: p.rng.IntN(101), RNG: p.rng}))
	}
	return nil
}

func (p *powerCuts) String() string { return "power cuts" }

// groupsIn returns how many of the groups are there, and checks that each is whole.
func groupsIn(t *testing.T, s kv.Store, rowsOf int) int {
	t.Helper()
	n := s.Snapshot()
	defer n.Close()
	v, newest, found, err := n.Newest(prefixOf('a', rowsOf-1), tine.Head)
	must(t, err)
	groups := 0
	if found {
		groups = int(newest) - 1
	}
	for e := 2; e <= groups+1; e++ {
		for _, owner := range []byte("ace") {
			for i := range rowsOf {
				gone := owner == 'a' && i == 0 && e <= groups
				_, at, ok, err := n.Newest(prefixOf(owner, i), tine.Epoch(e))
				must(t, err)
				if there := ok && at == tine.Epoch(e); there == gone {
					t.Fatalf("of %d groups (%s), row %c/%d of epoch %d is there: %v", groups, v, owner, i, e, there)
				}
			}
		}
	}
	if v, err := find(s, 'b', 0); v != "b/0@1" || err != nil {
		t.Fatalf("a row that was there before is %q (%v)", v, err)
	}
	return groups
}

// TestContract runs the contract of row stores on one that has adopted tables all over the
// suite's keys, with rows that later ones delete.
func TestContract(t *testing.T) {
	o := newObjects(t)
	var below, above []kv.Change
	for _, owner := range []string{"owner", "o0\xff\xff", "o1\xff\xff", "o2\xff\xff", "a", "z"} {
		var id [tine.IDSize]byte
		copy(id[:], owner)
		for i := range 300 {
			for e := tine.Epoch(1); e < 4; e++ {
				below = append(below, kv.Change{Kind: kv.ChangeSet, Key: record.Key(id, record.DentryKey(1, fmt.Sprintf("row-%06d", i)), e), Value: []byte("hidden")})
			}
		}
		above = append(above, kv.Change{Kind: kv.ChangeDeleteRange, Key: id[:], Value: record.PrefixEnd(id[:])})
	}
	runs := [][]run.Table{writeRun(t, o, "0", 1, below...), writeRun(t, o, "1", 1, above...)}
	opened := map[kv.Store]*rows{}
	kvtest.Run(t, kvtest.Driver{
		Open: func(t *testing.T) kv.Store {
			r := &rows{opt: pebble.Options{Dir: "db", FS: vfs.NewMem(), MemTableBytes: 64 << 10, CacheBytes: 1 << 20, Tables: run.NewTables(o.Store, newMemory())}}
			r.open(t)
			r.adopt(t, runs...)
			opened[r.Store] = r
			return r.Store
		},
		Reopen: func(t *testing.T, s kv.Store) kv.Store {
			r := opened[s]
			r.reopen(t)
			opened[r.Store] = r
			return r.Store
		},
	})
}

// TestFoldIsTheLastWord compares folds with the reference: what a fold says, put on top
// of any rows, is what its changes do to them one by one.
func TestFoldIsTheLastWord(t *testing.T) {
	seed := kvtest.Seed(t)
	for i := range 300 {
		g := newSource(seed + uint64(i))
		one, folded := mem.New(), mem.New()
		apply := func(s kv.Store, changes []kv.Change) {
			b := s.NewBatch()
			for _, c := range changes {
				c.Apply(b)
			}
			must(t, s.Commit(b, false))
		}
		for range 5 {
			below := g.batch()
			apply(one, below)
			apply(folded, below)
		}
		f := run.NewFold()
		for range g.rng.IntN(12) {
			changes := g.batch()
			apply(one, changes)
			for _, c := range changes {
				must(t, f.Add(c))
			}
		}
		// All of a fold is one moment: ranges delete what is below it only.
		var ranges, points []kv.Change
		var size int64
		must(t, f.Changes(func(c kv.Change) error {
			size += int64(len(c.Key) + len(c.Value))
			if c.Kind == kv.ChangeDeleteRange {
				if n := len(ranges); n > 0 && string(ranges[n-1].Value) >= string(c.Key) {
					t.Fatalf("range %x touches that before, to %x", c.Key, ranges[n-1].Value)
				}
				ranges = append(ranges, c)
			} else {
				points = append(points, c)
			}
			return nil
		}))
		if f.Bytes() < size || f.Len() < len(points)+len(ranges) {
			t.Fatalf("a fold of %d bytes and %d changes says %d and %d", size, len(points)+len(ranges), f.Bytes(), f.Len())
		}
		apply(folded, ranges)
		apply(folded, points)
		g.same(t, fmt.Sprintf("fold %d", i), folded, one)
	}
}

func FuzzDecodeTables(f *testing.F) {
	f.Add(run.AppendTables(nil, nil))
	f.Add(run.AppendTables(nil, []run.Table{{
		Key: "trees/t/runs/r/0", ObjectBytes: 100, Rows: 3, Deletes: 1, Ranges: 2,
		Parts: []kv.Part{{Span: kv.Span{Lower: []byte("a"), Upper: []byte("b")}, Bytes: 7}, {Span: kv.Span{Lower: []byte("c"), Upper: []byte("x")}, Bytes: 1}},
	}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		tables, err := run.DecodeTables(b)
		if err != nil {
			if k := tine.KindOf(err); k != tine.KindCorrupt && k != tine.KindVersion {
				t.Fatalf("%v is of the kind %v", err, k)
			}
			return
		}
		again, err := run.DecodeTables(run.AppendTables(nil, tables))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(tables) {
			t.Fatalf("%v was encoded and decoded as %v (%v)", tables, again, err)
		}
		for _, one := range tables {
			key, size, err := run.ParseName(one.Adoptable().Name)
			if key != one.Key || size != one.ObjectBytes || err != nil {
				t.Fatalf("the name of %v is read as %s, %d (%v)", one, key, size, err)
			}
		}
	})
}
