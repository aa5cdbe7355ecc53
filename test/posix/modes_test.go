package posix

import "golang.org/x/sys/unix"

func fchmodat2(dir int, name string, mode uint32, flags int) error {
	return unix.Fchmodat(dir, name, mode, flags)
}

var chmodCases = []behaviour{
	works("chmod", "sets all twelve bits, of files and directories", func(c *kase) {
		c.put("f", "")
		c.mkdir("d", 0o755)
		for _, mode := range []uint32{0, 0o1, 0o644, 0o777, 0o1777, 0o2755, 0o4711, 0o7777} {
			c.chmod("f", mode)
			c.seesMode("f", mode)
			c.chmod("d", mode)
			c.seesMode("d", mode)
		}
	}),
	works("chmod", "follows a symbolic link", func(c *kase) {
		c.put("f", "")
		c.symlink("f", "s")
		c.chmod("s", 0o600)
		c.seesMode("f", 0o600)
		c.seesMode("s", 0o777)
	}),
	works("chmod", "of a descriptor, also one for reading and one of an unlinked file", func(c *kase) {
		c.put("f", "")
		fd := c.open("f", unix.O_RDONLY)
		c.ok(unix.Fchmod(fd, 0o640), "fchmod")
		c.seesMode("f", 0o640)
		c.unlink("f")
		c.ok(unix.Fchmod(fd, 0o604), "fchmod")
		equal(c, "mode", c.fstat(fd).Mode&0o7777, 0o604)
	}),
	works("chmod", "by the owner", func(c *kase) {
		c.put("f", "")
		c.chown("f", int(alice.uid), int(alice.gid))
		c.ok(c.tries(alice, func() error { return unix.Chmod("f", 0o6700) }), "chmod")
		c.seesMode("f", 0o6700)
	}),
	works("chmod", "set-group-ID is dropped for an owner who is not in the group", func(c *kase) {
		c.put("f", "")
		c.chown("f", int(alice.uid), team)
		c.ok(c.tries(alice, func() error { return unix.Chmod("f", 0o2755) }), "chmod")
		c.seesMode("f", 0o755)
		c.ok(c.tries(alice.in(team), func() error { return unix.Chmod("f", 0o2755) }), "chmod by a member")
		c.seesMode("f", 0o2755)
	}),
	works("chmod", "set-group-ID of a directory is dropped for an owner who is not in the group", func(c *kase) {
		c.mkdir("d", 0o755)
		c.chown("d", int(alice.uid), team)
		c.ok(c.tries(alice, func() error { return unix.Chmod("d", 0o2755) }), "chmod")
		c.seesMode("d", 0o755)
		c.ok(c.tries(alice.in(1, 2, team), func() error { return unix.Chmod("d", 0o2755) }), "chmod by a member")
		c.seesMode("d", 0o2755)
	}),
	works("chmod", "the sticky bit of a file can be set by its owner", func(c *kase) {
		c.put("f", "")
		c.chown("f", int(alice.uid), int(alice.gid))
		c.ok(c.tries(alice, func() error { return unix.Chmod("f", 0o1644) }), "chmod")
		c.seesMode("f", 0o1644)
	}),
	works("chmod", "changes what descriptors may do only for opens to come", func(c *kase) {
		c.own()
		c.as(alice, func() {
			fd := c.file("f", "content")
			c.chmod("f", 0)
			equal(c, "content", c.readAt(fd, 10, 0), "content")
			c.write(fd, "more")
			c.refused(c.opens("f", unix.O_RDONLY), unix.EACCES, "open")
		})
	}),
	refuse("chmod", unix.EPERM, "another's file", func(c *kase) error {
		c.put("f", "")
		return c.tries(alice, func() error { return unix.Chmod("f", 0o777) })
	}),
	refuse("chmod", unix.EPERM, "a descriptor of another's file", func(c *kase) error {
		c.put("f", "")
		return c.tries(alice, func() error { return unix.Fchmod(c.open("f", unix.O_RDONLY), 0o777) })
	}),
	refuse("chmod", unix.EPERM, "a file of the caller's group", func(c *kase) error {
		c.put("f", "")
		c.chown("f", 0, int(alice.gid))
		c.chmod("f", 0o666)
		return c.tries(alice, func() error { return unix.Chmod("f", 0o777) })
	}),
	refuse("chmod", unix.EBADF, "no descriptor", func(c *kase) error { return unix.Fchmod(c.closed(), 0o644) }),
	refuse("chmod", unix.EINVAL, "an unknown flag", func(c *kase) error {
		c.put("f", "")
		const fchmodat2 = 452 // on every architecture
		return failure(raw(fchmodat2, dirfd(here), c.cstring("f"), 0o644, 1<<20))
	}),
	refuse("chmod", unix.ENOTSUP, "a symbolic link itself", func(c *kase) error {
		c.put("f", "")
		c.symlink("f", "s")
		err := fchmodat2(here, "s", 0o644, unix.AT_SYMLINK_NOFOLLOW)
		c.seesMode("s", 0o777)
		c.seesMode("f", 0o644)
		return err
	}),
}

