package fsck

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

func lineKey(l *line) []byte { return key0(l.tree.id, record.IDKey(record.TableTimeline, l.id)) }

func diskKey(d *disk) []byte { return key0(tine.DefaultTenant, record.IDKey(record.TableDisk, d.id)) }

func (r *rowsOf) setDisk(d *disk, fn func(*record.Disk)) {
	rec := d.rec
	fn(&rec)
	r.set(diskKey(d), rec.Append(nil))
}

func (r *rowsOf) checkpoint() *checkpoint { return r.disk("work").tree.checkpoints[0] }

func (r *rowsOf) setCheckpoint(fn func(*record.Checkpoint)) {
	c := r.checkpoint()
	rec := c.rec
	fn(&rec)
	r.set(key0(c.line.tree.id, record.IDKey(record.TableCheckpoint, c.id)), rec.Append(nil))
}

// recovered finds the disk that repair has made, by a file in it.
func recovered(path string) func(*testing.T, map[string]map[string]string) {
	return func(t *testing.T, disks map[string]map[string]string) {
		t.Helper()
		for ref, seen := range disks {
			if _, ok := seen[path]; ok && strings.HasPrefix(ref, "recovered") {
				return
			}
		}
		t.Errorf("no recovered disk shows %s", path)
	}
}

func treeDamage() []damage {
	return []damage{
		{name: "missing tree record", codes: []string{"T001"}, after: has("work", "/big"), do: func(r *rowsOf, _ *vfs.MemFS) {
			r.del(key0(tine.DefaultTenant, record.IDKey(record.TableTree, r.disk("work").tree.id)))
		}},
		{name: "tree record that does not decode", codes: []string{"T012"}, after: has("work", "/big"), do: func(r *rowsOf, _ *vfs.MemFS) {
			r.set(key0(tine.DefaultTenant, record.IDKey(record.TableTree, r.disk("work").tree.id)), []byte{1})
		}},
		{name: "tree of a store that has nothing of it", codes: []string{"T015"}, after: has("work", "/big"), do: func(r *rowsOf, _ *vfs.MemFS) {
			t := r.disk("work").tree
			r.set(key0(tine.DefaultTenant, record.IDKey(record.TableTree, t.id)), record.Tree{Tenant: tine.DefaultTenant, Store: tine.StoreID{7}}.Append(nil))
		}},
		{name: "disk of no tree", codes: []string{"T002"}, remain: []string{"T002"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			rec := record.Disk{Tree: tine.TreeID{7}, Timeline: tine.TimelineID{8}, Name: "nowhere"}
			r.set(key0(tine.DefaultTenant, record.IDKey(record.TableDisk, tine.DiskID{9})), rec.Append(nil))
		}},
		{name: "lost root line", codes: []string{"T003"}, after: shows("other"), do: func(r *rowsOf, _ *vfs.MemFS) {
			r.del(lineKey(r.disk("other").line))
		}},
		{name: "root line that does not decode", codes: []string{"T012"}, after: has("try", "/new/h"), do: func(r *rowsOf, _ *vfs.MemFS) {
			r.set(lineKey(r.disk("work").line), []byte{1, 0xff})
		}},
		{name: "lost line of a fork", codes: []string{"T003"}, remain: []string{"T003"}, broken: true, do: func(r *rowsOf, _ *vfs.MemFS) {
			r.del(lineKey(r.disk("try").line))
		}},
		{name: "disk of no line", codes: []string{"T003", "T011"}, after: has("try", "/new/h"), do: func(r *rowsOf, _ *vfs.MemFS) {
			r.setDisk(r.disk("try"), func(d *record.Disk) { d.Timeline = tine.TimelineID{1} })
		}},
		{name: "checkpoint of no line", codes: []string{"T003"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			r.setCheckpoint(func(c *record.Checkpoint) { c.Timeline = tine.TimelineID{1} })
		}},
		{name: "circle of lines", codes: []string{"T004"}, remain: []string{"T004", "T007"}, broken: true, do: func(r *rowsOf, _ *vfs.MemFS) {
			l := r.disk("work").line
			rec := l.rec
			rec.Parent, rec.Branch, rec.First = r.disk("try").line.id, 1, 2
			r.set(lineKey(l), rec.Append(nil))
		}},
		{name: "alias in a circle", codes: []string{"T005"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			t := r.disk("work").tree
			r.change(func(b kv.Batch) {
				b.Set(key0(t.id, record.IDKey(record.TableAlias, tine.TimelineID{1})), record.Alias{Into: tine.TimelineID{1}}.Append(nil))
			})
		}},
		{name: "stratum of two lines", codes: []string{"T006"}, remain: []string{"T006"}, broken: true, do: func(r *rowsOf, _ *vfs.MemFS) {
			l := r.disk("try").line
			rec := l.rec
			rec.Strata = append(rec.Strata, r.disk("work").line.rec.Strata[0])
			r.set(lineKey(l), rec.Append(nil))
		}},
		{name: "pin before its line", codes: []string{"T007"}, remain: []string{"T007", "N010", "N018"}, broken: true, do: func(r *rowsOf, _ *vfs.MemFS) {
			r.setCheckpoint(func(c *record.Checkpoint) { c.Epoch = 0 })
		}},
	}
}

