package posix

import "golang.org/x/sys/unix"

func renameWith(flags uint, from, to string) error {
	return unix.Renameat2(here, from, here, to, flags)
}

var renameCases = []behaviour{
	works("rename", "moves a file within a directory and to another", func(c *kase) {
		c.put("f", "content")
		c.mkdir("d", 0o755)
		ino := c.stat("f").Ino
		c.rename("f", "g")
		c.seesNone("f")
		c.seesContent("g", "content")
		c.rename("g", "d/h")
		c.seesNone("g")
		c.seesContent("d/h", "content")
		c.seesIno("d/h", ino)
		c.seesNames("d", "h")
	}),
	works("rename", "replaces a file", func(c *kase) {
		c.put("f", "new")
		c.put("g", "old")
		ino := c.stat("f").Ino
		c.rename("f", "g")
		c.seesContent("g", "new")
		c.seesIno("g", ino)
		c.seesNames(".", "g")
	}),
	works("rename", "a file that is replaced goes on where it is open", func(c *kase) {
		fd := c.file("g", "old")
		c.put("f", "new")
		c.rename("f", "g")
		equal(c, "content", c.readAt(fd, 10, 0), "old")
		equal(c, "links", c.fstat(fd).Nlink, 0)
		c.writeAt(fd, "OLD", 0)
		c.seesContent("g", "new")
	}),
	works("rename", "a file that is renamed goes on where it is open", func(c *kase) {
		fd := c.file("f", "content")
		c.rename("f", "g")
		c.writeAt(fd, "CON", 0)
		c.seesContent("g", "CONtent")
	}),
	works("rename", "one of two names of a file over the other does nothing", func(c *kase) {
		c.put("f", "content")
		c.link("f", "g")
		c.rename("f", "g")
		c.seesLinks("f", 2)
		c.seesNames(".", "f", "g")
	}),
	works("rename", "a name to itself does nothing", func(c *kase) {
		c.put("f", "content")
		c.rename("f", "f")
		c.seesContent("f", "content")
		c.mkdir("d", 0o755)
		c.rename("d", "d")
		c.seesType("d", unix.S_IFDIR)
	}),
	works("rename", "one name of several leaves the others", func(c *kase) {
		c.put("f", "content")
		c.link("f", "g")
		c.put("h", "")
		c.rename("f", "h")
		c.seesLinks("g", 2)
		c.seesNames(".", "g", "h")
	}),
	works("rename", "moves a symbolic link, not its target", func(c *kase) {
		c.put("f", "content")
		c.symlink("f", "s")
		c.rename("s", "t")
		c.seesTarget("t", "f")
		c.put("g", "")
		c.symlink("f", "u")
		c.rename("g", "u")
		c.seesType("u", unix.S_IFREG)
		c.seesContent("f", "content")
	}),
	works("rename", "moves fifos, sockets and devices", func(c *kase) {
		c.fifo("p")
		c.mknod("s", unix.S_IFSOCK|0o644)
		c.whiteDevice("n")
		c.rename("p", "p2")
		c.rename("s", "s2")
		c.rename("n", "p2")
		c.seesType("p2", unix.S_IFCHR)
		c.seesNames(".", "p2", "s2")
	}),
	works("rename", "moves a directory with all that is in it", func(c *kase) {
		c.mkdir("d", 0o755)
		c.mkdir("d/e", 0o755)
		c.put("d/e/f", "content")
		c.mkdir("to", 0o755)
		c.rename("d", "to/d")
		c.seesContent("to/d/e/f", "content")
		c.seesNone("d")
		c.seesLinks("to", 3)
		c.seesIno("to/d/..", c.stat("to").Ino)
	}),
	works("rename", "a directory that was moved has its new parent", func(c *kase) {
		c.mkdir("a", 0o755)
		c.mkdir("b", 0o755)
		c.mkdir("a/d", 0o755)
		fd := c.open("a/d", unix.O_RDONLY|unix.O_DIRECTORY)
		c.rename("a/d", "b/d")
		var st unix.Stat_t
		c.ok(unix.Fstatat(fd, "..", &st, 0), "stat ..")
		equal(c, "inode of ..", st.Ino, c.stat("b").Ino)
		entries, err := entriesOf(c.open("b/d", unix.O_RDONLY|unix.O_DIRECTORY), 4096)
		c.ok(err, "getdents")
		for _, e := range entries {
			if e.name == ".." {
				equal(c, "inode listed for ..", e.ino, c.stat("b").Ino)
			}
		}
	}),
	works("rename", "a directory replaces an empty one", func(c *kase) {
		c.mkdir("d", 0o755)
		c.put("d/f", "content")
		c.mkdir("e", 0o755)
		links := c.stat(".").Nlink
		c.rename("d", "e")
		c.seesContent("e/f", "content")
		c.seesNone("d")
		c.seesLinks(".", uint64(links)-1)
	}),
	works("rename", "paths through a directory that was renamed lead nowhere", func(c *kase) {
		c.mkdir("d", 0o755)
		c.put("d/f", "content")
		c.seesContent("d/f", "content")
		c.rename("d", "e")
		c.seesNone("d/f")
		c.seesContent("e/f", "content")
	}),
	works("rename", "a directory needs its own write permission to get another parent", func(c *kase) {
		c.own()
		c.mkdir("d", 0o555)
		c.chown("d", int(alice.uid), 0)
		c.mkdir("to", 0o777)
		c.ok(c.tries(alice, func() error { return unix.Rename("d", "e") }), "rename within the parent")
		c.refused(c.tries(alice, func() error { return unix.Rename("e", "to/d") }), unix.EACCES, "rename to another parent")
	}),
	refuse("rename", unix.EINVAL, "a directory into itself", func(c *kase) error {
		c.mkdir("d", 0o755)
		return unix.Rename("d", "d/e")
	}),
	refuse("rename", unix.EINVAL, "a directory far below itself", func(c *kase) error {
		c.mkdir("d", 0o755)
		c.mkdir("d/e", 0o755)
		c.mkdir("d/e/f", 0o755)
		return unix.Rename("d", "d/e/f/g")
	}),
	refuse("rename", unix.EBUSY, "a name that ends with a dot", func(c *kase) error {
		c.mkdir("d", 0o755)
		return unix.Rename("d/.", "e")
	}),
	refuse("rename", unix.ENOTEMPTY, "a directory over its own parent", func(c *kase) error {
		c.mkdir("d", 0o755)
		c.mkdir("d/e", 0o755)
		return unix.Rename("d/e", "d")
	}),
	refuse("rename", unix.ENOTEMPTY, "a directory over one with a file", func(c *kase) error {
		c.mkdir("d", 0o755)
		c.mkdir("e", 0o755)
		c.put("e/f", "")
		return unix.Rename("d", "e")
	}),
	refuse("rename", unix.EISDIR, "a file over a directory", func(c *kase) error {
		c.put("f", "")
		c.mkdir("d", 0o755)
		return unix.Rename("f", "d")
	}),
	refuse("rename", unix.ENOTDIR, "a directory over a file", func(c *kase) error {
		c.put("f", "")
		c.mkdir("d", 0o755)
		return unix.Rename("d", "f")
	}),
	refuse("rename", unix.ENOTDIR, "a file to a name that ends with a slash", func(c *kase) error {
		c.put("f", "")
		return unix.Rename("f", "g/")
	}),
	refuse("rename", unix.EXDEV, "to another file system", func(c *kase) error {
		c.put("f", "")
		c.mkdir("m", 0o755)
		c.bind("m", 0)
		return unix.Rename("f", "m/g")
	}),
	refuse("rename", unix.EBUSY, "a directory that something is mounted on", func(c *kase) error {
		c.mkdir("d", 0o755)
		c.bind("d", 0)
		return unix.Rename("d", "e")
	}),
	refuse("rename", unix.EBUSY, "over a directory that something is mounted on", func(c *kase) error {
		c.mkdir("d", 0o755)
		c.mkdir("e", 0o755)
		c.bind("e", 0)
		return unix.Rename("d", "e")
	}),
	refuse("rename", unix.ENOENT, "into a directory that was removed", func(c *kase) error {
		c.put("f", "")
		return unix.Renameat(here, "f", c.removed(), "f")
	}),
	refuse("rename", unix.ENOENT, "over a directory, by a name that does not exist", func(c *kase) error {
		c.mkdir("d", 0o755)
		return unix.Rename("absent", "d")
	}),
}

