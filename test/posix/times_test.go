package posix

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var (
	timeNow  = unix.Timespec{Nsec: unix.UTIME_NOW}
	timeOmit = unix.Timespec{Nsec: unix.UTIME_OMIT}
	timeOld  = unix.Timespec{Sec: 1000000000, Nsec: 123456789}
)

func utime(name string, atime, mtime unix.Timespec) error {
	return unix.UtimesNanoAt(here, name, []unix.Timespec{atime, mtime}, 0)
}

// isNow reports whether a file time is that of the present.
func isNow(ts unix.Timespec) bool {
	d := time.Since(time.Unix(ts.Unix()))
	return d > -time.Second && d < time.Minute
}

var utimeCases = []behaviour{
	works("utimensat", "sets both times to the nanosecond", func(c *kase) {
		c.put("f", "")
		other := unix.Timespec{Sec: 1234567890, Nsec: 987654321}
		c.ok(utime("f", timeOld, other), "utimensat")
		c.seesTimes("f", timeOld, other)
	}),
	works("utimensat", "times before 1970, after 2038 and after 2106", func(c *kase) {
		c.put("f", "")
		for _, sec := range []int64{0, -1, -2000000000, 1<<31 - 1, 1 << 31, 1 << 32, 1<<32 + 12345} {
			ts := unix.Timespec{Sec: sec, Nsec: 999999999}
			c.ok(utime("f", ts, ts), "utimensat")
			c.seesTimes("f", ts, ts)
		}
	}),
	works("utimensat", "of directories, links, fifos and devices", func(c *kase) {
		c.mkdir("d", 0o755)
		c.symlink("d", "s")
		c.fifo("p")
		c.whiteDevice("n")
		for _, name := range []string{"d", "s", "p", "n"} {
			c.ok(unix.UtimesNanoAt(here, name, []unix.Timespec{timeOld, timeOld}, unix.AT_SYMLINK_NOFOLLOW), "utimensat")
			c.seesTimes(name, timeOld, timeOld)
		}
	}),
	works("utimensat", "follows a symbolic link unless told not to", func(c *kase) {
		c.put("f", "")
		c.symlink("f", "s")
		before := c.stat("s").Mtim
		c.ok(utime("s", timeOld, timeOld), "utimensat")
		c.seesTimes("f", timeOld, timeOld)
		equal(c, "the link's own time", c.stat("s").Mtim, before)
	}),
	works("utimensat", "UTIME_NOW and no times at all are now, UTIME_OMIT leaves", func(c *kase) {
		c.put("f", "")
		c.ok(utime("f", timeOld, timeOld), "utimensat")
		c.ok(utime("f", timeOmit, timeNow), "utimensat")
		c.sees("f", func(st *unix.Stat_t) string {
			return differs("times", fmt.Sprint(st.Atim == timeOld, isNow(st.Mtim)), "true true")
		})
		c.ok(utime("f", timeNow, timeOmit), "utimensat")
		c.sees("f", func(st *unix.Stat_t) string { return differs("present", isNow(st.Atim), true) })
		c.ok(utime("f", timeOld, timeOld), "utimensat")
		c.ok(failure(raw(unix.SYS_UTIMENSAT, dirfd(here), c.cstring("f"), 0, 0)), "utimensat without times")
		c.sees("f", func(st *unix.Stat_t) string {
			return differs("times", fmt.Sprint(isNow(st.Atim), isNow(st.Mtim)), "true true")
		})
	}),
	works("utimensat", "two UTIME_OMIT change nothing, the time of change neither", func(c *kase) {
		c.put("f", "")
		before := c.stat("f")
		c.tick()
		c.ok(utime("f", timeOmit, timeOmit), "utimensat")
		equal(c, "time of change", c.stat("f").Ctim, before.Ctim)
	}),
	works("utimensat", "of a descriptor, also one of an unlinked file", func(c *kase) {
		fd := c.file("f", "")
		times := [2]unix.Timespec{timeOld, timeOld}
		futimens := func() error {
			return failure(raw(unix.SYS_UTIMENSAT, uintptr(fd), 0, c.bytes(structBytes(&times)), 0))
		}
		c.ok(futimens(), "futimens")
		c.seesTimes("f", timeOld, timeOld)
		c.unlink("f")
		c.ok(futimens(), "futimens")
		equal(c, "time", c.fstat(fd).Mtim, timeOld)
	}),
	works("utimensat", "AT_EMPTY_PATH is of the descriptor", func(c *kase) {
		fd := c.file("f", "")
		c.ok(unix.UtimesNanoAt(fd, "", []unix.Timespec{timeOld, timeOld}, unix.AT_EMPTY_PATH), "utimensat")
		c.seesTimes("f", timeOld, timeOld)
	}),
	works("utimensat", "now is allowed to who may write, or owns", func(c *kase) {
		c.put("f", "")
		c.chmod("f", 0o666)
		c.ok(utime("f", timeOld, timeOld), "utimensat")
		c.ok(c.tries(alice, func() error { return utime("f", timeNow, timeNow) }), "utimensat by a writer")
		c.sees("f", func(st *unix.Stat_t) string { return differs("present", isNow(st.Mtim), true) })
		c.chown("f", int(alice.uid), int(alice.gid))
		c.chmod("f", 0)
		c.ok(c.tries(alice, func() error { return utime("f", timeNow, timeNow) }), "utimensat by the owner")
		c.ok(c.tries(alice, func() error { return utime("f", timeOld, timeOld) }), "utimensat by the owner")
	}),
	refuse("utimensat", unix.EACCES, "now, without permission to write", func(c *kase) error {
		c.put("f", "")
		return c.tries(alice, func() error { return utime("f", timeNow, timeNow) })
	}),
	refuse("utimensat", unix.EPERM, "another time, of another's file that one may write", func(c *kase) error {
		c.put("f", "")
		c.chmod("f", 0o666)
		return c.tries(alice, func() error { return utime("f", timeOld, timeOld) })
	}),
	refuse("utimensat", unix.EPERM, "one of the two now, of another's file", func(c *kase) error {
		c.put("f", "")
		c.chmod("f", 0o666)
		return c.tries(alice, func() error { return utime("f", timeNow, timeOmit) })
	}),
	refuse("utimensat", unix.EINVAL, "a nanosecond that is none", func(c *kase) error {
		c.put("f", "")
		bad := unix.Timespec{Nsec: 1000000000}
		return utime("f", bad, bad)
	}),
	refuse("utimensat", unix.EINVAL, "an unknown flag", func(c *kase) error {
		c.put("f", "")
		return unix.UtimesNanoAt(here, "f", []unix.Timespec{timeOld, timeOld}, 1<<20)
	}),
}

