package posix

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fullTries is how often a call is tried on a full file system until it must
// have failed: what a file system keeps in reserve for small things may go first.
const fullTries = 5000

// untilFull makes a call again and again, for another name each time, until it
// fails. A file system may have room for small things when it has none for
// data; then what it has taken must be durable, else it had no room.
func untilFull(c *kase, do func(name string) error) error {
	for i := range fullTries {
		if err := do(fmt.Sprintf("%0255d", i)); err != nil {
			return err
		}
	}
	c.ok(unix.Fsync(c.open(".", unix.O_RDONLY)), "fsync of the directory after all has succeeded")
	c.skip("the file system still had room for that")
	return nil
}

// fullCases are the cases for a file system that has no room left. They find
// the files small and moved, the directory d, and source with a MiB in it.
var fullCases = []behaviour{
	refuse("open", unix.ENOSPC, "to create, on a full file system", func(c *kase) error {
		return untilFull(c, func(name string) error { return c.opens(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY) })
	}),
	refuse("mkdir", unix.ENOSPC, "on a full file system", func(c *kase) error {
		return untilFull(c, func(name string) error { return unix.Mkdir(name, 0o755) })
	}),
	refuse("symlink", unix.ENOSPC, "on a full file system", func(c *kase) error {
		return untilFull(c, func(name string) error { return unix.Symlink(letters(1000), name) })
	}),
	refuse("mknod", unix.ENOSPC, "on a full file system", func(c *kase) error {
		return untilFull(c, func(name string) error { return unix.Mknod(name, unix.S_IFIFO|0o644, 0) })
	}),
	refuse("link", unix.ENOSPC, "on a full file system", func(c *kase) error {
		return untilFull(c, func(name string) error { return unix.Link("small", name) })
	}),
	refuse("rename", unix.ENOSPC, "into a directory that cannot grow, on a full file system", func(c *kase) error {
		if err := untilFull(c, func(name string) error { return unix.Link("small", "d/"+name) }); err != unix.ENOSPC {
			return err
		}
		return unix.Rename("moved", "d/"+strings.Repeat("n", 255))
	}),
	refuse("setxattr", unix.ENOSPC, "on a full file system", func(c *kase) error {
		return untilFull(c, func(name string) error { return unix.Setxattr("small", "user."+name[5:], []byte(letters(3000)), 0) })
	}),
	refuse("write", unix.ENOSPC, "on a full file system", func(c *kase) error {
		fd := c.open("small", unix.O_WRONLY|unix.O_APPEND)
		return untilFull(c, func(string) error { return failure(unix.Write(fd, []byte(letters(1<<16)))) })
	}),
	refuse("fallocate", unix.ENOSPC, "more than there is", func(c *kase) error {
		return unix.Fallocate(c.open("small", unix.O_WRONLY), 0, 0, 1<<40)
	}),
	refuse("copy_file_range", unix.ENOSPC, "on a full file system", func(c *kase) error {
		in, out := c.open("source", unix.O_RDONLY), c.open("small", unix.O_WRONLY)
		to := int64(0)
		for range fullTries {
			if _, err := unix.CopyFileRange(in, new(int64), out, &to, 1<<20, 0); err != nil {
				return err
			}
		}
		return nil
	}),
	works("unlink", "on a full file system", func(c *kase) {
		c.unlink("small")
		c.seesNone("small")
	}),
	works("rmdir", "on a full file system", func(c *kase) {
		c.rmdir("d")
		c.seesNone("d")
	}),
	works("truncate", "to nothing, on a full file system", func(c *kase) {
		c.truncate("source", 0)
		c.seesSize("source", 0)
	}),
	works("read", "on a full file system", func(c *kase) { c.seesContent("source", letters(1<<20)) }),
}

// examineFull runs the cases on the file system that p is the root of, after
// filling the directories, and wants that it can be written when the fillings
// are gone.
func examineFull(t *testing.T, p place, fillings ...string) {
	t.Helper()
	for i := range fullCases {
		dir := filepath.Join(p.here, caseDir(i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{"small": "x", "moved": "x", "source": letters(1 << 20)} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i, dir := range fillings {
		fillings[i] = filepath.Join(dir, "filling")
		t.Logf("%d bytes fill %s", fill(t, fillings[i]), dir)
	}
	for i, b := range fullCases {
		t.Run(b.name(), func(t *testing.T) { examineOne(t, p, b, caseDir(i)) })
	}
	for _, filling := range fillings {
		if err := os.Remove(filling); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	began := time.Now()
	for end := began.Add(caseLimit); time.Now().Before(end); {
		if err = writeDurably(filepath.Join(p.here, "after")); err == nil {
			t.Logf("it can be written again %v after the space was given back", time.Since(began).Round(time.Millisecond))
			return
		}
	}
	t.Errorf("cannot be written though the space was given back: %v", err)
}

// writeDurably writes a MiB and makes it durable.
func writeDurably(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = f.WriteString(letters(1 << 20))
	return errors.Join(err, f.Sync(), f.Close())
}

// fill writes a file until there is no room for a byte more.
func fill(t *testing.T, name string) (bytes int64) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for piece := 1 << 20; piece > 0; {
		n, err := f.Write(make([]byte, piece))
		bytes += int64(n)
		if err != nil {
			piece /= 2
		}
		if bytes > 4<<30 {
			t.Fatal("takes more than its size")
		}
	}
	return bytes
}

// TestNoSpaceNative runs the cases for a full file system on an ext4.
func TestNoSpaceNative(t *testing.T) {
	needRoot(t)
	dir := ext4Dir(t, 32<<20)
	examineFull(t, place{here: dir, there: dir}, dir)
}

// TestNoSpace runs them on tine, the data of which is on a small tmpfs.
func TestNoSpace(t *testing.T) {
	needRoot(t)
	dir, err := os.MkdirTemp("", "tine-posix-")
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tine-posix", data, "tmpfs", 0, "size=512m"); err != nil {
		t.Skipf("cannot mount a tmpfs: %v", err)
	}
	w := worldIn(t, dir) // which unmounts what is below dir
	w.tine("disk", "create", "work")
	mnt := w.mount("work")
	examineFull(t, place{mnt, mnt, "full"}, mnt, data)
}
