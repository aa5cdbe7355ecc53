package posix

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

var linkCases = []behaviour{
	works("link", "gives a file a second name: one inode, one content", func(c *kase) {
		c.put("f", "content")
		c.link("f", "g")
		c.seesLinks("f", 2)
		c.seesIno("g", c.stat("f").Ino)
		c.put("g", "changed")
		c.seesContent("f", "changed")
		c.chmod("g", 0o600)
		c.seesMode("f", 0o600)
	}),
	works("link", "the file lasts until the last name goes", func(c *kase) {
		c.put("f", "content")
		c.mkdir("d", 0o755)
		c.link("f", "d/g")
		c.unlink("f")
		c.seesNone("f")
		c.seesLinks("d/g", 1)
		c.seesContent("d/g", "content")
	}),
	works("link", "of a symbolic link is of the link itself", func(c *kase) {
		c.put("f", "content")
		c.symlink("f", "s")
		c.link("s", "t")
		c.seesType("t", unix.S_IFLNK)
		c.seesIno("t", c.stat("s").Ino)
		c.seesLinks("s", 2)
	}),
	works("link", "AT_SYMLINK_FOLLOW is of the target", func(c *kase) {
		c.put("f", "content")
		c.symlink("f", "s")
		c.ok(unix.Linkat(here, "s", here, "t", unix.AT_SYMLINK_FOLLOW), "linkat")
		c.seesType("t", unix.S_IFREG)
		c.seesLinks("f", 2)
	}),
	works("link", "fifos, sockets and devices can have more names", func(c *kase) {
		c.fifo("p")
		c.mknod("s", unix.S_IFSOCK|0o644)
		c.whiteDevice("n")
		for _, name := range []string{"p", "s", "n"} {
			c.link(name, name+"2")
			c.seesLinks(name, 2)
		}
	}),
	works("link", "AT_EMPTY_PATH names what a descriptor has open", func(c *kase) {
		fd := c.file("f", "content")
		c.ok(unix.Linkat(fd, "", here, "g", unix.AT_EMPTY_PATH), "linkat")
		c.seesContent("g", "content")
		c.seesLinks("f", 2)
	}),
	works("link", "a thousand names count", func(c *kase) {
		c.put("f", "")
		for i := range 1000 {
			c.link("f", fmt.Sprint("l", i))
		}
		c.seesLinks("f", 1001)
		for i := range 1000 {
			c.unlink(fmt.Sprint("l", i))
		}
		c.seesLinks("f", 1)
	}),
	refuse("link", unix.EEXIST, "to a name that exists", func(c *kase) error {
		c.put("f", "")
		c.put("g", "")
		return unix.Link("f", "g")
	}),
	refuse("link", unix.EEXIST, "to a symbolic link that leads nowhere", func(c *kase) error {
		c.put("f", "")
		c.symlink("absent", "s")
		return unix.Link("f", "s")
	}),
	refuse("link", unix.EEXIST, "to its own name", func(c *kase) error {
		c.put("f", "")
		return unix.Link("f", "f")
	}),
	refuse("link", unix.EPERM, "a directory", func(c *kase) error {
		c.mkdir("d", 0o755)
		return unix.Link("d", "e")
	}),
	refuse("link", unix.EPERM, "another's file (protected_hardlinks)", func(c *kase) error {
		c.own()
		c.put("f", "")
		return c.tries(alice, func() error { return unix.Link("f", "g") })
	}),
	refuse("link", unix.EXDEV, "to another file system", func(c *kase) error {
		c.put("f", "")
		c.mkdir("m", 0o755)
		c.bind("m", 0)
		return unix.Link("f", "m/g")
	}),
	refuse("link", unix.EINVAL, "an unknown flag", func(c *kase) error {
		c.put("f", "")
		return unix.Linkat(here, "f", here, "g", 1<<20)
	}),
	refuse("link", unix.ENOENT, "a file whose last name is gone", func(c *kase) error {
		fd := c.file("f", "")
		c.unlink("f")
		return unix.Linkat(here, fmt.Sprintf("/proc/self/fd/%d", fd), here, "g", unix.AT_SYMLINK_FOLLOW)
	}),
	refuse("link", unix.ENOENT, "into a directory that was removed", func(c *kase) error {
		c.put("f", "")
		return unix.Linkat(here, "f", c.removed(), "g", 0)
	}),
	refuse("link", unix.EMLINK, "the largest number of names", func(c *kase) error {
		if !*long && c.variant != "" {
			c.skip("takes long on a mount: see -long")
		}
		c.put("f", "")
		for i := range 70000 {
			if err := unix.Link("f", fmt.Sprint("l", i)); err != nil {
				return err
			}
		}
		c.skip("a file may have more than 70,000 names here")
		return nil
	}),
}

