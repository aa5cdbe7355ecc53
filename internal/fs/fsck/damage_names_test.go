package fsck

import (
	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// inWork damages what the head of the disk "work" shows.
func inWork(fn func(*rowsOf, view)) func(*rowsOf, *vfs.MemFS) {
	return func(r *rowsOf, _ *vfs.MemFS) { fn(r, r.head("work")) }
}

// dentry changes a name.
func (r *rowsOf) dentry(v view, path string, fn func(*record.Dentry)) {
	r.t.Helper()
	dir, name := cutPath(path)
	parent := tine.RootIno
	if dir != "/" {
		parent = r.ino(v, dir)
	}
	key := r.key(v, record.DentryKey(parent, name))
	d, err := record.DecodeDentry(r.get(key))
	must(r.t, err)
	fn(&d)
	r.set(key, d.Append(nil))
}

func nameDamage() []damage {
	return []damage{
		{name: "missing inode", codes: []string{"N001", "N017"}, after: has("work", "/tiny"), do: inWork(func(r *rowsOf, v view) {
			r.del(r.key(v, record.InodeKey(r.ino(v, "/tiny"))))
		})},
		{name: "name of nothing", codes: []string{"N001", "N009"}, after: has("work", "/tiny"), do: inWork(func(r *rowsOf, v view) { r.dentry(v, "/tiny", func(d *record.Dentry) { d.Ino = 999 }) })},
		{name: "wrong type", codes: []string{"N002"}, do: inWork(func(r *rowsOf, v view) {
			r.dentry(v, "/tiny", func(d *record.Dentry) { d.Type = 10 })
		})},
		{name: "missing cookie", codes: []string{"N003"}, after: has("work", "/tiny"), do: inWork(func(r *rowsOf, v view) {
			d, err := record.DecodeDentry(r.get(r.key(v, record.DentryKey(1, "tiny"))))
			must(r.t, err)
			r.del(r.key(v, record.CookieKey(1, d.Cookie)))
		})},
		{name: "missing name", codes: []string{"N004", "N009"}, after: has("work", "/tiny"), do: inWork(func(r *rowsOf, v view) {
			r.del(r.key(v, record.DentryKey(1, "tiny")))
		})},
		{name: "name below a file", codes: []string{"N005"}, do: inWork(func(r *rowsOf, v view) {
			ino := r.ino(v, "/tiny")
			l := v.line
			r.set(record.Key(l.rec.Strata[0], record.DentryKey(ino, "x"), l.rec.Epoch), record.Dentry{Ino: ino, Type: 8, Cookie: 3}.Append(nil))
		})},
		{name: "directory with two names", codes: []string{"N006"}, do: inWork(func(r *rowsOf, v view) {
			l := v.line
			ino := r.ino(v, "/dir/sub")
			r.change(func(b kv.Batch) {
				b.Set(record.Key(l.rec.Strata[0], record.DentryKey(1, "again"), l.rec.Epoch), record.Dentry{Ino: ino, Type: 4, Cookie: 70}.Append(nil))
				b.Set(record.Key(l.rec.Strata[0], record.CookieKey(1, 70), l.rec.Epoch), record.Cookie{Ino: ino, Type: 4, Name: "again"}.Append(nil))
			})
		})},
		{name: "wrong parent", codes: []string{"N007"}, do: inWork(func(r *rowsOf, v view) {
			r.inode(v, "/dir", func(n *record.Inode) { n.Parent = r.ino(v, "/dir/sub") })
		})},
		{name: "circle of directories", codes: []string{"N008"}, after: has("try", "/lost+found"), do: func(r *rowsOf, _ *vfs.MemFS) {
			v := r.head("try")
			l, ino := v.line, r.ino(v, "/new")
			r.change(func(b kv.Batch) {
				d := r.get(r.key(v, record.DentryKey(1, "new")))
				e, err := record.DecodeDentry(d)
				must(r.t, err)
				b.Delete(r.key(v, record.DentryKey(1, "new")))
				b.Delete(r.key(v, record.CookieKey(1, e.Cookie)))
				b.Set(record.Key(l.rec.Strata[0], record.DentryKey(ino, "self"), l.rec.Epoch), d)
				b.Set(record.Key(l.rec.Strata[0], record.CookieKey(ino, e.Cookie), l.rec.Epoch), record.Cookie{Ino: ino, Type: 4, Name: "self"}.Append(nil))
				n, err := record.DecodeInode(r.get(r.key(v, record.InodeKey(ino))))
				must(r.t, err)
				n.Parent, n.Nlink = ino, 3
				b.Set(r.key(v, record.InodeKey(ino)), n.Append(nil))
			})
		}},
	}
}

func inodeDamage() []damage {
	return []damage{
		{name: "missing root", codes: []string{"N010"}, after: shows("other"), do: func(r *rowsOf, _ *vfs.MemFS) {
			r.del(r.key(r.head("other"), record.InodeKey(1)))
		}},
		{name: "wrong link row", codes: []string{"N011"}, do: inWork(func(r *rowsOf, v view) {
			l := v.line
			r.set(record.Key(l.rec.Strata[0], record.LinkKey(r.ino(v, "/tiny"), 1, "not so"), l.rec.Epoch), []byte{1})
		})},
		{name: "wrong link count", codes: []string{"N012"}, do: inWork(func(r *rowsOf, v view) {
			r.inode(v, "/tiny", func(n *record.Inode) { n.Nlink = 5 })
		})},
		{name: "wrong link count of a directory", codes: []string{"N012"}, do: inWork(func(r *rowsOf, v view) {
			r.inode(v, "/dir", func(n *record.Inode) { n.Nlink = 7 })
		})},
		{name: "unmarked orphan", codes: []string{"N013"}, do: inWork(func(r *rowsOf, v view) {
			l := v.line
			n := record.Inode{Mode: modeFile | 0o600}
			r.set(record.Key(l.rec.Strata[0], record.InodeKey(500), l.rec.Epoch), n.Append(nil))
		})},
		{name: "orphan with a name", codes: []string{"N014"}, after: has("work", "/tiny"), do: inWork(func(r *rowsOf, v view) {
			l := v.line
			r.set(record.Key(l.rec.Strata[0], record.OrphanKey(r.ino(v, "/tiny")), l.rec.Epoch), []byte{1})
		})},
		{name: "orphan of nothing", codes: []string{"N014"}, do: inWork(func(r *rowsOf, v view) {
			l := v.line
			r.set(record.Key(l.rec.Strata[0], record.OrphanKey(777), l.rec.Epoch), []byte{1})
		})},
		{name: "impossible name", codes: []string{"N015"}, after: has("work", "/lost+found"), do: inWork(func(r *rowsOf, v view) {
			key := r.key(v, record.DentryKey(1, "tiny"))
			d := r.get(key)
			e, err := record.DecodeDentry(d)
			must(r.t, err)
			_, _, birth, err := record.SplitKey(key)
			must(r.t, err)
			r.change(func(b kv.Batch) {
				b.Delete(key)
				b.Set(record.Key(v.line.rec.Strata[0], record.DentryKey(1, "a/b"), birth), d)
				b.Set(r.key(v, record.CookieKey(1, e.Cookie)), record.Cookie{Ino: e.Ino, Type: e.Type, Name: "a/b"}.Append(nil))
			})
		})},
		{name: "impossible inode", codes: []string{"N016", "N002"}, do: inWork(func(r *rowsOf, v view) {
			r.inode(v, "/tiny", func(n *record.Inode) { n.Mode &= 0o7777 })
		})},
	}
}

func countDamage() []damage {
	return []damage{
		{name: "wrong counters", codes: []string{"N017", "N018"}, do: inWork(func(r *rowsOf, v view) {
			key := r.key(v, record.TableKey(record.TableCounters))
			c, err := record.DecodeCounters(r.get(key))
			must(r.t, err)
			c.Inodes, c.Bytes, c.NextIno, c.NextCookie = 3, 1<<40, 2, 3
			r.set(key, c.Append(nil))
		})},
		{name: "no counters", codes: []string{"N018"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			r.del(r.key(r.head("other"), record.TableKey(record.TableCounters)))
		}},
		{name: "damage in a checkpoint", codes: []string{"N001", "N017"}, remain: []string{"N001", "N017"}, after: has("work", "/big", "/dir/sub/g"),
			do: inWork(func(r *rowsOf, v view) {
				r.del(r.key(view{v.line, v.line.floor()}, record.InodeKey(r.ino(v, "/dir/sub/g"))))
			})},
		{name: "attributes of nothing", codes: []string{"X001"}, do: inWork(func(r *rowsOf, v view) {
			l := v.line
			r.set(record.Key(l.rec.Strata[0], record.XattrKey(555, "user.x"), l.rec.Epoch), []byte{1, 'v'})
		})},
		{name: "unmarked attributes", codes: []string{"X002"}, do: inWork(func(r *rowsOf, v view) {
			l := v.line
			r.set(record.Key(l.rec.Strata[0], record.XattrKey(r.ino(v, "/tiny"), "user.x"), l.rec.Epoch), []byte{1, 'v'})
		})},
	}
}