var chownCases = []behaviour{
	works("chown", "sets user and group, or one of them, or neither", func(c *kase) {
		c.put("f", "")
		c.chown("f", 1000, 1001)
		c.seesOwner("f", 1000, 1001)
		c.chown("f", 2000, -1)
		c.seesOwner("f", 2000, 1001)
		c.chown("f", -1, 2001)
		c.seesOwner("f", 2000, 2001)
		c.chown("f", -1, -1)
		c.seesOwner("f", 2000, 2001)
	}),
	works("chown", "large ids", func(c *kase) {
		c.put("f", "")
		c.chown("f", 4294967294, 4294967294)
		c.seesOwner("f", 4294967294, 4294967294)
	}),
	works("chown", "follows a symbolic link; lchown does not", func(c *kase) {
		c.put("f", "")
		c.symlink("f", "s")
		c.ok(unix.Chown("s", 1000, 1001), "chown")
		c.seesOwner("f", 1000, 1001)
		c.seesOwner("s", 0, 0)
		c.ok(unix.Lchown("s", 2000, 2001), "lchown")
		c.seesOwner("f", 1000, 1001)
		c.seesOwner("s", 2000, 2001)
	}),
	works("chown", "of a descriptor, also one of an unlinked file and with AT_EMPTY_PATH", func(c *kase) {
		fd := c.file("f", "")
		c.ok(unix.Fchown(fd, 1000, 1001), "fchown")
		c.seesOwner("f", 1000, 1001)
		c.ok(unix.Fchownat(fd, "", 3000, 3001, unix.AT_EMPTY_PATH), "fchownat")
		c.seesOwner("f", 3000, 3001)
		c.unlink("f")
		c.ok(unix.Fchown(fd, 2000, 2001), "fchown")
		equal(c, "owner", c.fstat(fd).Uid, 2000)
	}),
	works("chown", "the owner may give the file to another of his groups", func(c *kase) {
		c.put("f", "")
		c.chown("f", int(alice.uid), int(alice.gid))
		c.ok(c.tries(alice.in(team), func() error { return unix.Chown("f", -1, team) }), "chown")
		c.seesOwner("f", alice.uid, team)
		c.ok(c.tries(alice, func() error { return unix.Chown("f", int(alice.uid), int(alice.gid)) }), "chown")
		c.seesOwner("f", alice.uid, alice.gid)
	}),
	works("chown", "to no change at all is allowed to the owner, and to others", func(c *kase) {
		c.put("f", "")
		c.chown("f", int(alice.uid), int(alice.gid))
		c.ok(c.tries(alice, func() error { return unix.Chown("f", -1, -1) }), "chown by the owner")
		c.ok(c.tries(bob, func() error { return unix.Chown("f", -1, -1) }), "chown by another")
	}),
	refuse("chown", unix.EPERM, "giving a file away", func(c *kase) error {
		c.put("f", "")
		c.chown("f", int(alice.uid), int(alice.gid))
		return c.tries(alice, func() error { return unix.Chown("f", int(bob.uid), -1) })
	}),
	refuse("chown", unix.EPERM, "to a group that the owner is not in", func(c *kase) error {
		c.put("f", "")
		c.chown("f", int(alice.uid), int(alice.gid))
		return c.tries(alice, func() error { return unix.Chown("f", -1, team) })
	}),
	refuse("chown", unix.EPERM, "another's file to a group of one's own", func(c *kase) error {
		c.put("f", "")
		c.chmod("f", 0o666)
		return c.tries(alice.in(team), func() error { return unix.Chown("f", -1, team) })
	}),
	refuse("chown", unix.EPERM, "a descriptor of another's file", func(c *kase) error {
		c.put("f", "")
		return c.tries(alice, func() error { return unix.Fchown(c.open("f", unix.O_RDONLY), int(alice.uid), -1) })
	}),
	refuse("chown", unix.EBADF, "no descriptor", func(c *kase) error { return unix.Fchown(c.closed(), 0, 0) }),
	refuse("chown", unix.EINVAL, "an unknown flag", func(c *kase) error {
		c.put("f", "")
		return unix.Fchownat(here, "f", 0, 0, 1<<20)
	}),
}

