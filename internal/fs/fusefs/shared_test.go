package fusefs_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/fs/fusefs"
)

// soon is how late another mount of the same disk may learn of a change
// (promise S2).
const soon = 100 * time.Millisecond

// TestTwoMounts changes a disk through one mount and looks through another
// that has everything cached.
func TestTwoMounts(t *testing.T) {
	needFUSE(t)
	for name, o := range map[string]options{
		"default":      {},
		"features-off": {Disable: fusefs.AllFeatures &^ fusefs.Locks},
		"cache-none":   {CacheNone: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t)
			a := s.mount(diskName, o)
			// What a caches while it is alone it caches for an hour.
			check(t, os.Mkdir(a+"/d", 0o755))
			write(t, a+"/d/f", "old content")
			read(t, a+"/d/f")
			_, err := os.Stat(a + "/d/absent")
			wantErrno(t, "absent", err, unix.ENOENT)
			shell(t, a, "ls -lR")
			b := s.mount(diskName, o)

			write(t, b+"/d/f", "new")
			eventually(t, soon, "new content", func() bool { return read(t, a+"/d/f") == "new" })
			check(t, unix.Chmod(b+"/d/f", 0o600))
			eventually(t, soon, "new mode", func() bool { return stat(t, a+"/d/f").Mode&0o777 == 0o600 })
			write(t, b+"/d/absent", "x")
			eventually(t, soon, "new name", func() bool { _, err := os.Stat(a + "/d/absent"); return err == nil })
			eventually(t, soon, "new name in a listing", func() bool { return strings.Contains(shell(t, a, "ls d"), "absent") })
			check(t, unix.Rename(b+"/d/f", b+"/d/g"))
			eventually(t, soon, "name gone", func() bool { _, err := os.Stat(a + "/d/f"); return errors.Is(err, unix.ENOENT) })
			if got := read(t, a+"/d/g"); got != "new" {
				t.Errorf("moved file has %q", got)
			}
			check(t, os.RemoveAll(b+"/d"))
			eventually(t, soon, "directory gone", func() bool { _, err := os.Stat(a + "/d"); return errors.Is(err, unix.ENOENT) })
		})
	}
}

// TestTwoMountsNewNames looks names up through a mount while it is still being
// told that another has made them: by being made, linked or moved there, a
// name must not come to look deleted to who works in it.
func TestTwoMountsNewNames(t *testing.T) {
	needFUSE(t)
	const patience = 10 * time.Second // how soon is TestTwoMounts' matter
	s := startServer(t)
	a, b := s.mount(diskName, options{}), s.mount(diskName, options{})
	check(t, unix.Mkdir(a+"/from", 0o755))
	check(t, unix.Mkdir(a+"/to", 0o755))
	opened := map[string]int{}
	for i := range 200 {
		made, moved := fmt.Sprintf("/from/made%d", i), fmt.Sprintf("/to/moved%d", i)
		_, err := os.Lstat(a + made) // so that a holds that it is absent
		wantErrno(t, made, err, unix.ENOENT)
		check(t, unix.Mkdir(b+made, 0o755))
		eventually(t, patience, made, func() bool { _, err := os.Lstat(a + made); return err == nil })
		opened[a+made] = open(t, a+made, unix.O_RDONLY|unix.O_DIRECTORY)
		check(t, unix.Mkdir(b+"/from/moving", 0o755))
		check(t, unix.Rename(b+"/from/moving", b+moved))
		eventually(t, patience, moved, func() bool { _, err := os.Lstat(a + moved); return err == nil })
		opened[a+moved] = open(t, a+moved, unix.O_RDONLY|unix.O_DIRECTORY)
	}
	// What tells of this change tells of all before it.
	check(t, unix.Chmod(b+"/to", 0o700))
	eventually(t, patience, "last change", func() bool { return stat(t, a+"/to").Mode&0o777 == 0o700 })
	for path, fd := range opened {
		got, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		check(t, err)
		if got != path {
			t.Errorf("the path of %s: %s", path, got)
		}
		check(t, unix.Close(fd))
	}
}

