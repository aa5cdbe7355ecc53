package posix

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// copyRange copies between offsets, all of it, in as many calls as it takes.
func (c *kase) copyRange(in int, inOff int64, out int, outOff int64, n int) {
	for n > 0 {
		got := must[int](c, "copy_file_range")(unix.CopyFileRange(in, &inOff, out, &outOff, n, 0))
		if got == 0 {
			c.fatalf("copy_file_range copies nothing, %d bytes before its end%s", n, caller())
		}
		n -= got
	}
}

// copies is copy_file_range between the offsets 0, for a case about its error.
func copies(in, out, n, flags int) error {
	return failure(unix.CopyFileRange(in, new(int64), out, new(int64), n, flags))
}

var copyCases = []behaviour{
	works("copy_file_range", "copies between files, small and large, aligned and not", func(c *kase) {
		in := c.file("in", letters(3<<20))
		for i, r := range []struct {
			from, to int64
			n        int
		}{{0, 0, 10}, {5, 0, 5000}, {4096, 8192, 16384}, {16384, 0, 1 << 20}, {1, 3, 2<<20 + 7}, {0, 0, 3 << 20}} {
			name := fmt.Sprint("out", i)
			out := c.file(name, "")
			c.copyRange(in, r.from, out, r.to, r.n)
			c.seesContent(name, zeros(int(r.to))+letters(3 << 20)[r.from:r.from+int64(r.n)])
		}
	}),
	works("copy_file_range", "without offsets uses and moves those of the descriptors", func(c *kase) {
		in, out := c.file("in", "0123456789"), c.file("out", "ab")
		must[int64](c, "lseek")(unix.Seek(in, 3, unix.SEEK_SET))
		equal(c, "bytes", must[int](c, "copy_file_range")(unix.CopyFileRange(in, nil, out, nil, 4, 0)), 4)
		equal(c, "offset in", must[int64](c, "lseek")(unix.Seek(in, 0, unix.SEEK_CUR)), 7)
		equal(c, "offset out", must[int64](c, "lseek")(unix.Seek(out, 0, unix.SEEK_CUR)), 6)
		c.seesContent("out", "ab3456")
	}),
	works("copy_file_range", "with offsets moves them and not those of the descriptors", func(c *kase) {
		in, out := c.file("in", "0123456789"), c.file("out", "abcdef")
		from, to := int64(2), int64(1)
		equal(c, "bytes", must[int](c, "copy_file_range")(unix.CopyFileRange(in, &from, out, &to, 3, 0)), 3)
		equal(c, "offsets", [2]int64{from, to}, [2]int64{5, 4})
		equal(c, "offset in", must[int64](c, "lseek")(unix.Seek(in, 0, unix.SEEK_CUR)), 10)
		c.seesContent("out", "a234ef")
	}),
	works("copy_file_range", "is short at the end, and nothing beyond it", func(c *kase) {
		in, out := c.file("in", "0123456789"), c.file("out", "")
		from := int64(6)
		equal(c, "bytes", must[int](c, "copy_file_range")(unix.CopyFileRange(in, &from, out, nil, 100, 0)), 4)
		for _, from = range []int64{10, 11, 1 << 40} {
			equal(c, "bytes beyond", must[int](c, "copy_file_range")(unix.CopyFileRange(in, &from, out, nil, 100, 0)), 0)
		}
		c.seesContent("out", "6789")
	}),
	works("copy_file_range", "of no bytes copies none", func(c *kase) {
		in, out := c.file("in", "0123456789"), c.file("out", "x")
		c.ok(copies(in, out, 0, 0), "copy_file_range")
		c.seesContent("out", "x")
	}),
	works("copy_file_range", "within a file, side by side", func(c *kase) {
		fd := c.file("f", letters(100000))
		c.copyRange(fd, 0, fd, 50000, 50000)
		c.seesContent("f", letters(50000)+letters(50000))
		c.copyRange(fd, 100, fd, 200000, 50)
		c.seesContent("f", letters(50000)+letters(50000)+zeros(100000)+letters(150)[100:])
	}),
	works("copy_file_range", "beyond the end of the target leaves a hole", func(c *kase) {
		in, out := c.file("in", letters(5000)), c.file("out", "x")
		c.copyRange(in, 0, out, 100000, 5000)
		c.seesContent("out", "x"+zeros(99999)+letters(5000))
	}),
	works("copy_file_range", "a hole is copied as zeros over what was there", func(c *kase) {
		in, out := c.file("in", ""), c.file("out", letters(200000))
		c.ok(unix.Ftruncate(in, 100000), "ftruncate")
		c.copyRange(in, 0, out, 50000, 100000)
		c.seesContent("out", letters(50000)+zeros(100000)+letters(200000)[150000:])
	}),
	works("copy_file_range", "source and copy go their own ways", func(c *kase) {
		in, out := c.file("in", letters(1<<20)), c.file("out", "")
		c.copyRange(in, 0, out, 0, 1<<20)
		c.writeAt(in, "source", 1000)
		c.writeAt(out, "target", 500000)
		want := letters(1 << 20)
		c.seesContent("in", want[:1000]+"source"+want[1006:])
		c.seesContent("out", want[:500000]+"target"+want[500006:])
		c.unlink("in")
		c.seesContent("out", want[:500000]+"target"+want[500006:])
	}),
	works("copy_file_range", "sees what was stored through a mapping", func(c *kase) {
		in, out := c.file("in", letters(2*page)), c.file("out", "")
		copy(c.mapped(in, page, unix.MAP_SHARED), "stored")
		c.copyRange(in, 0, out, 0, 100)
		c.seesContent("out", "stored"+letters(100)[6:])
	}),
	works("copy_file_range", "is seen by a mapping of the target", func(c *kase) {
		in, out := c.file("in", letters(2*page)), c.file("out", zeros(2*page))
		m := c.mapped(out, 2*page, unix.MAP_SHARED)
		equal(c, "mapping before", m[0], 0)
		c.copyRange(in, 0, out, 0, 2*page)
		equal(c, "mapping", string(m) == letters(2*page), true)
	}),
	works("copy_file_range", "is seen by another descriptor of the target at once", func(c *kase) {
		in := c.file("in", letters(2*page))
		c.put("out", zeros(2*page))
		second := c.open("out", unix.O_RDONLY)
		c.readAt(second, 100, 0)
		c.copyRange(in, 0, c.open("out", unix.O_WRONLY), 0, 2*page)
		equal(c, "content", c.readAt(second, 2*page, 0) == letters(2*page), true)
	}),
}

