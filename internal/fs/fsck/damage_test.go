package fsck

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// damage is one thing that is wrong with a directory.
type damage struct {
	name   string
	codes  []string // that must be among what is found
	remain []string // errors that are left after a repair
	lost   bool     // some data is lost: reading it gives EIO
	broken bool     // the engine cannot load the tree afterwards: that is what remains
	do     func(*rowsOf, *vfs.MemFS)
	after  func(*testing.T, map[string]map[string]string) // looks at what the engine shows
}

// TestDamage damages one thing after the other, and looks whether it is found,
// and whether a repair leaves a directory that the engine opens, reads, writes
// and tidies up, and that is clean but for what is said to remain.
func TestDamage(t *testing.T) {
	good := sample(t)
	for _, d := range allDamage() {
		t.Run(d.name, func(t *testing.T) { d.test(t, clone(good)) })
	}
}

func allDamage() []damage {
	return slices.Concat(rowDamage(), nameDamage(), inodeDamage(), countDamage(), dataDamage(), treeDamage(), holderDamage(), fileDamage())
}

func (d damage) test(t *testing.T, fs *vfs.MemFS) {
	rows := openRows(t, fs)
	r := inspect(t, rows)
	d.do(r, fs)
	r.close()
	found, err := Check(optionsOf(rows, fs))
	must(t, err)
	for _, c := range d.codes {
		if found.Counts[c] == 0 {
			t.Errorf("%s is not found; what is:\n%s", c, describe(found))
		}
	}
	done, err := Repair(optionsOf(rows, fs), testTime())
	must(t, err)
	for _, c := range done.Changes {
		t.Logf("%s %s: %s", c.Code, c.What, c.Done)
	}
	if got := codesOf(done.After, Error); !slices.Equal(got, d.remain) {
		t.Errorf("after the repair %v remains, not %v:\n%s", got, d.remain, describe(done.After))
	}
	if d.lost != (done.After.Counts["D009"] > 0) {
		t.Errorf("data is lost: %v; said to be so: %v", d.lost, done.After.Counts["D009"])
	}
	again, err := Repair(optionsOf(rows, fs), testTime())
	must(t, err)
	if len(again.Changes) > 0 {
		t.Errorf("a second repair changes something: %v", again.Changes)
	}
	must(t, rows.Close())
	if t.Failed() || d.broken {
		return
	}
	disks, corrupt := usable(t, fs, len(d.remain) == 0)
	if (corrupt > 0) != d.lost {
		t.Errorf("%d reads were refused; data is lost: %v", corrupt, d.lost)
	}
	if d.after != nil {
		d.after(t, disks)
	}
	rows = openRows(t, fs)
	final, err := Check(optionsOf(rows, fs))
	must(t, err)
	if got := codesOf(final, Error); !slices.Equal(got, d.remain) {
		t.Errorf("after the engine has worked on it %v remains, not %v:\n%s", got, d.remain, describe(final))
	}
	must(t, rows.Close())
}

// has reports paths that a disk must show.
func has(ref string, paths ...string) func(*testing.T, map[string]map[string]string) {
	return func(t *testing.T, disks map[string]map[string]string) {
		t.Helper()
		for _, p := range paths {
			if _, ok := disks[ref][p]; !ok {
				t.Errorf("%s does not show %s", ref, p)
			}
		}
	}
}

// shows reports disks that must be there.
func shows(refs ...string) func(*testing.T, map[string]map[string]string) {
	return func(t *testing.T, disks map[string]map[string]string) {
		t.Helper()
		for _, ref := range refs {
			if disks[ref] == nil {
				t.Errorf("there is no %s", ref)
			}
		}
	}
}

