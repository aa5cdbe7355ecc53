package fsck

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

const (
	dataDir    = "/data"
	segmentDir = "/data/segments"
)

var (
	ctx  = context.Background()
	me   = volume.Caller{Tenant: tine.DefaultTenant, Author: "test"}
	root = volume.Cred{}
)

// clone returns a copy of a file system with all that was written.
func clone(fs *vfs.MemFS) *vfs.MemFS {
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

func openRows(t testing.TB, fs vfs.FS) kv.Store {
	t.Helper()
	rows, err := pebble.Open(pebble.Options{Dir: dataDir + "/rows", FS: fs, MemTableBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func optionsOf(rows kv.Store, fs vfs.FS) Options {
	return Options{Rows: rows, FS: fs, SegmentDir: segmentDir, Data: true, PerCode: -1}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openHost(t testing.TB, fs vfs.FS, manual bool) *volume.Host {
	t.Helper()
	h, err := volume.Open(ctx, volume.Options{Dir: dataDir, FS: fs, CommitInterval: -1, Manual: manual, SegmentBytes: 300 << 10, CacheBytes: 1 << 20, TrashKeep: -1})
	must(t, err)
	return h
}

// disk is a session on a disk of a test.
type session struct {
	*volume.Session
	t testing.TB
}

func attach(t testing.TB, h *volume.Host, ref string) session {
	t.Helper()
	r, err := volume.ParseRef(ref)
	must(t, err)
	s, err := h.Attach(ctx, me, r, volume.AttachOptions{})
	must(t, err)
	return session{s, t}
}

// at finds the node of a path.
func (s session) at(path string) volume.Node {
	s.t.Helper()
	n := volume.Root
	for _, name := range strings.Split(strings.Trim(path, "/"), "/") {
		if name == "" {
			continue
		}
		_, next, err := s.Lookup(n, name)
		if err != nil {
			s.t.Fatalf("%s: %v", path, err)
		}
		n = next
	}
	return n
}

func cutPath(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:i+1], path[i+1:]
}

func (s session) mkdir(path string) {
	s.t.Helper()
	dir, name := cutPath(path)
	_, _, err := s.Mkdir(root, s.at(dir), name, 0o755)
	must(s.t, err)
}

func (s session) write(path string, p []byte, off int64) {
	s.t.Helper()
	dir, name := cutPath(path)
	f, _, _, err := s.Create(root, s.at(dir), name, 0o644, false)
	must(s.t, err)
	_, err = f.WriteAt(root, p, off)
	must(s.t, err)
	must(s.t, f.Close())
}

// content is bytes that differ by seed and place.
func content(seed, n int) []byte {
	p := make([]byte, n)
	r := rand.New(rand.NewPCG(uint64(seed), 7))
	for i := 0; i+8 <= n; i += 8 {
		copy(p[i:], fmt.Sprintf("%08x", r.Uint32()))
	}
	return p
}

// sample makes a small world with something of everything, and closes it.
func sample(t testing.TB) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewCrashableMem()
	h := openHost(t, fs, true)
	_, err := h.CreateDisk(ctx, me, "work")
	must(t, err)
	_, err = h.CreateDisk(ctx, me, "other")
	must(t, err)
	s := attach(t, h, "work")
	s.mkdir("/dir")
	s.mkdir("/dir/sub")
	s.write("/small", []byte("hello"), 0)
	s.write("/big", content(1, 1500<<10), 0)
	s.write("/dir/f", content(2, 20000), 0)
	s.write("/dir/sub/g", content(3, 40000), 1<<20)
	_, err = s.Link(root, s.at("/dir/f"), s.at("/dir/sub"), "f2")
	must(t, err)
	_, _, err = s.Symlink(root, volume.Root, "sym", "dir/f")
	must(t, err)
	must(t, s.SetXattr(root, s.at("/small"), "user.a", []byte("value"), 0))
	_, err = h.Checkpoint(ctx, me, "work", "cp", "", volume.WaitDurable)
	must(t, err)
	s.write("/big", content(4, 30000), 100000)
	s.write("/after", content(5, 9000), 0)
	s.write("/late", []byte("late"), 0)
	s.copyAll("/after", "/copy")
	_, err = h.Fork(ctx, me, volume.Ref{Disk: "work"}, []string{"try"}, volume.WaitDurable)
	must(t, err)
	f := attach(t, h, "try")
	f.mkdir("/new")
	f.write("/new/h", content(6, 50000), 0)
	f.write("/small", []byte("changed in the fork"), 0)
	must(t, f.Unlink(root, volume.Root, "late"))
	s.write("/dir/head", content(7, 12000), 0)
	s.write("/tiny", []byte("of the head"), 0)
	must(t, f.Detach(ctx))
	must(t, s.Detach(ctx))
	must(t, h.Close(ctx))
	return fs
}

func (s session) copyAll(from, to string) {
	s.t.Helper()
	src, err := s.Open(s.at(from))
	must(s.t, err)
	dir, name := cutPath(to)
	dst, _, _, err := s.Create(root, s.at(dir), name, 0o644, true)
	must(s.t, err)
	_, err = src.CopyTo(dst, 0, 0, 1<<20)
	must(s.t, err)
	must(s.t, src.Close())
	must(s.t, dst.Close())
}

// walk reads all of a disk. Errors of kind corrupt are allowed and counted.
func (s session) walk(n volume.Node, path string, seen map[string]string) (corrupt int) {
	s.t.Helper()
	d, err := s.OpenDir(n)
	must(s.t, err)
	var names []string
	must(s.t, d.Read(0, func(e volume.DirEntry) bool {
		names = append(names, e.Name)
		return true
	}))
	must(s.t, d.Close())
	for _, name := range names {
		if name == "." || name == ".." {
			continue
		}
		a, node, err := s.Lookup(n, name)
		if err != nil {
			s.t.Fatalf("%s/%s is listed, but its look-up says: %v", path, name, err)
		}
		switch a.Mode & modeType {
		case modeDir:
			seen[path+"/"+name] = "dir"
			corrupt += s.walk(node, path+"/"+name, seen)
		case modeFile:
			f, err := s.Open(node)
			must(s.t, err)
			p, bad := make([]byte, a.Size), corrupt
			for off := int64(0); off < a.Size; off += 64 << 10 {
				_, err := f.ReadAt(p[off:min(a.Size, off+64<<10)], off)
				if err != nil {
					if tine.KindOf(err) != tine.KindCorrupt {
						s.t.Fatalf("%s/%s at %d: %v", path, name, off, err)
					}
					corrupt++
				}
			}
			must(s.t, f.Close())
			seen[path+"/"+name] = string(p)
			if corrupt > bad {
				seen[path+"/"+name] = "cannot be read"
			}
		default:
			seen[path+"/"+name] = fmt.Sprintf("%o", a.Mode)
		}
	}
	return corrupt
}

// usable opens a directory with the engine, reads all of every disk, and of the
// checkpoints if they are to be sound, writes to each disk, and closes it.
func usable(t testing.TB, fs *vfs.MemFS, checkpoints bool) (disks map[string]map[string]string, corrupt int) {
	t.Helper()
	h := openHost(t, fs, true)
	defer func() { must(t, h.Close(ctx)) }()
	infos, err := h.Disks(ctx, me, false)
	must(t, err)
	disks = map[string]map[string]string{}
	for _, i := range infos {
		refs := []string{i.Name}
		cps, err := h.Checkpoints(ctx, me, i.Name)
		must(t, err)
		for _, c := range cps {
			if !checkpoints {
				break
			}
			refs = append(refs, i.Name+"@"+c.Name)
		}
		for _, ref := range refs {
			s := attach(t, h, ref)
			disks[ref] = map[string]string{}
			corrupt += s.walk(volume.Root, "", disks[ref])
			if ref == i.Name {
				s.write("/written-after", content(9, 10000), 0)
			}
			must(t, s.Detach(ctx))
		}
	}
	must(t, h.ReclaimIdle(ctx))
	return disks, corrupt
}

// find returns the key of a row of the line that a disk's head stands on, in
// its newest stratum that has it.
type rowsOf struct {
	t    testing.TB
	w    *world
	rows kv.Store
}

func inspect(t testing.TB, rows kv.Store) *rowsOf {
	t.Helper()
	w := newWorld(Options{Rows: rows})
	must(t, w.catalog())
	w.structure()
	for _, tr := range w.trees {
		for _, l := range tr.lines {
			l.rows = 1
		}
	}
	return &rowsOf{t, w, rows}
}

func (r *rowsOf) close() { _ = r.w.snap.Close() }

func (r *rowsOf) disk(name string) *disk {
	r.t.Helper()
	for _, t := range r.w.trees {
		for _, d := range t.disks {
			if d.rec.Name == name {
				return d
			}
		}
	}
	r.t.Fatalf("no disk %s", name)
	return nil
}

func (r *rowsOf) head(name string) view { return view{r.disk(name).line, tine.Head} }

// ino finds the inode of a path in a view.
func (r *rowsOf) ino(v view, path string) tine.Ino {
	r.t.Helper()
	ino := tine.RootIno
	for _, name := range strings.Split(strings.Trim(path, "/"), "/") {
		val, _, ok, err := r.w.lookup(v, record.DentryKey(ino, name))
		must(r.t, err)
		if !ok {
			r.t.Fatalf("no %s in %s", name, path)
		}
		d, err := record.DecodeDentry(val)
		must(r.t, err)
		ino = d.Ino
	}
	return ino
}

// key returns the full key of the version that a view shows.
func (r *rowsOf) key(v view, l record.Logical) []byte {
	r.t.Helper()
	limit := v.at
	for n := v.line; n != nil; n = n.parent {
		for _, s := range slices.Backward(n.rec.Strata) {
			_, birth, ok, err := r.w.snap.Newest(record.AppendKey(nil, s, l), limit)
			must(r.t, err)
			if ok {
				return record.Key(s, l, birth)
			}
		}
		limit = n.rec.Branch
	}
	r.t.Fatalf("no row %x", l)
	return nil
}

func (r *rowsOf) get(key []byte) []byte {
	r.t.Helper()
	prefix, e, _ := record.SplitEpoch(key)
	v, birth, ok, err := r.w.snap.Newest(prefix, e)
	must(r.t, err)
	if !ok || birth != e {
		r.t.Fatalf("no row %x", key)
	}
	return bytes.Clone(v)
}

// change applies changes of rows.
func (r *rowsOf) change(fn func(kv.Batch)) {
	r.t.Helper()
	b := r.rows.NewBatch()
	fn(b)
	must(r.t, r.rows.Commit(b, true))
}

func (r *rowsOf) set(key, val []byte) { r.change(func(b kv.Batch) { b.Set(key, val) }) }
func (r *rowsOf) del(key []byte)      { r.change(func(b kv.Batch) { b.Delete(key) }) }

// inode changes the inode of a path in a disk's head.
func (r *rowsOf) inode(v view, path string, fn func(*record.Inode)) {
	r.t.Helper()
	key := r.key(v, record.InodeKey(r.ino(v, path)))
	n, err := record.DecodeInode(r.get(key))
	must(r.t, err)
	fn(&n)
	r.set(key, n.Append(nil))
}

func codesOf(r *Report, severities ...Severity) []string {
	var cs []string
	for _, e := range Codes() {
		if r.Counts[e.Code] > 0 && (len(severities) == 0 || slices.Contains(severities, e.Severity)) {
			cs = append(cs, e.Code)
		}
	}
	return cs
}

func describe(r *Report) string {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s %s %s %s: %s\n", f.Code, f.Severity, f.Disk, f.Path, f.What)
	}
	return b.String()
}

func testTime() time.Time { return time.Unix(1_800_000_000, 0) }

// dump returns all rows as text.
func dump(t testing.TB, rows kv.Store) string {
	t.Helper()
	snap := rows.Snapshot()
	defer snap.Close()
	scan, err := snap.Scan(nil, nil, nil)
	must(t, err)
	defer scan.Close()
	var b strings.Builder
	for scan.Next() {
		fmt.Fprintf(&b, "%x %x\n", scan.Key(), scan.Value())
	}
	must(t, scan.Err())
	return b.String()
}
