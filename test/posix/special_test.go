package posix

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

var symlinkCases = []behaviour{
	works("symlink", "keeps its target, byte for byte", func(c *kase) {
		for i, target := range []string{"f", "/", "../x/./y//", "odd \xff\x01\n", strings.Repeat("t", 255)} {
			name := fmt.Sprint("s", i)
			c.symlink(target, name)
			c.seesTarget(name, target)
			c.seesSize(name, int64(len(target)))
			c.seesType(name, unix.S_IFLNK)
		}
	}),
	works("symlink", "a target may have 4095 bytes", func(c *kase) {
		target := strings.Repeat("t/", 2047) + "t"
		c.symlink(target, "s")
		c.seesTarget("s", target)
	}),
	works("symlink", "shows the mode 0777 whatever the umask, and belongs to its maker", func(c *kase) {
		c.own()
		c.as(alice, func() {
			unix.Umask(0o077)
			c.symlink("f", "s")
		})
		c.seesMode("s", 0o777)
		c.seesOwner("s", alice.uid, alice.gid)
	}),
	works("symlink", "leads to files and directories, also over several links", func(c *kase) {
		c.mkdir("d", 0o755)
		c.put("d/f", "content")
		c.symlink("d", "s")
		c.symlink("s/f", "t")
		c.seesContent("s/f", "content")
		c.seesContent("t", "content")
	}),
	works("symlink", "40 links in a row are followed, 41 are too many", func(c *kase) {
		c.put("l0", "content")
		for i := range 41 {
			c.symlink(fmt.Sprint("l", i), fmt.Sprint("l", i+1))
		}
		c.seesContent("l40", "content")
		c.refused(c.opens("l41", unix.O_RDONLY), unix.ELOOP, "open of the 41st")
	}),
	refuse("symlink", unix.EEXIST, "over a file", func(c *kase) error {
		c.put("f", "")
		return unix.Symlink("x", "f")
	}),
	refuse("symlink", unix.ENOENT, "an empty target", func(*kase) error { return unix.Symlink("", "s") }),
	refuse("symlink", unix.ENAMETOOLONG, "a target of 4096 bytes", func(*kase) error {
		return unix.Symlink(strings.Repeat("t", 4096), "s")
	}),
	refuse("symlink", unix.ENOENT, "in a directory that was removed", func(c *kase) error {
		return unix.Symlinkat("x", c.removed(), "s")
	}),
	works("readlink", "cuts the target to the buffer", func(c *kase) {
		c.symlink("target", "s")
		p := make([]byte, 3)
		equal(c, "bytes", must[int](c, "readlink")(unix.Readlink("s", p)), 3)
		equal(c, "target", string(p), "tar")
	}),
	refuse("readlink", unix.EINVAL, "a file", func(c *kase) error {
		c.put("f", "")
		return failure(unix.Readlink("f", make([]byte, 10)))
	}),
	refuse("readlink", unix.EINVAL, "a directory", func(c *kase) error {
		c.mkdir("d", 0o755)
		return failure(unix.Readlink("d", make([]byte, 10)))
	}),
	refuse("readlink", unix.EINVAL, "a buffer of no bytes", func(c *kase) error {
		c.symlink("target", "s")
		return failure(raw(unix.SYS_READLINKAT, dirfd(here), c.cstring("s"), c.cstring("buffer"), 0))
	}),
}

var mknodCases = []behaviour{
	works("mknod", "makes files, fifos, sockets and devices with their mode", func(c *kase) {
		for name, kind := range map[string]uint32{"f": unix.S_IFREG, "p": unix.S_IFIFO, "s": unix.S_IFSOCK, "c": unix.S_IFCHR, "b": unix.S_IFBLK} {
			c.ok(unix.Mknod(name, kind|0o640, int(unix.Mkdev(7, 9))), "mknod")
			c.seesType(name, kind)
			c.seesMode(name, 0o640)
		}
	}),
	works("mknod", "a mode without a type is that of a file", func(c *kase) {
		c.mknod("f", 0o600)
		c.seesType("f", unix.S_IFREG)
	}),
	works("mknod", "takes the umask off the mode", func(c *kase) {
		unix.Umask(0o027)
		c.fifo("p")
		c.seesMode("p", 0o640)
	}),
	works("mknod", "a device keeps its numbers, large ones too", func(c *kase) {
		for i, dev := range []uint64{unix.Mkdev(1, 3), unix.Mkdev(255, 255), unix.Mkdev(4095, 1048575), unix.Mkdev(300, 70000)} {
			name := fmt.Sprint("c", i)
			c.ok(unix.Mknod(name, unix.S_IFCHR|0o600, int(dev)), "mknod")
			c.sees(name, func(st *unix.Stat_t) string { return differs("device", st.Rdev, dev) })
		}
	}),
	works("mknod", "a fifo passes on what is written to it", func(c *kase) {
		c.fifo("p")
		r := c.open("p", unix.O_RDONLY|unix.O_NONBLOCK)
		c.write(c.open("p", unix.O_WRONLY), "through")
		p := make([]byte, 10)
		equal(c, "content", string(p[:must[int](c, "read")(unix.Read(r, p))]), "through")
		c.seesSize("p", 0)
	}),
	works("mknod", "a socket that was bound can be connected to", func(c *kase) {
		s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		c.ok(err, "socket")
		c.after(func() { unix.Close(s) })
		c.ok(unix.Bind(s, &unix.SockaddrUnix{Name: "s"}), "bind")
		c.ok(unix.Listen(s, 1), "listen")
		c.seesType("s", unix.S_IFSOCK)
		client, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		c.ok(err, "socket")
		c.after(func() { unix.Close(client) })
		c.ok(unix.Connect(client, &unix.SockaddrUnix{Name: "s"}), "connect")
	}),
	refuse("mknod", unix.EEXIST, "over a file", func(c *kase) error {
		c.put("f", "")
		return unix.Mknod("f", unix.S_IFIFO|0o644, 0)
	}),
	refuse("mknod", unix.EEXIST, "over a symbolic link that leads nowhere", func(c *kase) error {
		c.symlink("absent", "s")
		return unix.Mknod("s", unix.S_IFIFO|0o644, 0)
	}),
	refuse("mknod", unix.EINVAL, "an unknown type", func(*kase) error { return unix.Mknod("x", unix.S_IFMT|0o644, 0) }),
	refuse("mknod", unix.EPERM, "a directory", func(*kase) error { return unix.Mknod("x", unix.S_IFDIR|0o644, 0) }),
	refuse("mknod", unix.EPERM, "a device, by an ordinary user", func(c *kase) error {
		c.own()
		return c.tries(alice, func() error { return unix.Mknod("x", unix.S_IFCHR|0o644, nullDevice) })
	}),
	refuse("mknod", unix.ENOENT, "in a directory that was removed", func(c *kase) error {
		return unix.Mknodat(c.removed(), "x", unix.S_IFIFO|0o644, 0)
	}),
}