func holderDamage() []damage {
	return []damage{
		{name: "one line, two disks", codes: []string{"T008"}, remain: []string{"T008"}, broken: true, do: func(r *rowsOf, _ *vfs.MemFS) {
			d := r.disk("work")
			rec := d.rec
			rec.Name = "twin"
			r.set(key0(tine.DefaultTenant, record.IDKey(record.TableDisk, tine.DiskID{9})), rec.Append(nil))
		}},
		{name: "two disks of one name", codes: []string{"T009"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			r.setDisk(r.disk("try"), func(d *record.Disk) { d.Name = "work" })
		}},
		{name: "two checkpoints of one name", codes: []string{"T009"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			c := r.checkpoint()
			r.set(key0(c.line.tree.id, record.IDKey(record.TableCheckpoint, tine.CheckpointID{3})), c.rec.Append(nil))
		}},
		{name: "impossible names", codes: []string{"T014"}, after: recovered("/new/h"), do: func(r *rowsOf, _ *vfs.MemFS) {
			r.setDisk(r.disk("try"), func(d *record.Disk) { d.Name = "not/so" })
			r.setCheckpoint(func(c *record.Checkpoint) { c.Name = "" })
		}},
		{name: "checkpoint of no disk", codes: []string{"T010"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			r.setCheckpoint(func(c *record.Checkpoint) { c.Disk = tine.DiskID{1} })
		}},
		{name: "missing disk record", codes: []string{"T010", "T011"}, after: recovered("/tiny"), do: func(r *rowsOf, _ *vfs.MemFS) {
			r.del(diskKey(r.disk("work")))
		}},
		{name: "disk record that does not decode", codes: []string{"T012", "T011"}, after: recovered("/new/h"), do: func(r *rowsOf, _ *vfs.MemFS) {
			r.set(diskKey(r.disk("try")), []byte{1, 2})
		}},
		{name: "checkpoint that does not decode", codes: []string{"T012"}, after: has("work", "/big"), do: func(r *rowsOf, _ *vfs.MemFS) {
			c := r.checkpoint()
			r.set(key0(c.line.tree.id, record.IDKey(record.TableCheckpoint, c.id)), []byte{1})
		}},
		{name: "epoch below the pins", codes: []string{"T013"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			l := r.disk("work").line
			rec := l.rec
			rec.Epoch = 1
			r.set(lineKey(l), rec.Append(nil))
		}},
		{name: "root that branches off", codes: []string{"T013"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			l := r.disk("work").line
			rec := l.rec
			rec.Branch, rec.First = 4, 5
			r.set(lineKey(l), rec.Append(nil))
		}},
		{name: "wrong branch", codes: []string{"T013"}, after: has("try", "/new/h"), do: func(r *rowsOf, _ *vfs.MemFS) {
			l := r.disk("try").line
			rec := l.rec
			rec.Branch += 4
			r.set(lineKey(l), rec.Append(nil))
		}},
		{name: "wrong first epoch", codes: []string{"T013"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			l := r.disk("try").line
			rec := l.rec
			rec.First = 9
			r.set(lineKey(l), rec.Append(nil))
		}},
		{name: "policy that does not decode", codes: []string{"T012"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			r.set(key0(tine.DefaultTenant, record.IDKey(record.TablePolicy, r.disk("work").id)), []byte{1})
		}},
		{name: "task that does not decode", codes: []string{"T012"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			r.set(key0(r.disk("work").tree.id, record.TaskKey(900)), []byte{1})
		}},
	}
}
