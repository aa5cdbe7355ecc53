package pebble_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/fs/kv/pebble/dbfiles"
	"tine.dev/tine/internal/tine"
)

// TestNothingTakenForNew damages what Pebble takes for a new store, or for an older one,
// and would then clear up: the store must not open.
func TestNothingTakenForNew(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for _, c := range []struct {
		name, kind string
		change     func(b []byte) []byte // nil: the file is removed
	}{
		{"without the marker of the manifest", "marker.manifest", nil},
		{"without the manifest", "MANIFEST-", nil},
		{"manifest with a flipped bit", "MANIFEST-", func(b []byte) []byte { b[rnd.IntN(len(b))] ^= 1 << rnd.IntN(8); return b }},
		{"manifest cut off", "MANIFEST-", func(b []byte) []byte { return b[:rnd.IntN(len(b))] }},
		{"without the newest log", ".log", nil},
		{"newest log emptied", ".log", func([]byte) []byte { return nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := diedWithTables(t)
			name := fs.PathJoin("db", newestOf(t, fs, c.kind))
			f, err := fs.Open(name)
			noError(t, err)
			b, err := io.ReadAll(f)
			noError(t, err)
			noError(t, f.Close())
			noError(t, fs.Remove(name))
			if c.change != nil {
				f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
				noError(t, err)
				_, err = f.Write(c.change(b))
				noError(t, err)
				noError(t, f.Close())
			}
			before, err := fs.List("db")
			noError(t, err)
			_, err = pebble.Open(pebble.Options{Dir: "db", FS: fs})
			wantKind(t, "open", err, tine.KindCorrupt)
			after, err := fs.List("db")
			noError(t, err)
			slices.Sort(before)
			slices.Sort(after)
			if !slices.Equal(before, after) {
				t.Errorf("files are %v and were %v", after, before)
			}
		})
	}
}

// TestLogsInARow removes or empties the older of two logs with rows that are not in
// tables, where the manifest was last written before that had rows.
func TestLogsInARow(t *testing.T) {
	for _, empty := range []bool{false, true} {
		fs, older := diedWithTwoLogs(t)
		name := fs.PathJoin("db", older)
		noError(t, fs.Remove(name))
		if empty {
			f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
			noError(t, err)
			noError(t, f.Close())
		}
		_, err := pebble.Open(pebble.Options{Dir: "db", FS: fs})
		wantKind(t, fmt.Sprintf("open, older log emptied %v", empty), err, tine.KindCorrupt)
	}
}

// diedWithTwoLogs is diedWithTables with the name of the older log. A log whose rows
// are all in tables may be there too, and does not count.
func diedWithTwoLogs(t *testing.T) (*vfs.MemFS, string) {
	t.Helper()
	for range 20 {
		fs := diedWithTables(t)
		files, err := pebble.List(fs, "db")
		noError(t, err)
		f, err := fs.Open(fs.PathJoin("db", pebble.ManifestName(files.Current)))
		noError(t, err)
		b, err := io.ReadAll(f)
		noError(t, err)
		noError(t, f.Close())
		var m dbfiles.Manifest
		m.ReadManifest(b, true)
		logs := slices.DeleteFunc(files.Logs, func(n uint64) bool { return n < m.FirstLog })
		if len(logs) >= 2 && m.LastSeq <= rowsInTables+firstSequence {
			return fs, pebble.LogName(logs[len(logs)-2])
		}
	}
	t.Fatal("no two logs hold rows that are not in tables")
	return nil, ""
}

// rowsInTables is how many rows diedWithTables has in tables; Pebble's sequence numbers start
// at firstSequence.
const rowsInTables, firstSequence = 20, 10

// noFlush is a file system on which tables cannot be written once it is full.
type noFlush struct {
	*vfs.MemFS
	full bool
}

func (f *noFlush) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if f.full && strings.HasSuffix(name, ".sst") {
		select {} // the device never answers
	}
	return f.MemFS.Create(name, c)
}

// diedWithTables returns the files of a process that died with rows in tables, and in two
// logs, for the flush of the older one never came to its end.
func diedWithTables(t *testing.T) *vfs.MemFS {
	t.Helper()
	mem := &noFlush{MemFS: vfs.NewCrashableMem()}
	s := open(t, pebble.Options{Dir: "db", FS: mem, MemTableBytes: 1 << 20, LowSpaceBytes: -1, ReserveBytes: -1})
	fill(t, s, "a", rowsInTables)
	noError(t, s.Flush())
	mem.full = true
	fill(t, s, "b", 150)
	return mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
}

// fill commits rows of 10 kB.
func fill(t *testing.T, s kv.Store, name string, rows int) {
	t.Helper()
	for i := range rows {
		b := s.NewBatch()
		b.Set(key(fmt.Sprintf("%s-%03d", name, i), 1), make([]byte, 10_000))
		noError(t, s.Commit(b, true))
	}
}

func newestOf(t *testing.T, fs vfs.FS, kind string) string {
	t.Helper()
	names, err := fs.List("db")
	noError(t, err)
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, kind) && !strings.HasSuffix(n, kind) })
	return slices.Max(names)
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
