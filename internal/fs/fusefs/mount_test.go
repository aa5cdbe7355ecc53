package fusefs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/fs/fusefs"
	"tine.dev/tine/internal/tine"
)

func TestProbe(t *testing.T) {
	r := fusefs.Probe()
	if r.Err != nil {
		t.Skipf("cannot mount here: %v", r.Err)
	}
	if !strings.HasPrefix(r.Protocol, "7.") || !r.Offered.Has(fusefs.ReaddirPlus|fusefs.Locks) {
		t.Errorf("protocol %q, features %v", r.Protocol, r.Offered)
	}
	t.Logf("protocol %s, features %v", r.Protocol, r.Offered)
	a := startServer(t).do(order{Do: "mount", Ref: diskName, Dir: t.TempDir()})
	if a.Features != r.Offered {
		t.Errorf("a mount has the features %v, the probe says %v", a.Features, r.Offered)
	}
}

func TestMountPoint(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	_, err := s.try(order{Do: "mount", Ref: diskName, Dir: filepath.Join(t.TempDir(), "absent")})
	wantKind(t, err, tine.KindNotFound)
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	_, err = s.try(order{Do: "mount", Ref: diskName, Dir: file})
	wantKind(t, err, tine.KindNotDir)
	dir := s.mount(diskName, options{})
	_, err = s.try(order{Do: "mount", Ref: diskName, Dir: dir})
	wantKind(t, err, tine.KindBusy)
	_, err = s.try(order{Do: "mount", Ref: "no-such-disk", Dir: t.TempDir()})
	wantKind(t, err, tine.KindNotFound)
	var st unix.Statfs_t
	check(t, unix.Statfs(dir, &st))
	const fuseMagic = 0x65735546
	if st.Type != fuseMagic {
		t.Errorf("what is mounted has magic %#x", st.Type)
	}
	if got := shell(t, dir, `grep " $1 " /proc/mounts`); !strings.HasPrefix(got, "tine ") || !strings.Contains(got, " fuse.tine ") {
		t.Errorf("/proc/mounts says %q", got)
	}
}

func TestBusyUnmount(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	dir := s.mount(diskName, options{})
	write(t, dir+"/f", "x")
	fd := open(t, dir+"/f", unix.O_RDONLY)
	_, err := s.try(order{Do: "unmount", Dir: dir})
	wantKind(t, err, tine.KindBusy)
	wantMention(t, err, fmt.Sprintf("process %d", os.Getpid()))
	if got := read(t, dir+"/f"); got != "x" {
		t.Errorf("after a refused unmount the file has %q", got)
	}
	check(t, unix.Close(fd))
	s.do(order{Do: "unmount", Dir: dir})
	s.do(order{Do: "unmount", Dir: dir})
	if got := shell(t, dir, "ls -A"); got != "" {
		t.Errorf("still there after the unmount: %q", got)
	}
}

func TestForceUnmount(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	dir := s.mount(diskName, options{Writeback: true})
	fd := open(t, dir+"/f", unix.O_RDWR|unix.O_CREAT)
	defer unix.Close(fd)
	_, err := unix.Write(fd, []byte("kept"))
	check(t, err)
	s.do(order{Do: "force", Dir: dir})
	if _, err = unix.Write(fd, []byte("late")); err == nil {
		err = unix.Fsync(fd) // the write may only have reached the kernel
	}
	if err == nil {
		t.Error("a handle of a forced unmount still takes writes")
	}
	if got := read(t, s.mount(diskName, options{})+"/f"); got != "kept" {
		t.Errorf("what was written before the forced unmount is %q", got)
	}
}

// TestWritebackIsExclusive: with a write-back cache the kernel believes its
// own sizes only, so the disk must not be shared.
func TestWritebackIsExclusive(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	s.mount(diskName, options{})
	_, err := s.try(order{Do: "mount", Ref: diskName, Dir: t.TempDir(), Options: options{Writeback: true}})
	wantKind(t, err, tine.KindBusy)
}

