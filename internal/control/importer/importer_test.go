package importer

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

var me = volume.Caller{Tenant: tine.DefaultTenant, Author: "me", Principal: "uid:0"}

func newImporter(t *testing.T) (*Importer, *volume.Host) {
	t.Helper()
	data := t.TempDir()
	h, err := volume.Open(t.Context(), volume.Options{Dir: data, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	im, err := Open(h, data, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return im, h
}

func ok(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// makeTree fills dir with one of everything.
func makeTree(t *testing.T, dir string) {
	t.Helper()
	in := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	ok(t, os.Mkdir(in("sub"), 0o751), os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700))
	ok(t, mkdirDeep(dir, 60))
	ok(t,
		os.WriteFile(in("empty"), nil, 0o600),
		os.WriteFile(in("small"), []byte("hello"), 0o640),
		os.WriteFile(in("large"), bytes.Repeat([]byte("0123456789abcdef"), 3<<16), 0o644),
		os.WriteFile(in("sub", "not utf-8 \xff"), []byte("x"), 0o604),
		os.WriteFile(in("setuid"), []byte("#!"), 0o700),
		os.Link(in("small"), in("sub", "hard")),
		os.Symlink("small", in("link")), os.Symlink(strings.Repeat("y", 3000), in("dangling")),
		os.Link(in("link"), in("link too")),
		unix.Mkfifo(in("fifo"), 0o620),
	)
	sparse, err := os.Create(in("sparse"))
	ok(t, err)
	_, err = sparse.WriteAt([]byte("end"), 5<<20)
	ok(t, err, sparse.Truncate(7<<20), sparse.Close())
	l, err := net.Listen("unix", in("socket"))
	ok(t, err)
	t.Cleanup(func() { _ = l.Close() })
	if os.Geteuid() == 0 {
		ok(t, unix.Mknod(in("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))), os.Chown(in("setuid"), 12, 34), os.Lchown(in("link"), 56, 78))
	}
	ok(t, os.Chmod(in("setuid"), 0o755|os.ModeSetuid), os.Chmod(in("sub"), 0o755|os.ModeSetgid|os.ModeSticky))
	if err := unix.Setxattr(in("small"), "user.note", []byte("kept\x00"), 0); err != nil && err != unix.EOPNOTSUPP {
		t.Fatal(err)
	}
	for i, name := range []string{"small", "link", "fifo", "sub", "."} {
		ts := []unix.Timespec{{Sec: 1e9 + int64(i), Nsec: 123456789}, {Sec: 2e9 - int64(i), Nsec: 987654321}}
		ok(t, unix.UtimesNanoAt(unix.AT_FDCWD, in(name), ts, unix.AT_SYMLINK_NOFOLLOW))
	}
}

// mkdirDeep makes a chain of directories that no single path can name.
func mkdirDeep(dir string, levels int) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for range levels {
		if err != nil {
			return err
		}
		name := strings.Repeat("n", 100)
		if err = unix.Mkdirat(fd, name, 0o755); err != nil {
			break
		}
		next, oerr := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		_ = unix.Close(fd)
		fd, err = next, oerr
	}
	_ = unix.Close(fd)
	return err
}

func TestEverythingIsCopied(t *testing.T) {
	im, h := newImporter(t)
	dir := t.TempDir()
	makeTree(t, dir)
	var notes []string
	info, totals, err := im.Import(t.Context(), me, "work", dir, func(l api.ImportLine) {
		if l.Note != nil {
			notes = append(notes, filepath.Base(l.Note.Path)+": "+l.Note.Note)
		}
	})
	ok(t, err)
	if info.Name != "work" || totals.Files != 6 || totals.HardLinks != 2 || totals.Symlinks != 2 || totals.Skipped != 1 {
		t.Errorf("%+v, %+v", info, totals)
	}
	if totals.Bytes >= 4<<20 {
		t.Errorf("%d bytes copied: the holes too", totals.Bytes)
	}
	if len(notes) != 1 || !strings.HasPrefix(notes[0], "socket: ") {
		t.Errorf("notes: %q", notes)
	}
	s, err := h.Attach(t.Context(), me, volume.Ref{Disk: "work"}, volume.AttachOptions{Label: "test"})
	ok(t, err)
	c := &comparer{t: t, s: s, nodes: map[uint64]volume.Node{}}
	c.tree(dir, volume.Root)
	if c.compared < 70 {
		t.Errorf("only %d inodes were compared", c.compared)
	}
	ok(t, s.Detach(t.Context()))
}

// comparer compares a directory of the machine with one of a disk, relative to
// each directory's descriptor, so that depth is no matter.
type comparer struct {
	t        *testing.T
	s        *volume.Session
	nodes    map[uint64]volume.Node // where an inode with several names was found first
	compared int
}

func (c *comparer) tree(dir string, node volume.Node) {
	c.t.Helper()
	d, err := os.Open(dir)
	ok(c.t, err)
	defer d.Close()
	c.directory(d, node)
}

func (c *comparer) directory(d *os.File, node volume.Node) {
	var st unix.Stat_t
	ok(c.t, unix.Fstat(int(d.Fd()), &st))
	a, err := c.s.GetAttr(node)
	ok(c.t, err)
	c.attr(d.Name(), &st, a)
	want := map[string]bool{}
	names, err := d.Readdirnames(-1)
	ok(c.t, err)
	for _, n := range names {
		want[n] = true
	}
	delete(want, "socket")
	od, err := c.s.OpenDir(node)
	ok(c.t, err)
	ok(c.t, od.Read(0, func(e volume.DirEntry) bool {
		if !want[e.Name] {
			c.t.Errorf("%s/%q is only on the disk", d.Name(), e.Name)
		}
		return true
	}))
	ok(c.t, od.Close())
	for name := range want {
		ok(c.t, unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW))
		a, child, err := c.s.Lookup(node, name)
		if err != nil {
			c.t.Errorf("%s/%q: %v", d.Name(), name, err)
			continue
		}
		c.entry(d, name, &st, a, child)
	}
}

func (c *comparer) entry(d *os.File, name string, st *unix.Stat_t, a volume.Attr, child volume.Node) {
	path := filepath.Join(d.Name(), name)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		fd, err := unix.Openat(int(d.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		ok(c.t, err)
		sub := os.NewFile(uintptr(fd), path)
		c.directory(sub, child)
		ok(c.t, sub.Close())
		return
	}
	c.attr(path, st, a)
	if st.Nlink > 1 {
		if first, seen := c.nodes[st.Ino]; seen && first != child {
			c.t.Errorf("%s: is %v, its other name is %v", path, child, first)
		}
		c.nodes[st.Ino] = child
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		want, err := os.Readlink(path)
		ok(c.t, err)
		if got, err := c.s.Readlink(child); err != nil || got != want {
			c.t.Errorf("%s: leads to %q, %v; want %q", path, got, err, want)
		}
	case unix.S_IFREG:
		c.content(path, st, child)
	}
}

func (c *comparer) content(path string, st *unix.Stat_t, node volume.Node) {
	want, err := os.ReadFile(path)
	ok(c.t, err)
	f, err := c.s.Open(node)
	ok(c.t, err)
	got := make([]byte, len(want)+1)
	n := 0
	for n < len(got) {
		m, err := f.ReadAt(got[n:], int64(n))
		ok(c.t, err)
		if m == 0 {
			break
		}
		n += m
	}
	if !bytes.Equal(got[:n], want) {
		c.t.Errorf("%s: the content differs (%d and %d bytes)", path, n, len(want))
	}
	if filepath.Base(path) == "sparse" {
		if off, err := f.SeekTo(0, unix.SEEK_DATA); err != nil || off < 4<<20 {
			c.t.Errorf("%s: data at %d, %v", path, off, err)
		}
	}
	ok(c.t, f.Close())
	var value [16]byte
	if n, err := unix.Getxattr(path, "user.note", value[:]); err == nil {
		if got, err := c.s.GetXattr(node, "user.note"); err != nil || !bytes.Equal(got, value[:n]) {
			c.t.Errorf("%s: user.note is %q, %v", path, got, err)
		}
	}
}

func (c *comparer) attr(path string, st *unix.Stat_t, a volume.Attr) {
	c.compared++
	want := fmt.Sprintf("mode %o uid %d gid %d mtime %d", st.Mode, st.Uid, st.Gid, st.Mtim.Nano())
	got := fmt.Sprintf("mode %o uid %d gid %d mtime %d", a.Mode, a.UID, a.GID, a.Mtime)
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		want += fmt.Sprintf(" nlink %d size %d rdev %d", st.Nlink, st.Size, st.Rdev)
		got += fmt.Sprintf(" nlink %d size %d rdev %d", a.Nlink, a.Size, a.Rdev)
	}
	if got != want {
		c.t.Errorf("%s:\n got %s\nwant %s", path, got, want)
	}
}

func diskNames(t *testing.T, h *volume.Host) string {
	t.Helper()
	var names []string
	for _, deleted := range []bool{false, true} {
		ds, err := h.Disks(t.Context(), me, deleted)
		ok(t, err)
		for _, d := range ds {
			names = append(names, d.Name)
		}
	}
	return strings.Join(names, " ")
}

func TestCancelledImportLeavesNoDisk(t *testing.T) {
	im, h := newImporter(t)
	dir := t.TempDir()
	makeTree(t, dir)
	for _, name := range []string{"by the client", "by the server"} {
		ctx, cancel := context.WithCancel(t.Context())
		noted := false
		// The socket's note comes from within the walk.
		_, _, err := im.Import(ctx, me, "work", dir, func(l api.ImportLine) {
			noted = noted || l.Note != nil
			if l.Note != nil && name == "by the client" {
				cancel()
			} else if l.Note != nil {
				im.Stop()
			}
		})
		if !noted {
			t.Errorf("%s: it ended before it was cancelled", name)
		}
		cancel()
		want := tine.KindInterrupted
		if name == "by the server" {
			want = tine.KindUnavailable
		}
		if tine.KindOf(err) != want {
			t.Errorf("%s: %v (%s)", name, err, tine.KindOf(err))
		}
		if left := diskNames(t, h); left != "" {
			t.Errorf("%s: left %s", name, left)
		}
		if pending, err := readPending(im.data); err != nil || len(pending) != 0 {
			t.Errorf("%s: noted %v, %v", name, pending, err)
		}
	}
}

func TestBadImports(t *testing.T) {
	im, h := newImporter(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	ok(t, os.WriteFile(file, nil, 0o600))
	_, err := h.CreateDisk(t.Context(), me, "taken")
	ok(t, err)
	for _, c := range []struct {
		name, dir string
		kind      tine.ErrorKind
	}{
		{"taken", dir, tine.KindExists},
		{"a/b", dir, tine.KindInvalid},
		{"work", "relative", tine.KindInvalid},
		{"work", filepath.Join(dir, "none"), tine.KindNotFound},
		{"work", file, tine.KindNotDir},
		{"work", im.data, tine.KindInvalid},
	} {
		_, _, err := im.Import(t.Context(), me, c.name, c.dir, func(api.ImportLine) {})
		if tine.KindOf(err) != c.kind {
			t.Errorf("%s from %s: %v (%s)", c.name, c.dir, err, tine.KindOf(err))
		}
	}
	if left := diskNames(t, h); left != "taken" {
		t.Errorf("left %s", left)
	}
}

func TestUnfinishedImportIsRemovedAtStart(t *testing.T) {
	im, h := newImporter(t)
	temp, err := im.begin(t.Context(), me)
	ok(t, err)
	ok(t, im.remember("import-never-made"))
	again, err := Open(h, im.data, slog.New(slog.DiscardHandler))
	ok(t, err)
	if left := diskNames(t, h); left != temp {
		t.Fatalf("have %s", left)
	}
	again.CleanUp(t.Context())
	if left := diskNames(t, h); left != "" {
		t.Errorf("left %s", left)
	}
	if pending, err := readPending(im.data); err != nil || len(pending) != 0 {
		t.Errorf("noted %v, %v", pending, err)
	}
}

func TestChangingFileIsReported(t *testing.T) {
	_, h := newImporter(t)
	path := filepath.Join(t.TempDir(), "f")
	ok(t, os.WriteFile(path, []byte("old"), 0o600))
	_, err := h.CreateDisk(t.Context(), me, "work")
	ok(t, err)
	s, err := h.Attach(t.Context(), me, volume.Ref{Disk: "work"}, volume.AttachOptions{Label: "test"})
	ok(t, err)
	defer func() { ok(t, s.Detach(context.Background())) }()
	var notes []string
	w := &walker{session: s, counts: &counts{}, note: func(path, text string) { notes = append(notes, text) }}
	j := job{path: path}
	j.from, err = os.Open(path)
	ok(t, err, unix.Fstat(int(j.from.Fd()), &j.stat))
	j.to, _, _, err = s.Create(root, volume.Root, "f", 0o600, true)
	ok(t, err)
	ok(t, os.WriteFile(path, []byte("n"), 0o600))
	ok(t, w.fill(t.Context(), &j, make([]byte, 10)))
	j.close()
	if len(notes) != 1 || !strings.Contains(notes[0], "changed") || w.counts.changed.Load() != 1 {
		t.Errorf("%q", notes)
	}
}