func rowDamage() []damage {
	return []damage{
		{name: "dentry that does not decode", codes: []string{"R002"}, after: has("work", "/tiny"), do: func(r *rowsOf, _ *vfs.MemFS) {
			r.set(r.key(r.head("work"), record.DentryKey(1, "tiny")), []byte{1, 0xff})
		}},
		{name: "dentry of a checkpoint that does not decode", codes: []string{"R002"}, remain: []string{"R002", "N004", "N009"},
			do: func(r *rowsOf, _ *vfs.MemFS) {
				r.set(r.key(r.head("work"), record.DentryKey(1, "small")), []byte{1, 0xff})
			}},
		{name: "inode that does not decode", codes: []string{"R002"}, after: has("work", "/tiny"), do: func(r *rowsOf, _ *vfs.MemFS) {
			v := r.head("work")
			r.set(r.key(v, record.InodeKey(r.ino(v, "/tiny"))), []byte{1, 1})
		}},
		{name: "directory inode that does not decode", codes: []string{"R002"}, after: has("try", "/new/h"), do: func(r *rowsOf, _ *vfs.MemFS) {
			v := r.head("try")
			r.set(r.key(v, record.InodeKey(r.ino(v, "/new"))), []byte{1, 1})
		}},
		{name: "chunk that does not decode", codes: []string{"R002"}, lost: true, do: func(r *rowsOf, _ *vfs.MemFS) {
			v := r.head("work")
			r.set(r.key(v, record.ChunkKey(r.ino(v, "/dir/head"), 0)), []byte{2, 0xff})
		}},
		{name: "chunk of a checkpoint that does not decode", codes: []string{"R002"}, lost: true, do: func(r *rowsOf, _ *vfs.MemFS) {
			v := r.head("work")
			r.set(r.key(v, record.ChunkKey(r.ino(v, "/dir/f"), 0)), []byte{2, 0xff})
		}},
		{name: "rows of no line", codes: []string{"R004"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			r.set(record.Key(tine.StratumID{1, 2, 3}, record.InodeKey(7), 1), (&record.Inode{Mode: modeFile, Nlink: 1}).Append(nil))
		}},
		{name: "born too late", codes: []string{"R006"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			v := r.head("work")
			k := record.InodeKey(r.ino(v, "/tiny"))
			val := r.get(r.key(v, k))
			r.set(record.Key(v.line.rec.Strata[0], k, v.line.rec.Epoch+5), val)
		}},
		{name: "unknown table", codes: []string{"R009"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			r.set(record.Key(r.disk("work").tree.id, record.Logical("\x1fx"), 0), []byte{1})
		}},
		{name: "version that nothing needs", codes: []string{"L001"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			v := r.head("other")
			k := record.InodeKey(1)
			l := v.line
			r.change(func(b kv.Batch) {
				old := l.rec
				old.Epoch += 3
				b.Set(key0(l.tree.id, record.IDKey(record.TableTimeline, l.id)), old.Append(nil))
				b.Set(record.Key(l.rec.Strata[0], k, l.rec.Epoch+2), r.get(r.key(v, k)))
			})
		}},
		{name: "tombstone over nothing", codes: []string{"L002"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			l := r.disk("other").line
			r.set(record.Key(l.rec.Strata[0], record.InodeKey(99), l.rec.Epoch), tombstone)
		}},
		{name: "two strata with one version", codes: []string{"R007", "R008"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			v := r.head("other")
			l, fresh := v.line, tine.StratumID{9, 9, 9}
			r.change(func(b kv.Batch) {
				rec := l.rec
				rec.Epoch += 2
				rec.Strata = append(slices.Clone(rec.Strata), fresh)
				b.Set(key0(l.tree.id, record.IDKey(record.TableTimeline, l.id)), rec.Append(nil))
				key := r.key(v, record.InodeKey(1))
				b.Set(record.Key(fresh, record.InodeKey(1), l.rec.Epoch), r.get(key))
				ckey := record.TableKey(record.TableCounters)
				val := r.get(r.key(v, ckey))
				b.Set(record.Key(fresh, ckey, l.rec.Epoch), val)
				b.Set(record.Key(l.rec.Strata[0], ckey, l.rec.Epoch+1), val)
			})
		}},
	}
}

// flip changes a byte of a file.
func flip(t testing.TB, fs *vfs.MemFS, path string, off int64) {
	t.Helper()
	p := slurp(t, fs, path)
	if off < 0 {
		off += int64(len(p))
	}
	p[off] ^= 0x40
	spill(t, fs, path, p)
}

func slurp(t testing.TB, fs *vfs.MemFS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	must(t, err)
	p, err := io.ReadAll(f)
	must(t, err)
	must(t, f.Close())
	return p
}

func spill(t testing.TB, fs *vfs.MemFS, path string, p []byte) {
	t.Helper()
	f, err := fs.Create(path, "test")
	must(t, err)
	_, err = f.Write(p)
	must(t, err)
	must(t, f.Sync())
	must(t, f.Close())
}

// noBig is a look at what is left when the large file has lost its segment.
func noBig(t *testing.T, disks map[string]map[string]string) {
	t.Helper()
	has("work", "/big", "/dir/f", "/dir/sub/g")(t, disks)
	if p := disks["try"]["/small"]; !strings.HasPrefix(p, "changed in the fork") {
		t.Errorf("try shows %q", p)
	}
}