// timeRule says which times a call changes. Each of changes is a name and,
// after a colon, the letters of the times that must be new: m for modification
// and c for change. Of every name given, the other of the two must not be.
type timeRule struct {
	call, what string
	changes    string
	prepare    func(c *kase)
	do         func(c *kase)
}

func plainFile(c *kase) { c.put("f", letters(10000)) }

func twoDirs(c *kase) {
	plainFile(c)
	c.mkdir("d", 0o755)
	c.mkdir("e", 0o755)
	c.put("d/f", "content")
}

var timeRules = []timeRule{
	{"open", "O_CREAT marks the directory", ".:mc", nil, plainFile},
	{"open", "O_CREAT of what exists marks nothing", "f: .:", plainFile, func(c *kase) { c.open("f", unix.O_CREAT|unix.O_WRONLY) }},
	{"open", "O_TRUNC marks the file", "f:mc .:", plainFile, func(c *kase) { c.open("f", unix.O_WRONLY|unix.O_TRUNC) }},
	{"open", "O_TRUNC of an empty file marks the file", "f:mc .:", func(c *kase) { c.put("f", "") }, func(c *kase) { c.open("f", unix.O_WRONLY|unix.O_TRUNC) }},
	{"open", "for writing and closing again marks nothing", "f: .:", plainFile, func(c *kase) { c.ok(c.opens("f", unix.O_RDWR), "open") }},
	{"read", "marks neither modification nor change", "f: .:", plainFile, func(c *kase) { c.readAt(c.open("f", unix.O_RDONLY), 100, 0) }},
	{"write", "marks the file", "f:mc .:", plainFile, func(c *kase) { c.writeAt(c.open("f", unix.O_WRONLY), "x", 0) }},
	{"write", "at the end marks the file", "f:mc .:", plainFile, func(c *kase) { c.write(c.open("f", unix.O_WRONLY|unix.O_APPEND), "x") }},
	{"truncate", "to another size marks the file", "f:mc .:", plainFile, func(c *kase) { c.truncate("f", 5) }},
	{"truncate", "to the same size marks the file", "f:mc .:", plainFile, func(c *kase) { c.truncate("f", 10000) }},
	{"truncate", "of a descriptor marks the file", "f:mc .:", plainFile, func(c *kase) { c.ok(unix.Ftruncate(c.open("f", unix.O_WRONLY), 20000), "ftruncate") }},
	{"fallocate", "marks the file", "f:mc .:", plainFile, func(c *kase) { c.ok(unix.Fallocate(c.open("f", unix.O_WRONLY), 0, 0, 20000), "fallocate") }},
	{"fallocate", "PUNCH_HOLE marks the file", "f:mc .:", plainFile, func(c *kase) {
		c.ok(unix.Fallocate(c.open("f", unix.O_WRONLY), punch|keepSize, 0, 5000), "fallocate")
	}},
	{"fallocate", "ZERO_RANGE marks the file", "f:mc .:", plainFile, func(c *kase) {
		c.ok(unix.Fallocate(c.open("f", unix.O_WRONLY), zero, 0, 5000), "fallocate")
	}},
	{"copy_file_range", "marks the target, not the source", "f: g:mc", func(c *kase) { plainFile(c); c.put("g", "") }, func(c *kase) {
		must[int](c, "copy_file_range")(unix.CopyFileRange(c.open("f", unix.O_RDONLY), nil, c.open("g", unix.O_WRONLY), nil, 5000, 0))
	}},
	{"fsync", "marks nothing", "f: .:", plainFile, func(c *kase) { c.ok(unix.Fsync(c.open("f", unix.O_WRONLY)), "fsync") }},
	{"link", "marks the change of the file and the new directory", "f:c .: d:mc", twoDirs, func(c *kase) { c.link("f", "d/g") }},
	{"unlink", "marks the change of a file that stays, and the directory", "f:c .: d:mc", func(c *kase) { twoDirs(c); c.link("f", "d/g") }, func(c *kase) { c.unlink("d/g") }},
	{"unlink", "marks the directory", "d:mc .:", twoDirs, func(c *kase) { c.unlink("d/f") }},
	{"mkdir", "marks the parent", "d:mc .:", twoDirs, func(c *kase) { c.mkdir("d/g", 0o755) }},
	{"rmdir", "marks the parent", ".:mc d:", twoDirs, func(c *kase) { c.rmdir("e") }},
	{"symlink", "marks the directory", "d:mc .:", twoDirs, func(c *kase) { c.symlink("x", "d/s") }},
	{"mknod", "marks the directory", "d:mc .:", twoDirs, func(c *kase) { c.fifo("d/p") }},
	{"rename", "marks both directories and the change of the file", "g:c d:mc .:mc", twoDirs, func(c *kase) { c.rename("d/f", "g") }},
	{"rename", "of a directory marks both parents and its change", "e/d:c e:mc .:mc", twoDirs, func(c *kase) { c.rename("d", "e/d") }},
	{"rename", "within a directory marks it and the change of the file", "g:c .:mc", plainFile, func(c *kase) { c.rename("f", "g") }},
	{"rename", "over one of several names marks the change of the file that loses it", "f:c d/f:c d:mc", func(c *kase) { twoDirs(c); c.link("f", "g") }, func(c *kase) {
		c.rename("d/f", "g")
		c.rename("g", "d/f")
	}},
	{"rename", "EXCHANGE marks both directories and the change of both", "f:c d/f:c d:mc .:mc", twoDirs, func(c *kase) {
		c.ok(renameWith(unix.RENAME_EXCHANGE, "f", "d/f"), "rename")
	}},
	{"rename", "a name to itself marks nothing", "f: .:", plainFile, func(c *kase) { c.rename("f", "f") }},
	{"rename", "one of two names over the other marks nothing", "f: .:", func(c *kase) { plainFile(c); c.link("f", "g") }, func(c *kase) { c.rename("f", "g") }},
	{"chmod", "marks the change", "f:c .:", plainFile, func(c *kase) { c.chmod("f", 0o600) }},
	{"chmod", "to the same mode marks the change", "f:c .:", plainFile, func(c *kase) { c.chmod("f", 0o644) }},
	{"chown", "marks the change", "f:c .:", plainFile, func(c *kase) { c.chown("f", 1000, 1000) }},
	{"chown", "to the same owner marks the change", "f:c .:", plainFile, func(c *kase) { c.chown("f", 0, 0) }},
	{"utimensat", "marks the change", "f:mc .:", plainFile, func(c *kase) { c.ok(utime("f", timeOld, timeOld), "utimensat") }},
	{"utimensat", "of the access only marks the change", "f:c .:", plainFile, func(c *kase) { c.ok(utime("f", timeOld, timeOmit), "utimensat") }},
	{"setxattr", "marks the change", "f:c .:", plainFile, func(c *kase) { c.setxattr("f", "user.a", "x") }},
	{"removexattr", "marks the change", "f:c .:", func(c *kase) { plainFile(c); c.setxattr("f", "user.a", "x") }, func(c *kase) {
		c.ok(unix.Removexattr("f", "user.a"), "removexattr")
	}},
	{"getxattr", "marks nothing", "f: .:", func(c *kase) { plainFile(c); c.setxattr("f", "user.a", "x") }, func(c *kase) { c.seesXattr("f", "user.a", "x") }},
	{"mmap", "a store to a shared mapping marks the file by the msync at the latest", "f:mc .:", plainFile, func(c *kase) {
		m := c.mapped(c.open("f", unix.O_RDWR), 4096, unix.MAP_SHARED)
		m[0] = 'X'
		c.ok(unix.Msync(m, unix.MS_SYNC), "msync")
	}},
	{"flock", "marks nothing", "f: .:", plainFile, func(c *kase) { c.ok(unix.Flock(c.open("f", unix.O_RDONLY), unix.LOCK_EX), "flock") }},
	{"access", "marks nothing", "f: .:", plainFile, func(c *kase) { c.ok(unix.Access("f", unix.W_OK), "access") }},
	{"getdents", "marks neither modification nor change", "d:", twoDirs, func(c *kase) { c.seesNames("d", "f") }},
}

