package posix

import "golang.org/x/sys/unix"

// ofd takes a lock of an open file description, or gives it back.
func ofd(fd int, kind int16, start, length int64) error {
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind, Start: start, Len: length})
}

var ofdLockCases = []behaviour{
	refuse("fcntl", unix.EAGAIN, "OFD locks: two opens of one process", func(c *kase) error {
		c.ok(ofd(c.file("f", ""), unix.F_WRLCK, 0, 10), "lock")
		return ofd(c.open("f", unix.O_RDWR), unix.F_WRLCK, 5, 1)
	}),
	refuse("fcntl", unix.EAGAIN, "OFD locks: against a record lock of the same process", func(c *kase) error {
		c.ok(lock(c.file("f", ""), unix.F_WRLCK, 0, 10), "lock")
		return ofd(c.open("f", unix.O_RDWR), unix.F_WRLCK, 5, 1)
	}),
	works("fcntl", "OFD locks: only the last close of the description gives them back", func(c *kase) {
		c.put("f", "")
		fd := must[int](c, "open")(unix.Open("f", unix.O_RDWR|unix.O_CLOEXEC, 0))
		dup := must[int](c, "dup")(unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0))
		other := c.open("f", unix.O_RDWR)
		c.ok(ofd(fd, unix.F_WRLCK, 0, 10), "lock")
		c.ok(ofd(dup, unix.F_WRLCK, 0, 10), "lock of the duplicate")
		c.ok(c.opens("f", unix.O_RDWR), "open and close")
		c.close(fd)
		c.refused(ofd(other, unix.F_WRLCK, 0, 10), unix.EAGAIN, "lock after the first close")
		c.close(dup)
		c.ok(c.soon(func() error { return ofd(other, unix.F_WRLCK, 0, 10) }), "lock after the last close")
	}),
	works("fcntl", "OFD locks: split, change and are seen by other processes", func(c *kase) {
		mine, p, theirs := c.twoSides()
		c.ok(ofd(mine, unix.F_WRLCK, 0, 8), "lock")
		c.ok(ofd(mine, unix.F_UNLCK, 2, 2), "unlock")
		c.ok(ofd(mine, unix.F_RDLCK, 6, 2), "change")
		equal(c, "locked", p.lockedParts(theirs, 10), "XX..XXrr..")
	}),
	works("fcntl", "OFD locks: F_GETLK tells that no process has it", func(c *kase) {
		mine, p, theirs := c.twoSides()
		c.ok(ofd(mine, unix.F_WRLCK, 0, 8), "lock")
		equal(c, "process", p.test(theirs, unix.F_WRLCK, 0, 1).Pid, -1)
	}),
	works("fcntl", "OFD locks: F_OFD_GETLK tells who is in the way", func(c *kase) {
		mine := c.file("f", "")
		c.ok(ofd(mine, unix.F_RDLCK, 10, 20), "lock")
		got := unix.Flock_t{Type: unix.F_WRLCK, Len: 100}
		c.ok(unix.FcntlFlock(uintptr(c.open("f", unix.O_RDWR)), unix.F_OFD_GETLK, &got), "F_OFD_GETLK")
		equal(c, "lock", [4]int64{int64(got.Type), got.Start, got.Len, int64(got.Pid)}, [4]int64{unix.F_RDLCK, 10, 20, -1})
		got = unix.Flock_t{Type: unix.F_WRLCK, Len: 100}
		c.ok(unix.FcntlFlock(uintptr(mine), unix.F_OFD_GETLK, &got), "F_OFD_GETLK of the holder")
		equal(c, "lock in the holder's way", got.Type, unix.F_UNLCK)
	}),
	works("fcntl", "OFD locks: F_OFD_SETLKW waits until the lock is given back", func(c *kase) {
		mine, p, theirs := c.twoSides()
		c.ok(ofd(mine, unix.F_WRLCK, 0, 10), "lock")
		answer := p.begin(unix.SYS_FCNTL, theirs, unix.F_OFD_SETLKW, structBytes(&unix.Flock_t{Type: unix.F_WRLCK, Len: 1}))
		c.waiting(p, answer, "F_OFD_SETLKW")
		c.ok(ofd(mine, unix.F_UNLCK, 0, 0), "unlock")
		c.answered(answer, "F_OFD_SETLKW after the unlock")
	}),
	refuse("fcntl", unix.EINTR, "OFD locks: a signal while F_OFD_SETLKW waits", func(c *kase) error {
		c.ok(ofd(c.file("f", ""), unix.F_WRLCK, 0, 1), "lock")
		other := c.open("f", unix.O_RDWR)
		return c.interrupted(func() error {
			return unix.FcntlFlock(uintptr(other), unix.F_OFD_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK, Len: 1})
		})
	}),
	refuse("fcntl", unix.EINVAL, "OFD locks: a process id", func(c *kase) error {
		return unix.FcntlFlock(uintptr(c.file("f", "")), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Pid: 1})
	}),
	refuse("fcntl", unix.EBADF, "OFD locks: a write lock of a descriptor for reading", func(c *kase) error {
		c.put("f", "")
		return ofd(c.open("f", unix.O_RDONLY), unix.F_WRLCK, 0, 1)
	}),
}

