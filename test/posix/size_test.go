package posix

import (
	"strings"

	"golang.org/x/sys/unix"
)

var truncateCases = []behaviour{
	works("truncate", "shortens, and what comes back later is zeros", func(c *kase) {
		for _, n := range []int64{0, 1, 100, 4096, 5000, 16384, 70000} {
			c.put("f", letters(100000))
			c.truncate("f", n)
			c.seesContent("f", letters(100000)[:n])
			c.truncate("f", 100000)
			c.seesContent("f", letters(100000)[:n]+zeros(100000-int(n)))
		}
	}),
	works("truncate", "lengthens with zeros", func(c *kase) {
		c.put("f", "content")
		c.truncate("f", 200000)
		c.seesContent("f", "content"+zeros(199993))
	}),
	works("truncate", "of a descriptor does the same", func(c *kase) {
		fd := c.file("f", letters(100000))
		c.ok(unix.Ftruncate(fd, 50000), "ftruncate")
		c.seesContent("f", letters(50000))
		c.ok(unix.Ftruncate(fd, 60000), "ftruncate")
		c.seesContent("f", letters(50000)+zeros(10000))
		equal(c, "offset", must[int64](c, "lseek")(unix.Seek(fd, 0, unix.SEEK_CUR)), 100000)
	}),
	works("truncate", "follows a symbolic link", func(c *kase) {
		c.put("f", "content")
		c.symlink("f", "s")
		c.truncate("s", 3)
		c.seesContent("f", "con")
	}),
	works("truncate", "of a descriptor needs no permission any more", func(c *kase) {
		c.own()
		c.as(alice, func() {
			fd := c.file("f", "content")
			c.chmod("f", 0)
			c.ok(unix.Ftruncate(fd, 3), "ftruncate")
		})
		c.seesSize("f", 3)
	}),
	works("truncate", "frees the blocks", func(c *kase) {
		fd := c.file("f", letters(1<<20))
		c.ok(unix.Fsync(fd), "fsync")
		if c.fstat(fd).Blocks < 1024 {
			c.skip("st_blocks is not the space that a file takes here")
		}
		c.ok(unix.Ftruncate(fd, 0), "ftruncate")
		equal(c, "blocks", c.fstat(fd).Blocks, 0)
	}),
	refuse("truncate", unix.EACCES, "without permission to write", func(c *kase) error {
		c.put("f", "content")
		return c.tries(alice, func() error { return unix.Truncate("f", 0) })
	}),
	refuse("truncate", unix.EFBIG, "beyond the largest file size", func(c *kase) error {
		c.put("f", "")
		if most := c.largestFile(); most < longest {
			return unix.Truncate("f", most+1)
		}
		c.skip("files may be as large as an offset can say")
		return nil
	}),
	refuse("truncate", unix.EFBIG, "beyond the process's limit of file sizes", func(c *kase) error {
		c.put("f", "")
		p := c.peer()
		p.limit(unix.RLIMIT_FSIZE, 10000)
		_, _, err := p.call(unix.SYS_FTRUNCATE, p.open("f", unix.O_WRONLY), 10000)
		c.ok(err, "ftruncate to the limit")
		_, _, err = p.call(unix.SYS_TRUNCATE, "f", 10001)
		c.seesSize("f", 10000)
		return err
	}),
	refuse("truncate", unix.EINVAL, "to a negative size", func(c *kase) error {
		c.put("f", "")
		return unix.Truncate("f", -1)
	}),
	refuse("truncate", unix.EINVAL, "of a descriptor to a negative size", func(c *kase) error { return unix.Ftruncate(c.file("f", ""), -1) }),
	refuse("truncate", unix.EINVAL, "a fifo", func(c *kase) error {
		c.fifo("p")
		return unix.Truncate("p", 0)
	}),
	refuse("truncate", unix.EINVAL, "of a descriptor for reading only", func(c *kase) error {
		c.put("f", "")
		return unix.Ftruncate(c.open("f", unix.O_RDONLY), 0)
	}),
	refuse("truncate", unix.EINVAL, "of a descriptor of a directory", func(c *kase) error {
		return unix.Ftruncate(c.open(".", unix.O_RDONLY), 0)
	}),
	refuse("truncate", unix.EISDIR, "a directory", func(c *kase) error {
		c.mkdir("d", 0o755)
		return unix.Truncate("d", 0)
	}),
	refuse("truncate", unix.EBADF, "no descriptor", func(c *kase) error { return unix.Ftruncate(c.closed(), 0) }),
	refuse("truncate", unix.ETXTBSY, "a running program", func(c *kase) error {
		c.running("cat")
		return unix.Truncate("cat", 0)
	}),
}

const (
	keepSize = unix.FALLOC_FL_KEEP_SIZE
	punch    = unix.FALLOC_FL_PUNCH_HOLE
	zero     = unix.FALLOC_FL_ZERO_RANGE
	collapse = unix.FALLOC_FL_COLLAPSE_RANGE
	insert   = unix.FALLOC_FL_INSERT_RANGE
)

