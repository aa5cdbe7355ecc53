package posix

import (
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pathCall is a call that takes a path, for the rules that all such calls
// share.
type pathCall struct {
	call, which string // which of two paths
	// do makes the call for the path at the address, relative to a
	// directory; f, of which d is the directory kind, is there as the other
	// path of those that take two.
	do func(c *kase, dir int, path uintptr) error
	// at says that the call takes a directory. creates, that it makes the
	// last name. wantsDir, that the last name is that of a directory.
	// changes, that it needs write permission in the directory.
	at, creates, wantsDir, changes bool
}

// bad is an address that no process has mapped.
const bad = 8

func dirfd(dir int) uintptr { return uintptr(dir) }

func rawAt(nr uintptr, args ...uintptr) func(*kase, int, uintptr) error {
	return func(_ *kase, dir int, path uintptr) error {
		fd, err := raw(nr, append([]uintptr{dirfd(dir), path}, args...)...)
		if err == nil && nr == unix.SYS_OPENAT {
			unix.Close(fd)
		}
		return err
	}
}

// rawPath is for calls whose first argument is the path.
func rawPath(nr uintptr, args ...uintptr) func(*kase, int, uintptr) error {
	return func(_ *kase, _ int, path uintptr) error { return failure(raw(nr, append([]uintptr{path}, args...)...)) }
}

// filling makes a call after the path of which comes the address of a buffer.
func filling(nr uintptr, rest ...uintptr) func(*kase, int, uintptr) error {
	return func(c *kase, dir int, path uintptr) error {
		return failure(raw(nr, append([]uintptr{dirfd(dir), path, c.bytes(make([]byte, 4096))}, rest...)...))
	}
}

var pathCalls = []pathCall{
	{call: "open", at: true, do: rawAt(unix.SYS_OPENAT, unix.O_RDONLY)},
	{call: "open", which: "to create", at: true, creates: true, changes: true, do: rawAt(unix.SYS_OPENAT, unix.O_CREAT|unix.O_WRONLY, 0o644)},
	{call: "truncate", do: rawPath(unix.SYS_TRUNCATE, 0)},
	{call: "link", which: "old name", at: true, do: func(c *kase, dir int, path uintptr) error {
		return failure(raw(unix.SYS_LINKAT, dirfd(dir), path, dirfd(here), c.cstring("other"), 0))
	}},
	{call: "link", which: "new name", at: true, creates: true, changes: true, do: func(c *kase, dir int, path uintptr) error {
		return failure(raw(unix.SYS_LINKAT, dirfd(here), c.cstring("f"), dirfd(dir), path, 0))
	}},
	{call: "unlink", at: true, changes: true, do: rawAt(unix.SYS_UNLINKAT, 0)},
	{call: "rename", which: "old name", at: true, changes: true, do: func(c *kase, dir int, path uintptr) error {
		return failure(raw(unix.SYS_RENAMEAT2, dirfd(dir), path, dirfd(here), c.cstring("other"), 0))
	}},
	{call: "rename", which: "new name", at: true, creates: true, changes: true, do: func(c *kase, dir int, path uintptr) error {
		return failure(raw(unix.SYS_RENAMEAT2, dirfd(here), c.cstring("f"), dirfd(dir), path, 0))
	}},
	{call: "mkdir", at: true, creates: true, changes: true, do: rawAt(unix.SYS_MKDIRAT, 0o755)},
	{call: "rmdir", at: true, wantsDir: true, changes: true, do: rawAt(unix.SYS_UNLINKAT, unix.AT_REMOVEDIR)},
	{call: "symlink", at: true, creates: true, changes: true, do: func(c *kase, dir int, path uintptr) error {
		return failure(raw(unix.SYS_SYMLINKAT, c.cstring("target"), dirfd(dir), path))
	}},
	{call: "readlink", at: true, do: filling(unix.SYS_READLINKAT, 4096)},
	{call: "mknod", at: true, creates: true, changes: true, do: rawAt(unix.SYS_MKNODAT, unix.S_IFIFO|0o644, 0)},
	{call: "chmod", at: true, do: rawAt(unix.SYS_FCHMODAT, 0o755)},
	{call: "chown", at: true, do: rawAt(unix.SYS_FCHOWNAT, 0, 0, 0)},
	{call: "utimensat", at: true, do: rawAt(unix.SYS_UTIMENSAT, 0, 0)},
	{call: "access", at: true, do: rawAt(unix.SYS_FACCESSAT2, unix.F_OK, 0)},
	{call: "stat", at: true, do: func(c *kase, dir int, path uintptr) error {
		return failure(raw(unix.SYS_NEWFSTATAT, dirfd(dir), path, c.bytes(make([]byte, unsafe.Sizeof(unix.Stat_t{}))), 0))
	}},
	{call: "statx", at: true, do: func(c *kase, dir int, path uintptr) error {
		buf := c.bytes(make([]byte, unsafe.Sizeof(unix.Statx_t{})))
		return failure(raw(unix.SYS_STATX, dirfd(dir), path, 0, unix.STATX_BASIC_STATS, buf))
	}},
	{call: "statfs", do: func(c *kase, _ int, path uintptr) error {
		return failure(raw(unix.SYS_STATFS, path, c.bytes(make([]byte, unsafe.Sizeof(unix.Statfs_t{})))))
	}},
	{call: "setxattr", do: func(c *kase, _ int, path uintptr) error {
		return failure(raw(unix.SYS_SETXATTR, path, c.cstring("user.a"), c.cstring("v"), 1, 0))
	}},
	{call: "getxattr", do: func(c *kase, _ int, path uintptr) error {
		return failure(raw(unix.SYS_GETXATTR, path, c.cstring("user.a"), 0, 0))
	}},
	{call: "listxattr", do: rawPath(unix.SYS_LISTXATTR, 0, 0)},
	{call: "removexattr", do: func(c *kase, _ int, path uintptr) error {
		return failure(raw(unix.SYS_REMOVEXATTR, path, c.cstring("user.a")))
	}},
	{call: "chdir", wantsDir: true, do: rawPath(unix.SYS_CHDIR)},
}

// last is a last name with which the call would work.
func (p pathCall) last() string {
	switch {
	case p.creates:
		return "new"
	case p.wantsDir:
		return "d"
	}
	return "f"
}

// pathCases are the rules of paths for each call that takes one.
func pathCases() []behaviour {
	var all []behaviour
	for _, p := range pathCalls {
		all = append(all, p.cases()...)
	}
	return all
}

func (p pathCall) cases() []behaviour {
	where := ""
	if p.which != "" {
		where = ", " + p.which
	}
	on := func(errno syscall.Errno, what string, do func(c *kase) error) behaviour {
		return refuse(p.call, errno, what+where, func(c *kase) error {
			c.put("f", "")
			c.mkdir("d", 0o755)
			return do(c)
		})
	}
	to := func(c *kase, path string) error { return p.do(c, here, c.cstring(path)) }
	cases := []behaviour{
		on(unix.EACCES, "below a directory that may not be searched", func(c *kase) error {
			c.own()
			c.mkdir("closed", 0o755)
			c.put("closed/f", "")
			c.mkdir("closed/d", 0o777)
			c.chmod("closed", 0o766)
			return c.tries(alice, func() error { return to(c, "closed/"+p.last()) })
		}),
		on(unix.EFAULT, "a path at a bad address", func(c *kase) error { return p.do(c, here, bad) }),
		on(unix.ELOOP, "a symbolic link to itself on the way", func(c *kase) error {
			c.symlink("loop", "loop")
			return to(c, "loop/"+p.last())
		}),
		on(unix.ENAMETOOLONG, "a name of 256 bytes", func(c *kase) error { return to(c, strings.Repeat("n", 256)) }),
		on(unix.ENAMETOOLONG, "a name of 256 bytes on the way", func(c *kase) error {
			return to(c, strings.Repeat("n", 256)+"/"+p.last())
		}),
		on(unix.ENAMETOOLONG, "a path of 4096 bytes", func(c *kase) error {
			return to(c, strings.Repeat("./", 2047)+"/"+p.last()[:1])
		}),
		on(unix.ENOENT, "below a name that does not exist", func(c *kase) error { return to(c, "absent/"+p.last()) }),
		on(unix.ENOENT, "below a symbolic link that leads nowhere", func(c *kase) error {
			c.symlink("absent", "dangling")
			return to(c, "dangling/"+p.last())
		}),
		on(unix.ENOENT, "an empty path", func(c *kase) error { return to(c, "") }),
		on(unix.ENOTDIR, "below a file", func(c *kase) error { return to(c, "f/"+p.last()) }),
	}
	if !p.creates {
		cases = append(cases, on(unix.ENOENT, "a name that does not exist", func(c *kase) error { return to(c, "absent") }))
	}
	if p.at {
		cases = append(cases,
			on(unix.EBADF, "relative to what is no descriptor", func(c *kase) error { return p.do(c, c.closed(), c.cstring(p.last())) }),
			on(unix.ENOTDIR, "relative to a descriptor of a file", func(c *kase) error {
				return p.do(c, c.open("f", unix.O_RDONLY), c.cstring(p.last()))
			}))
	}
	if p.changes {
		cases = append(cases, on(unix.EACCES, "in a directory that may not be written", func(c *kase) error {
			c.own()
			c.chown("f", int(alice.uid), int(alice.gid))
			c.mkdir("kept", 0o777)
			c.put("kept/f", "")
			c.mkdir("kept/d", 0o777)
			c.chmod("kept", 0o755)
			return c.tries(alice, func() error { return to(c, "kept/"+p.last()) })
		}))
	}
	return cases
}

// readOnlyCases are the changes that a read-only mount refuses.
func readOnlyCases() []behaviour {
	rows := []struct {
		call, what string
		do         func(c *kase) error
	}{
		{"open", "for writing", func(c *kase) error { return c.opens("ro/f", unix.O_WRONLY) }},
		{"open", "to create", func(c *kase) error { return c.opens("ro/new", unix.O_WRONLY|unix.O_CREAT) }},
		{"open", "to truncate", func(c *kase) error { return c.opens("ro/f", unix.O_RDONLY|unix.O_TRUNC) }},
		{"open", "O_TMPFILE", func(c *kase) error { return c.opens("ro", unix.O_WRONLY|unix.O_TMPFILE) }},
		{"truncate", "", func(*kase) error { return unix.Truncate("ro/f", 0) }},
		{"link", "", func(*kase) error { return unix.Link("ro/f", "ro/new") }},
		{"unlink", "", func(*kase) error { return unix.Unlink("ro/f") }},
		{"rename", "", func(*kase) error { return unix.Rename("ro/f", "ro/new") }},
		{"mkdir", "", func(*kase) error { return unix.Mkdir("ro/new", 0o755) }},
		{"rmdir", "", func(*kase) error { return unix.Rmdir("ro/d") }},
		{"symlink", "", func(*kase) error { return unix.Symlink("f", "ro/new") }},
		{"mknod", "", func(*kase) error { return unix.Mknod("ro/new", unix.S_IFIFO|0o644, 0) }},
		{"chmod", "", func(*kase) error { return unix.Chmod("ro/f", 0o600) }},
		{"chmod", "of a descriptor", func(c *kase) error { return unix.Fchmod(c.open("ro/f", unix.O_RDONLY), 0o600) }},
		{"chown", "", func(*kase) error { return unix.Chown("ro/f", 1, 1) }},
		{"chown", "of a descriptor", func(c *kase) error { return unix.Fchown(c.open("ro/f", unix.O_RDONLY), 1, 1) }},
		{"utimensat", "", func(*kase) error { return unix.UtimesNanoAt(here, "ro/f", nil, 0) }},
		{"access", "W_OK", func(*kase) error { return unix.Faccessat(here, "ro/f", unix.W_OK, 0) }},
		{"setxattr", "", func(*kase) error { return unix.Setxattr("ro/f", "user.a", []byte("v"), 0) }},
		{"removexattr", "", func(*kase) error { return unix.Removexattr("ro/f", "user.a") }},
	}
	var all []behaviour
	for _, r := range rows {
		what := strings.TrimSpace("on a read-only mount " + r.what)
		all = append(all, refuse(r.call, unix.EROFS, what, func(c *kase) error {
			c.mkdir("ro", 0o755)
			c.put("ro/f", "")
			c.mkdir("ro/d", 0o755)
			c.bind("ro", unix.MS_RDONLY)
			return r.do(c)
		}))
	}
	return append(all, works("open", "what is on a read-only mount can be read", func(c *kase) {
		c.mkdir("ro", 0o755)
		c.put("ro/f", "content")
		c.bind("ro", unix.MS_RDONLY)
		equal(c, "content", c.readAt(c.open("ro/f", unix.O_RDONLY), 20, 0), "content")
	}))
}
