package fsck

import (
	"bytes"
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"tine.dev/tine/internal/fs/fsck/rowform"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/mem"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

var (
	flagSeed   = flag.Uint64("fsck.seed", 1, "first seed of the random damage")
	flagRounds = flag.Int("fsck.rounds", 150, "how many directories are damaged at random")
)

// TestRandomDamage changes, removes and adds rows and bytes of files at random,
// and looks whether a repair comes to an end, whether a second one has nothing
// left to do, and whether the engine can work on what is left.
func TestRandomDamage(t *testing.T) {
	good := sample(t)
	var newer, left, mended int
	kinds := map[string]int{} // of what is left
	for seed := *flagSeed; seed < *flagSeed+uint64(*flagRounds); seed++ {
		r := rand.New(rand.NewPCG(seed, 99))
		fs := clone(good)
		rows := openRows(t, fs)
		list := allRows(t, rows)
		b := rows.NewBatch()
		for range 1 + r.IntN(4) {
			key, val := list[r.IntN(len(list))].key, slices.Clone(list[r.IntN(len(list))].val)
			switch r.IntN(4) {
			case 0:
				b.Delete(key)
			case 1:
				b.Set(key, val) // of another row
			default:
				i := slices.IndexFunc(list, func(x rawRow) bool { return bytes.Equal(x.key, key) })
				val = slices.Clone(list[i].val)
				if len(val) > 0 {
					val[r.IntN(len(val))] ^= byte(1 << r.IntN(8))
				}
				b.Set(key, val)
			}
		}
		must(t, rows.Commit(b, true))
		o := optionsOf(rows, fs)
		_, err := Check(o)
		must(t, err)
		done, err := Repair(o, testTime())
		if tine.KindOf(err) == tine.KindVersion && err != nil {
			must(t, rows.Close())
			newer++
			continue // a format byte that is too high
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		again, err := Repair(o, testTime())
		if err != nil || len(again.Changes) > 0 {
			t.Fatalf("seed %d: %v; a second repair changes %v; the first did %v; left is\n%s", seed, err, again.Changes, done.Changes, describe(done.After))
		}
		must(t, rows.Close())
		if len(done.Changes) > 0 {
			mended++
		}
		if done.After.Errors > 0 {
			left++
			for _, c := range codesOf(done.After, Error) {
				kinds[c]++
			}
		}
		if slices.ContainsFunc(codesOf(done.After, Error), func(c string) bool { return c[0] == 'T' }) {
			continue // what does not hang together cannot be opened
		}
		usable(t, fs, done.After.Errors == 0)
		rows = openRows(t, fs)
		final, err := Check(optionsOf(rows, fs))
		if err != nil || final.Errors > done.After.Errors {
			t.Fatalf("seed %d: %v; after the engine has worked on it:\n%safter repairs: %v", seed, err, describe(final), done.Changes)
		}
		must(t, rows.Close())
	}
	t.Logf("%d directories were mended; of %d something is left, %d have rows of newer versions; what is left: %v", mended, left, newer, kinds)
	t.Logf("replay: go test ./internal/fs/fsck -run TestRandomDamage -fsck.seed=N -fsck.rounds=1; seeds %d to %d", *flagSeed, *flagSeed+uint64(*flagRounds)-1)
}

type rawRow struct{ key, val []byte }

func allRows(t testing.TB, rows kv.Store) []rawRow {
	t.Helper()
	snap := rows.Snapshot()
	defer snap.Close()
	scan, err := snap.Scan(nil, nil, nil)
	must(t, err)
	defer scan.Close()
	var out []rawRow
	for scan.Next() {
		out = append(out, rawRow{bytes.Clone(scan.Key()), bytes.Clone(scan.Value())})
	}
	must(t, scan.Err())
	return out
}

// FuzzRows checks and repairs rows of any content: neither may panic, and a
// repair must come to an end.
func FuzzRows(f *testing.F) {
	var seed []byte
	rows := openRows(f, sample(f))
	list := allRows(f, rows)
	must(f, rows.Close())
	for _, r := range list {
		seed = binary.LittleEndian.AppendUint16(seed, uint16(len(r.key)))
		seed = binary.LittleEndian.AppendUint16(seed, uint16(min(len(r.val), 400)))
		seed = append(append(seed, r.key...), r.val[:min(len(r.val), 400)]...)
	}
	f.Add(seed)
	f.Add([]byte{1, 0, 1, 0, 'k', 'v'})
	f.Fuzz(func(t *testing.T, in []byte) {
		rows := mem.New()
		b := rows.NewBatch()
		for len(in) >= 4 {
			k, v := int(binary.LittleEndian.Uint16(in)), int(binary.LittleEndian.Uint16(in[2:]))
			in = in[4:]
			if k+v > len(in) {
				break
			}
			b.Set(in[:k], in[k:k+v])
			in = in[k+v:]
		}
		must(t, rows.Commit(b, true))
		if _, err := Check(Options{Rows: rows}); err != nil {
			t.Fatal(err)
		}
		if _, err := Usage(Options{Rows: rows}); err != nil {
			t.Log(err)
		}
		for _, r := range allRows(t, rows) {
			rowform.Describe(r.key, r.val)
		}
		done, err := Repair(Options{Rows: rows}, testTime())
		if err != nil && tine.KindOf(err) != tine.KindVersion {
			t.Fatal(err)
		}
		if err != nil || done.After == nil {
			return
		}
		if again, err := Repair(Options{Rows: rows}, testTime()); err != nil || len(again.Changes) > 0 {
			t.Fatalf("%v; a second repair changes %v", err, again.Changes)
		}
	})
}

// TestCodesAreDocumented compares the table in SPECIFICATION.md with the codes.
func TestCodesAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../../../SPECIFICATION.md")
	must(t, err)
	var want strings.Builder
	want.WriteString("| code | | what is so | what it means | `--repair` |\n|---|---|---|---|---|\n")
	seen := map[string]bool{}
	for _, e := range Codes() {
		if seen[e.Code] || e.Meaning == "" || e.Effect == "" || e.Repair == "" {
			t.Errorf("%s is there twice, or says too little", e.Code)
		}
		seen[e.Code] = true
		want.WriteString("| " + strings.Join([]string{e.Code, string(e.Severity), e.Meaning, e.Effect, e.Repair}, " | ") + " |\n")
	}
	if !strings.Contains(string(b), want.String()) {
		t.Errorf("SPECIFICATION.md must have this table:\n%s", want.String())
	}
}

// TestEveryCodeIsFound looks whether the tests of damage bring up every code.
func TestEveryCodeIsFound(t *testing.T) {
	tested := map[string]bool{"R001": true, "R003": true, "R005": true, "R010": true, "R011": true, "D009": true, "D010": true, "S012": true, "S013": true,
		"F001": true} // of the server's own files, which the server checks
	for _, d := range allDamage() {
		for _, c := range d.codes {
			tested[c] = true
		}
	}
	for _, e := range Codes() {
		if !tested[e.Code] {
			t.Errorf("no damage brings up %s: %s", e.Code, e.Meaning)
		}
	}
}

// TestRest brings up what the table of damage cannot.
func TestRest(t *testing.T) {
	fs := sample(t)
	rows := openRows(t, fs)
	r := inspect(t, rows)
	work, other := r.head("work"), r.head("other")
	g := r.segment(work, "/big", 1)
	spill(t, fs, "/data/segments/notes.txt", []byte("mine"))
	// A block that no row names.
	layout := &runs{end: g.rec.End + blockBytes*3, list: []run{{count: blocksOf(g.rec.End) + 3}}}
	file := slurp(t, fs, r.path(fs, g))
	p := append(encodeHead(g.id, 0, 0), file[headBytes:g.rec.Physical-runBytes-trailerBytes]...)
	p = append(p, make([]byte, layout.physical()-int64(len(p))-runBytes-trailerBytes)...)
	p = append(p, encodeFoot(g.id, 0, layout)...)
	spill(t, fs, r.path(fs, g), p)
	r.setSegment(g, func(s *record.Segment) { s.End, s.Physical = layout.end, layout.physical() })
	// A line that names bytes of another tree.
	l := other.line
	c := record.Chunk{Extents: []record.Extent{{Len: 10, Segment: g.id, Off: 5}}}
	r.set(record.Key(l.rec.Strata[0], record.ChunkKey(1, 0), l.rec.Epoch), c.Append(nil))
	// A row of a newer version.
	r.set(record.Key(l.rec.Strata[0], record.InodeKey(77), l.rec.Epoch), []byte{250})
	r.close()
	found, err := Check(optionsOf(rows, fs))
	must(t, err)
	for _, code := range []string{"R003", "D010", "S012", "S013"} {
		if found.Counts[code] == 0 {
			t.Errorf("%s is not found:\n%s", code, describe(found))
		}
	}
	if _, err := Repair(optionsOf(rows, fs), testTime()); tine.KindOf(err) != tine.KindVersion {
		t.Errorf("repair of rows of a newer version: %v", err)
	}
	must(t, rows.Close())
}
