package salvage_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/fs/kv/salvage"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// world is a store and all that its rows have ever been.
type world struct {
	t   *testing.T
	rnd *rand.Rand
	fs  *vfs.MemFS
	kv.Store
	now map[string]string
	had map[string]map[string]bool // "" for a row that was not there
}

func options(fs vfs.FS) pebble.Options {
	return pebble.Options{Dir: "data/rows", FS: fs, MemTableBytes: 256 << 10, LowSpaceBytes: -1, ReserveBytes: -1}
}

func newWorld(t *testing.T, rnd *rand.Rand) *world {
	t.Helper()
	w := &world{t: t, rnd: rnd, fs: vfs.NewCrashableMem(), now: map[string]string{}, had: map[string]map[string]bool{}}
	must(t, w.fs.MkdirAll("data", 0o700))
	s, err := pebble.Open(options(w.fs))
	must(t, err)
	w.Store = s
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// strata is how many owners the rows have.
const strata = 4

func key(stratum, ino int) []byte {
	var owner [tine.IDSize]byte
	owner[0] = byte(stratum + 1)
	return record.Key(owner, record.InodeKey(tine.Ino(ino)), tine.Epoch(1+ino%3))
}

// work makes commits of all kinds, with flushes and compactions between.
func (w *world) work(commits int) {
	w.t.Helper()
	for i := range commits {
		b := w.NewBatch()
		for range 1 + w.rnd.IntN(60) {
			k := key(w.rnd.IntN(strata), w.rnd.IntN(2000))
			if w.rnd.IntN(5) == 0 {
				b.Delete(k)
				w.note(k, "")
				continue
			}
			v := make([]byte, 8+w.rnd.IntN(300))
			binary.LittleEndian.PutUint64(v, w.rnd.Uint64())
			for j := 8; j < len(v); j++ {
				v[j] = byte(w.rnd.Uint32()) // nothing that packs well
			}
			b.Set(k, v)
			w.note(k, string(v))
		}
		if w.rnd.IntN(commits) == 0 {
			from, to := key(0, 500), key(0, 600)
			b.DeleteRange(from, to)
			for k := range w.now {
				if k >= string(from) && k < string(to) {
					w.note([]byte(k), "")
				}
			}
		}
		must(w.t, w.Commit(b, w.rnd.IntN(4) == 0 || i == commits-1))
		switch w.rnd.IntN(150) {
		case 0, 2, 3:
			must(w.t, w.Flush())
		case 1:
			must(w.t, w.Compact(key(0, 0), key(w.rnd.IntN(strata), 2000)))
		}
	}
}

func (w *world) note(k []byte, v string) {
	h := w.had[string(k)]
	if h == nil {
		h = map[string]bool{"": true}
		w.had[string(k)] = h
	}
	h[v] = true
	if v == "" {
		delete(w.now, string(k))
	} else {
		w.now[string(k)] = v
	}
}

// died returns the files as they were if the process had died now.
func (w *world) died() *vfs.MemFS {
	return w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
}

func contents(t *testing.T, s kv.Store) map[string]string {
	t.Helper()
	snap := s.Snapshot()
	defer snap.Close()
	scan, err := snap.Scan(nil, nil, nil)
	must(t, err)
	defer scan.Close()
	all := map[string]string{}
	for scan.Next() {
		all[string(scan.Key())] = string(scan.Value())
	}
	must(t, scan.Err())
	return all
}

// hurt damages a file and says how.
func hurt(t *testing.T, fs *vfs.MemFS, rnd *rand.Rand, kind string) (what string) {
	t.Helper()
	names, err := fs.List("data/rows")
	must(t, err)
	slices.Sort(names)
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.Contains(n, kind) })
	if len(names) == 0 {
		return ""
	}
	file := names[rnd.IntN(len(names))]
	name := fs.PathJoin("data/rows", file)
	f, err := fs.Open(name)
	must(t, err)
	b, err := io.ReadAll(f)
	must(t, err)
	must(t, f.Close())
	switch how := rnd.IntN(6); {
	case how == 0:
		must(t, fs.Remove(name))
		return "removed " + file
	case len(b) == 0:
		return file + " is empty"
	case how == 1:
		b = b[:rnd.IntN(len(b))]
		what = fmt.Sprintf("%s cut off at %d", file, len(b))
	default:
		at := rnd.IntN(len(b))
		b[at] ^= 1 << rnd.IntN(8)
		what = fmt.Sprintf("byte %d of %d of %s flipped", at, len(b), file)
	}
	f, err = fs.Create(name, vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = f.Write(b)
	must(t, err)
	must(t, f.Sync())
	must(t, f.Close())
	return what
}

