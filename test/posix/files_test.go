package posix

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// here is the working directory, as *at calls name it.
const here = unix.AT_FDCWD

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }

// open opens, with mode 0644 for what it makes; the descriptor lasts as long
// as the case.
func (c *kase) open(name string, flags int) int {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0o644)
	if err != nil {
		c.fatalf("open %s: %s%s", name, errnoText(err), caller())
	}
	c.after(func() { unix.Close(fd) })
	return fd
}

// opens is open for a case about its error; what is opened is closed again.
func (c *kase) opens(name string, flags int) error {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0o644)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// file makes a file and opens it for reading and writing.
func (c *kase) file(name, content string) int {
	fd := c.open(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	c.write(fd, content)
	return fd
}

// put makes or overwrites a file.
func (c *kase) put(name, content string) {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o644)
	c.ok(err, "put "+short(name))
	c.write(fd, content)
	c.ok(unix.Close(fd), "put "+short(name))
}

func (c *kase) write(fd int, content string) {
	for p := []byte(content); len(p) > 0; {
		n, err := unix.Write(fd, p)
		c.ok(err, "write")
		p = p[n:]
	}
}

func (c *kase) writeAt(fd int, content string, off int64) {
	n, err := unix.Pwrite(fd, []byte(content), off)
	c.ok(err, "pwrite")
	equal(c, "bytes written", n, len(content))
}

// readAt reads up to n bytes.
func (c *kase) readAt(fd int, n int, off int64) string {
	p := make([]byte, n)
	got, err := unix.Pread(fd, p, off)
	c.ok(err, "pread")
	return string(p[:got])
}

func (c *kase) mkdir(name string, mode uint32) { c.ok(unix.Mkdir(name, mode), "mkdir "+short(name)) }
func (c *kase) symlink(target, name string)    { c.ok(unix.Symlink(target, name), "symlink "+short(name)) }
func (c *kase) link(old, name string)          { c.ok(unix.Link(old, name), "link "+short(name)) }
func (c *kase) rename(old, name string)        { c.ok(unix.Rename(old, name), "rename "+short(old)) }
func (c *kase) unlink(name string)             { c.ok(unix.Unlink(name), "unlink "+short(name)) }
func (c *kase) rmdir(name string)              { c.ok(unix.Rmdir(name), "rmdir "+short(name)) }
func (c *kase) chmod(name string, mode uint32) { c.ok(unix.Chmod(name, mode), "chmod "+short(name)) }
func (c *kase) chown(name string, uid, gid int) {
	c.ok(unix.Lchown(name, uid, gid), "chown "+short(name))
}
func (c *kase) truncate(name string, size int64) {
	c.ok(unix.Truncate(name, size), "truncate "+short(name))
}
func (c *kase) close(fd int) { c.ok(unix.Close(fd), "close") }
func (c *kase) setxattr(name, attr, value string) {
	c.ok(unix.Setxattr(name, attr, []byte(value), 0), "setxattr")
}
func (c *kase) mknod(name string, mode uint32) { c.ok(unix.Mknod(name, mode, 0), "mknod "+short(name)) }
func (c *kase) fifo(name string)               { c.mknod(name, unix.S_IFIFO|0o666) }
func (c *kase) whiteDevice(name string) {
	c.ok(unix.Mknod(name, unix.S_IFCHR|0o666, nullDevice), "mknod "+name)
}

// nullDevice is /dev/null.
var nullDevice = int(unix.Mkdev(1, 3))

// stat is lstat(2) through the path that the case works with.
func (c *kase) stat(name string) unix.Stat_t {
	var st unix.Stat_t
	c.ok(unix.Lstat(name, &st), "lstat "+short(name))
	return st
}

func (c *kase) fstat(fd int) unix.Stat_t {
	var st unix.Stat_t
	c.ok(unix.Fstat(fd, &st), "fstat")
	return st
}

func (c *kase) statfs() unix.Statfs_t {
	var st unix.Statfs_t
	c.ok(unix.Statfs(".", &st), "statfs")
	return st
}

// pipe makes a pipe that lasts as long as the case.
func (c *kase) pipe() (r, w int) {
	var p [2]int
	c.ok(unix.Pipe2(p[:], unix.O_CLOEXEC), "pipe")
	c.after(func() { unix.Close(p[0]); unix.Close(p[1]) })
	return p[0], p[1]
}

// devNull is a descriptor of a device that is not on the file system.
func (c *kase) devNull() int { return c.open("/dev/null", unix.O_RDWR) }

// closed is a number that is no descriptor.
func (c *kase) closed() int { return 1 << 20 }

// running copies a program into the directory and runs it until the case ends.
func (c *kase) running(name string) {
	c.program(name)
	cmd := exec.Command("./" + name)
	cmd.Dir = c.dir
	in, err := cmd.StdinPipe()
	c.ok(err, "pipe")
	out, err := cmd.StdoutPipe()
	c.ok(err, "pipe")
	if err := cmd.Start(); err != nil {
		c.fatalf("run the program %s: %v", name, err)
	}
	c.after(func() {
		in.Close()
		cmd.Wait()
	})
	_, err = io.WriteString(in, "x")
	c.ok(err, "write to the program")
	_, err = io.ReadFull(out, make([]byte, 1))
	c.ok(err, "read from the program")
}

// program copies cat(1) into the directory.
func (c *kase) program(name string) {
	if c.statfs().Flags&unix.ST_NOEXEC != 0 {
		c.skip("nothing can be run here: the file system is mounted noexec")
	}
	cat, err := exec.LookPath("cat")
	c.ok(err, "find cat")
	content, err := os.ReadFile(cat)
	c.ok(err, "read cat")
	c.put(name, string(content))
	c.chmod(name, 0o755)
}

// short shortens what would fill the screen.
func short(s string) string {
	if len(s) <= 40 {
		return s
	}
	return s[:20] + "..." + s[len(s)-10:]
}

// letters is a content of n bytes in which every place differs from those
// around it.
func letters(n int) string {
	const pattern = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ."
	return strings.Repeat(pattern, n/len(pattern)+1)[:n]
}

// zeros is a content of n zero bytes.
func zeros(n int) string { return string(make([]byte, n)) }
