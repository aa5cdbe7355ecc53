package posix

import (
	"bytes"
	"errors"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// aioRequest is struct iocb of linux/aio_abi.h, as far as it is used.
type aioRequest struct {
	_      uint64 // handed back with the event
	_      [2]uint32
	opcode uint16
	_      int16
	fd     uint32
	buf    uint64
	bytes  uint64
	off    int64
	_      [2]uint64
}

// aioEvent is struct io_event.
type aioEvent struct {
	data, request uint64
	result, _     int64
}

const aioWrite = 1 // IOCB_CMD_PWRITE

// aio opens a context for asynchronous requests, for the rest of the case.
func (c *kase) aio() *uint64 {
	context := new(uint64)
	_, err := raw(unix.SYS_IO_SETUP, 16, uintptr(unsafe.Pointer(context)))
	c.ok(err, "io_setup")
	c.after(func() { raw(unix.SYS_IO_DESTROY, uintptr(*context)) })
	return context
}

// writeAsync writes p, which is aligned, and waits for the completion.
func (c *kase) writeAsync(context *uint64, fd int, p []byte, off int64) {
	request := &aioRequest{opcode: aioWrite, fd: uint32(fd), buf: uint64(addressOf(p)), bytes: uint64(len(p)), off: off}
	list := &[1]*aioRequest{request}
	_, err := raw(unix.SYS_IO_SUBMIT, uintptr(*context), 1, uintptr(unsafe.Pointer(list)))
	c.ok(err, "io_submit")
	var event aioEvent
	n := must[int](c, "io_getevents")(raw(unix.SYS_IO_GETEVENTS, uintptr(*context), 1, 1, uintptr(unsafe.Pointer(&event)), 0))
	equal(c, "events", n, 1)
	equal(c, "result", event.result, int64(len(p)))
}

// directReaders has threads read the file all the time while write is called,
// once for each round, and wants that what was written is read afterwards. The
// readers fill the page cache, past which the writes go.
func (c *kase) directReaders(write func(fd int, p []byte)) {
	const size, rounds = 640 << 10, 200
	c.put("f", letters(size))
	if errors.Is(c.opens("f", unix.O_RDWR|unix.O_DIRECT), unix.EINVAL) {
		c.skip("the file system has no direct I/O")
	}
	p := must[[]byte](c, "mmap")(unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))
	c.after(func() { unix.Munmap(p) })
	var over atomic.Bool
	c.together(3, func(i int) {
		if i > 0 {
			fd, buf := c.open("f", unix.O_RDONLY), make([]byte, size)
			for !over.Load() {
				must[int](c, "pread")(unix.Pread(fd, buf, 0))
			}
			return
		}
		defer over.Store(true)
		direct, plain, got := c.open("f", unix.O_RDWR|unix.O_DIRECT), c.open("f", unix.O_RDONLY), make([]byte, size)
		for round := range rounds {
			copy(p, bytes.Repeat([]byte{byte(1 + round%250)}, size))
			write(direct, p)
			must[int](c, "pread")(unix.Pread(plain, got, 0))
			if at := mismatch(got, p); at >= 0 {
				c.fatalf("round %d: at %d there is %d after %d was written", round, at, got[at], p[at])
			}
		}
	})
}

// mismatch returns where two slices of one length differ first, or -1.
func mismatch(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

var directCases = []behaviour{
	works("write", "O_DIRECT: what was written is read through the page cache, though others read meanwhile", func(c *kase) {
		c.directReaders(func(fd int, p []byte) {
			equal(c, "written", must[int](c, "pwrite")(unix.Pwrite(fd, p, 0)), len(p))
		})
	}),
	works("io_submit", "O_DIRECT: what was written is read through the page cache, though others read meanwhile", func(c *kase) {
		context := c.aio()
		c.directReaders(func(fd int, p []byte) { c.writeAsync(context, fd, p, 0) })
	}),
}
