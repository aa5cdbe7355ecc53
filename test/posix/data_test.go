package posix

import (
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

// longest is the largest offset that fits the kernel's signed type.
const longest = math.MaxInt64

var readCases = []behaviour{
	works("read", "gives what is there, then nothing at the end", func(c *kase) {
		c.put("f", "content")
		fd := c.open("f", unix.O_RDONLY)
		p := make([]byte, 100)
		equal(c, "first read", must[int](c, "read")(unix.Read(fd, p)), 7)
		equal(c, "content", string(p[:7]), "content")
		equal(c, "second read", must[int](c, "read")(unix.Read(fd, p)), 0)
	}),
	works("read", "moves the offset of its descriptor; pread does not", func(c *kase) {
		fd := c.file("f", "0123456789")
		must[int64](c, "lseek")(unix.Seek(fd, 2, unix.SEEK_SET))
		equal(c, "pread", c.readAt(fd, 3, 5), "567")
		p := make([]byte, 3)
		must[int](c, "read")(unix.Read(fd, p))
		equal(c, "read", string(p), "234")
		equal(c, "offset", must[int64](c, "lseek")(unix.Seek(fd, 0, unix.SEEK_CUR)), 5)
	}),
	works("read", "beyond the end gives nothing", func(c *kase) {
		fd := c.file("f", "content")
		equal(c, "content", c.readAt(fd, 10, 1<<40), "")
	}),
	works("read", "of no bytes gives none", func(c *kase) {
		equal(c, "content", c.readAt(c.file("f", "content"), 0, 0), "")
	}),
	works("read", "a hole reads as zeros", func(c *kase) {
		fd := c.file("f", "")
		c.writeAt(fd, "end", 300000)
		equal(c, "hole", c.readAt(fd, 100000, 1000) == zeros(100000), true)
		c.seesContent("f", zeros(300000)+"end")
	}),
	works("read", "a duplicate descriptor shares the offset, a second open does not", func(c *kase) {
		fd := c.file("f", "0123456789")
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		c.ok(err, "dup")
		c.after(func() { unix.Close(dup) })
		second := c.open("f", unix.O_RDONLY)
		must[int64](c, "lseek")(unix.Seek(fd, 4, unix.SEEK_SET))
		equal(c, "offset of the duplicate", must[int64](c, "lseek")(unix.Seek(dup, 0, unix.SEEK_CUR)), 4)
		equal(c, "offset of the second open", must[int64](c, "lseek")(unix.Seek(second, 0, unix.SEEK_CUR)), 0)
	}),
	refuse("read", unix.EBADF, "no descriptor", func(c *kase) error { return failure(unix.Read(c.closed(), make([]byte, 1))) }),
	refuse("read", unix.EBADF, "a descriptor for writing only", func(c *kase) error {
		c.put("f", "content")
		return failure(unix.Read(c.open("f", unix.O_WRONLY), make([]byte, 1)))
	}),
	refuse("read", unix.EISDIR, "a directory", func(c *kase) error {
		return failure(unix.Read(c.open(".", unix.O_RDONLY), make([]byte, 1)))
	}),
	refuse("read", unix.EINVAL, "at a negative offset", func(c *kase) error {
		return failure(unix.Pread(c.file("f", "content"), make([]byte, 1), -1))
	}),
	refuse("read", unix.EAGAIN, "an empty fifo, O_NONBLOCK", func(c *kase) error {
		c.fifo("p")
		r := c.open("p", unix.O_RDONLY|unix.O_NONBLOCK)
		c.open("p", unix.O_WRONLY|unix.O_NONBLOCK)
		return failure(unix.Read(r, make([]byte, 1)))
	}),
	refuse("read", unix.EINTR, "a signal while a fifo is empty", func(c *kase) error {
		c.fifo("p")
		fd := c.open("p", unix.O_RDWR)
		return c.interrupted(func() error { return failure(unix.Read(fd, make([]byte, 1))) })
	}),
}

var writeCases = []behaviour{
	works("write", "puts bytes at the offset and moves it; pwrite does not move it", func(c *kase) {
		fd := c.file("f", "0123456789")
		must[int64](c, "lseek")(unix.Seek(fd, 3, unix.SEEK_SET))
		c.write(fd, "ab")
		c.writeAt(fd, "XY", 8)
		equal(c, "offset", must[int64](c, "lseek")(unix.Seek(fd, 0, unix.SEEK_CUR)), 5)
		c.seesContent("f", "012ab567XY")
	}),
	works("write", "over what is there keeps the size", func(c *kase) {
		fd := c.file("f", letters(100000))
		c.writeAt(fd, "XXXX", 50000)
		want := letters(100000)
		c.seesContent("f", want[:50000]+"XXXX"+want[50004:])
	}),
	works("write", "past the end leaves a hole", func(c *kase) {
		fd := c.file("f", "begin")
		c.writeAt(fd, "end", 20000)
		c.seesContent("f", "begin"+zeros(19995)+"end")
	}),
	works("write", "of no bytes changes nothing, not even the times", func(c *kase) {
		fd := c.file("f", "content")
		before := c.stat("f")
		c.tick()
		n, err := unix.Write(fd, nil)
		c.ok(err, "write")
		equal(c, "bytes written", n, 0)
		c.writeAt(fd, "", 100)
		c.seesSize("f", 7)
		equal(c, "time of modification", c.stat("f").Mtim, before.Mtim)
	}),
	works("write", "at every size around a page, a block and a chunk is read as written", func(c *kase) {
		for _, n := range []int{1, 4095, 4096, 4097, 16383, 16384, 16385, 1<<20 - 1, 1 << 20, 1<<20 + 1, 2<<20 + 4097} {
			c.put("f", letters(n))
			c.seesContent("f", letters(n))
		}
	}),
	works("write", "O_APPEND: pwrite appends too, whatever the offset", func(c *kase) {
		c.put("f", "one")
		c.writeAt(c.open("f", unix.O_WRONLY|unix.O_APPEND), "two", 0)
		c.seesContent("f", "onetwo")
	}),
	works("write", "O_APPEND can be set and cleared by fcntl", func(c *kase) {
		fd := c.file("f", "one")
		must[int](c, "F_SETFL")(unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_APPEND))
		must[int64](c, "lseek")(unix.Seek(fd, 0, unix.SEEK_SET))
		c.write(fd, "two")
		must[int](c, "F_SETFL")(unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0))
		c.writeAt(fd, "X", 0)
		c.seesContent("f", "Xnetwo")
	}),
	works("write", "what one descriptor writes the others read at once", func(c *kase) {
		w, r := c.file("f", "content"), c.open("f", unix.O_RDONLY)
		for _, s := range []string{"one", "two", "tri"} {
			c.writeAt(w, s, 2)
			equal(c, "content", c.readAt(r, 3, 2), s)
		}
	}),
	refuse("write", unix.EBADF, "no descriptor", func(c *kase) error { return failure(unix.Write(c.closed(), []byte("x"))) }),
	refuse("write", unix.EBADF, "a descriptor for reading only", func(c *kase) error {
		c.put("f", "content")
		return failure(unix.Write(c.open("f", unix.O_RDONLY), []byte("x")))
	}),
	refuse("write", unix.EBADF, "a directory", func(c *kase) error {
		return failure(unix.Write(c.open(".", unix.O_RDONLY), []byte("x")))
	}),
	refuse("write", unix.EINVAL, "at a negative offset", func(c *kase) error {
		return failure(unix.Pwrite(c.file("f", "content"), []byte("x"), -1))
	}),
	refuse("write", unix.EFBIG, "at the largest file size", func(c *kase) error {
		return failure(unix.Pwrite(c.file("f", ""), []byte("x"), c.largestFile()))
	}),
	refuse("write", unix.EFBIG, "at the process's limit of file sizes", func(c *kase) error {
		c.put("f", "")
		p := c.peer()
		p.limit(unix.RLIMIT_FSIZE, 10000)
		fd := p.open("f", unix.O_WRONLY)
		n, _, err := p.call(unix.SYS_PWRITE64, fd, make([]byte, 100), 100, 9950)
		c.ok(err, "write up to the limit")
		equal(c, "bytes written up to the limit", n, 50)
		_, _, err = p.call(unix.SYS_PWRITE64, fd, make([]byte, 100), 100, 10000)
		c.seesSize("f", 10000)
		return err
	}),
	refuse("write", unix.EAGAIN, "a full fifo, O_NONBLOCK", func(c *kase) error {
		c.fifo("p")
		c.open("p", unix.O_RDONLY|unix.O_NONBLOCK)
		w := c.open("p", unix.O_WRONLY|unix.O_NONBLOCK)
		var err error
		for err == nil {
			_, err = unix.Write(w, make([]byte, 4096))
		}
		return err
	}),
	refuse("write", unix.EINTR, "a signal while a fifo is full", func(c *kase) error {
		c.fifo("p")
		fd := c.open("p", unix.O_RDWR|unix.O_NONBLOCK)
		var err error
		for err == nil {
			_, err = unix.Write(fd, make([]byte, 4096))
		}
		must[int](c, "F_SETFL")(unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0))
		return c.interrupted(func() error { return failure(unix.Write(fd, make([]byte, 4096))) })
	}),
	refuse("write", unix.EPIPE, "a fifo that nobody reads any more", func(c *kase) error {
		c.fifo("p")
		r := must[int](c, "open")(unix.Open("p", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0))
		w := c.open("p", unix.O_WRONLY|unix.O_NONBLOCK)
		c.close(r)
		return failure(unix.Write(w, []byte("x")))
	}),
}

