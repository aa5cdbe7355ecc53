package posix

import (
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// structBytes are the bytes of a struct of the kernel's.
func structBytes[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// fromBytes is the reverse of structBytes.
func fromBytes[T any](b []byte) (v T) {
	copy(structBytes(&v), b)
	return v
}

var openCases = []behaviour{
	refuse("open", unix.EACCES, "for reading without permission", func(c *kase) error {
		c.put("f", "")
		c.chmod("f", 0o200)
		c.chown("f", int(alice.uid), 0)
		return c.tries(alice, func() error { return c.opens("f", unix.O_RDONLY) })
	}),
	refuse("open", unix.EACCES, "for writing without permission", func(c *kase) error {
		c.put("f", "")
		return c.tries(alice, func() error { return c.opens("f", unix.O_WRONLY) })
	}),
	refuse("open", unix.EACCES, "O_RDONLY|O_TRUNC without permission to write", func(c *kase) error {
		c.put("f", "kept")
		err := c.tries(alice, func() error { return c.opens("f", unix.O_RDONLY|unix.O_TRUNC) })
		c.seesContent("f", "kept")
		return err
	}),
	works("open", "the owner's bits count for the owner even if others' allow more", func(c *kase) {
		c.put("f", "")
		c.chown("f", int(alice.uid), int(alice.gid))
		c.chmod("f", 0o077)
		c.refused(c.tries(alice, func() error { return c.opens("f", unix.O_RDONLY) }), unix.EACCES, "open by the owner")
		c.ok(c.tries(bob, func() error { return c.opens("f", unix.O_RDONLY) }), "open by another")
	}),
	works("open", "the group's bits count for a member even if others' allow more", func(c *kase) {
		c.put("f", "")
		c.chown("f", 0, team)
		c.chmod("f", 0o707)
		c.refused(c.tries(bob.in(team), func() error { return c.opens("f", unix.O_RDONLY) }), unix.EACCES, "open by a member")
		c.ok(c.tries(bob, func() error { return c.opens("f", unix.O_RDONLY) }), "open by another")
	}),
	works("open", "root may read and write whatever the mode", func(c *kase) {
		c.put("f", "")
		c.chmod("f", 0)
		c.ok(c.opens("f", unix.O_RDWR), "open")
	}),
	works("open", "a new file may be opened for writing with a mode that forbids it", func(c *kase) {
		c.own()
		c.as(alice, func() {
			fd, err := unix.Open("f", unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o400)
			c.ok(err, "create")
			c.write(fd, "written")
			c.close(fd)
		})
		c.seesContent("f", "written")
		c.seesMode("f", 0o400)
	}),
	refuse("open", unix.EACCES, "O_CREAT of another's file in a sticky directory (protected_regular)", func(c *kase) error {
		return c.protected("/proc/sys/fs/protected_regular", func() { c.put("t/f", "") })
	}),
	refuse("open", unix.EACCES, "O_CREAT of another's fifo in a sticky directory (protected_fifos)", func(c *kase) error {
		return c.protected("/proc/sys/fs/protected_fifos", func() { c.fifo("t/f") })
	}),
	works("open", "O_CREAT makes a file with the mode, the owner and no content", func(c *kase) {
		c.own()
		c.as(alice, func() {
			fd, err := unix.Open("f", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o6751)
			c.ok(err, "create")
			c.close(fd)
		})
		c.seesMode("f", 0o6751)
		c.seesOwner("f", alice.uid, alice.gid)
		c.seesSize("f", 0)
		c.seesLinks("f", 1)
	}),
	works("open", "O_CREAT takes the umask off the mode", func(c *kase) {
		unix.Umask(0o027)
		fd, err := unix.Open("f", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o666)
		c.ok(err, "create")
		c.close(fd)
		c.seesMode("f", 0o640)
	}),
	works("open", "O_CREAT leaves a file that exists as it is", func(c *kase) {
		c.put("f", "content")
		before := c.stat("f")
		fd, err := unix.Open("f", unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		c.ok(err, "open")
		c.close(fd)
		c.seesContent("f", "content")
		c.seesMode("f", before.Mode&0o7777)
		c.seesIno("f", before.Ino)
	}),
	works("open", "O_CREAT through a symbolic link makes the target", func(c *kase) {
		c.symlink("target", "s")
		c.put("s", "x")
		c.seesContent("target", "x")
		c.seesType("s", unix.S_IFLNK)
	}),
	refuse("open", unix.EEXIST, "O_CREAT|O_EXCL of a file", func(c *kase) error {
		c.put("f", "")
		return c.opens("f", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY)
	}),
	refuse("open", unix.EEXIST, "O_CREAT|O_EXCL of a directory", func(c *kase) error {
		c.mkdir("d", 0o755)
		return c.opens("d", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY)
	}),
	refuse("open", unix.EEXIST, "O_CREAT|O_EXCL of a symbolic link that leads nowhere", func(c *kase) error {
		c.symlink("absent", "s")
		return c.opens("s", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY)
	}),
	works("open", "O_TRUNC empties a file and keeps its inode", func(c *kase) {
		c.put("f", letters(100000))
		ino := c.stat("f").Ino
		c.open("f", unix.O_WRONLY|unix.O_TRUNC)
		c.seesSize("f", 0)
		c.seesContent("f", "")
		c.seesIno("f", ino)
	}),
	works("open", "O_TRUNC is seen by a descriptor that was open before", func(c *kase) {
		fd := c.file("f", "content")
		c.ok(c.opens("f", unix.O_WRONLY|unix.O_TRUNC), "open")
		equal(c, "size", c.fstat(fd).Size, 0)
		equal(c, "content", c.readAt(fd, 10, 0), "")
	}),
	works("open", "O_APPEND writes at the end wherever the offset is", func(c *kase) {
		c.put("f", "one")
		fd := c.open("f", unix.O_WRONLY|unix.O_APPEND)
		must[int64](c, "lseek")(unix.Seek(fd, 0, unix.SEEK_SET))
		c.write(fd, "two")
		c.put("g", "")
		c.ok(unix.Truncate("f", 2), "truncate")
		c.write(fd, "three")
		c.seesContent("f", "onthree")
		equal(c, "offset", must[int64](c, "lseek")(unix.Seek(fd, 0, unix.SEEK_CUR)), 7)
	}),
	refuse("open", unix.ENOTDIR, "O_DIRECTORY of a file", func(c *kase) error {
		c.put("f", "")
		return c.opens("f", unix.O_RDONLY|unix.O_DIRECTORY)
	}),
	works("open", "O_DIRECTORY opens a directory", func(c *kase) {
		c.mkdir("d", 0o755)
		c.ok(c.opens("d", unix.O_RDONLY|unix.O_DIRECTORY), "open")
	}),
	refuse("open", unix.EINVAL, "O_DIRECTORY|O_CREAT", func(c *kase) error {
		return c.opens("d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CREAT)
	}),
	refuse("open", unix.ELOOP, "O_NOFOLLOW of a symbolic link", func(c *kase) error {
		c.put("f", "")
		c.symlink("f", "s")
		return c.opens("s", unix.O_RDONLY|unix.O_NOFOLLOW)
	}),
	refuse("open", unix.ENOTDIR, "O_NOFOLLOW|O_DIRECTORY of a symbolic link to a directory", func(c *kase) error {
		c.mkdir("d", 0o755)
		c.symlink("d", "s")
		return c.opens("s", unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY)
	}),
	works("open", "O_NOFOLLOW follows links that are not the last name", func(c *kase) {
		c.mkdir("d", 0o755)
		c.put("d/f", "")
		c.symlink("d", "s")
		c.ok(c.opens("s/f", unix.O_RDONLY|unix.O_NOFOLLOW), "open")
	}),
	works("open", "O_PATH needs no permission, and can neither read nor write", func(c *kase) {
		c.put("f", "content")
		c.chmod("f", 0)
		c.as(alice, func() {
			fd := c.open("f", unix.O_PATH)
			equal(c, "size", c.fstat(fd).Size, 7)
			p := make([]byte, 1)
			c.refused(failure(unix.Read(fd, p)), unix.EBADF, "read")
			c.refused(failure(unix.Write(fd, p)), unix.EBADF, "write")
			c.refused(unix.Fchmod(fd, 0o600), unix.EBADF, "fchmod")
			c.refused(unix.Ftruncate(fd, 0), unix.EBADF, "ftruncate")
			c.refused(unix.Fsync(fd), unix.EBADF, "fsync")
		})
	}),
	works("open", "O_PATH|O_NOFOLLOW opens a symbolic link itself", func(c *kase) {
		c.symlink("target", "s")
		fd := c.open("s", unix.O_PATH|unix.O_NOFOLLOW)
		equal(c, "type", c.fstat(fd).Mode&unix.S_IFMT, uint32(unix.S_IFLNK))
		p := make([]byte, 100)
		n, err := unix.Readlinkat(fd, "", p)
		c.ok(err, "readlinkat of the descriptor")
		equal(c, "target", string(p[:n]), "target")
	}),
	works("open", "what an O_PATH descriptor has can be opened after its name is gone", func(c *kase) {
		c.put("f", "content")
		fd := c.open("f", unix.O_PATH)
		c.unlink("f")
		equal(c, "links", c.fstat(fd).Nlink, 0)
		again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		c.ok(err, "open of the descriptor in /proc")
		c.after(func() { unix.Close(again) })
		equal(c, "content", c.readAt(again, 10, 0), "content")
	}),
	works("open", "what an O_PATH descriptor has can be opened after another took its name", func(c *kase) {
		c.put("f", "old")
		fd := c.open("f", unix.O_PATH)
		c.put("g", "new")
		c.rename("g", "f")
		again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		c.ok(err, "open of the descriptor in /proc")
		c.after(func() { unix.Close(again) })
		equal(c, "content", c.readAt(again, 10, 0), "old")
	}),
	works("open", "O_PATH of a directory serves as a place to start from", func(c *kase) {
		c.mkdir("d", 0o755)
		c.put("d/f", "content")
		got, err := contentAt(c.open("d", unix.O_PATH), "f")
		c.ok(err, "read")
		equal(c, "content", got, "content")
	}),
	refuse("open", unix.EPERM, "O_NOATIME of another's file", func(c *kase) error {
		c.put("f", "")
		return c.tries(alice, func() error { return c.opens("f", unix.O_RDONLY|unix.O_NOATIME) })
	}),
	works("open", "O_NOATIME reads without a trace", func(c *kase) {
		fd := c.file("f", "content")
		old := unix.Timespec{Sec: 1000000000}
		c.ok(unix.UtimesNanoAt(here, "f", []unix.Timespec{old, {Nsec: unix.UTIME_OMIT}}, 0), "utimensat")
		unix.Close(fd)
		c.readAt(c.open("f", unix.O_RDONLY|unix.O_NOATIME), 10, 0)
		equal(c, "time of access", c.stat("f").Atim, old)
	}),
	works("open", "O_SYNC and O_DSYNC write as usual", func(c *kase) {
		for i, flag := range []int{unix.O_SYNC, unix.O_DSYNC} {
			name := fmt.Sprint("f", i)
			fd := c.open(name, unix.O_CREAT|unix.O_WRONLY|flag)
			c.write(fd, letters(10000))
			c.seesContent(name, letters(10000))
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			c.ok(err, "F_GETFL")
			equal(c, "flag", flags&flag, flag)
		}
	}),
	works("open", "O_DIRECT reads and writes what is aligned", func(c *kase) {
		fd, err := unix.Open("f", unix.O_CREAT|unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0o644)
		if err == unix.EINVAL {
			c.skip("this file system has no O_DIRECT")
		}
		c.ok(err, "open")
		c.after(func() { unix.Close(fd) })
		page, err := unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		c.ok(err, "mmap")
		c.after(func() { unix.Munmap(page) })
		copy(page, letters(8192))
		n, err := unix.Pwrite(fd, page, 4096)
		c.ok(err, "pwrite")
		equal(c, "bytes written", n, 8192)
		clear(page)
		n, err = unix.Pread(fd, page, 0)
		c.ok(err, "pread")
		equal(c, "content", string(page[:n]), zeros(4096)+letters(4096))
		c.seesContent("f", zeros(4096)+letters(8192))
	}),
	refuse("open", unix.EISDIR, "a directory for writing", func(c *kase) error {
		c.mkdir("d", 0o755)
		return c.opens("d", unix.O_WRONLY)
	}),
	refuse("open", unix.EISDIR, "a directory for reading and writing", func(c *kase) error {
		c.mkdir("d", 0o755)
		return c.opens("d", unix.O_RDWR)
	}),
	refuse("open", unix.EISDIR, "O_CREAT of a directory", func(c *kase) error {
		c.mkdir("d", 0o755)
		return c.opens("d", unix.O_RDONLY|unix.O_CREAT)
	}),
	refuse("open", unix.EISDIR, "O_CREAT of a name that ends with a slash", func(c *kase) error {
		return c.opens("f/", unix.O_WRONLY|unix.O_CREAT)
	}),
	refuse("open", unix.ENOTDIR, "a file by a name that ends with a slash", func(c *kase) error {
		c.put("f", "")
		return c.opens("f/", unix.O_RDONLY)
	}),
	refuse("open", unix.ELOOP, "a symbolic link to itself", func(c *kase) error {
		c.symlink("loop", "loop")
		return c.opens("loop", unix.O_RDONLY)
	}),
	refuse("open", unix.EMFILE, "with the limit of descriptors reached", func(c *kase) error {
		c.put("f", "")
		p := c.peer()
		p.limit(unix.RLIMIT_NOFILE, 5)
		_, _, err := p.call(unix.SYS_OPENAT, unix.AT_FDCWD, "f", unix.O_RDONLY, 0)
		for i := 0; err == nil && i < 20; i++ {
			_, _, err = p.call(unix.SYS_OPENAT, unix.AT_FDCWD, "f", unix.O_RDONLY, 0)
		}
		return err
	}),
	refuse("open", unix.ENXIO, "O_WRONLY|O_NONBLOCK of a fifo that nobody reads", func(c *kase) error {
		c.fifo("p")
		return c.opens("p", unix.O_WRONLY|unix.O_NONBLOCK)
	}),
	refuse("open", unix.ENXIO, "a socket", func(c *kase) error {
		c.mknod("s", unix.S_IFSOCK|0o666)
		return c.opens("s", unix.O_RDONLY)
	}),
	works("open", "a device node opens the device, or nothing on a nodev mount", func(c *kase) {
		c.whiteDevice("null")
		err := c.opens("null", unix.O_WRONLY)
		if c.statfs().Flags&unix.ST_NODEV != 0 {
			c.refused(err, unix.EACCES, "open on a nodev mount")
			return
		}
		c.ok(err, "open")
	}),
	works("open", "a device node without a device is ENXIO, or EACCES on a nodev mount", func(c *kase) {
		c.ok(unix.Mknod("gone", unix.S_IFCHR|0o666, int(unix.Mkdev(250, 250000))), "mknod")
		if c.statfs().Flags&unix.ST_NODEV != 0 {
			c.refused(c.opens("gone", unix.O_RDONLY), unix.EACCES, "open on a nodev mount")
			return
		}
		c.refused(c.opens("gone", unix.O_RDONLY), unix.ENXIO, "open")
	}),
	refuse("open", unix.ETXTBSY, "a running program for writing", func(c *kase) error {
		c.running("cat")
		return c.opens("cat", unix.O_WRONLY)
	}),
	refuse("open", unix.EINTR, "a signal while a fifo waits for its other end", func(c *kase) error {
		c.fifo("p")
		return c.interrupted(func() error { return failure(unix.Open("p", unix.O_RDONLY|unix.O_CLOEXEC, 0)) })
	}),
	works("open", "an open fails for O_WRONLY|O_RDWR on nothing else than permission", func(c *kase) {
		// The access mode 3 asks for both permissions and gives neither.
		c.put("f", "content")
		fd := c.open("f", unix.O_WRONLY|unix.O_RDWR)
		p := make([]byte, 1)
		c.refused(failure(unix.Read(fd, p)), unix.EBADF, "read")
		c.refused(failure(unix.Write(fd, p)), unix.EBADF, "write")
	}),
	works("creat", "makes a file, or empties one, for writing only", func(c *kase) {
		for range 2 {
			fd, err := unix.Creat("f", 0o640)
			c.ok(err, "creat")
			c.write(fd, "content")
			c.refused(failure(unix.Read(fd, make([]byte, 1))), unix.EBADF, "read")
			equal(c, "size", c.fstat(fd).Size, 7)
			c.close(fd)
		}
		c.seesMode("f", 0o640)
		c.seesContent("f", "content")
	}),
}

// protected is the case of a sticky directory that everybody may write and
// that belongs to somebody else than the file t/f that make makes.
func (c *kase) protected(sysctl string, make func()) error {
	value, err := os.ReadFile(sysctl)
	if err != nil || strings.TrimSpace(string(value)) == "0" {
		c.skip(sysctl + " is off")
	}
	c.mkdir("t", 0o777)
	make()
	c.chown("t/f", int(alice.uid), int(alice.gid))
	c.chmod("t/f", 0o666)
	c.chown("t", int(bob.uid), int(bob.gid))
	c.chmod("t", 0o1777)
	return c.opens("t/f", unix.O_RDWR|unix.O_CREAT|unix.O_NONBLOCK)
}

var tmpfileCases = []behaviour{
	works("open", "O_TMPFILE makes a file without a name", func(c *kase) {
		fd := c.open(".", unix.O_TMPFILE|unix.O_RDWR)
		c.write(fd, letters(10000))
		equal(c, "content", c.readAt(fd, 20000, 0), letters(10000))
		st := c.fstat(fd)
		equal(c, "links", st.Nlink, 0)
		equal(c, "mode", st.Mode, uint32(unix.S_IFREG|0o644))
		c.seesNames(".")
	}),
	works("open", "O_TMPFILE can be given a name through /proc", func(c *kase) {
		fd := c.open(".", unix.O_TMPFILE|unix.O_RDWR)
		c.write(fd, "content")
		c.ok(unix.Linkat(here, fmt.Sprintf("/proc/self/fd/%d", fd), here, "f", unix.AT_SYMLINK_FOLLOW), "linkat")
		c.seesContent("f", "content")
		c.seesLinks("f", 1)
		c.seesIno("f", c.fstat(fd).Ino)
	}),
	works("open", "O_TMPFILE can be given a name with AT_EMPTY_PATH", func(c *kase) {
		fd := c.open(".", unix.O_TMPFILE|unix.O_RDWR)
		c.write(fd, "content")
		c.ok(unix.Linkat(fd, "", here, "f", unix.AT_EMPTY_PATH), "linkat")
		c.seesContent("f", "content")
	}),
	refuse("link", unix.ENOENT, "an O_TMPFILE opened with O_EXCL", func(c *kase) error {
		fd := c.open(".", unix.O_TMPFILE|unix.O_RDWR|unix.O_EXCL)
		return unix.Linkat(here, fmt.Sprintf("/proc/self/fd/%d", fd), here, "f", unix.AT_SYMLINK_FOLLOW)
	}),
	refuse("open", unix.EINVAL, "O_TMPFILE for reading only", func(c *kase) error { return c.opens(".", unix.O_TMPFILE|unix.O_RDONLY) }),
	refuse("open", unix.ENOTDIR, "O_TMPFILE in a file", func(c *kase) error {
		c.put("f", "")
		return c.opens("f", unix.O_TMPFILE|unix.O_RDWR)
	}),
	refuse("open", unix.ENOENT, "O_TMPFILE in a directory that does not exist", func(c *kase) error {
		return c.opens("absent", unix.O_TMPFILE|unix.O_RDWR)
	}),
	refuse("open", unix.EACCES, "O_TMPFILE in a directory that may not be written", func(c *kase) error {
		return c.tries(alice, func() error { return c.opens(".", unix.O_TMPFILE|unix.O_RDWR) })
	}),
	works("open", "O_TMPFILE takes the umask off the mode and belongs to its maker", func(c *kase) {
		c.own()
		c.as(alice, func() {
			unix.Umask(0o027)
			fd, err := unix.Open(".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o666)
			c.ok(err, "open")
			st := c.fstat(fd)
			equal(c, "mode", st.Mode&0o7777, 0o640)
			equal(c, "owner", [2]uint32{st.Uid, st.Gid}, [2]uint32{alice.uid, alice.gid})
			c.close(fd)
		})
	}),
	works("open", "O_TMPFILE in a set-group-ID directory has its group", func(c *kase) {
		c.mkdir("d", 0o777)
		c.chown("d", 0, team)
		c.chmod("d", 0o2777)
		equal(c, "group", c.fstat(c.open("d", unix.O_TMPFILE|unix.O_RDWR)).Gid, team)
	}),
}