func TestAppendFromTwoMounts(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	a := s.mount(diskName, options{})
	early := open(t, a+"/log", unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND) // before the disk is shared
	b := s.mount(diskName, options{})
	late := open(t, b+"/log", unix.O_WRONLY|unix.O_APPEND)
	const lines = 200
	var wg sync.WaitGroup
	for i, fd := range []int{early, late} {
		wg.Go(func() {
			for n := range lines {
				if _, err := unix.Write(fd, fmt.Appendf(nil, "writer %d line %d\n", i, n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	check(t, unix.Close(early))
	check(t, unix.Close(late))
	for _, dir := range []string{a, b} {
		var got string
		eventually(t, 2*soon, "all lines seen", func() bool {
			got = read(t, dir+"/log")
			return strings.Count(got, "\n") == 2*lines
		})
		for i := range 2 {
			for n := range lines {
				if line := fmt.Sprintf("writer %d line %d\n", i, n); strings.Count(got, line) != 1 {
					t.Fatalf("%q is there %d times", line, strings.Count(got, line))
				}
			}
		}
	}
}

func TestLocksBetweenMounts(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	a := s.mount(diskName, options{})
	b := s.mount(diskName, options{})
	write(t, a+"/f", "")
	holder := startHelper(t, "posix-lock", a+"/f")
	holder.line()
	fd := open(t, b+"/f", unix.O_RDWR)
	defer unix.Close(fd)
	wantErrno(t, "fcntl lock of the other mount", unix.FcntlFlock(uintptr(fd), unix.F_SETLK, wholeFile(unix.F_WRLCK)), unix.EAGAIN)
	holder.finish()
	check(t, unix.FcntlFlock(uintptr(fd), unix.F_SETLKW, wholeFile(unix.F_WRLCK)))
	other := open(t, a+"/f", unix.O_RDWR)
	check(t, unix.Flock(other, unix.LOCK_EX))
	wantErrno(t, "flock of the other mount", unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
	check(t, unix.Close(other))
	check(t, unix.Flock(fd, unix.LOCK_EX))
}

// TestRollback rolls a mounted disk back (promise F6): paths lead to the new
// state at once, open handles fail.
func TestRollback(t *testing.T) {
	needFUSE(t)
	for name, o := range map[string]options{
		"default":      {},
		"features-off": {Disable: fusefs.AllFeatures &^ fusefs.Locks},
		"cache-none":   {CacheNone: true},
		"write-back":   {Writeback: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t)
			testRollback(t, s, s.mount(diskName, o))
		})
	}
}

func testRollback(t *testing.T, s *server, dir string) {
	check(t, os.MkdirAll(dir+"/d/e", 0o755))
	write(t, dir+"/d/e/f", "checkpoint")
	write(t, dir+"/d/e/gone", "checkpoint")
	inode := stat(t, dir+"/d/e/f").Ino
	s.checkpoint("cp")
	for range 3 {
		write(t, dir+"/d/e/f", "later")
		write(t, dir+"/d/new", "later")
		check(t, os.Remove(dir+"/d/e/gone"))
		fd := open(t, dir+"/d/e/f", unix.O_RDWR)
		dfd := open(t, dir+"/d", unix.O_RDONLY|unix.O_DIRECTORY)
		shell(t, dir, "ls -lR; cat d/e/f; ! test -e d/e/gone")

		s.do(order{Do: "rollback", Name: "cp"})
		eventually(t, soon, "the path leads to the new state", func() bool { return read(t, dir+"/d/e/f") == "checkpoint" })
		eventually(t, soon, "an old handle fails", func() bool {
			_, err := unix.Pread(fd, make([]byte, 10), 0)
			return isStale(err)
		})
		if got := read(t, dir+"/d/e/gone"); got != "checkpoint" {
			t.Errorf("a name that had been removed leads to %q", got)
		}
		_, err := os.Stat(dir + "/d/new")
		wantErrno(t, "a later name", err, unix.ENOENT)
		if got := stat(t, dir+"/d/e/f").Ino; got != inode {
			t.Errorf("inode %d, was %d", got, inode)
		}
		if got := shell(t, dir, "ls d d/e"); got != "d:\ne\n\nd/e:\nf\ngone" {
			t.Errorf("listing: %q", got)
		}
		if _, err = unix.Pwrite(fd, []byte("x"), 0); err == nil {
			err = unix.Fsync(fd) // write-back: the write itself meets no server
		}
		if !isStale(err) {
			t.Errorf("write on an old handle: %v", err)
		}
		if _, err = unix.Openat(dfd, "e", unix.O_RDONLY, 0); !isStale(err) {
			t.Errorf("open below an old directory: %v", err)
		}
		unix.Close(fd)
		unix.Close(dfd)
		if got := read(t, dir+"/d/e/f"); got != "checkpoint" {
			t.Errorf("after closing the old handle the path leads to %q", got)
		}
	}
}

func isStale(err error) bool { return errors.Is(err, unix.ESTALE) || errors.Is(err, unix.EIO) }

// TestCheckpointSeesWrites is promise F3: what was written before a checkpoint was
// asked for is in it, though the kernel still held it.
func TestCheckpointSeesWrites(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	dir := s.mount(diskName, options{Writeback: true})
	fd := open(t, dir+"/f", unix.O_RDWR|unix.O_CREAT)
	defer unix.Close(fd)
	for i := range 10 {
		content := fmt.Sprintf("version %d", i)
		_, err := unix.Pwrite(fd, []byte(content), 0)
		check(t, err)
		name := fmt.Sprintf("cp%d", i)
		s.checkpoint(name)
		if got := read(t, s.mount(diskName+"@"+name, options{})+"/f"); got != content {
			t.Errorf("checkpoint %s has %q, want %q", name, got, content)
		}
	}
}
