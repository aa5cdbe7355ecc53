package sim

import (
	"errors"
	"fmt"
	"strings"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/sim/posix"
	"tine.dev/tine/internal/tine"
)

// mode returns permission bits, now and then with set-group-ID for
// directories.
func (t *turn) mode(dir bool) uint32 {
	m := uint32(t.r.IntN(0o1000))
	if dir && t.chance(15) {
		m |= posix.SetGID
	}
	return m
}

func (t *turn) create() error {
	dir, name := t.pickDir(), t.name()
	c, mode, excl := t.cred(), t.mode(false), t.chance(60)
	if there, err := t.d.fs.Lookup(dir, name); err == nil && !isRegular(there) {
		excl = true // what the kernel does before it asks decides the rest
	}
	t.note("create in %d %.20q mode %o excl %v", dir, name, mode, excl)
	f, a, n, err := t.s.Create(c, t.node(dir), name, mode, excl)
	there, _ := t.d.fs.Lookup(dir, name)
	if there == nil || excl {
		ino, bad := t.fresh(n.Ino, err)
		if bad != nil {
			return bad
		}
		made, want := t.d.fs.Make(dir, name, posix.New{Who: who(c), Mode: posix.TypeRegular | mode, Ino: ino})
		if bad := same(err, want); bad != nil || err != nil {
			return bad
		}
		there = made
	} else if err != nil {
		return fmt.Errorf("opening the existing file: %w", err)
	}
	if n != t.node(there.Ino) || f.Node() != n {
		return fmt.Errorf("the node is %+v, the file's %+v; want inode %d", n, f.Node(), there.Ino)
	}
	t.hold(&handle{s: t.s, ino: there.Ino, file: f})
	if err := t.sameAttr("create", a, there.Ino); err != nil {
		return err
	}
	if t.chance(60) {
		if err := t.writeTo(f, there.Ino); err != nil {
			return err
		}
	}
	if t.chance(70) {
		if err := t.drop(len(t.d.handles) - 1); err != nil {
			return err
		}
	}
	return t.verify(dir, there.Ino)
}

func (t *turn) mkdir() error {
	dir, name := t.pickDir(), t.name()
	c, mode := t.cred(), t.mode(true)
	t.note("mkdir in %d %.20q mode %o", dir, name, mode)
	a, n, err := t.s.Mkdir(c, t.node(dir), name, mode)
	return t.made(dir, name, a, n, err, posix.New{Who: who(c), Mode: posix.TypeDir | mode})
}

func (t *turn) mknod() error {
	dir, name, c := t.pickDir(), t.name(), t.cred()
	mode, rdev := t.mode(false)|posix.TypeFifo, uint32(0)
	switch t.r.IntN(4) {
	case 0:
		mode = t.mode(false) | posix.TypeRegular
	case 1:
		mode, rdev = t.mode(false)|posix.TypeChar, 0x0105
	case 2:
		mode = t.mode(false) | posix.TypeSocket
	}
	t.note("mknod in %d %.20q mode %o", dir, name, mode)
	a, n, err := t.s.Mknod(c, t.node(dir), name, mode, rdev)
	return t.made(dir, name, a, n, err, posix.New{Who: who(c), Mode: mode, Rdev: rdev})
}

func (t *turn) symlink() error {
	dir, name, c := t.pickDir(), t.name(), t.cred()
	target := string(t.bytes(1 + t.r.IntN(60)))
	if t.chance(5) {
		target = string(t.bytes(tine.MaxSymlinkBytes + t.r.IntN(2)))
	}
	target = strings.ReplaceAll(target, "\x00", "\x01") // which is no target
	t.note("symlink in %d %.20q of %d bytes", dir, name, len(target))
	a, n, err := t.s.Symlink(c, t.node(dir), name, target)
	return t.made(dir, name, a, n, err, posix.New{Who: who(c), Mode: posix.TypeSymlink | 0o777, Target: target})
}

// made compares the end of a call that makes a name.
func (t *turn) made(dir tine.Ino, name string, a volume.Attr, n volume.Node, err error, w posix.New) error {
	var bad error
	if w.Ino, bad = t.fresh(n.Ino, err); bad != nil {
		return bad
	}
	node, want := t.d.fs.Make(dir, name, w)
	if bad := same(err, want); bad != nil || err != nil {
		return bad
	}
	if n != t.node(node.Ino) {
		return fmt.Errorf("the node is %+v", n)
	}
	if err := t.sameAttr("make", a, node.Ino); err != nil {
		return err
	}
	return t.verify(dir, node.Ino)
}

