package fsck

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/mem"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/volume"
)

func TestCleanSample(t *testing.T) {
	fs := sample(t)
	rows := openRows(t, fs)
	r, err := Check(optionsOf(rows, fs))
	must(t, err)
	if len(r.Findings) > 0 {
		t.Errorf("findings:\n%s", describe(r))
	}
	if s := r.Stats; s.Trees != 2 || s.Disks != 3 || s.Checkpoints != 1 || s.Lines != 3 || s.Segments < 3 || s.DataBytes < 1500<<10 || s.Views != 5 {
		t.Errorf("%+v", s)
	}
	before := dump(t, rows)
	done, err := Repair(optionsOf(rows, fs), testTime())
	must(t, err)
	if len(done.Changes) > 0 || !done.After.Clean() {
		t.Errorf("repair of a clean directory: %+v", done.Changes)
	}
	if after := dump(t, rows); after != before {
		t.Error("repair of a clean directory has changed rows")
	}
	must(t, rows.Close())
}

// TestMalformedKeys uses the driver in memory: Pebble's refuses such keys.
func TestMalformedKeys(t *testing.T) {
	rows := copyRows(t, openRows(t, sample(t)))
	r := inspect(t, rows)
	r.set([]byte("short"), []byte{1})
	r.set(record.Key(r.disk("work").line.rec.Strata[0], record.Logical("\x20abc"), 1), []byte{1})
	r.set(record.Key(r.disk("work").tree.id, record.Logical("\x02abc"), 0), []byte{1})
	r.set(record.Key(r.disk("work").line.rec.Strata[0], record.Logical("\x21aaaaaaaa/a\x00\x00"), 1), []byte{1})
	found, err := Check(Options{Rows: rows})
	must(t, err)
	if found.Counts["R001"] != 4 {
		t.Errorf("found:\n%s", describe(found))
	}
	done, err := Repair(Options{Rows: rows}, testTime())
	must(t, err)
	if len(done.After.Findings) > 0 {
		t.Errorf("left:\n%s", describe(done.After))
	}
}

// copyRows copies rows into a store in memory, and closes the old one.
func copyRows(t testing.TB, from kv.Store) kv.Store {
	t.Helper()
	to := mem.New()
	snap := from.Snapshot()
	scan, err := snap.Scan(nil, nil, nil)
	must(t, err)
	b := to.NewBatch()
	for scan.Next() {
		b.Set(scan.Key(), scan.Value())
	}
	must(t, scan.Err())
	must(t, scan.Close())
	must(t, snap.Close())
	must(t, to.Commit(b, true))
	must(t, from.Close())
	return to
}

// TestUsageIsWhatTheEngineSays compares two ways to count.
func TestUsageIsWhatTheEngineSays(t *testing.T) {
	fs := sample(t)
	h := openHost(t, fs, true)
	must(t, h.ReclaimIdle(ctx))
	must(t, h.Close(ctx))
	rows := openRows(t, fs)
	mine, err := Usage(optionsOf(rows, fs))
	must(t, err)
	must(t, rows.Close())
	if len(mine) != 3 {
		t.Fatalf("%d disks", len(mine))
	}
	h = openHost(t, fs, true)
	for _, m := range mine {
		u, err := h.Usage(ctx, me, m.Disk)
		must(t, err)
		if u.Inodes != m.Inodes || u.LogicalBytes != m.LogicalBytes || u.UniqueBytes != m.UniqueBytes || u.SharedBytes != m.SharedBytes {
			t.Errorf("%s: the engine says %+v, fsck %+v", m.Disk, u, m)
		}
	}
	must(t, h.Close(ctx))
}

// TestForksCostWhatTheyChanged: the views of many forks and checkpoints are
// checked by looking at each row about once.
func TestForksCostWhatTheyChanged(t *testing.T) {
	fs := vfs.NewMem()
	h := openHost(t, fs, true)
	_, err := h.CreateDisk(ctx, me, "base")
	must(t, err)
	s := attach(t, h, "base")
	for i := range 1000 {
		s.write(fmt.Sprintf("/f%d", i), []byte("x"), 0)
	}
	must(t, s.Detach(ctx))
	const forks = 100
	for i := range forks {
		name := fmt.Sprintf("fork%d", i)
		_, err := h.Fork(ctx, me, volume.Ref{Disk: "base"}, []string{name}, volume.WaitDurable)
		must(t, err)
		f := attach(t, h, name)
		f.write("/mine", []byte(name), 0)
		must(t, f.Detach(ctx))
		_, err = h.Checkpoint(ctx, me, name, "cp", "", volume.WaitDurable)
		must(t, err)
	}
	must(t, h.Close(ctx))
	rows := openRows(t, fs)
	r, err := Check(optionsOf(rows, fs))
	must(t, err)
	if !r.Clean() || r.Stats.Views < 2*forks || r.Stats.ViewRows > 4000+20*forks {
		t.Errorf("%s%+v", describe(r), r.Stats)
	}
	must(t, rows.Close())
}
