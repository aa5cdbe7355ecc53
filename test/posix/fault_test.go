package posix

import "golang.org/x/sys/unix"

// faultRows are the calls to which a bad address is given, for what is not a path.
var faultRows = []struct {
	call, what string
	do         func(c *kase, fd int) error
}{
	{"read", "a buffer", func(_ *kase, fd int) error { return failure(raw(unix.SYS_READ, uintptr(fd), bad, 10)) }},
	{"read", "a buffer, at an offset", func(_ *kase, fd int) error { return failure(raw(unix.SYS_PREAD64, uintptr(fd), bad, 10, 0)) }},
	{"write", "a buffer", func(_ *kase, fd int) error { return failure(raw(unix.SYS_WRITE, uintptr(fd), bad, 10)) }},
	{"write", "a buffer, at an offset", func(_ *kase, fd int) error { return failure(raw(unix.SYS_PWRITE64, uintptr(fd), bad, 10, 0)) }},
	{"read", "a list of buffers", func(_ *kase, fd int) error { return failure(raw(unix.SYS_READV, uintptr(fd), bad, 1)) }},
	{"write", "a list of buffers", func(_ *kase, fd int) error { return failure(raw(unix.SYS_WRITEV, uintptr(fd), bad, 1)) }},
	{"link", "the new name", func(c *kase, _ int) error {
		return failure(raw(unix.SYS_LINKAT, dirfd(here), c.cstring("f"), dirfd(here), bad, 0))
	}},
	{"rename", "the new name", func(c *kase, _ int) error {
		return failure(raw(unix.SYS_RENAMEAT2, dirfd(here), c.cstring("f"), dirfd(here), bad, 0))
	}},
	{"symlink", "the target", func(c *kase, _ int) error {
		return failure(raw(unix.SYS_SYMLINKAT, bad, dirfd(here), c.cstring("new")))
	}},
	{"readlink", "the buffer", func(c *kase, _ int) error {
		c.symlink("target", "s")
		return failure(raw(unix.SYS_READLINKAT, dirfd(here), c.cstring("s"), bad, 100))
	}},
	{"utimensat", "the times", func(c *kase, _ int) error {
		return failure(raw(unix.SYS_UTIMENSAT, dirfd(here), c.cstring("f"), bad, 0))
	}},
	{"stat", "the buffer", func(c *kase, _ int) error {
		return failure(raw(unix.SYS_NEWFSTATAT, dirfd(here), c.cstring("f"), bad, 0))
	}},
	{"stat", "the buffer, of a descriptor", func(_ *kase, fd int) error { return failure(raw(unix.SYS_FSTAT, uintptr(fd), bad)) }},
	{"statx", "the buffer", func(c *kase, _ int) error {
		return failure(raw(unix.SYS_STATX, dirfd(here), c.cstring("f"), 0, unix.STATX_BASIC_STATS, bad))
	}},
	{"statfs", "the buffer", func(c *kase, _ int) error { return failure(raw(unix.SYS_STATFS, c.cstring("f"), bad)) }},
	{"statfs", "the buffer, of a descriptor", func(_ *kase, fd int) error { return failure(raw(unix.SYS_FSTATFS, uintptr(fd), bad)) }},
	{"getdents", "the buffer", func(c *kase, _ int) error {
		return failure(raw(unix.SYS_GETDENTS64, uintptr(c.open(".", unix.O_RDONLY)), bad, 4096))
	}},
	{"fcntl", "a lock", func(_ *kase, fd int) error { return failure(raw(unix.SYS_FCNTL, uintptr(fd), unix.F_SETLK, bad)) }},
	{"sendfile", "the offset", func(c *kase, fd int) error {
		_, w := c.pipe()
		return failure(raw(unix.SYS_SENDFILE, uintptr(w), uintptr(fd), bad, 1))
	}},
	{"setxattr", "the value", func(c *kase, _ int) error {
		return failure(raw(unix.SYS_SETXATTR, c.cstring("f"), c.cstring("user.b"), bad, 10, 0))
	}},
	{"setxattr", "the name", func(c *kase, _ int) error {
		return failure(raw(unix.SYS_SETXATTR, c.cstring("f"), bad, c.cstring("v"), 1, 0))
	}},
	{"getxattr", "the buffer", func(c *kase, _ int) error {
		c.setxattr("f", "user.a", "value")
		return failure(raw(unix.SYS_GETXATTR, c.cstring("f"), c.cstring("user.a"), bad, 100))
	}},
	{"listxattr", "the buffer", func(c *kase, _ int) error {
		c.setxattr("f", "user.a", "value")
		return failure(raw(unix.SYS_LISTXATTR, c.cstring("f"), bad, 100))
	}},
}

// faultCases give each call a bad address for what is not a path.
func faultCases() []behaviour {
	var all []behaviour
	for _, r := range faultRows {
		all = append(all, refuse(r.call, unix.EFAULT, r.what+" at a bad address", func(c *kase) error {
			c.put("f", "content")
			return r.do(c, c.open("f", unix.O_RDWR))
		}))
	}
	return all
}