// largestFile is the size that no file may exceed: found by asking, as each
// file system has its own.
func (c *kase) largestFile() int64 {
	fd := c.file("largest", "")
	low, high := int64(0), int64(longest)
	if unix.Ftruncate(fd, high) == nil {
		return high
	}
	for low+1 < high {
		if middle := low + (high-low)/2; unix.Ftruncate(fd, middle) == nil {
			low = middle
		} else {
			high = middle
		}
	}
	c.ok(unix.Ftruncate(fd, 0), "ftruncate")
	return low
}

// largestOffset is the largest that a descriptor can have here. The kernel says
// it, which may allow more than the file system allows sizes. The case ends
// where there is no limit but that of the type.
func (c *kase) largestOffset() int64 {
	fd := c.file("offsets", "")
	low, high := int64(0), int64(longest)
	if _, err := unix.Seek(fd, high, unix.SEEK_SET); err == nil {
		c.skip("the kernel allows every offset here")
	}
	for low+1 < high {
		middle := low + (high-low)/2
		if _, err := unix.Seek(fd, middle, unix.SEEK_SET); err == nil {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

var vectorCases = []behaviour{
	works("read", "readv fills its buffers in order", func(c *kase) {
		fd := c.file("f", "0123456789")
		must[int64](c, "lseek")(unix.Seek(fd, 0, unix.SEEK_SET))
		a, b := make([]byte, 3), make([]byte, 20)
		n, err := unix.Readv(fd, [][]byte{a, b})
		c.ok(err, "readv")
		equal(c, "bytes", n, 10)
		equal(c, "content", string(a)+string(b[:7]), "0123456789")
	}),
	works("write", "writev writes its buffers in order, as one", func(c *kase) {
		fd := c.file("f", "")
		n, err := unix.Writev(fd, [][]byte{[]byte("one"), {}, []byte("two"), []byte(letters(70000))})
		c.ok(err, "writev")
		equal(c, "bytes", n, 70006)
		c.seesContent("f", "onetwo"+letters(70000))
	}),
	works("read", "preadv and pwritev work at an offset and do not move it", func(c *kase) {
		fd := c.file("f", "0123456789")
		must[int](c, "pwritev")(unix.Pwritev(fd, [][]byte{[]byte("ab"), []byte("cd")}, 4))
		a, b := make([]byte, 3), make([]byte, 3)
		must[int](c, "preadv")(unix.Preadv(fd, [][]byte{a, b}, 3))
		equal(c, "content", string(a)+string(b), "3abcd8")
		equal(c, "offset", must[int64](c, "lseek")(unix.Seek(fd, 0, unix.SEEK_CUR)), 10)
	}),
	works("write", "pwritev2 RWF_APPEND appends", func(c *kase) {
		fd := c.file("f", "one")
		const rwfAppend = 0x10
		must[int](c, "pwritev2")(unix.Pwritev2(fd, [][]byte{[]byte("two")}, 0, rwfAppend))
		c.seesContent("f", "onetwo")
	}),
	works("write", "pwritev2 RWF_DSYNC and RWF_SYNC write as usual", func(c *kase) {
		fd := c.file("f", "")
		must[int](c, "pwritev2")(unix.Pwritev2(fd, [][]byte{[]byte("one")}, 0, unix.RWF_DSYNC))
		must[int](c, "pwritev2")(unix.Pwritev2(fd, [][]byte{[]byte("two")}, 3, unix.RWF_SYNC))
		c.seesContent("f", "onetwo")
	}),
	refuse("readv", unix.EINVAL, "more than 1024 buffers", func(c *kase) error {
		return failure(unix.Readv(c.file("f", ""), make([][]byte, 1025)))
	}),
	refuse("readv", unix.EINVAL, "writing more than 1024 buffers", func(c *kase) error {
		return failure(unix.Writev(c.file("f", ""), make([][]byte, 1025)))
	}),
	refuse("readv", unix.EINVAL, "a negative length", func(c *kase) error {
		v := []unix.Iovec{{Base: new(byte), Len: 1}, {Base: new(byte), Len: longest + 1}}
		return failure(raw(unix.SYS_READV, uintptr(c.file("f", "")), uintptr(unsafe.Pointer(&v[0])), 2))
	}),
	refuse("readv", unix.EOPNOTSUPP, "preadv2 with an unknown flag", func(c *kase) error {
		return failure(unix.Preadv2(c.file("f", "content"), [][]byte{make([]byte, 1)}, 0, 1<<20))
	}),
}

var seekCases = []behaviour{
	works("lseek", "counts from the start, the offset and the end, and may pass the end", func(c *kase) {
		fd := c.file("f", "0123456789")
		for _, s := range []struct {
			off    int64
			whence int
			want   int64
		}{{4, unix.SEEK_SET, 4}, {3, unix.SEEK_CUR, 7}, {-2, unix.SEEK_CUR, 5}, {-1, unix.SEEK_END, 9}, {1000, unix.SEEK_END, 1010}} {
			equal(c, "offset", must[int64](c, "lseek")(unix.Seek(fd, s.off, s.whence)), s.want)
		}
		c.seesSize("f", 10)
	}),
	works("lseek", "SEEK_DATA and SEEK_HOLE find data and holes", func(c *kase) {
		const mib = 1 << 20
		fd := c.file("f", "")
		c.writeAt(fd, letters(mib), 2*mib)
		c.ok(unix.Ftruncate(fd, 8*mib), "ftruncate")
		for _, s := range []struct {
			whence    int
			off, want int64
		}{
			{unix.SEEK_DATA, 0, 2 * mib}, {unix.SEEK_DATA, 2*mib + 5, 2*mib + 5}, {unix.SEEK_HOLE, 0, 0},
			{unix.SEEK_HOLE, 2 * mib, 3 * mib}, {unix.SEEK_HOLE, 5 * mib, 5 * mib},
		} {
			equal(c, "offset", must[int64](c, "lseek")(unix.Seek(fd, s.off, s.whence)), s.want)
		}
		c.refused(failure(unix.Seek(fd, 3*mib, unix.SEEK_DATA)), unix.ENXIO, "SEEK_DATA in the last hole")
	}),
	works("lseek", "SEEK_HOLE finds the end of a file without holes", func(c *kase) {
		fd := c.file("f", letters(10000))
		equal(c, "offset", must[int64](c, "lseek")(unix.Seek(fd, 0, unix.SEEK_HOLE)), 10000)
		equal(c, "offset", must[int64](c, "lseek")(unix.Seek(fd, 0, unix.SEEK_DATA)), 0)
	}),
	works("lseek", "SEEK_HOLE sees a hole that was punched", func(c *kase) {
		const block = 1 << 18
		fd := c.file("f", letters(4*block))
		c.ok(unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, block, block), "fallocate")
		equal(c, "hole", must[int64](c, "lseek")(unix.Seek(fd, 0, unix.SEEK_HOLE)), block)
		equal(c, "data after it", must[int64](c, "lseek")(unix.Seek(fd, block, unix.SEEK_DATA)), 2*block)
	}),
	refuse("lseek", unix.ENXIO, "SEEK_DATA at the end", func(c *kase) error {
		return failure(unix.Seek(c.file("f", "content"), 7, unix.SEEK_DATA))
	}),
	refuse("lseek", unix.ENXIO, "SEEK_HOLE beyond the end", func(c *kase) error {
		return failure(unix.Seek(c.file("f", "content"), 8, unix.SEEK_HOLE))
	}),
	refuse("lseek", unix.ENXIO, "SEEK_DATA of an empty file", func(c *kase) error {
		return failure(unix.Seek(c.file("f", ""), 0, unix.SEEK_DATA))
	}),
	refuse("lseek", unix.EBADF, "no descriptor", func(c *kase) error { return failure(unix.Seek(c.closed(), 0, unix.SEEK_SET)) }),
	refuse("lseek", unix.EINVAL, "to before the start", func(c *kase) error {
		return failure(unix.Seek(c.file("f", "content"), -8, unix.SEEK_END))
	}),
	refuse("lseek", unix.EINVAL, "an unknown whence", func(c *kase) error { return failure(unix.Seek(c.file("f", ""), 0, 99)) }),
	refuse("lseek", unix.EINVAL, "past what an offset can hold", func(c *kase) error {
		fd := c.file("f", "content")
		return failure(unix.Seek(fd, longest, unix.SEEK_END))
	}),
	refuse("lseek", unix.ESPIPE, "a fifo", func(c *kase) error {
		c.fifo("p")
		return failure(unix.Seek(c.open("p", unix.O_RDWR), 0, unix.SEEK_SET))
	}),
}

var syncCases = []behaviour{
	works("fsync", "of a file, for writing or for reading, and of a directory", func(c *kase) {
		c.ok(unix.Fsync(c.file("f", letters(100000))), "fsync")
		c.ok(unix.Fsync(c.open("f", unix.O_RDONLY)), "fsync of a descriptor for reading")
		c.ok(unix.Fsync(c.open(".", unix.O_RDONLY)), "fsync of a directory")
	}),
	works("fsync", "fdatasync of a file and of a directory", func(c *kase) {
		c.ok(unix.Fdatasync(c.file("f", letters(100000))), "fdatasync")
		c.ok(unix.Fdatasync(c.open(".", unix.O_RDONLY)), "fdatasync of a directory")
	}),
	works("fsync", "of a file that has no name any more", func(c *kase) {
		fd := c.file("f", "content")
		c.unlink("f")
		c.ok(unix.Fsync(fd), "fsync")
	}),
	works("sync", "syncfs of a file and of a directory", func(c *kase) {
		c.ok(unix.Syncfs(c.file("f", "content")), "syncfs")
		c.ok(unix.Syncfs(c.open(".", unix.O_RDONLY)), "syncfs of a directory")
	}),
	works("sync", "sync_file_range of a file", func(c *kase) {
		c.ok(unix.SyncFileRange(c.file("f", letters(10000)), 0, 5000, unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER), "sync_file_range")
	}),
	refuse("fsync", unix.EBADF, "no descriptor", func(c *kase) error { return unix.Fsync(c.closed()) }),
	refuse("fsync", unix.EBADF, "fdatasync of no descriptor", func(c *kase) error { return unix.Fdatasync(c.closed()) }),
	refuse("sync", unix.EBADF, "syncfs of no descriptor", func(c *kase) error { return unix.Syncfs(c.closed()) }),
	refuse("fsync", unix.EINVAL, "a fifo", func(c *kase) error {
		c.fifo("p")
		return unix.Fsync(c.open("p", unix.O_RDWR))
	}),
	works("close", "a descriptor that is closed is none any more; others of the file stay", func(c *kase) {
		fd, err := unix.Open("f", unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
		c.ok(err, "open")
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 500)
		c.ok(err, "dup")
		c.after(func() { unix.Close(dup) })
		c.close(fd)
		c.write(dup, "content")
		c.seesContent("f", "content")
	}),
	refuse("close", unix.EBADF, "no descriptor", func(c *kase) error { return unix.Close(c.closed()) }),
}