// TestRandomDamage damages one file in a random way. What is left after a salvage must
// be right wherever nothing is said to be lost, and never anything that was not once so.
func TestRandomDamage(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	kinds := []string{".sst", ".sst", ".log", "MANIFEST", "OPTIONS", "marker", "SYNCED"}
	tally := map[string]int{}
	for range rounds {
		w := newWorld(t, rnd)
		w.work(400 + rnd.IntN(800))
		if rnd.IntN(3) == 0 { // opened a second time: an older manifest is there
			must(t, w.Close())
			var err error
			w.Store, err = pebble.Open(options(w.fs))
			must(t, err)
			w.work(rnd.IntN(200) + 1)
		}
		for _, kind := range kinds {
			fs := w.died()
			if what := hurt(t, fs, rnd, kind); what != "" {
				tally[kind+": "+w.salvaged(fs, what)]++
			}
		}
		must(t, w.Close())
	}
	for _, k := range slices.Sorted(maps.Keys(tally)) {
		t.Log(k, tally[k])
	}
}

// salvaged salvages and compares, and returns what came of it.
func (w *world) salvaged(fs *vfs.MemFS, what string) string {
	t := w.t
	t.Helper()
	s, rep, err := salvage.Open(salvage.Options{Store: options(fs), Aside: "data/damaged"})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	got := contents(t, s)
	must(t, s.Close())
	older := false // an older state is allowed
	for _, d := range rep.Damage {
		older = older || strings.HasSuffix(d.File, ".log") || strings.HasPrefix(d.File, "MANIFEST") || strings.Contains(d.What, "deletions of whole ranges")
	}
	right := 0
	for k, had := range w.had {
		v := got[k]
		switch {
		case v == w.now[k]:
			right++
		case !had[v]:
			t.Fatalf("%s: a row has a value that it never had", what)
		case !older && !within(k, rep.Damage):
			t.Fatalf("%s: row %x is %.10q, was %.10q; said was only:\n%s", what, k, v, w.now[k], told(rep))
		}
	}
	for k := range got {
		if w.had[k] == nil {
			t.Fatalf("%s: row %x never was", what, k)
		}
	}
	if rep.Rows > 0 { // as if the repair of what the rows say had been cut off
		noted, rep2, err := salvage.Open(salvage.Options{Store: options(fs), Aside: "data/damaged"})
		must(t, err)
		must(t, noted.Close())
		if told(rep2) != told(rep) || rep2.Kept != "" {
			t.Fatalf("%s: when it is run again, it tells\n%s and told\n%s", what, told(rep2), told(rep))
		}
		must(t, salvage.Forget(salvage.Options{Store: options(fs)}))
	}
	again, rep2, err := salvage.Open(salvage.Options{Store: options(fs), Aside: "data/damaged"})
	must(t, err)
	if len(rep2.Damage) > 0 {
		t.Fatalf("%s: a second salvage finds:\n%s", what, told(rep2))
	}
	if !maps.Equal(contents(t, again), got) {
		t.Fatalf("%s: a second opening shows other rows", what)
	}
	must(t, again.Close())
	switch {
	case len(rep.Damage) == 0 && right < len(w.had):
		t.Fatalf("%s: nothing was found, and %d rows are wrong", what, len(w.had)-right)
	case len(rep.Damage) == 0:
		return "harmless"
	case rep.Kept == "":
		t.Fatalf("%s: what was damaged is not kept", what)
	case right == len(w.had):
		return "nothing lost"
	case right < len(w.had)/2:
		t.Logf("%s: %d of %d rows are right:\n%s", what, right, len(w.had), told(rep))
		return "half lost"
	}
	return "some lost"
}