// killed makes a file f of alice's with the mode, and says which mode it must
// have after change, made by who. Everybody may write it.
func killed(call, what string, who user, mode, want uint32, change func(c *kase)) behaviour {
	return works(call, what, func(c *kase) {
		c.put("f", letters(10000))
		c.chown("f", int(alice.uid), int(alice.gid))
		c.chmod("f", mode)
		c.as(who, func() { change(c) })
		c.seesMode("f", want)
	})
}

var nobodySpecial, superuser = bob, user{}

func writesF(c *kase) { c.writeAt(c.open("f", unix.O_WRONLY), "x", 0) }

// sgidKillCases are of set-group-ID where the group may not execute: it stays if
// the caller is in the group. So it is with whatever changes the content.
func sgidKillCases() []behaviour {
	all := []behaviour{}
	for _, way := range []struct {
		call, what string
		change     func(c *kase)
	}{
		{"write", "", writesF},
		{"truncate", "", func(c *kase) { c.truncate("f", 5) }},
		{"truncate", "of a descriptor ", func(c *kase) { c.ok(unix.Ftruncate(c.open("f", unix.O_WRONLY), 5), "ftruncate") }},
		{"open", "O_TRUNC ", func(c *kase) { c.open("f", unix.O_WRONLY|unix.O_TRUNC) }},
		{"creat", "", func(c *kase) { c.open("f", unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC) }},
		{"fallocate", "", func(c *kase) { c.ok(unix.Fallocate(c.open("f", unix.O_WRONLY), 0, 0, 20000), "fallocate") }},
		{"fallocate", "PUNCH_HOLE ", func(c *kase) { c.ok(unix.Fallocate(c.open("f", unix.O_WRONLY), punch|keepSize, 0, 4096), "fallocate") }},
		{"fallocate", "ZERO_RANGE ", func(c *kase) {
			c.ok(unix.Fallocate(c.open("f", unix.O_WRONLY), unix.FALLOC_FL_ZERO_RANGE, 0, 4096), "fallocate")
		}},
		{"copy_file_range", "", func(c *kase) {
			fd := c.open("f", unix.O_RDWR)
			in, out := int64(0), int64(5000)
			must[int](c, "copy_file_range")(unix.CopyFileRange(fd, &in, fd, &out, 100, 0))
		}},
	} {
		all = append(all,
			killed(way.call, way.what+"by another clears set-group-ID of a file that its group may not execute", nobodySpecial, 0o6766, 0o766, way.change),
			killed(way.call, way.what+"by a member leaves set-group-ID of a file that its group may not execute", bob.in(alice.gid), 0o6766, 0o2766, way.change),
			killed(way.call, way.what+"by root leaves set-group-ID of a file that its group may not execute", superuser, 0o6766, 0o6766, way.change))
	}
	return all
}