var renameFlagCases = []behaviour{
	works("rename", "NOREPLACE moves to a free name", func(c *kase) {
		c.put("f", "content")
		c.ok(renameWith(unix.RENAME_NOREPLACE, "f", "g"), "rename")
		c.seesContent("g", "content")
		c.seesNone("f")
	}),
	refuse("rename", unix.EEXIST, "NOREPLACE over a file", func(c *kase) error {
		c.put("f", "new")
		c.put("g", "old")
		err := renameWith(unix.RENAME_NOREPLACE, "f", "g")
		c.seesContent("g", "old")
		c.seesContent("f", "new")
		return err
	}),
	refuse("rename", unix.EEXIST, "NOREPLACE over another name of the file", func(c *kase) error {
		c.put("f", "")
		c.link("f", "g")
		return renameWith(unix.RENAME_NOREPLACE, "f", "g")
	}),
	works("rename", "EXCHANGE swaps two files", func(c *kase) {
		c.put("f", "one")
		c.put("g", "two")
		f, g := c.stat("f").Ino, c.stat("g").Ino
		c.ok(renameWith(unix.RENAME_EXCHANGE, "f", "g"), "rename")
		c.seesContent("f", "two")
		c.seesContent("g", "one")
		c.seesIno("f", g)
		c.seesIno("g", f)
	}),
	works("rename", "EXCHANGE swaps a file and a directory of different parents", func(c *kase) {
		c.mkdir("a", 0o755)
		c.mkdir("b", 0o755)
		c.put("a/x", "content")
		c.mkdir("b/y", 0o755)
		c.put("b/y/f", "inside")
		c.ok(renameWith(unix.RENAME_EXCHANGE, "a/x", "b/y"), "rename")
		c.seesContent("b/y", "content")
		c.seesContent("a/x/f", "inside")
		c.seesLinks("a", 3)
		c.seesLinks("b", 2)
		c.seesIno("a/x/..", c.stat("a").Ino)
	}),
	works("rename", "EXCHANGE swaps two full directories", func(c *kase) {
		c.mkdir("a", 0o755)
		c.mkdir("b", 0o755)
		c.put("a/f", "one")
		c.put("b/f", "two")
		c.ok(renameWith(unix.RENAME_EXCHANGE, "a", "b"), "rename")
		c.seesContent("a/f", "two")
		c.seesContent("b/f", "one")
	}),
	works("rename", "EXCHANGE of a symbolic link and a file", func(c *kase) {
		c.put("f", "content")
		c.symlink("x", "s")
		c.ok(renameWith(unix.RENAME_EXCHANGE, "f", "s"), "rename")
		c.seesTarget("f", "x")
		c.seesContent("s", "content")
	}),
	works("rename", "EXCHANGE of two names of a file does nothing", func(c *kase) {
		c.put("f", "content")
		c.link("f", "g")
		c.ok(renameWith(unix.RENAME_EXCHANGE, "f", "g"), "rename")
		c.seesLinks("f", 2)
	}),
	refuse("rename", unix.ENOENT, "EXCHANGE with a name that does not exist", func(c *kase) error {
		c.put("f", "")
		return renameWith(unix.RENAME_EXCHANGE, "f", "g")
	}),
	refuse("rename", unix.EINVAL, "EXCHANGE of a directory with what is below it", func(c *kase) error {
		c.mkdir("d", 0o755)
		c.mkdir("d/e", 0o755)
		c.put("d/e/f", "")
		return renameWith(unix.RENAME_EXCHANGE, "d", "d/e/f")
	}),
	refuse("rename", unix.EINVAL, "EXCHANGE of what is below a directory with it", func(c *kase) error {
		c.mkdir("d", 0o755)
		c.mkdir("d/e", 0o755)
		return renameWith(unix.RENAME_EXCHANGE, "d/e", "d")
	}),
	refuse("rename", unix.EINVAL, "EXCHANGE and NOREPLACE", func(c *kase) error {
		c.put("f", "")
		c.put("g", "")
		return renameWith(unix.RENAME_EXCHANGE|unix.RENAME_NOREPLACE, "f", "g")
	}),
	refuse("rename", unix.EINVAL, "EXCHANGE and WHITEOUT", func(c *kase) error {
		c.put("f", "")
		c.put("g", "")
		return renameWith(unix.RENAME_EXCHANGE|unix.RENAME_WHITEOUT, "f", "g")
	}),
	refuse("rename", unix.EINVAL, "an unknown flag", func(c *kase) error {
		c.put("f", "")
		return renameWith(1<<20, "f", "g")
	}),
	works("rename", "WHITEOUT leaves a character device 0:0 behind", func(c *kase) {
		c.put("f", "content")
		c.ok(renameWith(unix.RENAME_WHITEOUT, "f", "g"), "rename")
		c.seesContent("g", "content")
		c.seesType("f", unix.S_IFCHR)
		c.sees("f", func(st *unix.Stat_t) string { return differs("device", st.Rdev, 0) })
		c.seesNames(".", "f", "g")
	}),
	works("rename", "WHITEOUT over a file", func(c *kase) {
		c.put("f", "new")
		c.put("g", "old")
		c.ok(renameWith(unix.RENAME_WHITEOUT, "f", "g"), "rename")
		c.seesContent("g", "new")
		c.seesType("f", unix.S_IFCHR)
	}),
	refuse("rename", unix.EEXIST, "WHITEOUT and NOREPLACE over a file", func(c *kase) error {
		c.put("f", "")
		c.put("g", "")
		return renameWith(unix.RENAME_WHITEOUT|unix.RENAME_NOREPLACE, "f", "g")
	}),
}