// TestCovered mounts something over a disk: an unmount must not take that
// away, and a flush must not fail for it.
func TestCovered(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	dir := s.mount(diskName, options{Writeback: true})
	fd := open(t, dir+"/f", unix.O_RDWR|unix.O_CREAT)
	_, err := unix.Write(fd, []byte("below"))
	check(t, err)
	check(t, unix.Mount("none", dir, "tmpfs", 0, ""))
	_, err = s.try(order{Do: "unmount", Dir: dir})
	wantKind(t, err, tine.KindBusy)
	s.checkpoint("cp")
	check(t, unix.Unmount(dir, 0))
	check(t, unix.Close(fd))
	if got := read(t, s.mount(diskName+"@cp", options{})+"/f"); got != "below" {
		t.Errorf("the checkpoint has %q", got)
	}
}

// TestOutsideUnmount checks that umount(8) detaches the session, so that
// nothing counts as in use.
func TestOutsideUnmount(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	dir := s.mount(diskName, options{})
	write(t, dir+"/f", "x")
	check(t, unix.Unmount(dir, 0))
	s.do(order{Do: "wait", Dir: dir})
	// Needs the disk for itself, so it shows that the session is gone.
	if got := read(t, s.mount(diskName, options{Writeback: true})+"/f"); got != "x" {
		t.Errorf("the file has %q", got)
	}
}

// TestDeadServer kills a server: programs must not hang on its mount, and the
// next server must be able to mount there.
func TestDeadServer(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	dir := s.mount(diskName, options{})
	fd := open(t, dir+"/f", unix.O_RDWR|unix.O_CREAT)
	defer unix.Close(fd)
	check(t, s.cmd.Process.Kill())
	s.cmd.Wait()
	_, err := unix.Write(fd, []byte("x"))
	wantErrno(t, "write to a dead mount", err, unix.ENOTCONN)
	_, err = os.Stat(dir)
	wantErrno(t, "stat of a dead mount", err, unix.ENOTCONN)
	next := startServer(t)
	next.do(order{Do: "mount", Ref: diskName, Dir: dir})
	write(t, dir+"/f", "new")
	next.do(order{Do: "unmount", Dir: dir})
	check(t, fusefs.CleanStale(dir))
	check(t, fusefs.CleanStale(dir+"/absent"))
}

// TestHungServer stops a server, so that its mount does not answer: that is
// not a dead one and must be left alone.
func TestHungServer(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	dir := s.mount(diskName, options{CacheNone: true})
	check(t, s.cmd.Process.Signal(unix.SIGSTOP))
	eventually(t, 10*time.Second, "the server has stopped", func() bool {
		return strings.Contains(read(t, fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid)), "\nState:\tT")
	})
	err := fusefs.CleanStale(dir)
	check(t, s.cmd.Process.Signal(unix.SIGCONT))
	wantKind(t, err, tine.KindBusy)
	write(t, dir+"/f", "still served")
}

// TestKilledWhileFlushing kills a server in the midst of calls to its own
// mount; it must end, and its mount be dead and not hung.
func TestKilledWhileFlushing(t *testing.T) {
	needFUSE(t)
	for range 10 {
		s := startServer(t)
		dir := s.mount(diskName, options{Writeback: true})
		fd := open(t, dir+"/f", unix.O_RDWR|unix.O_CREAT)
		_, err := unix.Write(fd, make([]byte, 4<<20))
		check(t, err)
		_, err = fmt.Fprintln(s.stdin, `{"Do":"checkpoint","Name":"cp"}`)
		check(t, err)
		check(t, s.cmd.Process.Kill())
		if !s.endsWithin(20 * time.Second) {
			t.Error("a killed server does not end")
		}
		unix.Close(fd)
		check(t, fusefs.CleanStale(dir))
	}
}