// tmpfile makes a file without a name, writes to it, and then most often gives
// it one.
func (t *turn) tmpfile() error {
	dir, c, mode := t.pickNode(isDir), t.cred(), t.mode(false)
	t.note("tmpfile in %d", dir)
	f, a, n, err := t.s.Tmpfile(c, t.node(dir), mode)
	ino, bad := t.fresh(n.Ino, err)
	if bad != nil {
		return bad
	}
	_, want := t.d.fs.MakeUnnamed(dir, posix.New{Who: who(c), Mode: posix.TypeRegular | mode, Ino: ino})
	if bad := same(err, want); bad != nil || err != nil {
		return bad
	}
	t.d.handles = append(t.d.handles, &handle{s: t.s, ino: ino, file: f})
	if err := t.sameAttr("tmpfile", a, ino); err != nil {
		return err
	}
	if err := t.writeTo(f, ino); err != nil {
		return err
	}
	if t.chance(70) {
		return t.linkTo(ino, t.pickNode(isDir), t.name())
	}
	return nil
}

func (t *turn) link() error {
	return t.linkTo(t.pickNode(func(n *posix.Node) bool { return !n.IsDir() }), t.pickDir(), t.name())
}

func (t *turn) linkTo(ino, dir tine.Ino, name string) error {
	t.note("link %d to %d %.20q", ino, dir, name)
	t.saw(t.d)
	a, err := t.s.Link(volume.Cred{}, t.node(ino), t.node(dir), name)
	want := t.d.fs.Link(ino, dir, name)
	if errors.Is(err, tine.ErrPermission) && t.d.fs.Get(ino).IsDir() && want != nil {
		return nil // there is more than one reason; the kernel decides which before it asks
	}
	if bad := same(err, want); bad != nil || err != nil {
		return bad
	}
	if err := t.sameAttr("link", a, ino); err != nil {
		return err
	}
	return t.verify(dir, ino)
}

func (t *turn) unlink() error {
	dir, name := t.pickEntry(func(n *posix.Node) bool { return !n.IsDir() })
	return t.removal("unlink", dir, name, t.s.Unlink, t.d.fs.Unlink)
}

func (t *turn) rmdir() error {
	dir, name := t.pickEntry(func(n *posix.Node) bool { return n.IsDir() && (len(n.Names) == 0 || t.chance(20)) })
	return t.removal("rmdir", dir, name, t.s.Rmdir, t.d.fs.Rmdir)
}

func (t *turn) removal(what string, dir tine.Ino, name string,
	engine func(volume.Cred, volume.Node, string) error, model func(tine.Ino, string) error) error {
	inos := []tine.Ino{dir}
	if n, err := t.d.fs.Lookup(dir, name); err == nil {
		inos = append(inos, n.Ino)
	}
	t.note("%s in %d %.20q, inodes %v", what, dir, name, inos[1:])
	err := engine(volume.Cred{}, t.node(dir), name)
	if bad := same(err, model(dir, name)); bad != nil || err != nil {
		return bad
	}
	return t.verify(inos...)
}

func (t *turn) rename() error {
	from, name := t.pickEntry(isAny)
	to, newName := t.pickDir(), t.name()
	if t.chance(50) {
		to, newName = t.pickEntry(isAny)
	}
	flags := pick(t.r, []uint32{0, 0, 0, 0, 0, posix.NoReplace, posix.NoReplace, posix.Exchange, posix.Exchange,
		posix.Whiteout, posix.Whiteout | posix.NoReplace, posix.NoReplace | posix.Exchange})
	inos := []tine.Ino{from, to}
	for _, e := range []posix.Name{{Name: name, Ino: from}, {Name: newName, Ino: to}} {
		if n, err := t.d.fs.Lookup(e.Ino, e.Name); err == nil {
			inos = append(inos, n.Ino)
		}
	}
	t.note("rename %d %.20q to %d %.20q flags %d, inodes %v", from, name, to, newName, flags, inos)
	err := t.s.Rename(volume.Cred{}, t.node(from), name, t.node(to), newName, flags)
	whiteout := posix.New{Mode: posix.TypeChar, Ino: t.d.fs.NextIno}
	if flags&posix.Whiteout != 0 && err == nil {
		if a, _, err := t.s.Lookup(t.node(from), name); err == nil && a.Mode == posix.TypeChar {
			whiteout.Ino = a.Ino
		}
	}
	want := t.d.fs.Rename(from, name, to, newName, flags, whiteout)
	if errors.Is(want, tine.ErrNotEmpty) && errors.Is(err, tine.ErrIsDir) {
		return nil // a file over a directory that it lies in: the kernel decides this before it asks
	}
	if bad := same(err, want); bad != nil || err != nil {
		return bad
	}
	return t.verify(inos...)
}