var allocateCases = []behaviour{
	works("fallocate", "lengthens with zeros and keeps what is there", func(c *kase) {
		fd := c.file("f", "content")
		c.ok(unix.Fallocate(fd, 0, 3, 100000), "fallocate")
		c.seesContent("f", "content"+zeros(99996))
	}),
	works("fallocate", "inside the file changes neither size nor content", func(c *kase) {
		fd := c.file("f", letters(100000))
		c.ok(unix.Fallocate(fd, 0, 1000, 1000), "fallocate")
		c.seesContent("f", letters(100000))
	}),
	works("fallocate", "KEEP_SIZE keeps the size", func(c *kase) {
		fd := c.file("f", "content")
		c.ok(unix.Fallocate(fd, keepSize, 0, 100000), "fallocate")
		c.seesContent("f", "content")
	}),
	works("fallocate", "PUNCH_HOLE leaves zeros and the size", func(c *kase) {
		fd := c.file("f", letters(100000))
		c.ok(unix.Fallocate(fd, punch|keepSize, 5000, 50001), "fallocate")
		c.seesContent("f", letters(5000)+zeros(50001)+letters(100000)[55001:])
	}),
	works("fallocate", "PUNCH_HOLE past the end changes nothing", func(c *kase) {
		fd := c.file("f", letters(10000))
		c.ok(unix.Fallocate(fd, punch|keepSize, 5000, 50000), "fallocate")
		c.ok(unix.Fallocate(fd, punch|keepSize, 50000, 50000), "fallocate beyond the end")
		c.seesContent("f", letters(5000)+zeros(5000))
	}),
	works("fallocate", "PUNCH_HOLE frees blocks", func(c *kase) {
		fd := c.file("f", letters(1<<20))
		c.ok(unix.Fsync(fd), "fsync")
		before := c.fstat(fd).Blocks
		c.ok(unix.Fallocate(fd, punch|keepSize, 0, 1<<19), "fallocate")
		if got := c.fstat(fd).Blocks; got > before-1000 {
			c.failf("%d blocks after the hole, %d before", got, before)
		}
	}),
	works("fallocate", "ZERO_RANGE leaves zeros and lengthens", func(c *kase) {
		fd := c.file("f", letters(10000))
		c.ok(unix.Fallocate(fd, zero, 5000, 50000), "fallocate")
		c.seesContent("f", letters(5000)+zeros(50000))
	}),
	works("fallocate", "ZERO_RANGE|KEEP_SIZE keeps the size", func(c *kase) {
		fd := c.file("f", letters(10000))
		c.ok(unix.Fallocate(fd, zero|keepSize, 5000, 50000), "fallocate")
		c.seesContent("f", letters(5000)+zeros(5000))
	}),
	works("fallocate", "COLLAPSE_RANGE takes a piece out", func(c *kase) {
		block := c.shifts(collapse)
		fd := c.file("f", letters(10*block))
		c.ok(unix.Fallocate(fd, collapse, int64(2*block), int64(3*block)), "fallocate")
		c.seesContent("f", letters(2*block)+letters(10 * block)[5*block:])
	}),
	works("fallocate", "INSERT_RANGE puts a hole in", func(c *kase) {
		block := c.shifts(insert)
		fd := c.file("f", letters(10*block))
		c.ok(unix.Fallocate(fd, insert, int64(2*block), int64(3*block)), "fallocate")
		c.seesContent("f", letters(2*block)+zeros(3*block)+letters(10 * block)[2*block:])
	}),
	refuse("fallocate", unix.EBADF, "no descriptor", func(c *kase) error { return unix.Fallocate(c.closed(), 0, 0, 1) }),
	refuse("fallocate", unix.EBADF, "a descriptor for reading only", func(c *kase) error {
		c.put("f", "")
		return unix.Fallocate(c.open("f", unix.O_RDONLY), 0, 0, 1)
	}),
	refuse("fallocate", unix.EFBIG, "beyond the largest file size", func(c *kase) error {
		return unix.Fallocate(c.file("f", ""), 0, longest-10, 11)
	}),
	refuse("fallocate", unix.EFBIG, "beyond the process's limit of file sizes", func(c *kase) error {
		c.put("f", "")
		p := c.peer()
		p.limit(unix.RLIMIT_FSIZE, 10000)
		_, _, err := p.call(unix.SYS_FALLOCATE, p.open("f", unix.O_WRONLY), 0, 0, 10001)
		c.seesSize("f", 0)
		return err
	}),
	refuse("fallocate", unix.EINVAL, "no length", func(c *kase) error { return unix.Fallocate(c.file("f", ""), 0, 0, 0) }),
	refuse("fallocate", unix.EINVAL, "a negative length", func(c *kase) error { return unix.Fallocate(c.file("f", ""), 0, 0, -1) }),
	refuse("fallocate", unix.EINVAL, "a negative offset", func(c *kase) error { return unix.Fallocate(c.file("f", ""), 0, -1, 10) }),
	refuse("fallocate", unix.EINVAL, "COLLAPSE_RANGE that is not a multiple of blocks", func(c *kase) error {
		c.shifts(collapse)
		return unix.Fallocate(c.file("f", letters(100000)), collapse, 100, 4096)
	}),
	refuse("fallocate", unix.EINVAL, "COLLAPSE_RANGE up to the end", func(c *kase) error {
		block := int64(c.shifts(collapse))
		return unix.Fallocate(c.file("f", letters(int(4*block))), collapse, 2*block, 2*block)
	}),
	refuse("fallocate", unix.EINVAL, "INSERT_RANGE at the end", func(c *kase) error {
		block := int64(c.shifts(insert))
		return unix.Fallocate(c.file("f", letters(int(4*block))), insert, 4*block, block)
	}),
	refuse("fallocate", unix.EOPNOTSUPP, "PUNCH_HOLE without KEEP_SIZE", func(c *kase) error {
		return unix.Fallocate(c.file("f", letters(10000)), punch, 0, 4096)
	}),
	refuse("fallocate", unix.EOPNOTSUPP, "an unknown mode", func(c *kase) error {
		return unix.Fallocate(c.file("f", ""), 1<<20, 0, 4096)
	}),
	refuse("fallocate", unix.ESPIPE, "a fifo", func(c *kase) error {
		c.fifo("p")
		return unix.Fallocate(c.open("p", unix.O_RDWR), 0, 0, 1)
	}),
	refuse("fallocate", unix.ENODEV, "a device", func(c *kase) error { return unix.Fallocate(c.devNull(), 0, 0, 1) }),
}