func timeRuleCases() []behaviour {
	var all []behaviour
	for _, r := range timeRules {
		all = append(all, works(r.call, "times: "+r.what, r.run))
	}
	return append(all, atimeCases...)
}

func (r timeRule) run(c *kase) {
	if r.prepare != nil {
		r.prepare(c)
	}
	// What a rename moves is looked at under its new name after; its times
	// before are those of whatever it is then.
	before := map[uint64]unix.Stat_t{}
	for _, name := range []string{".", "f", "d", "e", "d/f"} {
		var st unix.Stat_t
		if unix.Lstat(name, &st) == nil {
			before[st.Ino] = st
		}
	}
	c.tick()
	r.do(c)
	for _, change := range strings.Fields(r.changes) {
		name, want, _ := strings.Cut(change, ":")
		c.sees(name, func(st *unix.Stat_t) string {
			got := ""
			if st.Mtim != before[st.Ino].Mtim {
				got += "m"
			}
			if st.Ctim != before[st.Ino].Ctim {
				got += "c"
			}
			return differs("new times", got, want)
		})
	}
}

var atimeCases = []behaviour{
	works("read", "times: a read after a write marks the access (relatime)", func(c *kase) {
		if c.statfs().Flags&unix.ST_NOATIME != 0 {
			c.skip("the file system is mounted noatime")
		}
		c.put("f", "content")
		c.ok(utime("f", timeOld, timeNow), "utimensat")
		c.readAt(c.open("f", unix.O_RDONLY), 10, 0)
		c.sees("f", func(st *unix.Stat_t) string { return differs("access now", isNow(st.Atim), true) })
	}),
	works("getdents", "times: a listing after a change marks the access (relatime)", func(c *kase) {
		if c.statfs().Flags&(unix.ST_NOATIME|unix.ST_NODIRATIME) != 0 {
			c.skip("the file system is mounted noatime")
		}
		c.mkdir("d", 0o755)
		c.ok(utime("d", timeOld, timeNow), "utimensat")
		_, err := entriesOf(c.open("d", unix.O_RDONLY), 4096)
		c.ok(err, "getdents")
		c.sees("d", func(st *unix.Stat_t) string { return differs("access now", isNow(st.Atim), true) })
	}),
	works("open", "times: a new file has the present as all its times", func(c *kase) {
		c.put("f", "")
		c.sees("f", func(st *unix.Stat_t) string {
			return differs("times", fmt.Sprint(isNow(st.Atim), isNow(st.Mtim), isNow(st.Ctim)), "true true true")
		})
	}),
	works("write", "times: of many files, they grow in the order of the writes", func(c *kase) {
		var last unix.Timespec
		for i := range 50 {
			name := fmt.Sprint("f", i)
			c.put(name, "x")
			got := c.stat(name).Mtim
			if got.Nano() < last.Nano() {
				c.failf("file %d has an earlier time than the one before it: %v, %v", i, got, last)
			}
			last = got
		}
	}),
}
