package fsck

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv/pebble"
	rowsalvage "tine.dev/tine/internal/fs/kv/salvage"
	"tine.dev/tine/internal/fs/volume"
)

// TestLostRows flips a byte in tables of the rows, salvages, repairs, and looks whether
// what is left is sound, and whose rows were lost is told. It ends with the engine
// working on it.
func TestLostRows(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	good := sample(t)
	addMany(t, good)
	compactRows(t, good)
	was, _ := usable(t, clone(good), true)
	codes := map[string]int{}
	for range 8 {
		fs := clone(good)
		name, b := aTable(t, fs, rnd)
		at := rnd.IntN(len(b))
		b[at] ^= 1 << rnd.IntN(8)
		spill(t, fs, name, b)
		if rows, err := pebble.Open(pebble.Options{Dir: dataDir + "/rows", FS: clone(fs)}); err == nil {
			r, err := Check(Options{Rows: rows})
			if err == nil && r.Counts["R010"] == 0 {
				t.Errorf("byte %d of %d of %s: nothing is found", at, len(b), name)
			}
			_ = rows.Close() // may fail: a table is damaged
		}
		rows, rep, err := rowsalvage.Open(rowsalvage.Options{Store: pebble.Options{Dir: dataDir + "/rows", FS: fs}, Aside: dataDir + "/damaged"})
		must(t, err)
		o := optionsOf(rows, fs)
		o.Salvaged = rep.Damage
		done, err := Repair(o, testTime())
		must(t, err)
		for c, n := range done.Before.Counts {
			codes[c] += n
		}
		lost := slices.ContainsFunc(done.Before.Findings, func(f Finding) bool { return f.Code == "R010" && strings.Contains(f.What, "they lay between") })
		if !lost && done.Before.Errors > len(rep.Damage) {
			t.Errorf("byte %d of %d of %s: no rows are said to be lost, and wrong is\n%s", at, len(b), name, describe(done.Before))
		}
		o.Salvaged = nil
		left, err := Check(o)
		must(t, err)
		records := slices.ContainsFunc(codesOf(left, Error), func(c string) bool { return c[0] == 'T' })
		if left.Errors > 0 && !records {
			t.Errorf("byte %d of %d of %s: left is\n%safter\n%v", at, len(b), name, describe(left), done.Changes)
		}
		must(t, rows.Close())
		if !records {
			is, _ := usable(t, fs, true)
			unnamed(t, was, is, done)
		}
	}
	for _, c := range []string{"R010", "R011"} {
		if codes[c] == 0 {
			t.Errorf("%s is never found", c)
		}
	}
	t.Log(codes)
}

// addMany makes rows enough for many blocks, of a disk with a checkpoint that shows
// files which have changed or gone, and of another one.
func addMany(t *testing.T, fs *vfs.MemFS) {
	t.Helper()
	h := openHost(t, fs, true)
	s, o := attach(t, h, "work"), attach(t, h, "other")
	s.mkdir("/many")
	for i := range 200 {
		s.write(fmt.Sprintf("/many/%d", i), content(i, 700), 0)
		o.write(fmt.Sprintf("/o%d", i), content(-i, 700), 0)
	}
	_, err := h.Checkpoint(ctx, me, "work", "many", "", volume.WaitDurable)
	must(t, err)
	for i := range 100 {
		if i%2 == 0 {
			must(t, s.Unlink(root, s.at("/many"), fmt.Sprint(i)))
		} else {
			s.write(fmt.Sprintf("/many/%d", i), content(1000+i, 900), 0)
		}
	}
	must(t, o.Detach(ctx))
	must(t, s.Detach(ctx))
	must(t, h.Close(ctx))
}

// unnamed looks for paths that are not as they were and that no finding names, nor, of
// what is missing or came back, the directory.
func unnamed(t *testing.T, was, is map[string]map[string]string, done *Repaired) {
	t.Helper()
	named := map[string]bool{}
	for _, f := range done.Before.Findings {
		named[f.Path] = true
	}
	for _, c := range done.Changes {
		named[c.Path] = true
	}
	for ref, files := range was {
		all := map[string]bool{}
		for p := range files {
			all[p] = true
		}
		for p := range is[ref] {
			all[p] = true
		}
		for p := range all {
			a, before := files[p]
			b, after := is[ref][p]
			above := false // a directory above it is named
			for dir, _ := cutPath(p); !above; dir, _ = cutPath(strings.TrimSuffix(dir, "/")) {
				if above = named["/"+strings.Trim(dir, "/")]; dir == "/" {
					break
				}
			}
			if before && after && a != b && strings.Trim(b, "\x00") == "" && b != "" {
				t.Errorf("%s:%s reads as zeros, and was %.20q", ref, p, a)
			}
			switch {
			case before && after && (a == b || b == "cannot be read"), named[p], strings.Contains(p, "/lost+found"), p == "/written-after":
			case before != after && above:
			default:
				t.Errorf("%s:%s is %.20q, was %.20q, and nothing names it:\n%s", ref, p, b, a, describe(done.Before))
				return
			}
		}
	}
}

// compactRows writes all rows into tables.
func compactRows(t *testing.T, fs vfs.FS) {
	t.Helper()
	rows := openRows(t, fs)
	must(t, rows.Flush())
	must(t, rows.Compact([]byte{0}, []byte{255, 255}))
	must(t, rows.Close())
}

// aTable returns one of the tables and what is in it.
func aTable(t *testing.T, fs vfs.FS, rnd *rand.Rand) (string, []byte) {
	t.Helper()
	names, err := fs.List(dataDir + "/rows")
	must(t, err)
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, ".sst") })
	name := dataDir + "/rows/" + names[rnd.IntN(len(names))]
	f, err := fs.Open(name)
	must(t, err)
	b, err := io.ReadAll(f)
	must(t, err)
	must(t, f.Close())
	return name, b
}
