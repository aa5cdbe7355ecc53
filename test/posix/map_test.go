package posix

import (
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// mapped maps the start of a file for reading and writing.
func (c *kase) mapped(fd, length, flags int) []byte {
	m, err := unix.Mmap(fd, 0, length, unix.PROT_READ|unix.PROT_WRITE, flags)
	c.ok(err, "mmap")
	c.after(func() { unix.Munmap(m) })
	return m
}

func mmapError(fd int, offset int64, length, prot, flags int) error {
	m, err := unix.Mmap(fd, offset, length, prot, flags)
	if err == nil {
		unix.Munmap(m)
	}
	return err
}

// faults reports whether f is ended by SIGBUS or SIGSEGV.
func faults(f func()) (yes bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(interface{ Addr() uintptr }); !ok {
				panic(r)
			}
			yes = true
		}
	}()
	f()
	return false
}

const (
	page      = 4096
	readWrite = unix.PROT_READ | unix.PROT_WRITE
)

var mmapCases = []behaviour{
	works("mmap", "shared: a store is read at once, and by others after msync", func(c *kase) {
		fd := c.file("f", letters(3*page))
		m := c.mapped(fd, 3*page, unix.MAP_SHARED)
		equal(c, "content", string(m), letters(3*page))
		copy(m[page:], "stored")
		equal(c, "content", c.readAt(fd, 6, page), "stored")
		c.ok(unix.Msync(m, unix.MS_SYNC), "msync")
		want := letters(3 * page)
		c.seesContent("f", want[:page]+"stored"+want[page+6:])
	}),
	works("mmap", "shared: what is written is in the mapping at once", func(c *kase) {
		fd := c.file("f", letters(2*page))
		m := c.mapped(fd, 2*page, unix.MAP_SHARED)
		c.writeAt(fd, "written", 100)
		equal(c, "mapping", string(m[100:107]), "written")
	}),
	works("mmap", "shared: two mappings of a file are one memory", func(c *kase) {
		c.put("f", letters(page))
		a := c.mapped(c.open("f", unix.O_RDWR), page, unix.MAP_SHARED)
		b := c.mapped(c.open("f", unix.O_RDWR), page, unix.MAP_SHARED)
		copy(a, "stored")
		equal(c, "other mapping", string(b[:6]), "stored")
	}),
	works("mmap", "shared: stores outlast the mapping, without msync", func(c *kase) {
		fd := c.file("f", letters(page))
		m, err := unix.Mmap(fd, 0, page, readWrite, unix.MAP_SHARED)
		c.ok(err, "mmap")
		copy(m, "stored")
		c.ok(unix.Munmap(m), "munmap")
		equal(c, "content", c.readAt(fd, 6, 0), "stored")
		c.ok(unix.Fsync(fd), "fsync")
		c.seesContent("f", "stored"+letters(page)[6:])
	}),
	works("mmap", "shared: stores into a hole are kept", func(c *kase) {
		fd := c.file("f", "")
		c.ok(unix.Ftruncate(fd, 1<<20), "ftruncate")
		m := c.mapped(fd, 1<<20, unix.MAP_SHARED)
		copy(m[500000:], "stored")
		c.ok(unix.Msync(m, unix.MS_SYNC), "msync")
		c.seesContent("f", zeros(500000)+"stored"+zeros(1<<20-500006))
	}),
	works("mmap", "private: a store is seen by nobody else", func(c *kase) {
		fd := c.file("f", letters(page))
		m := c.mapped(fd, page, unix.MAP_PRIVATE)
		copy(m, "stored")
		equal(c, "mapping", string(m[:6]), "stored")
		c.seesContent("f", letters(page))
	}),
	works("mmap", "private: a descriptor for reading is enough", func(c *kase) {
		c.put("f", letters(page))
		m := c.mapped(c.open("f", unix.O_RDONLY), page, unix.MAP_PRIVATE)
		copy(m, "stored")
		c.seesContent("f", letters(page))
	}),
	works("mmap", "outlasts the descriptor and the name", func(c *kase) {
		c.put("f", letters(page))
		fd := must[int](c, "open")(unix.Open("f", unix.O_RDWR|unix.O_CLOEXEC, 0))
		m := c.mapped(fd, page, unix.MAP_SHARED)
		c.close(fd)
		c.unlink("f")
		equal(c, "mapping", string(m), letters(page))
		copy(m, "stored")
		c.ok(unix.Msync(m, unix.MS_SYNC), "msync")
	}),
	works("mmap", "the rest of the last page is zeros, and is not kept", func(c *kase) {
		fd := c.file("f", "content")
		m := c.mapped(fd, page, unix.MAP_SHARED)
		equal(c, "rest", string(m[7:]), zeros(page-7))
		copy(m[7:], "beyond")
		c.ok(unix.Msync(m, unix.MS_SYNC), "msync")
		c.seesContent("f", "content")
		c.ok(unix.Ftruncate(fd, 20), "ftruncate")
		c.seesContent("f", "content"+zeros(13))
	}),
	works("mmap", "SIGBUS beyond the page of the end", func(c *kase) {
		m := c.mapped(c.file("f", "content"), 3*page, unix.MAP_SHARED)
		equal(c, "fault in the last page", faults(func() { m[page-1] = 1 }), false)
		equal(c, "fault beyond it", faults(func() { m[page] = 1 }), true)
		equal(c, "fault beyond it", faults(func() { _ = string(m[2*page : 2*page+1]) }), true)
	}),
	works("mmap", "SIGBUS where the file was truncated, until it grows again", func(c *kase) {
		fd := c.file("f", letters(3*page))
		m := c.mapped(fd, 3*page, unix.MAP_SHARED)
		m[2*page] = 'X'
		c.ok(unix.Ftruncate(fd, page), "ftruncate")
		equal(c, "fault", faults(func() { m[2*page] = 'X' }), true)
		equal(c, "fault before it", faults(func() { m[0] = 'X' }), false)
		c.ok(unix.Ftruncate(fd, 3*page), "ftruncate")
		equal(c, "content where the file has grown", m[2*page], 0)
	}),
	works("mmap", "SIGSEGV for a store to what is mapped for reading", func(c *kase) {
		m, err := unix.Mmap(c.file("f", letters(page)), 0, page, unix.PROT_READ, unix.MAP_SHARED)
		c.ok(err, "mmap")
		c.after(func() { unix.Munmap(m) })
		equal(c, "fault", faults(func() { m[0] = 'X' }), true)
	}),
	works("mmap", "at an offset", func(c *kase) {
		m, err := unix.Mmap(c.file("f", letters(5*page)), 3*page, page, readWrite, unix.MAP_SHARED)
		c.ok(err, "mmap")
		c.after(func() { unix.Munmap(m) })
		equal(c, "content", string(m), letters(5 * page)[3*page:4*page])
	}),
	works("mmap", "of a program that is run from the directory", func(c *kase) { c.running("cat") }),
	works("mmap", "between processes: a store is seen by the other, after msync through another mount", func(c *kase) {
		fd := c.file("f", letters(page))
		m := c.mapped(fd, page, unix.MAP_SHARED)
		copy(m, "stored")
		c.ok(unix.Msync(m, unix.MS_SYNC), "msync")
		p := c.peer()
		theirs := p.open("f", unix.O_RDONLY)
		c.see(func() string {
			_, data, err := p.call(unix.SYS_PREAD64, theirs, make([]byte, 6), 6, 0)
			c.ok(err, "pread")
			return differs("content", string(data[1]), "stored")
		})
	}),
	refuse("mmap", unix.EACCES, "a descriptor for writing only", func(c *kase) error {
		c.put("f", "content")
		return mmapError(c.open("f", unix.O_WRONLY), 0, page, unix.PROT_READ, unix.MAP_PRIVATE)
	}),
	refuse("mmap", unix.EACCES, "shared for writing, of a descriptor for reading", func(c *kase) error {
		c.put("f", "content")
		return mmapError(c.open("f", unix.O_RDONLY), 0, page, readWrite, unix.MAP_SHARED)
	}),
	refuse("mmap", unix.EBADF, "no descriptor", func(c *kase) error {
		return mmapError(c.closed(), 0, page, unix.PROT_READ, unix.MAP_SHARED)
	}),
	refuse("mmap", unix.EEXIST, "MAP_FIXED_NOREPLACE over a mapping", func(c *kase) error {
		fd := c.file("f", letters(page))
		m := c.mapped(fd, page, unix.MAP_SHARED)
		return failure(raw(unix.SYS_MMAP, addressOf(m), page, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_FIXED_NOREPLACE, uintptr(fd), 0))
	}),
	refuse("mmap", unix.EINVAL, "no length", func(c *kase) error {
		return failure(raw(unix.SYS_MMAP, 0, 0, unix.PROT_READ, unix.MAP_SHARED, uintptr(c.file("f", "content")), 0))
	}),
	refuse("mmap", unix.EINVAL, "an offset that is no multiple of pages", func(c *kase) error {
		return mmapError(c.file("f", "content"), 100, page, unix.PROT_READ, unix.MAP_SHARED)
	}),
	refuse("mmap", unix.EINVAL, "neither shared nor private", func(c *kase) error {
		return mmapError(c.file("f", "content"), 0, page, unix.PROT_READ, 0)
	}),
	refuse("mmap", unix.ENODEV, "a directory", func(c *kase) error {
		return mmapError(c.open(".", unix.O_RDONLY), 0, page, unix.PROT_READ, unix.MAP_SHARED)
	}),
	refuse("mmap", unix.ENODEV, "a fifo", func(c *kase) error {
		c.fifo("p")
		return mmapError(c.open("p", unix.O_RDWR), 0, page, unix.PROT_READ, unix.MAP_SHARED)
	}),
	refuse("mmap", unix.ENOMEM, "more than the address space", func(c *kase) error {
		return failure(raw(unix.SYS_MMAP, 0, 1<<60, unix.PROT_READ, unix.MAP_SHARED, uintptr(c.file("f", "content")), 0))
	}),
	refuse("mmap", unix.EPERM, "PROT_EXEC on a noexec mount", func(c *kase) error {
		c.mkdir("m", 0o755)
		c.put("m/f", "content")
		c.bind("m", unix.MS_NOEXEC)
		return mmapError(c.open("m/f", unix.O_RDONLY), 0, page, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	}),
	works("msync", "MS_ASYNC and MS_INVALIDATE", func(c *kase) {
		m := c.mapped(c.file("f", letters(page)), page, unix.MAP_SHARED)
		copy(m, "stored")
		c.ok(unix.Msync(m, unix.MS_ASYNC), "msync MS_ASYNC")
		c.ok(unix.Msync(m, unix.MS_SYNC|unix.MS_INVALIDATE), "msync MS_INVALIDATE")
		equal(c, "content", string(m[:6]), "stored")
	}),
	refuse("msync", unix.EBUSY, "MS_INVALIDATE of locked memory", func(c *kase) error {
		m := c.mapped(c.file("f", letters(page)), page, unix.MAP_SHARED)
		c.ok(unix.Mlock(m), "mlock")
		return unix.Msync(m, unix.MS_SYNC|unix.MS_INVALIDATE)
	}),
	refuse("msync", unix.EINVAL, "MS_ASYNC and MS_SYNC", func(c *kase) error {
		return unix.Msync(c.mapped(c.file("f", letters(page)), page, unix.MAP_SHARED), unix.MS_SYNC|unix.MS_ASYNC)
	}),
	refuse("msync", unix.EINVAL, "an address within a page", func(c *kase) error {
		return unix.Msync(c.mapped(c.file("f", letters(page)), page, unix.MAP_SHARED)[1:], unix.MS_SYNC)
	}),
	refuse("msync", unix.ENOMEM, "memory that is not mapped", func(c *kase) error {
		return failure(raw(unix.SYS_MSYNC, 0, page, unix.MS_SYNC))
	}),
}
