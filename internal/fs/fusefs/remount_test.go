package fusefs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/tine"
)

// flagsAt are the flags of a mount as the kernel has them.
func flagsAt(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	check(t, unix.Statfs(dir, &st))
	return st.Flags & (unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC)
}

func TestRemount(t *testing.T) {
	needFUSE(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can change a mount")
	}
	for _, made := range []options{{}, {ReadOnly: true}, {Writeback: true}, {ReadOnly: true, Writeback: true}} {
		s := startServer(t)
		dir := s.mount(diskName, made)
		remount := func(o options) { t.Helper(); s.do(order{Do: "remount", Dir: dir, Options: o}) }
		const usual = unix.ST_NOSUID | unix.ST_NODEV
		remount(options{})
		if got := flagsAt(t, dir); got != usual {
			t.Fatalf("made %+v, then writable: flags %#x", made, got)
		}
		write(t, dir+"/f", "one")
		fd := open(t, dir+"/f", unix.O_WRONLY)
		_, err := s.try(order{Do: "remount", Dir: dir, Options: options{ReadOnly: true}})
		wantKind(t, err, tine.KindBusy)
		_, err = unix.Write(fd, []byte("two"))
		wantErrno(t, "a write after a remount that was refused", err, 0)
		check(t, unix.Close(fd))

		remount(options{ReadOnly: true})
		if got := flagsAt(t, dir); got != usual|unix.ST_RDONLY {
			t.Errorf("made %+v, then read-only: flags %#x", made, got)
		}
		wantErrno(t, "a write to what has become read-only", os.WriteFile(dir+"/f", nil, 0o600), unix.EROFS)
		if got := read(t, dir+"/f"); got != "two" {
			t.Errorf("made %+v: the file has %q", made, got)
		}
		remount(options{})
		write(t, dir+"/g", "three")
		if got := read(t, s.mount(diskName, options{ReadOnly: true})+"/g"); got != "three" {
			t.Errorf("made %+v: another mount shows %q", made, got)
		}
	}
}

// TestRemountWriteback: a mount with a write-back cache cannot become writable
// beside another.
func TestRemountWriteback(t *testing.T) {
	needFUSE(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can change a mount")
	}
	s := startServer(t)
	dir := s.mount(diskName, options{Writeback: true, ReadOnly: true})
	other := s.mount(diskName, options{})
	_, err := s.try(order{Do: "remount", Dir: dir})
	wantKind(t, err, tine.KindBusy)
	wantErrno(t, "a write", os.WriteFile(dir+"/f", nil, 0o600), unix.EROFS)
	s.do(order{Do: "unmount", Dir: other})
	s.do(order{Do: "remount", Dir: dir})
	write(t, dir+"/f", "alone")
}

// TestRemountCheckpoint: a checkpoint never changes, whatever is asked for.
func TestRemountCheckpoint(t *testing.T) {
	needFUSE(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can change a mount")
	}
	s := startServer(t)
	write(t, s.mount(diskName, options{})+"/f", "x")
	s.checkpoint("cp")
	dir := s.mount(diskName+"@cp", options{})
	s.do(order{Do: "remount", Dir: dir, Options: options{NoExec: true}})
	if got := flagsAt(t, dir); got != unix.ST_NOSUID|unix.ST_NODEV|unix.ST_NOEXEC|unix.ST_RDONLY {
		t.Errorf("flags %#x", got)
	}
	wantErrno(t, "a write", os.WriteFile(dir+"/f", nil, 0o600), unix.EROFS)
}

// TestAccessFlags: device nodes, programs and set-user-ID programs work as a mount
// permits, from its start and after a change.
func TestAccessFlags(t *testing.T) {
	needFUSE(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can let device nodes work")
	}
	s := startServer(t)
	dir := s.mount(diskName, options{})
	wantErrno(t, "mknod", unix.Mknod(dir+"/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))), 0)
	shell(t, dir, "cp $(command -v id) id; chmod 4755 id")
	works := func(what, dir string, dev, exe, suid bool) {
		t.Helper()
		check(t, os.Chmod(filepath.Join(dir, "../.."), 0o755)) // the way of another user to it
		fd, err := unix.Open(dir+"/null", unix.O_RDONLY, 0)
		if err == nil {
			unix.Close(fd)
		}
		if (err == nil) != dev {
			t.Errorf("%s: the device node: %v", what, err)
		}
		cmd := exec.Command(dir+"/id", "-u")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.Output()
		if (err == nil) != exe || exe && (string(out) == "0\n") != suid {
			t.Errorf("%s: the program runs as user %q, %v", what, out, err)
		}
	}
	works("as usual", dir, false, true, false)
	s.do(order{Do: "remount", Dir: dir, Options: options{AllowDev: true, NoExec: true}})
	works("changed", dir, true, false, false)
	s.do(order{Do: "remount", Dir: dir, Options: options{AllowSUID: true}})
	works("set-user-ID", dir, false, true, true)
	s.do(order{Do: "remount", Dir: dir})
	works("changed back", dir, false, true, false)
	works("mounted so", s.mount(diskName, options{AllowDev: true, NoExec: true}), true, false, false)
	works("mounted for set-user-ID", s.mount(diskName, options{AllowSUID: true}), false, true, true)
}

// TestForceAfterUmount: what umount -l has taken from its directory programs
// still hold; --force takes it from them.
func TestForceAfterUmount(t *testing.T) {
	needFUSE(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can unmount from outside")
	}
	s := startServer(t)
	dir := s.mount(diskName, options{})
	fd := open(t, dir+"/f", unix.O_RDWR|unix.O_CREAT)
	defer unix.Close(fd)
	check(t, unix.Unmount(dir, unix.MNT_DETACH))
	ended := make(chan answer, 1)
	go func() {
		a, _ := s.try(order{Do: "force", Dir: dir})
		ended <- a
	}()
	select {
	case a := <-ended:
		if a.Error != "" {
			t.Error(a.Error)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it waits for programs that it is to take the disk from")
	}
	_, err := unix.Write(fd, []byte("late"))
	wantErrno(t, "a handle of it", err, unix.ENOTCONN)
}