// TestGuard kills a server that waits for itself, which the kernel cannot end:
// its guard must, and leave the dead mount in its place.
func TestGuard(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	s.do(order{Do: "guard"})
	dir := s.mount(diskName, options{})
	other := startServer(t).mount(diskName, options{})
	write(t, dir+"/f", "")
	fd := open(t, dir+"/f", unix.O_RDWR)
	defer unix.Close(fd)
	check(t, unix.FcntlFlock(uintptr(fd), unix.F_SETLK, wholeFile(unix.F_WRLCK)))
	s.do(order{Do: "lock", Dir: dir})
	eventually(t, 10*time.Second, "the server waits for the lock", func() bool {
		return strings.Contains(shell(t, "/", fmt.Sprintf("cat /proc/%d/task/*/wchan", s.cmd.Process.Pid)), "request_wait_answer")
	})
	check(t, s.cmd.Process.Kill())
	if !s.endsWithin(20 * time.Second) {
		check(t, fusefs.CleanStale(dir))
		t.Fatal("a killed server with a guard does not end")
	}
	var st unix.Statfs_t
	wantErrno(t, "statfs of the dead mount", unix.Statfs(dir, &st), unix.ENOTCONN)
	write(t, other+"/f", "a mount of another server stays")
	check(t, fusefs.CleanStale(dir))
}

// TestGuardInAContainer: where the processes outside cannot be seen, their
// mounts can, and are not given up.
func TestGuardInAContainer(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	dir := s.mount(diskName, options{})
	program, err := os.Executable()
	check(t, err)
	out := shell(t, t.TempDir(), fmt.Sprintf(`unshare --pid --fork --mount --mount-proc sh -c '
		grep -c " %s " /proc/self/mountinfo
		sleep 60 & server=$!
		%s=guard %s $server & guard=$!
		kill $server
		wait $guard && echo the guard is done'`, dir, helperEnv, program))
	if want := "1\nthe guard is done"; out != want {
		t.Fatalf("in the container: %q, want %q", out, want)
	}
	write(t, dir+"/f", "the mount is served as before")
}

func TestReadOnly(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	rw := s.mount(diskName, options{})
	write(t, rw+"/f", "before")
	s.checkpoint("cp")
	write(t, rw+"/f", "after")
	for _, m := range []struct{ dir, want string }{
		{s.mount(diskName+"@cp", options{}), "before"},
		{s.mount(diskName, options{ReadOnly: true}), "after"},
	} {
		if got := read(t, m.dir+"/f"); got != m.want {
			t.Errorf("the file has %q, want %q", got, m.want)
		}
		_, err := unix.Open(m.dir+"/f", unix.O_WRONLY, 0)
		wantErrno(t, "open for writing", err, unix.EROFS)
		wantErrno(t, "mkdir", unix.Mkdir(m.dir+"/d", 0o755), unix.EROFS)
		wantErrno(t, "unlink", unix.Unlink(m.dir+"/f"), unix.EROFS)
		wantErrno(t, "chmod", unix.Chmod(m.dir+"/f", 0o600), unix.EROFS)
	}
}

// TestDeviceIsNotInherited: a child with the descriptor would keep the mount
// alive when its server dies, and every program that uses it would hang.
func TestDeviceIsNotInherited(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	s.mount(diskName, options{})
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", s.cmd.Process.Pid))
	check(t, err)
	found := 0
	for _, info := range fds {
		target, err := os.Readlink(strings.Replace(info, "fdinfo", "fd", 1))
		if err != nil || target != "/dev/fuse" {
			continue
		}
		found++
		var flags int
		_, rest, _ := strings.Cut(read(t, info), "flags:")
		if _, err := fmt.Sscanf(rest, "%o", &flags); err != nil || flags&unix.O_CLOEXEC == 0 {
			t.Errorf("%s has flags %o, %v; it is not closed on exec", info, flags, err)
		}
	}
	if found != 2 {
		t.Errorf("the server has the device open %d times, want 2", found)
	}
}
