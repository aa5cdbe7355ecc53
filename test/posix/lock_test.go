package posix

import "golang.org/x/sys/unix"

// answered waits for the answer to a call that must go on now.
func (c *kase) answered(answer <-chan peerAnswer, what string) {
	if a := <-answer; a.Errno != 0 {
		c.failf("%s: %s", what, errnoText(a.Errno))
	}
}

// waiting notes a failure if the peer's call has been answered though it must
// wait. It may not yet have begun, so this sees not every mistake.
func (c *kase) waiting(p *peer, answer <-chan peerAnswer, what string) {
	for range 3 {
		p.call(unix.SYS_GETPID)
	}
	select {
	case <-answer:
		c.fatalf("%s does not wait", what)
	default:
	}
}

func (p *peer) flock(fd, how int) error {
	_, _, err := p.call(unix.SYS_FLOCK, fd, how)
	return err
}

var flockCases = []behaviour{
	works("flock", "an exclusive lock keeps all others out", func(c *kase) {
		c.put("f", "")
		c.ok(unix.Flock(c.open("f", unix.O_RDONLY), unix.LOCK_EX), "flock")
		p := c.peer()
		fd := p.open("f", unix.O_RDONLY)
		c.refused(p.flock(fd, unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK, "exclusive lock")
		c.refused(p.flock(fd, unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK, "shared lock")
	}),
	works("flock", "shared locks go together, and keep an exclusive one out", func(c *kase) {
		c.put("f", "")
		mine := c.open("f", unix.O_RDONLY)
		c.ok(unix.Flock(mine, unix.LOCK_SH), "flock")
		p := c.peer()
		fd := p.open("f", unix.O_RDONLY)
		c.ok(p.flock(fd, unix.LOCK_SH|unix.LOCK_NB), "shared lock")
		c.refused(p.flock(fd, unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK, "exclusive lock")
		c.ok(unix.Flock(mine, unix.LOCK_UN), "unlock")
		c.ok(p.flock(fd, unix.LOCK_EX|unix.LOCK_NB), "exclusive lock")
	}),
	refuse("flock", unix.EWOULDBLOCK, "two opens of one process", func(c *kase) error {
		c.put("f", "")
		c.ok(unix.Flock(c.open("f", unix.O_RDONLY), unix.LOCK_EX), "flock")
		return unix.Flock(c.open("f", unix.O_RDONLY), unix.LOCK_EX|unix.LOCK_NB)
	}),
	works("flock", "a duplicate shares the lock; the last close gives it back", func(c *kase) {
		c.put("f", "")
		fd := must[int](c, "open")(unix.Open("f", unix.O_RDONLY|unix.O_CLOEXEC, 0))
		dup := must[int](c, "dup")(unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0))
		other := c.open("f", unix.O_RDONLY)
		c.ok(unix.Flock(fd, unix.LOCK_EX), "flock")
		c.ok(unix.Flock(dup, unix.LOCK_EX|unix.LOCK_NB), "flock of the duplicate")
		c.close(fd)
		c.refused(unix.Flock(other, unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK, "flock after the first close")
		c.close(dup)
		c.ok(c.soon(func() error { return unix.Flock(other, unix.LOCK_EX|unix.LOCK_NB) }), "flock after the last close")
	}),
	works("flock", "ends with the process", func(c *kase) {
		c.put("f", "")
		p := c.peer()
		c.ok(p.flock(p.open("f", unix.O_RDONLY), unix.LOCK_EX), "flock")
		mine := c.open("f", unix.O_RDONLY)
		c.refused(unix.Flock(mine, unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK, "flock")
		p.end()
		c.ok(c.soon(func() error { return unix.Flock(mine, unix.LOCK_SH|unix.LOCK_NB) }), "flock after the end")
	}),
	works("flock", "waits until the lock is given back", func(c *kase) {
		c.put("f", "")
		mine := c.open("f", unix.O_RDONLY)
		c.ok(unix.Flock(mine, unix.LOCK_EX), "flock")
		p := c.peer()
		answer := p.begin(unix.SYS_FLOCK, p.open("f", unix.O_RDONLY), unix.LOCK_EX)
		c.waiting(p, answer, "flock")
		c.ok(unix.Flock(mine, unix.LOCK_UN), "unlock")
		c.answered(answer, "flock after the unlock")
	}),
	works("flock", "changes from shared to exclusive and back", func(c *kase) {
		c.put("f", "")
		mine, other := c.open("f", unix.O_RDONLY), c.open("f", unix.O_RDONLY)
		for _, how := range []int{unix.LOCK_SH, unix.LOCK_EX, unix.LOCK_SH} {
			c.ok(unix.Flock(mine, how|unix.LOCK_NB), "flock")
		}
		c.ok(unix.Flock(other, unix.LOCK_SH|unix.LOCK_NB), "shared lock of another")
		c.refused(unix.Flock(mine, unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK, "change to exclusive")
	}),
	works("flock", "of a directory", func(c *kase) {
		c.mkdir("d", 0o755)
		c.ok(unix.Flock(c.open("d", unix.O_RDONLY), unix.LOCK_EX), "flock")
		c.refused(unix.Flock(c.open("d", unix.O_RDONLY), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK, "second flock")
	}),
	works("flock", "and record locks do not see each other", func(c *kase) {
		c.put("f", "")
		c.ok(unix.Flock(c.open("f", unix.O_RDONLY), unix.LOCK_EX), "flock")
		p := c.peer()
		c.ok(p.lock(p.open("f", unix.O_RDWR), unix.F_WRLCK, 0, 0), "record lock")
	}),
	refuse("flock", unix.EBADF, "no descriptor", func(c *kase) error { return unix.Flock(c.closed(), unix.LOCK_SH) }),
	refuse("flock", unix.EINVAL, "an unknown operation", func(c *kase) error { return unix.Flock(c.file("f", ""), 64) }),
	refuse("flock", unix.EINTR, "a signal while it waits", func(c *kase) error {
		c.put("f", "")
		c.ok(unix.Flock(c.open("f", unix.O_RDONLY), unix.LOCK_EX), "flock")
		other := c.open("f", unix.O_RDONLY)
		return c.interrupted(func() error { return unix.Flock(other, unix.LOCK_EX) })
	}),
}

// soon tries until it succeeds. What a close gives back is not promised to be
// free when close returns, where a file system is told of closes afterwards.
func (c *kase) soon(try func() error) error {
	var err error
	for range 250 {
		if err = try(); err == nil {
			return nil
		}
		c.tick()
	}
	return err
}

// lock takes a record lock of this process, or gives it back, without waiting.
func lock(fd int, kind int16, start, length int64) error {
	return unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: kind, Start: start, Len: length})
}

func (p *peer) lock(fd int, kind int16, start, length int64) error {
	_, _, err := p.call(unix.SYS_FCNTL, fd, unix.F_SETLK, structBytes(&unix.Flock_t{Type: kind, Start: start, Len: length}))
	return err
}

// waitLock begins to wait for a record lock.
func (p *peer) waitLock(fd int, kind int16, start, length int64) <-chan peerAnswer {
	return p.begin(unix.SYS_FCNTL, fd, unix.F_SETLKW, structBytes(&unix.Flock_t{Type: kind, Start: start, Len: length}))
}

// test asks which lock is in the way of one.
func (p *peer) test(fd int, kind int16, start, length int64) unix.Flock_t {
	_, data, err := p.call(unix.SYS_FCNTL, fd, unix.F_GETLK, structBytes(&unix.Flock_t{Type: kind, Start: start, Len: length}))
	p.c.ok(err, "F_GETLK")
	return fromBytes[unix.Flock_t](data[2])
}

// lockedParts asks which of the first n bytes a peer could not lock: "X" for
// those, "r" for what it could lock for reading only, "." for the free ones.
func (p *peer) lockedParts(fd int, n int64) string {
	var parts []byte
	for at := range n {
		switch {
		case p.test(fd, unix.F_WRLCK, at, 1).Type == unix.F_UNLCK:
			parts = append(parts, '.')
		case p.test(fd, unix.F_RDLCK, at, 1).Type == unix.F_UNLCK:
			parts = append(parts, 'r')
		default:
			parts = append(parts, 'X')
		}
	}
	return string(parts)
}

// twoSides makes a file and opens it here and in a peer.
func (c *kase) twoSides() (mine int, p *peer, theirs int) {
	mine = c.file("f", letters(100))
	p = c.peer()
	return mine, p, p.open("f", unix.O_RDWR)
}

var recordLockCases = []behaviour{
	refuse("fcntl", unix.EAGAIN, "a write lock against a write lock", func(c *kase) error {
		mine, p, theirs := c.twoSides()
		c.ok(lock(mine, unix.F_WRLCK, 0, 10), "lock")
		return p.lock(theirs, unix.F_WRLCK, 9, 1)
	}),
	refuse("fcntl", unix.EAGAIN, "a read lock against a write lock", func(c *kase) error {
		mine, p, theirs := c.twoSides()
		c.ok(lock(mine, unix.F_WRLCK, 0, 10), "lock")
		return p.lock(theirs, unix.F_RDLCK, 5, 100)
	}),
	refuse("fcntl", unix.EAGAIN, "a write lock against a read lock", func(c *kase) error {
		mine, p, theirs := c.twoSides()
		c.ok(lock(mine, unix.F_RDLCK, 0, 10), "lock")
		return p.lock(theirs, unix.F_WRLCK, 0, 1)
	}),
	works("fcntl", "locks: read locks go together, and so do locks of other bytes", func(c *kase) {
		mine, p, theirs := c.twoSides()
		c.ok(lock(mine, unix.F_RDLCK, 0, 10), "lock")
		c.ok(p.lock(theirs, unix.F_RDLCK, 0, 10), "read lock")
		c.ok(p.lock(theirs, unix.F_WRLCK, 10, 10), "write lock beside it")
		c.ok(lock(mine, unix.F_WRLCK, 20, 0), "write lock behind it")
	}),
	works("fcntl", "locks: a process is not in its own way, and replaces its locks", func(c *kase) {
		mine, p, theirs := c.twoSides()
		second := c.open("f", unix.O_RDWR)
		c.ok(lock(mine, unix.F_WRLCK, 0, 8), "lock")
		c.ok(lock(second, unix.F_RDLCK, 2, 3), "change of the middle, by another descriptor")
		equal(c, "locked", p.lockedParts(theirs, 10), "XXrrrXXX..")
		c.ok(lock(mine, unix.F_WRLCK, 0, 10), "change back")
		equal(c, "locked", p.lockedParts(theirs, 12), "XXXXXXXXXX..")
	}),
	works("fcntl", "locks: giving back the middle splits, and what is between joins", func(c *kase) {
		mine, p, theirs := c.twoSides()
		c.ok(lock(mine, unix.F_WRLCK, 0, 10), "lock")
		c.ok(lock(mine, unix.F_UNLCK, 3, 4), "unlock the middle")
		equal(c, "locked", p.lockedParts(theirs, 12), "XXX....XXX..")
		c.ok(p.lock(theirs, unix.F_WRLCK, 3, 4), "lock of the middle")
		c.ok(p.lock(theirs, unix.F_UNLCK, 0, 0), "unlock of all")
		c.ok(lock(mine, unix.F_WRLCK, 3, 4), "lock the middle again")
		got := p.test(theirs, unix.F_WRLCK, 5, 1)
		equal(c, "joined lock", [2]int64{got.Start, got.Len}, [2]int64{0, 10})
	}),
	works("fcntl", "locks: F_GETLK tells kind, place and process", func(c *kase) {
		mine, p, theirs := c.twoSides()
		c.ok(lock(mine, unix.F_RDLCK, 10, 20), "lock")
		got := p.test(theirs, unix.F_WRLCK, 15, 100)
		equal(c, "lock", [4]int64{int64(got.Type), int64(got.Whence), got.Start, got.Len}, [4]int64{unix.F_RDLCK, unix.SEEK_SET, 10, 20})
		equal(c, "process", got.Pid, int32(unix.Getpid()))
		equal(c, "a read lock beside it", p.test(theirs, unix.F_RDLCK, 15, 100).Type, unix.F_UNLCK)
		equal(c, "a write lock elsewhere", p.test(theirs, unix.F_WRLCK, 30, 5).Type, unix.F_UNLCK)
		c.ok(p.lock(theirs, unix.F_WRLCK, 50, 0), "lock to the end")
		seen := unix.Flock_t{Type: unix.F_WRLCK, Start: 60, Len: 1}
		c.ok(unix.FcntlFlock(uintptr(mine), unix.F_GETLK, &seen), "F_GETLK")
		equal(c, "lock to the end", [2]int64{seen.Start, seen.Len}, [2]int64{50, 0})
		equal(c, "process", seen.Pid, p.pid())
	}),
	works("fcntl", "locks: a length of 0 reaches beyond the end, a negative one goes back", func(c *kase) {
		mine, p, theirs := c.twoSides()
		c.ok(lock(mine, unix.F_WRLCK, 90, 0), "lock")
		c.refused(p.lock(theirs, unix.F_WRLCK, 1<<40, 1), unix.EAGAIN, "lock far behind")
		c.ok(p.lock(theirs, unix.F_WRLCK, 90, -10), "lock of what is before")
		c.refused(lock(mine, unix.F_WRLCK, 80, 1), unix.EAGAIN, "lock of that")
		c.ok(lock(mine, unix.F_WRLCK, 79, 1), "lock before that")
	}),
	works("fcntl", "locks: places count from the offset and from the end too", func(c *kase) {
		mine, p, theirs := c.twoSides()
		must[int64](c, "lseek")(unix.Seek(mine, 20, unix.SEEK_SET))
		c.ok(unix.FcntlFlock(uintptr(mine), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: unix.SEEK_CUR, Start: -5, Len: 2}), "lock")
		c.ok(unix.FcntlFlock(uintptr(mine), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: unix.SEEK_END, Start: -10, Len: 2}), "lock")
		for at, want := range map[int64]int16{14: unix.F_UNLCK, 15: unix.F_WRLCK, 16: unix.F_WRLCK, 17: unix.F_UNLCK, 89: unix.F_UNLCK, 90: unix.F_WRLCK, 92: unix.F_UNLCK} {
			equal(c, "lock", p.test(theirs, unix.F_WRLCK, at, 1).Type, want)
		}
	}),
	works("fcntl", "locks: the largest places", func(c *kase) {
		mine, p, theirs := c.twoSides()
		c.ok(lock(mine, unix.F_WRLCK, longest, 1), "lock")
		c.refused(p.lock(theirs, unix.F_WRLCK, longest-10, 0), unix.EAGAIN, "lock to the end")
		c.ok(p.lock(theirs, unix.F_WRLCK, longest-10, 10), "lock before it")
	}),
	works("fcntl", "locks: closing any descriptor of the file gives all back", func(c *kase) {
		mine, p, theirs := c.twoSides()
		c.ok(lock(mine, unix.F_WRLCK, 0, 10), "lock")
		c.refused(p.lock(theirs, unix.F_WRLCK, 0, 10), unix.EAGAIN, "lock")
		c.ok(c.opens("f", unix.O_RDONLY), "open and close")
		c.ok(c.soon(func() error { return p.lock(theirs, unix.F_WRLCK, 0, 10) }), "lock after the close")
	}),
	works("fcntl", "locks: end with the process", func(c *kase) {
		mine, p, theirs := c.twoSides()
		c.ok(p.lock(theirs, unix.F_WRLCK, 0, 10), "lock")
		c.refused(lock(mine, unix.F_WRLCK, 0, 10), unix.EAGAIN, "lock")
		p.end()
		c.ok(c.soon(func() error { return lock(mine, unix.F_WRLCK, 0, 10) }), "lock after the end")
	}),
	works("fcntl", "locks: F_SETLKW waits until the lock is given back", func(c *kase) {
		mine, p, theirs := c.twoSides()
		c.ok(lock(mine, unix.F_WRLCK, 0, 10), "lock")
		answer := p.waitLock(theirs, unix.F_WRLCK, 5, 1)
		c.waiting(p, answer, "F_SETLKW")
		c.ok(lock(mine, unix.F_UNLCK, 0, 3), "unlock another part")
		c.waiting(p, answer, "F_SETLKW after the unlock of another part")
		c.ok(lock(mine, unix.F_UNLCK, 0, 0), "unlock")
		c.answered(answer, "F_SETLKW after the unlock")
		c.refused(lock(mine, unix.F_WRLCK, 5, 1), unix.EAGAIN, "lock")
	}),
	works("fcntl", "locks: F_SETLKW goes on when a write lock becomes a read lock", func(c *kase) {
		mine, p, theirs := c.twoSides()
		c.ok(lock(mine, unix.F_WRLCK, 0, 10), "lock")
		answer := p.waitLock(theirs, unix.F_RDLCK, 0, 10)
		c.waiting(p, answer, "F_SETLKW")
		c.ok(lock(mine, unix.F_RDLCK, 0, 10), "change to a read lock")
		c.answered(answer, "F_SETLKW after the change")
	}),
	works("fcntl", "locks: do not keep anybody from reading and writing", func(c *kase) {
		mine, p, theirs := c.twoSides()
		c.ok(lock(mine, unix.F_WRLCK, 0, 0), "lock")
		_, _, err := p.call(unix.SYS_PWRITE64, theirs, []byte("XX"), 2, 0)
		c.ok(err, "write")
		equal(c, "content", c.readAt(mine, 3, 0), "XXc")
	}),
	refuse("fcntl", unix.EDEADLK, "locks: two processes that would wait for each other", func(c *kase) error {
		_, p, theirs := c.twoSides()
		q := c.peer()
		others := q.open("f", unix.O_RDWR)
		c.ok(p.lock(theirs, unix.F_WRLCK, 0, 1), "lock")
		c.ok(q.lock(others, unix.F_WRLCK, 1, 1), "lock")
		first, second := p.waitLock(theirs, unix.F_WRLCK, 1, 1), q.waitLock(others, unix.F_WRLCK, 0, 1)
		// Whoever came second is refused, and gives way to the other.
		select {
		case a := <-first:
			c.ok(p.lock(theirs, unix.F_UNLCK, 0, 0), "unlock")
			c.answered(second, "the lock of the other")
			return a.Errno
		case a := <-second:
			c.ok(q.lock(others, unix.F_UNLCK, 0, 0), "unlock")
			c.answered(first, "the lock of the other")
			return a.Errno
		}
	}),
	refuse("fcntl", unix.EINTR, "a signal while F_SETLKW waits", func(c *kase) error {
		mine, p, theirs := c.twoSides()
		c.ok(p.lock(theirs, unix.F_WRLCK, 0, 1), "lock")
		return c.interrupted(func() error {
			return unix.FcntlFlock(uintptr(mine), unix.F_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK, Len: 1})
		})
	}),
	refuse("fcntl", unix.EBADF, "a write lock of a descriptor for reading", func(c *kase) error {
		c.put("f", "")
		return lock(c.open("f", unix.O_RDONLY), unix.F_WRLCK, 0, 1)
	}),
	refuse("fcntl", unix.EBADF, "a read lock of a descriptor for writing", func(c *kase) error {
		c.put("f", "")
		return lock(c.open("f", unix.O_WRONLY), unix.F_RDLCK, 0, 1)
	}),
	refuse("fcntl", unix.EBADF, "no descriptor", func(c *kase) error { return lock(c.closed(), unix.F_WRLCK, 0, 1) }),
	refuse("fcntl", unix.EINVAL, "an unknown kind of lock", func(c *kase) error { return lock(c.file("f", ""), 99, 0, 1) }),
	refuse("fcntl", unix.EINVAL, "a lock before the start", func(c *kase) error { return lock(c.file("f", ""), unix.F_WRLCK, 5, -6) }),
	refuse("fcntl", unix.EINVAL, "an unknown command", func(c *kase) error {
		return failure(unix.FcntlInt(uintptr(c.file("f", "")), 9999, 0))
	}),
}