// shifts ends the case where a file system cannot take pieces out of files, or
// put them in, which the page allows. Else it returns the size of a block.
func (c *kase) shifts(mode uint32) int {
	block := c.statfs().Bsize
	if unix.Fallocate(c.file("try", letters(int(4*block))), mode, block, block) == unix.EOPNOTSUPP {
		c.skip("this file system has no COLLAPSE_RANGE and INSERT_RANGE")
	}
	return int(block)
}

var bigCases = []behaviour{
	works("write", "the last byte of the largest file can be written and read", func(c *kase) {
		most := c.largestFile()
		fd := c.file("f", "")
		c.writeAt(fd, "x", most-1)
		c.seesSize("f", most)
		equal(c, "content", c.readAt(fd, 10, most-1), "x")
		equal(c, "content before it", c.readAt(fd, 3, most-3), "\x00\x00x")
	}),
	works("write", "what passes the largest size is cut short", func(c *kase) {
		most := c.largestFile()
		if most == longest {
			c.skip("files may be as large as an offset can say")
		}
		fd := c.file("f", "")
		n, err := unix.Pwrite(fd, []byte("12345678"), most-5)
		c.ok(err, "pwrite")
		equal(c, "bytes written", n, 5)
		c.seesSize("f", most)
	}),
	works("write", "around every power of two up to the largest size is read as written", func(c *kase) {
		most := c.largestFile()
		fd := c.file("f", "")
		for at := int64(1 << 20); at < most-100; at *= 4 {
			c.writeAt(fd, "0123456789", at-5)
			equal(c, "content", c.readAt(fd, 10, at-5), "0123456789")
		}
	}),
	works("stat", "a large hole takes no space", func(c *kase) {
		fd := c.file("f", "")
		c.ok(unix.Ftruncate(fd, 1<<40), "ftruncate")
		st := c.fstat(fd)
		equal(c, "size", st.Size, 1<<40)
		equal(c, "blocks", st.Blocks, 0)
	}),
	refuse("lseek", unix.EINVAL, "beyond the largest offset", func(c *kase) error {
		return failure(unix.Seek(c.file("f", ""), c.largestOffset()+1, unix.SEEK_SET))
	}),
	works("mkdir", "a tree of 300 levels can be made, used and removed", func(c *kase) {
		fd := c.open(".", unix.O_RDONLY)
		name := strings.Repeat("d", 100)
		for range 300 {
			c.ok(unix.Mkdirat(fd, name, 0o755), "mkdirat")
			next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			c.ok(err, "openat")
			c.after(func() { unix.Close(next) })
			fd = next
		}
		f, err := unix.Openat(fd, "f", unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
		c.ok(err, "create at the bottom")
		c.write(f, "content")
		c.close(f)
		c.ok(unix.Unlinkat(fd, "f", 0), "unlink at the bottom")
		for range 300 {
			up, err := unix.Openat(fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			c.ok(err, "open ..")
			c.after(func() { unix.Close(up) })
			c.ok(unix.Unlinkat(up, name, unix.AT_REMOVEDIR), "rmdir")
			fd = up
		}
		c.seesNames(".")
	}),
}