// sticky makes a sticky directory of bob's that everybody may write, in which
// alice has a file, a full and an empty directory.
func (c *kase) sticky() {
	c.mkdir("t", 0o777)
	c.put("t/f", "")
	c.mkdir("t/d", 0o777)
	c.chown("t/f", int(alice.uid), int(alice.gid))
	c.chown("t/d", int(alice.uid), int(alice.gid))
	c.put("t/g", "")
	c.chown("t/g", int(carol.uid), int(carol.gid))
	c.chown("t", int(bob.uid), int(bob.gid))
	c.chmod("t", 0o1777)
	c.own()
}

// carol is neither the owner of the directory nor of what is in it.
var carol = user{uid: 54003, gid: 55003}

var stickyCases = []behaviour{
	refuse("unlink", unix.EPERM, "another's file in a sticky directory", func(c *kase) error {
		c.sticky()
		return c.tries(carol, func() error { return unix.Unlink("t/f") })
	}),
	refuse("rmdir", unix.EPERM, "another's directory in a sticky directory", func(c *kase) error {
		c.sticky()
		return c.tries(carol, func() error { return unix.Rmdir("t/d") })
	}),
	refuse("rename", unix.EPERM, "another's file in a sticky directory", func(c *kase) error {
		c.sticky()
		return c.tries(carol, func() error { return unix.Rename("t/f", "t/h") })
	}),
	refuse("rename", unix.EPERM, "another's file out of a sticky directory", func(c *kase) error {
		c.sticky()
		return c.tries(carol, func() error { return unix.Rename("t/f", "h") })
	}),
	refuse("rename", unix.EPERM, "over another's file in a sticky directory", func(c *kase) error {
		c.sticky()
		return c.tries(carol, func() error { return unix.Rename("t/g", "t/f") })
	}),
	refuse("rename", unix.EPERM, "EXCHANGE with another's file in a sticky directory", func(c *kase) error {
		c.sticky()
		return c.tries(carol, func() error { return renameWith(unix.RENAME_EXCHANGE, "t/g", "t/f") })
	}),
	works("unlink", "in a sticky directory, by the owner of the file", func(c *kase) {
		c.sticky()
		c.ok(c.tries(alice, func() error { return unix.Unlink("t/f") }), "unlink")
		c.ok(c.tries(alice, func() error { return unix.Rmdir("t/d") }), "rmdir")
		c.seesNames("t", "g")
	}),
	works("unlink", "in a sticky directory, by the owner of the directory", func(c *kase) {
		c.sticky()
		c.ok(c.tries(bob, func() error { return unix.Unlink("t/f") }), "unlink")
		c.ok(c.tries(bob, func() error { return unix.Rename("t/g", "t/h") }), "rename")
		c.seesNames("t", "d", "h")
	}),
	works("unlink", "in a sticky directory, by root", func(c *kase) {
		c.sticky()
		c.unlink("t/f")
		c.rename("t/g", "t/h")
		c.seesNames("t", "d", "h")
	}),
	works("rename", "within a sticky directory, by the owner of the file", func(c *kase) {
		c.sticky()
		c.ok(c.tries(carol, func() error { return unix.Rename("t/g", "t/h") }), "rename")
		c.ok(c.tries(carol, func() error { return unix.Link("t/h", "t/i") }), "link")
		c.seesNames("t", "d", "f", "h", "i")
	}),
	works("unlink", "without the sticky bit, by whoever may write the directory", func(c *kase) {
		c.sticky()
		c.chmod("t", 0o777)
		c.ok(c.tries(carol, func() error { return unix.Unlink("t/f") }), "unlink")
	}),
}