var copyRuleCases = []behaviour{
	refuse("copy_file_range", unix.EBADF, "no descriptor", func(c *kase) error { return copies(c.file("in", "x"), c.closed(), 1, 0) }),
	refuse("copy_file_range", unix.EBADF, "a source for writing only", func(c *kase) error {
		c.put("in", "x")
		return copies(c.open("in", unix.O_WRONLY), c.file("out", ""), 1, 0)
	}),
	refuse("copy_file_range", unix.EBADF, "a target for reading only", func(c *kase) error {
		c.put("out", "")
		return copies(c.file("in", "x"), c.open("out", unix.O_RDONLY), 1, 0)
	}),
	refuse("copy_file_range", unix.EBADF, "a target with O_APPEND", func(c *kase) error {
		c.put("out", "")
		return copies(c.file("in", "x"), c.open("out", unix.O_WRONLY|unix.O_APPEND), 1, 0)
	}),
	refuse("copy_file_range", unix.EFBIG, "beyond the process's limit of file sizes", func(c *kase) error {
		c.put("in", letters(1000))
		c.put("out", "")
		p := c.peer()
		p.limit(unix.RLIMIT_FSIZE, 10000)
		offset := int64(10000)
		_, _, err := p.call(unix.SYS_COPY_FILE_RANGE, p.open("in", unix.O_RDONLY), 0, p.open("out", unix.O_WRONLY), structBytes(&offset), 100)
		c.seesSize("out", 0)
		return err
	}),
	refuse("copy_file_range", unix.EFBIG, "at the largest file size", func(c *kase) error {
		most := c.largestFile()
		return failure(unix.CopyFileRange(c.file("in", letters(100)), new(int64), c.file("out", ""), &most, 10, 0))
	}),
	refuse("copy_file_range", unix.EINVAL, "an unknown flag", func(c *kase) error { return copies(c.file("in", "x"), c.file("out", ""), 1, 1) }),
	refuse("copy_file_range", unix.EINVAL, "parts of a file that overlap", func(c *kase) error {
		fd := c.file("f", letters(100000))
		from, to := int64(0), int64(500)
		return failure(unix.CopyFileRange(fd, &from, fd, &to, 501, 0))
	}),
	refuse("copy_file_range", unix.EINVAL, "parts of a file that overlap, over two descriptors", func(c *kase) error {
		fd := c.file("f", letters(100000))
		from, to := int64(500), int64(0)
		return failure(unix.CopyFileRange(fd, &from, c.open("f", unix.O_RDWR), &to, 501, 0))
	}),
	refuse("copy_file_range", unix.EINVAL, "a fifo", func(c *kase) error {
		c.fifo("p")
		return failure(unix.CopyFileRange(c.file("in", "x"), nil, c.open("p", unix.O_RDWR), nil, 1, 0))
	}),
	refuse("copy_file_range", unix.EISDIR, "a directory", func(c *kase) error {
		return copies(c.open(".", unix.O_RDONLY), c.file("out", ""), 1, 0)
	}),
	refuse("copy_file_range", unix.EOVERFLOW, "a length that wraps around", func(c *kase) error {
		from := int64(longest - 10)
		return failure(unix.CopyFileRange(c.file("in", "x"), &from, c.file("out", ""), nil, -1, 0))
	}),
	refuse("copy_file_range", unix.EXDEV, "a file system of another type", func(c *kase) error {
		in, err := unix.Open("/proc/self/maps", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		c.ok(err, "open")
		unix.Close(in)
		shm, err := unix.MemfdCreate("posix", unix.MFD_CLOEXEC)
		c.ok(err, "memfd_create")
		c.after(func() { unix.Close(shm) })
		c.write(shm, "content")
		if c.statfs().Type == unix.TMPFS_MAGIC {
			c.skip("the directory is on the type of file system that it would be compared with")
		}
		return copies(shm, c.file("out", ""), 5, 0)
	}),
	refuse("copy_file_range", unix.EPERM, "an immutable file", func(c *kase) error {
		in, out := c.file("in", "x"), c.file("out", "")
		c.flag(out, unix.STATX_ATTR_IMMUTABLE)
		return copies(in, out, 1, 0)
	}),
	refuse("truncate", unix.EPERM, "an immutable file", func(c *kase) error {
		c.flag(c.file("f", "x"), unix.STATX_ATTR_IMMUTABLE)
		return unix.Truncate("f", 0)
	}),
	refuse("fallocate", unix.EPERM, "an immutable file", func(c *kase) error {
		fd := c.file("f", "x")
		c.flag(fd, unix.STATX_ATTR_IMMUTABLE)
		return unix.Fallocate(fd, 0, 0, 10)
	}),
	refuse("unlink", unix.EPERM, "an immutable file", func(c *kase) error {
		c.flag(c.file("f", "x"), unix.STATX_ATTR_IMMUTABLE)
		return unix.Unlink("f")
	}),
	refuse("fcntl", unix.EPERM, "clearing O_APPEND of an append-only file", func(c *kase) error {
		c.flag(c.file("f", "x"), unix.STATX_ATTR_APPEND)
		fd := c.open("f", unix.O_WRONLY|unix.O_APPEND)
		return failure(unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0))
	}),
}