var killCases = []behaviour{
	killed("write", "clears set-user-ID and set-group-ID", nobodySpecial, 0o6777, 0o777, writesF),
	killed("write", "clears set-user-ID for the owner too", alice, 0o4777, 0o777, writesF),
	killed("write", "leaves set-user-ID and set-group-ID when root writes", superuser, 0o6777, 0o6777, writesF),
	killed("write", "leaves the sticky bit", nobodySpecial, 0o1777, 0o1777, writesF),
	killed("write", "of no bytes clears nothing", nobodySpecial, 0o6777, 0o6777, func(c *kase) {
		_, err := unix.Write(c.open("f", unix.O_WRONLY), nil)
		c.ok(err, "write")
	}),
	killed("truncate", "clears set-user-ID and set-group-ID", nobodySpecial, 0o6777, 0o777, func(c *kase) { c.truncate("f", 5) }),
	killed("truncate", "of a descriptor clears set-user-ID and set-group-ID", nobodySpecial, 0o6777, 0o777, func(c *kase) {
		c.ok(unix.Ftruncate(c.open("f", unix.O_WRONLY), 5), "ftruncate")
	}),
	killed("truncate", "leaves set-user-ID and set-group-ID when root does it", superuser, 0o6777, 0o6777, func(c *kase) { c.truncate("f", 5) }),
	killed("open", "O_TRUNC clears set-user-ID and set-group-ID", nobodySpecial, 0o6777, 0o777, func(c *kase) {
		c.open("f", unix.O_WRONLY|unix.O_TRUNC)
	}),
	killed("fallocate", "clears set-user-ID and set-group-ID", nobodySpecial, 0o6777, 0o777, func(c *kase) {
		c.ok(unix.Fallocate(c.open("f", unix.O_WRONLY), 0, 0, 20000), "fallocate")
	}),
	killed("fallocate", "PUNCH_HOLE clears set-user-ID and set-group-ID", nobodySpecial, 0o6777, 0o777, func(c *kase) {
		c.ok(unix.Fallocate(c.open("f", unix.O_WRONLY), punch|keepSize, 0, 4096), "fallocate")
	}),
	killed("copy_file_range", "clears set-user-ID and set-group-ID", nobodySpecial, 0o6777, 0o777, func(c *kase) {
		fd := c.open("f", unix.O_RDWR)
		in, out := int64(0), int64(5000)
		must[int](c, "copy_file_range")(unix.CopyFileRange(fd, &in, fd, &out, 100, 0))
	}),
	works("mmap", "a store to a shared mapping leaves set-user-ID, or clears it", func(c *kase) {
		// Linux does not clear it, POSIX allows both; nothing else may change.
		c.put("f", letters(10000))
		c.chmod("f", 0o4777)
		c.as(bob, func() {
			m := c.mapped(c.open("f", unix.O_RDWR), 4096, unix.MAP_SHARED)
			m[0] = 'X'
			c.ok(unix.Msync(m, unix.MS_SYNC), "msync")
		})
		if mode := c.stat("f").Mode & 0o7777; mode != 0o4777 && mode != 0o777 {
			c.failf("mode %o", mode)
		}
	}),
	killed("chown", "by the owner clears set-user-ID and set-group-ID", alice, 0o6755, 0o755, func(c *kase) {
		c.ok(unix.Chown("f", -1, int(alice.gid)), "chown")
	}),
	killed("chown", "by root clears set-user-ID and set-group-ID", superuser, 0o6755, 0o755, func(c *kase) { c.chown("f", 1000, 1000) }),
	killed("chown", "leaves set-group-ID of a file that its group may not execute, for root", superuser, 0o6745, 0o2745, func(c *kase) {
		c.chown("f", 1000, 1000)
	}),
	killed("chown", "with neither user nor group clears set-user-ID too", superuser, 0o6755, 0o755, func(c *kase) { c.chown("f", -1, -1) }),
	works("chown", "leaves set-user-ID and set-group-ID of a directory", func(c *kase) {
		c.mkdir("d", 0o755)
		c.chmod("d", 0o6755)
		c.chown("d", 1000, 1000)
		c.seesMode("d", 0o6755)
	}),
	works("setxattr", "security.capability goes with a write and a chown", func(c *kase) {
		c.put("f", "content")
		c.chmod("f", 0o777)
		capability := string([]byte{0, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
		c.setxattr("f", "security.capability", capability)
		c.seesXattr("f", "security.capability", capability)
		c.as(bob, func() { writesF(c) })
		c.seesNoXattr("f", "security.capability")
		c.setxattr("f", "security.capability", capability)
		c.chown("f", 1000, 1000)
		c.seesNoXattr("f", "security.capability")
	}),
}

// teamDir makes a set-group-ID directory of the team in which everybody may
// make files.
func (c *kase) teamDir() {
	c.mkdir("d", 0o777)
	c.chown("d", 0, team)
	c.chmod("d", 0o2777)
}

var sgidCases = []behaviour{
	works("open", "a file in a set-group-ID directory has its group", func(c *kase) {
		c.teamDir()
		c.as(alice, func() { c.put("d/f", "") })
		c.seesOwner("d/f", alice.uid, team)
		c.seesMode("d/f", 0o644)
	}),
	works("mkdir", "a directory in a set-group-ID directory has its group and set-group-ID", func(c *kase) {
		c.teamDir()
		c.as(alice, func() { c.mkdir("d/e", 0o755) })
		c.seesOwner("d/e", alice.uid, team)
		c.seesMode("d/e", 0o2755)
	}),
	works("mknod", "what is made in a set-group-ID directory has its group", func(c *kase) {
		c.teamDir()
		c.as(alice, func() {
			c.fifo("d/p")
			c.mknod("d/f", unix.S_IFREG|0o644)
		})
		c.seesOwner("d/p", alice.uid, team)
		c.seesOwner("d/f", alice.uid, team)
	}),
	works("symlink", "a link in a set-group-ID directory has its group", func(c *kase) {
		c.teamDir()
		c.as(alice, func() { c.symlink("x", "d/s") })
		c.seesOwner("d/s", alice.uid, team)
	}),
	works("open", "set-group-ID is dropped from a new executable of a group that one is not in", func(c *kase) {
		c.teamDir()
		create := func(name string) {
			fd, err := unix.Open(name, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o2775)
			c.ok(err, "create")
			c.close(fd)
		}
		c.as(alice, func() { create("d/f") })
		c.seesMode("d/f", 0o775)
		c.as(alice.in(team), func() { create("d/g") })
		c.seesMode("d/g", 0o2775)
		c.as(alice.in(3, 4, team, 5), func() { c.mknod("d/h", unix.S_IFREG|0o2775) })
		c.seesMode("d/h", 0o2775)
		c.as(alice, func() { c.mknod("d/i", unix.S_IFREG|0o2775) })
		c.seesMode("d/i", 0o775)
	}),
	works("open", "set-group-ID stays on a new file that its group may not execute", func(c *kase) {
		c.teamDir()
		c.as(alice, func() { c.mknod("d/f", unix.S_IFREG|0o2765) })
		c.seesMode("d/f", 0o2765)
	}),
	works("open", "in a directory without set-group-ID a file has its maker's group", func(c *kase) {
		c.mkdir("d", 0o777)
		c.chown("d", 0, team)
		c.as(alice.in(team), func() { c.put("d/f", "") })
		c.seesOwner("d/f", alice.uid, alice.gid)
	}),
	works("rename", "a file moved into a set-group-ID directory keeps its group", func(c *kase) {
		c.teamDir()
		c.own()
		c.as(alice, func() {
			c.put("f", "")
			c.rename("f", "d/f")
		})
		c.seesOwner("d/f", alice.uid, alice.gid)
	}),
}

var accessCases = []behaviour{
	works("access", "tells what root may do: run only what somebody may run", func(c *kase) {
		c.put("f", "")
		c.chmod("f", 0)
		c.ok(unix.Access("f", unix.R_OK|unix.W_OK), "access")
		c.refused(unix.Access("f", unix.X_OK), unix.EACCES, "access X_OK")
		c.chmod("f", 0o001)
		c.ok(unix.Access("f", unix.X_OK), "access X_OK")
	}),
	works("access", "tells what owner, group and others may do", func(c *kase) {
		c.put("f", "")
		c.chown("f", int(alice.uid), team)
		c.chmod("f", 0o421)
		for _, w := range []struct {
			who  user
			mode uint32
		}{{alice, unix.R_OK}, {bob.in(team), unix.W_OK}, {bob, unix.X_OK}} {
			c.as(w.who, func() {
				for _, m := range []uint32{unix.R_OK, unix.W_OK, unix.X_OK} {
					if err := unix.Access("f", m); m == w.mode {
						c.ok(err, "access")
					} else {
						c.refused(err, unix.EACCES, "access")
					}
				}
			})
		}
	}),
	works("access", "asks for the real user, AT_EACCESS for the effective one", func(c *kase) {
		c.put("f", "")
		c.chmod("f", 0o600)
		effective := func() error {
			if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(alice.uid), ^uintptr(0), ^uintptr(0)); e != 0 {
				return e
			}
			return nil
		}
		<-c.thread(effective, func() {
			path := c.cstring("f")
			c.refused(failure(raw(unix.SYS_FACCESSAT2, dirfd(here), path, unix.R_OK, 0)), unix.EACCES, "access")
			c.ok(failure(raw(unix.SYS_FACCESSAT2, dirfd(here), path, unix.R_OK, unix.AT_EACCESS)), "access AT_EACCESS")
		})
	}),
	works("access", "AT_SYMLINK_NOFOLLOW asks for the link itself", func(c *kase) {
		c.symlink("absent", "s")
		c.refused(unix.Access("s", unix.F_OK), unix.ENOENT, "access")
		c.ok(failure(raw(unix.SYS_FACCESSAT2, dirfd(here), c.cstring("s"), unix.F_OK, unix.AT_SYMLINK_NOFOLLOW)), "access")
	}),
	refuse("access", unix.EACCES, "without the permission asked for", func(c *kase) error {
		c.put("f", "")
		return c.tries(alice, func() error { return unix.Access("f", unix.W_OK) })
	}),
	refuse("access", unix.EINVAL, "an unknown mode", func(c *kase) error {
		c.put("f", "")
		return unix.Access("f", 0o777)
	}),
	refuse("access", unix.EINVAL, "an unknown flag", func(c *kase) error {
		c.put("f", "")
		return failure(raw(unix.SYS_FACCESSAT2, dirfd(here), c.cstring("f"), unix.F_OK, 1<<20))
	}),
	works("access", "a directory needs x to be searched and r to be listed", func(c *kase) {
		c.own()
		c.mkdir("x", 0o711)
		c.mkdir("r", 0o744)
		c.put("x/f", "content")
		c.put("r/f", "content")
		c.as(alice, func() {
			c.ok(c.opens("x/f", unix.O_RDONLY), "open below a directory that may be searched")
			c.refused(c.opens("x", unix.O_RDONLY), unix.EACCES, "open of a directory that may not be listed")
			c.refused(c.opens("r/f", unix.O_RDONLY), unix.EACCES, "open below a directory that may only be listed")
			names, err := namesAt(here, "r")
			c.ok(err, "list")
			equal(c, "names", len(names), 1)
		})
	}),
	refuse("chdir", unix.ENOTDIR, "a file", func(c *kase) error {
		c.put("f", "")
		return unix.Chdir("f")
	}),
	refuse("chdir", unix.EACCES, "a directory that may not be searched", func(c *kase) error {
		c.mkdir("d", 0o766)
		return c.tries(alice, func() error { return unix.Chdir("d") })
	}),
	refuse("chdir", unix.EBADF, "no descriptor", func(c *kase) error { return unix.Fchdir(c.closed()) }),
	refuse("chdir", unix.ENOTDIR, "a descriptor of a file", func(c *kase) error { return unix.Fchdir(c.file("f", "")) }),
	works("chdir", "leads on from the directory, which may be renamed and removed meanwhile", func(c *kase) {
		c.mkdir("d", 0o755)
		c.ok(unix.Chdir("d"), "chdir")
		c.put("f", "content")
		c.seesContent("d/f", "content")
		c.rename("../d", "../e")
		c.put("f", "changed")
		c.seesContent("e/f", "changed")
		c.unlink("f")
		c.rmdir("../e")
		c.refused(c.opens("f", unix.O_CREAT|unix.O_WRONLY), unix.ENOENT, "create in the removed directory")
		c.ok(unix.Chdir(".."), "chdir ..")
		c.put("f", "")
		c.seesNames(".", "f")
	}),
}
