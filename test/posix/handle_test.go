package posix

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// handle returns the file handle of a name.
func (c *kase) handle(name string) unix.FileHandle {
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, name, 0)
	if errors.Is(err, unix.EOPNOTSUPP) {
		c.skip("the file system has no file handles")
	}
	c.ok(err, "name_to_handle_at "+name)
	return h
}

// byHandle opens what a handle names, through the path for looking: on a disk
// that is mounted twice the kernel of that mount may never have met the file.
func (c *kase) byHandle(h unix.FileHandle, flags int) (int, error) {
	return c.byHandleAt(c.view, h, flags)
}

func (c *kase) byHandleAt(mount int, h unix.FileHandle, flags int) (int, error) {
	fd, err := unix.OpenByHandleAt(mount, h, flags|unix.O_CLOEXEC)
	if errors.Is(err, unix.EPERM) {
		c.skip("opening by handle is not permitted here")
	}
	if err == nil {
		c.after(func() { unix.Close(fd) })
	}
	return fd, err
}

var handleCases = []behaviour{
	works("open_by_handle_at", "a handle opens its file, whatever its name is by now", func(c *kase) {
		c.mkdir("d", 0o755)
		for i, change := range []func(name string){
			func(string) {},
			func(name string) { c.rename(name, "d/renamed") },
			func(name string) { c.link(name, name+".link"); c.unlink(name) },
			func(name string) { c.rename("d", "moved"); c.rename(name, "moved/inside") },
		} {
			name := fmt.Sprint("f", i)
			c.put(name, "the content of "+name)
			h := c.handle(name)
			change(name)
			fd := must[int](c, "open by the handle of "+name)(c.byHandle(h, unix.O_RDONLY))
			equal(c, "content", c.readAt(fd, 100, 0), "the content of "+name)
		}
	}),
	works("open_by_handle_at", "what is written through a handle is in the file", func(c *kase) {
		c.put("f", "old")
		fd := must[int](c, "open by handle")(c.byHandle(c.handle("f"), unix.O_RDWR))
		c.write(fd, "new")
		c.seesContent("f", "new")
	}),
	works("open_by_handle_at", "what was removed is ESTALE, also when its name is taken again", func(c *kase) {
		c.put("f", "old")
		c.mkdir("d", 0o755)
		c.symlink("f", "l")
		var handles []unix.FileHandle
		for _, name := range []string{"f", "d", "l"} {
			handles = append(handles, c.handle(name))
		}
		c.unlink("f")
		c.rmdir("d")
		c.unlink("l")
		c.put("f", "new")
		c.mkdir("d", 0o755)
		for _, h := range handles {
			c.refused(failure(c.byHandle(h, unix.O_PATH)), unix.ESTALE, "open by the handle of what is gone")
		}
	}),
	works("open_by_handle_at", "a file that is open has a handle also without a name", func(c *kase) {
		fd := c.file("f", "content")
		h := c.handle("f")
		c.unlink("f")
		again := must[int](c, "open by handle")(c.byHandleAt(c.open(".", unix.O_RDONLY|unix.O_DIRECTORY), h, unix.O_RDONLY))
		equal(c, "content", c.readAt(again, 100, 0), c.readAt(fd, 100, 0))
	}),
	works("open_by_handle_at", "a directory is opened with the directories above it", func(c *kase) {
		c.mkdir("a", 0o755)
		c.mkdir("a/b", 0o755)
		c.put("a/b/f", "")
		fd := must[int](c, "open by handle")(c.byHandle(c.handle("a/b"), unix.O_RDONLY|unix.O_DIRECTORY))
		names, err := namesAt(fd, ".")
		c.ok(err, "list")
		equal(c, "names", fmt.Sprint(names), "[f]")
		path := make([]byte, 4096)
		n, err := unix.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd), path)
		c.ok(err, "readlink")
		equal(c, "path", string(path[:n]), filepath.Join(c.other(), "a/b"))
	}),
}