// flag sets a flag of chattr(1), where the file system has them. The values
// are those of the STATX_ATTR constants.
func (c *kase) flag(fd, flag int) {
	const fsIocSetflags = 0x40086602
	set := func(flags int32) error {
		return failure(raw(unix.SYS_IOCTL, uintptr(fd), fsIocSetflags, uintptr(unsafe.Pointer(&flags))))
	}
	if err := set(int32(flag)); err == unix.ENOTTY || err == unix.EOPNOTSUPP {
		c.skip("this file system has no immutable or append-only files")
	} else {
		c.ok(err, "FS_IOC_SETFLAGS")
	}
	c.after(func() { set(0) })
}

var sendfileCases = []behaviour{
	works("sendfile", "copies from the offset of the descriptor to a file, a pipe", func(c *kase) {
		in, out := c.file("in", letters(100000)), c.file("out", "")
		must[int64](c, "lseek")(unix.Seek(in, 10, unix.SEEK_SET))
		equal(c, "bytes", must[int](c, "sendfile")(unix.Sendfile(out, in, nil, 60000)), 60000)
		equal(c, "offset", must[int64](c, "lseek")(unix.Seek(in, 0, unix.SEEK_CUR)), 60010)
		c.seesContent("out", letters(60010)[10:])
		r, w := c.pipe()
		equal(c, "bytes", must[int](c, "sendfile")(unix.Sendfile(w, in, nil, 100)), 100)
		p := make([]byte, 200)
		equal(c, "content", string(p[:must[int](c, "read")(unix.Read(r, p))]), letters(60110)[60010:])
	}),
	works("sendfile", "an offset is moved, and that of the descriptor is not", func(c *kase) {
		in, out := c.file("in", letters(1000)), c.file("out", "")
		offset := int64(100)
		equal(c, "bytes", must[int](c, "sendfile")(unix.Sendfile(out, in, &offset, 5000)), 900)
		equal(c, "offset", offset, 1000)
		equal(c, "offset of the descriptor", must[int64](c, "lseek")(unix.Seek(in, 0, unix.SEEK_CUR)), 1000)
		equal(c, "bytes at the end", must[int](c, "sendfile")(unix.Sendfile(out, in, &offset, 10)), 0)
		c.seesContent("out", letters(1000)[100:])
	}),
	refuse("sendfile", unix.EAGAIN, "to a full pipe, O_NONBLOCK", func(c *kase) error {
		in := c.file("in", letters(200000))
		_, w := c.pipe()
		c.ok(unix.SetNonblock(w, true), "O_NONBLOCK")
		offset := int64(0)
		var err error
		for err == nil {
			_, err = unix.Sendfile(w, in, &offset, 100000)
		}
		return err
	}),
	refuse("sendfile", unix.EBADF, "a source for writing only", func(c *kase) error {
		c.put("in", "x")
		return failure(unix.Sendfile(c.file("out", ""), c.open("in", unix.O_WRONLY), nil, 1))
	}),
	refuse("sendfile", unix.EBADF, "a target for reading only", func(c *kase) error {
		c.put("out", "")
		return failure(unix.Sendfile(c.open("out", unix.O_RDONLY), c.file("in", "x"), nil, 1))
	}),
	refuse("sendfile", unix.EINVAL, "a target with O_APPEND", func(c *kase) error {
		c.put("out", "")
		return failure(unix.Sendfile(c.open("out", unix.O_WRONLY|unix.O_APPEND), c.file("in", "x"), new(int64), 1))
	}),
	refuse("sendfile", unix.EOVERFLOW, "an offset that no file can have", func(c *kase) error {
		offset := c.largestOffset()
		return failure(unix.Sendfile(c.file("out", ""), c.file("in", "x"), &offset, 10))
	}),
	refuse("sendfile", unix.ESPIPE, "an offset of a fifo", func(c *kase) error {
		c.fifo("p")
		return failure(unix.Sendfile(c.file("out", ""), c.open("p", unix.O_RDWR), new(int64), 10))
	}),
}