// lookup asks for a name that is there, or not.
func (t *turn) lookup() error {
	dir, name := t.pickEntry(isAny)
	if t.chance(40) {
		dir, name = t.pickDir(), t.name()
	}
	t.note("lookup in %d %.20q", dir, name)
	a, n, err := t.s.Lookup(t.node(dir), name)
	want, missing := t.d.fs.Lookup(dir, name)
	if bad := same(err, missing); bad != nil || err != nil {
		return bad
	}
	if n != t.node(want.Ino) {
		return fmt.Errorf("the node is %+v, want inode %d", n, want.Ino)
	}
	return t.sameAttr("lookup", a, want.Ino)
}

// list reads a directory in pieces and changes it in between: what is there
// from start to end must be listed exactly once.
func (t *turn) list() error {
	dir := t.pickDir()
	t.note("readdir of %d", dir)
	d, err := t.s.OpenDir(t.node(dir))
	n := t.d.fs.Get(dir)
	if n == nil || !n.IsDir() {
		want := error(tine.ErrNotDir)
		if n == nil {
			want = tine.ErrNotFound
		}
		return same(err, want)
	}
	if err != nil {
		return fmt.Errorf("opendir: %w", err)
	}
	t.hold(&handle{s: t.s, ino: dir, dir: d})
	steady := map[string]tine.Ino{}
	for _, e := range n.Names {
		steady[e.Name] = e.Ino
	}
	seen := map[string]int{}
	var cookie uint64
	for {
		batch, got := 1+t.r.IntN(6), 0
		err := d.Read(cookie, func(e volume.DirEntry) bool {
			seen[e.Name]++
			cookie = e.Cookie
			got++
			return got < batch
		})
		if err != nil {
			return fmt.Errorf("readdir: %w", err)
		}
		if got == 0 {
			break
		}
		if t.chance(30) {
			if err := t.disturb(dir, steady); err != nil {
				return err
			}
		}
	}
	for name := range steady {
		if seen[name] != 1 {
			return fmt.Errorf("%.20q was there all the time and was listed %d times", name, seen[name])
		}
	}
	if t.chance(70) {
		return t.drop(len(t.d.handles) - 1)
	}
	return nil
}

// disturb changes a directory while it is being listed.
func (t *turn) disturb(dir tine.Ino, steady map[string]tine.Ino) error {
	t.saw(t.d)
	t.clock.Advance(1)
	t.d.fs.Now = t.clock.Now().UnixNano()
	var err error
	before := t.d.fs.Get(dir)
	if t.chance(50) {
		err = t.mkdirIn(dir, fmt.Sprintf("d%d", t.r.IntN(8)))
	} else if len(before.Names) > 0 {
		e := pick(t.r, before.Names)
		if !t.d.fs.Get(e.Ino).IsDir() {
			err = t.removal("unlink", dir, e.Name, t.s.Unlink, t.d.fs.Unlink)
		}
	}
	now := t.d.fs.Get(dir)
	kept := map[string]bool{}
	for _, e := range now.Names {
		kept[e.Name] = true
	}
	for name := range steady {
		if !kept[name] {
			delete(steady, name)
		}
	}
	return err
}

func (t *turn) mkdirIn(dir tine.Ino, name string) error {
	a, n, err := t.s.Mkdir(volume.Cred{}, t.node(dir), name, 0o755)
	return t.made(dir, name, a, n, err, posix.New{Mode: posix.TypeDir | 0o755})
}
