package behaviours

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// p8 is the place of a number of eight bytes.
func p8(p []byte) unsafe.Pointer { return unsafe.Pointer(&p[0]) }

func setGroupID(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	for name, gid := range map[string]int{"member": othersOnes, "stranger": othersOnes + 1} {
		dir := filepath.Join(a, name)
		must(t, os.Mkdir(dir, 0o777))
		must(t, os.Chown(dir, 0, gid))
		must(t, unix.Chmod(dir, 0o2777))
	}
	act(t, true, []uint32{othersOnes}, "set-group-id", a).wait()
	for name, want := range map[string]uint32{"member": 0o2755, "stranger": 0o755} {
		dir := stat(t, filepath.Join(a, name))
		file, sub := stat(t, filepath.Join(a, name, "file")), stat(t, filepath.Join(a, name, "sub"))
		if file.Gid != dir.Gid || sub.Gid != dir.Gid || sub.Mode&unix.S_ISGID == 0 {
			t.Errorf("%s: group %d; its file has %d, its directory %d with mode %o", name, dir.Gid, file.Gid, sub.Gid, sub.Mode)
		}
		if file.Mode&0o7777 != want {
			t.Errorf("%s: chmod 2755 gave %o; want %o", name, file.Mode&0o7777, want)
		}
	}
}

func linksAttributes(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	file, link := filepath.Join(a, "file"), filepath.Join(a, "link")
	write(t, file, nil)
	must(t, os.Symlink("file", link))
	before := *stat(t, file)
	must(t, os.Lchown(link, nobody, nobodys))
	when := []unix.Timespec{{Sec: 5}, {Sec: 6, Nsec: 7}}
	must(t, unix.UtimesNanoAt(unix.AT_FDCWD, link, when, unix.AT_SYMLINK_NOFOLLOW))
	must(t, unix.Lsetxattr(link, "trusted.of-link", []byte("link"), 0))
	if st := stat(t, link); st.Uid != nobody || st.Mtim.Sec != 6 || st.Mtim.Nsec != 7 {
		t.Errorf("the link has owner %d, mtime %v", st.Uid, st.Mtim)
	}
	if st := stat(t, file); st.Uid != before.Uid || st.Mtim != before.Mtim {
		t.Error("the file changed with its link")
	}
	buf := make([]byte, 100)
	if _, err := unix.Lgetxattr(file, "trusted.of-link", buf); err != unix.ENODATA {
		t.Errorf("the file has its link's attribute: %v", err)
	}
	must(t, unix.Lsetxattr(file, "user.empty", nil, 0))
	must(t, unix.Lsetxattr(file, "user.bytes", []byte{0, 255, 10}, 0))
	if n, err := unix.Lgetxattr(file, "user.empty", buf); n != 0 || err != nil {
		t.Errorf("an empty value: %d, %v", n, err)
	}
	if out, err := exec.Command("cp", "-a", a, a+"-copy").CombinedOutput(); err != nil {
		t.Fatalf("cp -a: %v %s", err, out)
	}
	for name, attrs := range map[string]map[string]string{"file": {"user.empty": "", "user.bytes": "\x00\xff\n"}, "link": {"trusted.of-link": "link"}} {
		for attr, want := range attrs {
			n, err := unix.Lgetxattr(filepath.Join(a+"-copy", name), attr, buf)
			if err != nil || string(buf[:max(n, 0)]) != want {
				t.Errorf("the copy of %s has %s %q, %v; want %q", name, attr, buf[:max(n, 0)], err, want)
			}
		}
	}
}

func oddObjects(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	for _, sec := range []int64{-2_000_000_000, 0, 5_000_000_000} {
		path := filepath.Join(a, fmt.Sprint("of-", sec))
		write(t, path, nil)
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{{Sec: sec}, {Sec: sec, Nsec: 1}}, 0))
		if st := stat(t, path); st.Mtim.Sec != sec || st.Mtim.Nsec != 1 {
			t.Errorf("%d came back as %v", sec, st.Mtim)
		}
	}
	fd, err := unix.Open(a, unix.O_TMPFILE|unix.O_RDWR, 0o640)
	if err != nil {
		t.Errorf("O_TMPFILE: %v", err)
	} else {
		_, err := unix.Write(fd, []byte("content"))
		must(t, err)
		must(t, unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, filepath.Join(a, "linked"), unix.AT_SYMLINK_FOLLOW))
		must(t, unix.Close(fd))
		wantContent(t, filepath.Join(a, "linked"), []byte("content"))
	}
	for name, mode := range map[string]uint32{"fifo": unix.S_IFIFO, "socket": unix.S_IFSOCK, "char": unix.S_IFCHR, "block": unix.S_IFBLK} {
		path := filepath.Join(a, name)
		dev := unix.Mkdev(259, 1_000_000)
		must(t, unix.Mknod(path, mode|0o600, int(dev)))
		st := stat(t, path)
		if st.Mode&unix.S_IFMT != mode {
			t.Errorf("%s has mode %o", name, st.Mode)
		}
		if device := mode == unix.S_IFCHR || mode == unix.S_IFBLK; device && st.Rdev != dev {
			t.Errorf("%s has device %#x; want %#x", name, st.Rdev, dev)
		}
	}
	var st unix.Statfs_t
	must(t, unix.Statfs(a, &st))
	total := st.Blocks * uint64(st.Bsize)
	if total == 0 || total > 1<<60 || st.Bfree > st.Blocks || st.Bavail > st.Bfree || st.Ffree > st.Files || st.Files == 0 || st.Namelen != 255 {
		t.Errorf("statfs says %+v", st)
	}
}

func idsAtOnce(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	for i := range 20 {
		act(t, true, nil, "create", filepath.Join(a, fmt.Sprint(i))).wait()
	}
}

func recordLockWaiters(t *testing.T, w *world) {
	a, b := w.dirs(t)
	path := filepath.Join(a, "count")
	write(t, path, []byte("00000000"))
	var ps []*actor
	for i := range 8 {
		ps = append(ps, act(t, false, nil, "count-locked", filepath.Join([]string{a, b}[i%2], "count")))
	}
	for _, p := range ps {
		p.wait()
	}
	wantContent(t, path, []byte("00000400"))

	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	must(t, unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}))
	if got := act(t, false, nil, "try-lock", filepath.Join(b, "count")).wait(); got != "held" {
		t.Errorf("the lock is %s for others; want held", got)
	}
	g, err := os.Open(path)
	must(t, errors.Join(err, g.Close())) // POSIX: this gives up all locks of the process
	if got := act(t, false, nil, "try-lock", filepath.Join(b, "count")).wait(); got != "free" {
		t.Errorf("after closing another descriptor it is %s; want free", got)
	}
}

func oneHolder(t *testing.T, w *world) {
	a, b := w.dirs(t)
	write(t, filepath.Join(a, "lock"), nil)
	soon(t, "the new file", func() bool {
		_, err := os.Lstat(filepath.Join(b, "lock"))
		return err == nil
	})
	open := func(dir string) *os.File {
		f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
		must(t, err)
		return f
	}
	f, g := open(a), open(b)
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	w.tine(t, "sync", "work")
	wantErrno(t, "the other mount's", unix.Flock(int(g.Fd()), unix.LOCK_EX|unix.LOCK_NB), syscall.EWOULDBLOCK)
	w.crash(t)
	// Who held it before has lost it and can do nothing with it.
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("the old holder writes as if it still held the lock")
	}
	h := open(b)
	must(t, unix.Flock(int(h.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		t.Error("the lock has two holders")
	}
	_, _ = f.Close(), g.Close() // of a server that is gone
	must(t, h.Close())
}