var leaseCases = []behaviour{
	refuse("open", unix.EWOULDBLOCK, "O_NONBLOCK for writing against a read lease", func(c *kase) error {
		c.put("f", "")
		fd := c.open("f", unix.O_RDONLY)
		must[int](c, "F_SETLEASE")(unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK))
		err := c.opens("f", unix.O_WRONLY|unix.O_NONBLOCK)
		must[int](c, "F_SETLEASE")(unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK))
		c.ok(c.opens("f", unix.O_WRONLY|unix.O_NONBLOCK), "open without the lease")
		return err
	}),
	refuse("fcntl", unix.EAGAIN, "a read lease of a file that is open for writing", func(c *kase) error {
		c.file("f", "")
		return failure(unix.FcntlInt(uintptr(c.open("f", unix.O_RDONLY)), unix.F_SETLEASE, unix.F_RDLCK))
	}),
}

var fcntlCases = []behaviour{
	works("fcntl", "F_GETFL tells how the file was opened", func(c *kase) {
		c.put("f", "")
		const shown = unix.O_ACCMODE | unix.O_APPEND | unix.O_NONBLOCK | unix.O_NOATIME
		for _, flags := range []int{unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR | unix.O_APPEND, unix.O_RDWR | unix.O_NONBLOCK, unix.O_RDONLY | unix.O_NOATIME} {
			got := must[int](c, "F_GETFL")(unix.FcntlInt(uintptr(c.open("f", flags)), unix.F_GETFL, 0))
			equal(c, "flags", got&shown, flags)
		}
	}),
	refuse("fcntl", unix.EMFILE, "F_DUPFD with the limit of descriptors reached", func(c *kase) error {
		c.put("f", "")
		p := c.peer()
		fd := p.open("f", unix.O_RDONLY)
		p.limit(unix.RLIMIT_NOFILE, fd+1)
		_, _, err := p.call(unix.SYS_FCNTL, fd, unix.F_DUPFD, fd)
		return err
	}),
	refuse("fcntl", unix.EINVAL, "F_DUPFD beyond the limit of descriptors", func(c *kase) error {
		return failure(unix.FcntlInt(uintptr(c.file("f", "")), unix.F_DUPFD, 1<<30))
	}),
	refuse("fcntl", unix.ENOTDIR, "F_NOTIFY of a file", func(c *kase) error {
		return failure(unix.FcntlInt(uintptr(c.file("f", "")), unix.F_NOTIFY, dnModify))
	}),
	refuse("fcntl", unix.EBUSY, "F_SETPIPE_SZ of a fifo that holds more", func(c *kase) error {
		c.fifo("p")
		fd := c.open("p", unix.O_RDWR|unix.O_NONBLOCK)
		for range 8 {
			c.write(fd, letters(4096))
		}
		return failure(unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, 4096))
	}),
	refuse("fcntl", unix.EPERM, "F_SETPIPE_SZ beyond the limit, by an ordinary user", func(c *kase) error {
		c.fifo("p")
		return c.tries(alice, func() error {
			return failure(unix.FcntlInt(uintptr(c.open("p", unix.O_RDWR)), unix.F_SETPIPE_SZ, 1<<30))
		})
	}),
}

// dnModify is DN_MODIFY.
const dnModify = 2