func within(k string, all []kv.Damage) bool {
	for _, d := range all {
		if d.Lost && (d.Lower == nil || k >= string(d.Lower)) && (d.Upper == nil || k <= string(d.Upper)) {
			return true
		}
	}
	return false
}

func told(r *salvage.Report) string {
	var b bytes.Buffer
	for _, d := range r.Damage {
		fmt.Fprintf(&b, "  %s: %s; lost %v %x to %x\n", d.File, d.What, d.Lost, d.Lower, d.Upper)
	}
	return b.String()
}

// TestInterrupted stops a salvage at every change of the files that it makes, with the
// power gone. Run again it must end with the same rows.
func TestInterrupted(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t, rnd)
	w.work(60)
	must(t, w.Flush())
	must(t, w.Compact(key(0, 0), key(strata, 0)))
	w.work(60)
	base := w.died()
	must(t, w.Close())
	must(t, base.Remove("data/rows/"+markerName(t, base)))
	want := map[string]string{}
	for at, done := 0, false; !done; at++ {
		fs := vfs.NewCrashableMem()
		copyAll(t, base, fs)
		var cut *vfs.MemFS
		var n atomic.Int64
		var mu sync.Mutex
		watched := errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && int(n.Add(1)) == at+1 {
				mu.Lock()
				defer mu.Unlock()
				cut = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rnd.IntN(101), RNG: rnd})
			}
			return nil
		}))
		s, rep, err := salvage.Open(salvage.Options{Store: options(watched), Aside: "data/damaged"})
		must(t, err)
		got := contents(t, s)
		must(t, s.Close())
		if len(rep.Damage) == 0 || rep.Rows == 0 {
			t.Fatalf("nothing was saved: %+v", rep)
		}
		if at == 0 {
			want = got
		}
		mu.Lock()
		done = cut == nil
		mu.Unlock()
		if done {
			t.Logf("%d changes", n.Load())
			continue
		}
		if kept, err := cut.List("data/damaged"); err == nil && len(kept) == 0 {
			if _, err := cut.Stat("data/rows"); err != nil {
				t.Fatalf("cut at %d: the damaged store is gone", at)
			}
		}
		if s, err := pebble.Open(options(cut)); err == nil { // a server between the two
			if !maps.Equal(contents(t, s), want) {
				t.Fatalf("cut at %d: a server starts with other rows", at)
			}
			must(t, s.Close())
		}
		s, _, err = salvage.Open(salvage.Options{Store: options(cut), Aside: "data/damaged"})
		if err != nil {
			t.Fatalf("cut at %d: %v", at, err)
		}
		if !maps.Equal(contents(t, s), want) {
			t.Fatalf("cut at %d: other rows after it was run again", at)
		}
		must(t, s.Close())
	}
}

func markerName(t *testing.T, fs vfs.FS) string {
	t.Helper()
	names, err := fs.List("data/rows")
	must(t, err)
	return names[slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, "marker.manifest") })]
}

// copyAll copies the files of a store, durably.
func copyAll(t *testing.T, from, to vfs.FS) {
	t.Helper()
	must(t, to.MkdirAll("data/rows", 0o700))
	names, err := from.List("data/rows")
	must(t, err)
	for _, n := range names {
		f, err := from.Open("data/rows/" + n)
		must(t, err)
		b, err := io.ReadAll(f)
		must(t, errors.Join(err, f.Close()))
		g, err := to.Create("data/rows/"+n, vfs.WriteCategoryUnspecified)
		must(t, err)
		_, err = g.Write(b)
		must(t, errors.Join(err, g.Sync(), g.Close()))
	}
	for _, dir := range []string{"data/rows", "data", "/"} {
		d, err := to.OpenDir(dir)
		must(t, err)
		must(t, errors.Join(d.Sync(), d.Close()))
	}
}