// removed is a descriptor of a directory that is no more.
func (c *kase) removed() int {
	c.mkdir("removed", 0o755)
	fd := c.open("removed", unix.O_RDONLY|unix.O_DIRECTORY)
	c.rmdir("removed")
	return fd
}

var unlinkCases = []behaviour{
	works("unlink", "removes files, links, fifos, sockets and devices", func(c *kase) {
		c.put("f", "content")
		c.symlink("f", "s")
		c.fifo("p")
		c.mknod("k", unix.S_IFSOCK|0o644)
		c.whiteDevice("n")
		for _, name := range []string{"s", "f", "p", "k", "n"} {
			c.unlink(name)
			c.seesNone(name)
		}
		c.seesNames(".")
	}),
	works("unlink", "of a symbolic link leaves the target", func(c *kase) {
		c.put("f", "content")
		c.symlink("f", "s")
		c.unlink("s")
		c.seesContent("f", "content")
	}),
	works("unlink", "a file that is open goes on without a name", func(c *kase) {
		fd := c.file("f", "content")
		c.unlink("f")
		c.seesNone("f")
		st := c.fstat(fd)
		equal(c, "links", st.Nlink, 0)
		c.writeAt(fd, letters(100000), 7)
		equal(c, "content", c.readAt(fd, 200000, 0), "content"+letters(100000))
		c.ok(unix.Ftruncate(fd, 3), "ftruncate")
		c.ok(unix.Fchmod(fd, 0o600), "fchmod")
		equal(c, "size", c.fstat(fd).Size, 3)
		equal(c, "mode", c.fstat(fd).Mode&0o7777, 0o600)
	}),
	works("unlink", "a new file of the name is another file", func(c *kase) {
		fd := c.file("f", "old")
		ino := c.fstat(fd).Ino
		c.unlink("f")
		c.put("f", "new")
		if c.stat("f").Ino == ino {
			c.failf("the new file has the inode number of the old one, which is open")
		}
		equal(c, "old content", c.readAt(fd, 10, 0), "old")
		c.seesContent("f", "new")
	}),
	works("unlink", "a file that is open through the other path goes on", func(c *kase) {
		c.put("f", "content")
		fd, err := unix.Openat(c.view, "f", unix.O_RDWR|unix.O_CLOEXEC, 0)
		c.ok(err, "open")
		c.after(func() { unix.Close(fd) })
		c.unlink("f")
		equal(c, "content", c.readAt(fd, 10, 0), "content")
		c.writeAt(fd, "CON", 0)
		equal(c, "content", c.readAt(fd, 10, 0), "CONtent")
	}),
	refuse("unlink", unix.EISDIR, "a directory", func(c *kase) error {
		c.mkdir("d", 0o755)
		return unix.Unlink("d")
	}),
	refuse("unlink", unix.ENOTDIR, "a file by a name that ends with a slash", func(c *kase) error {
		c.put("f", "")
		return unix.Unlink("f/")
	}),
	refuse("unlink", unix.EBUSY, "a file that something is mounted on", func(c *kase) error {
		c.put("f", "")
		c.bind("f", 0)
		return unix.Unlink("f")
	}),
	refuse("unlink", unix.EINVAL, "an unknown flag", func(c *kase) error {
		c.put("f", "")
		return unix.Unlinkat(here, "f", 1<<20)
	}),
}