var spliceCases = []behaviour{
	works("splice", "moves from a file into a pipe and from it into a file", func(c *kase) {
		in, out := c.file("in", letters(50000)), c.file("out", "")
		r, w := c.pipe()
		from, to := int64(1000), int64(10)
		n := must[int64](c, "splice")(unix.Splice(in, &from, w, nil, 30000, 0))
		equal(c, "offset", from, 1000+n)
		for left := n; left > 0; {
			left -= must[int64](c, "splice")(unix.Splice(r, nil, out, &to, int(left), unix.SPLICE_F_MOVE))
		}
		equal(c, "offset", to, 10+n)
		c.seesContent("out", zeros(10)+letters(50000)[1000:1000+n])
	}),
	works("splice", "without offsets moves those of the descriptors; nothing at the end", func(c *kase) {
		in := c.file("in", letters(5000))
		must[int64](c, "lseek")(unix.Seek(in, 4000, unix.SEEK_SET))
		_, w := c.pipe()
		equal(c, "bytes", must[int64](c, "splice")(unix.Splice(in, nil, w, nil, 3000, 0)), 1000)
		equal(c, "offset", must[int64](c, "lseek")(unix.Seek(in, 0, unix.SEEK_CUR)), 5000)
		equal(c, "bytes at the end", must[int64](c, "splice")(unix.Splice(in, nil, w, nil, 3000, 0)), 0)
	}),
	works("splice", "what is in the pipe does not change with the file any more, or does", func(c *kase) {
		// Linux moves pages, so a later write may show; the length may not change.
		fd := c.file("in", letters(5000))
		r, w := c.pipe()
		from := int64(0)
		n := must[int64](c, "splice")(unix.Splice(fd, &from, w, nil, 5000, 0))
		c.ok(unix.Ftruncate(fd, 0), "ftruncate")
		p := make([]byte, 10000)
		equal(c, "bytes", int64(must[int](c, "read")(unix.Read(r, p))), n)
	}),
	refuse("splice", unix.EAGAIN, "an empty pipe, SPLICE_F_NONBLOCK", func(c *kase) error {
		r, _ := c.pipe()
		return failure(unix.Splice(r, nil, c.file("out", ""), nil, 10, unix.SPLICE_F_NONBLOCK))
	}),
	refuse("splice", unix.EBADF, "a target for reading only", func(c *kase) error {
		c.put("out", "")
		r, w := c.pipe()
		c.write(w, "x")
		return failure(unix.Splice(r, nil, c.open("out", unix.O_RDONLY), nil, 1, 0))
	}),
	refuse("splice", unix.EINVAL, "no pipe", func(c *kase) error {
		return failure(unix.Splice(c.file("in", "x"), nil, c.file("out", ""), nil, 1, 0))
	}),
	refuse("splice", unix.EINVAL, "a target with O_APPEND", func(c *kase) error {
		c.put("out", "")
		r, w := c.pipe()
		c.write(w, "x")
		return failure(unix.Splice(r, nil, c.open("out", unix.O_WRONLY|unix.O_APPEND), nil, 1, 0))
	}),
	refuse("splice", unix.ESPIPE, "an offset of the pipe", func(c *kase) error {
		_, w := c.pipe()
		return failure(unix.Splice(c.file("in", "x"), nil, w, new(int64), 1, 0))
	}),
	refuse("splice", unix.EINVAL, "a directory", func(c *kase) error {
		_, w := c.pipe()
		return failure(unix.Splice(c.open(".", unix.O_RDONLY), nil, w, nil, 1, 0))
	}),
}