var mkdirCases = []behaviour{
	works("mkdir", "makes an empty directory with the mode, the owner and two links", func(c *kase) {
		c.own()
		c.as(alice, func() { c.mkdir("d", 0o751) })
		c.seesMode("d", 0o751)
		c.seesOwner("d", alice.uid, alice.gid)
		c.seesLinks("d", 2)
		c.seesNames("d")
	}),
	works("mkdir", "takes the umask off the mode", func(c *kase) {
		unix.Umask(0o027)
		c.mkdir("d", 0o777)
		c.seesMode("d", 0o750)
	}),
	works("mkdir", "keeps the sticky bit and drops set-user-ID and set-group-ID", func(c *kase) {
		c.mkdir("d", 0o7755)
		c.seesMode("d", 0o1755)
	}),
	works("mkdir", "each subdirectory is a link of its parent", func(c *kase) {
		c.mkdir("d", 0o755)
		c.mkdir("d/a", 0o755)
		c.mkdir("d/b", 0o755)
		c.put("d/f", "")
		c.seesLinks("d", 4)
		c.rmdir("d/a")
		c.seesLinks("d", 3)
		c.rename("d/b", "b")
		c.seesLinks("d", 2)
	}),
	works("mkdir", "a name may end with slashes", func(c *kase) {
		c.mkdir("d//", 0o755)
		c.seesType("d", unix.S_IFDIR)
	}),
	refuse("mkdir", unix.EEXIST, "over a file", func(c *kase) error {
		c.put("f", "")
		return unix.Mkdir("f", 0o755)
	}),
	refuse("mkdir", unix.EEXIST, "over a directory", func(c *kase) error {
		c.mkdir("d", 0o755)
		return unix.Mkdir("d", 0o755)
	}),
	refuse("mkdir", unix.EEXIST, "over a symbolic link that leads nowhere", func(c *kase) error {
		c.symlink("absent", "s")
		return unix.Mkdir("s", 0o755)
	}),
	refuse("mkdir", unix.EEXIST, "the directory itself, by its dot", func(*kase) error { return unix.Mkdir(".", 0o755) }),
	refuse("mkdir", unix.ENOENT, "in a directory that was removed", func(c *kase) error { return unix.Mkdirat(c.removed(), "d", 0o755) }),
	works("rmdir", "removes an empty directory", func(c *kase) {
		c.mkdir("d", 0o755)
		c.rmdir("d")
		c.seesNone("d")
		c.seesNames(".")
	}),
	works("rmdir", "a directory that is open goes on, empty", func(c *kase) {
		fd := c.removed()
		entries, err := entriesOf(fd, 4096)
		if err != nil && err != unix.ENOENT {
			c.failf("list a removed directory: %v", err)
		}
		equal(c, "entries besides . and ..", max(0, len(entries)-2), 0)
		equal(c, "links", c.fstat(fd).Nlink, 0)
		c.refused(failure(unix.Openat(fd, "f", unix.O_CREAT|unix.O_WRONLY, 0o644)), unix.ENOENT, "create in it")
	}),
	refuse("rmdir", unix.ENOTEMPTY, "a directory with a file", func(c *kase) error {
		c.mkdir("d", 0o755)
		c.put("d/f", "")
		return unix.Rmdir("d")
	}),
	refuse("rmdir", unix.ENOTEMPTY, "a directory with a directory", func(c *kase) error {
		c.mkdir("d", 0o755)
		c.mkdir("d/e", 0o755)
		return unix.Rmdir("d")
	}),
	refuse("rmdir", unix.ENOTEMPTY, "the parent, by its dots", func(c *kase) error {
		c.mkdir("d", 0o755)
		return unix.Rmdir("d/..")
	}),
	refuse("rmdir", unix.EINVAL, "a name that ends with a dot", func(c *kase) error {
		c.mkdir("d", 0o755)
		return unix.Rmdir("d/.")
	}),
	refuse("rmdir", unix.ENOTDIR, "a file", func(c *kase) error {
		c.put("f", "")
		return unix.Rmdir("f")
	}),
	refuse("rmdir", unix.ENOTDIR, "a symbolic link to a directory", func(c *kase) error {
		c.mkdir("d", 0o755)
		c.symlink("d", "s")
		return unix.Rmdir("s")
	}),
	refuse("rmdir", unix.EBUSY, "a directory that something is mounted on", func(c *kase) error {
		c.mkdir("d", 0o755)
		c.bind("d", 0)
		return unix.Rmdir("d")
	}),
}

var nameCases = []behaviour{
	works("open", "a name may have 255 bytes and any byte but NUL and slash", func(c *kase) {
		names := []string{strings.Repeat("n", 255)}
		for b := 1; b < 256; b++ {
			if b != '/' {
				names = append(names, "x"+string([]byte{byte(b)})+"y")
			}
		}
		for _, name := range names {
			c.put(name, name)
		}
		for _, name := range names {
			c.seesContent(name, name)
		}
		c.seesNames(".", names...)
	}),
	works("open", "a name of any single byte but slash, dot and NUL", func(c *kase) {
		var names []string
		for b := 1; b < 256; b++ {
			if b != '/' && b != '.' {
				names = append(names, string([]byte{byte(b)}))
				c.put(names[len(names)-1], "")
			}
		}
		c.seesNames(".", names...)
	}),
	works("open", "names are bytes: case, spelling and normal form tell them apart", func(c *kase) {
		names := []string{"a", "A", "\u00e9", "e\u0301", "\xe9", " a", "a ", "...", ". ", "a\\b", "-rf", "a.", "\xff\xfe"}
		for _, name := range names {
			c.put(name, name)
		}
		for _, name := range names {
			c.seesContent(name, name)
		}
		c.seesNames(".", names...)
	}),
	works("open", "a path of 4095 bytes", func(c *kase) {
		c.put("f", "content")
		c.seesContent(strings.Repeat("./", 2047)+"f", "content")
	}),
	works("open", "dots, double dots and slashes in a path", func(c *kase) {
		c.mkdir("d", 0o755)
		c.mkdir("d/e", 0o755)
		c.put("f", "content")
		for _, path := range []string{"./f", ".//f", "d/../f", "d/e/../../f", "d/./e/.././../f"} {
			c.seesContent(path, "content")
		}
	}),
	refuse("open", unix.ENOENT, "dots below a name that does not exist", func(c *kase) error { return c.opens("absent/../f", unix.O_RDONLY) }),
}
