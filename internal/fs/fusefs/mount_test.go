package fusefs_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/fs/fusefs"
	"tine.dev/tine/internal/fs/volume"
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
	m := mountDisk(t, newHost(t), diskName, fusefs.Options{})
	if m.Features() != r.Offered {
		t.Errorf("a mount has the features %v, the probe says %v", m.Features(), r.Offered)
	}
}

func TestMountPoint(t *testing.T) {
	needFUSE(t)
	h := newHost(t)
	_, err := mountAt(h, diskName, fusefs.Options{Dir: filepath.Join(t.TempDir(), "absent")})
	wantKind(t, err, tine.KindNotFound)
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	_, err = mountAt(h, diskName, fusefs.Options{Dir: file})
	wantKind(t, err, tine.KindNotDir)
	m := mountDisk(t, h, diskName, fusefs.Options{})
	_, err = mountAt(h, diskName, fusefs.Options{Dir: m.Dir()})
	wantKind(t, err, tine.KindBusy)
	_, err = mountAt(h, "no-such-disk", fusefs.Options{Dir: t.TempDir()})
	wantKind(t, err, tine.KindNotFound)
	var st unix.Statfs_t
	check(t, unix.Statfs(m.Dir(), &st))
	const fuseMagic = 0x65735546
	if st.Type != fuseMagic {
		t.Errorf("what is mounted has magic %#x", st.Type)
	}
	if got := shell(t, m.Dir(), `grep " $1 " /proc/mounts`); !strings.HasPrefix(got, "tine ") || !strings.Contains(got, " fuse.tine ") {
		t.Errorf("/proc/mounts says %q", got)
	}
	// A child with the descriptor would keep the mount alive when its server
	// dies, and every program that uses it would hang.
	if got := shell(t, "/", "ls -l /proc/self/fd"); strings.Contains(got, "/dev/fuse") {
		t.Errorf("a child inherits the device: %s", got)
	}
}

func TestBusyUnmount(t *testing.T) {
	needFUSE(t)
	h := newHost(t)
	m := mountDisk(t, h, diskName, fusefs.Options{})
	write(t, m.Dir()+"/f", "x")
	fd := open(t, m.Dir()+"/f", unix.O_RDONLY)
	err := m.Unmount(context.Background())
	wantKind(t, err, tine.KindBusy)
	if want := fmt.Sprintf("process %d", os.Getpid()); !strings.Contains(err.Error(), want) {
		t.Errorf("the error does not name the %s: %v", want, err)
	}
	if got := read(t, m.Dir()+"/f"); got != "x" {
		t.Errorf("after a refused unmount the file has %q", got)
	}
	check(t, unix.Close(fd))
	check(t, m.Unmount(context.Background()))
	check(t, m.Unmount(context.Background()))
	if got := shell(t, m.Dir(), "ls -A"); got != "" {
		t.Errorf("still there after the unmount: %q", got)
	}
}

func TestForceUnmount(t *testing.T) {
	needFUSE(t)
	h := newHost(t)
	m := mountDisk(t, h, diskName, fusefs.Options{Writeback: true})
	fd := open(t, m.Dir()+"/f", unix.O_RDWR|unix.O_CREAT)
	defer unix.Close(fd)
	_, err := unix.Write(fd, []byte("kept"))
	check(t, err)
	check(t, m.ForceUnmount(context.Background()))
	if _, err = unix.Write(fd, []byte("late")); err == nil {
		err = unix.Fsync(fd) // the write may only have reached the kernel
	}
	if err == nil {
		t.Error("a handle of a forced unmount still takes writes")
	}
	again := mountDisk(t, h, diskName, fusefs.Options{})
	if got := read(t, again.Dir()+"/f"); got != "kept" {
		t.Errorf("what was written before the forced unmount is %q", got)
	}
}

// TestCovered mounts something over a disk: an unmount must not take that
// away, and a flush must not fail for it.
func TestCovered(t *testing.T) {
	needFUSE(t)
	h := newHost(t)
	m := mountDisk(t, h, diskName, fusefs.Options{Writeback: true})
	fd := open(t, m.Dir()+"/f", unix.O_RDWR|unix.O_CREAT)
	_, err := unix.Write(fd, []byte("below"))
	check(t, err)
	check(t, unix.Mount("none", m.Dir(), "tmpfs", 0, ""))
	wantKind(t, m.Unmount(context.Background()), tine.KindBusy)
	_, err = h.Checkpoint(context.Background(), caller(), diskName, "cp", "", volume.WaitRunnable)
	check(t, err)
	check(t, unix.Unmount(m.Dir(), 0))
	check(t, unix.Close(fd))
	cp := mountDisk(t, h, diskName+"@cp", fusefs.Options{})
	if got := read(t, cp.Dir()+"/f"); got != "below" {
		t.Errorf("the checkpoint has %q", got)
	}
}

// TestOutsideUnmount checks that umount(8) detaches the session, so that
// nothing counts as in use.
func TestOutsideUnmount(t *testing.T) {
	needFUSE(t)
	h := newHost(t)
	m := mountDisk(t, h, diskName, fusefs.Options{})
	write(t, m.Dir()+"/f", "x")
	check(t, unix.Unmount(m.Dir(), 0))
	select {
	case <-m.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("not done 10 s after umount(8)")
	}
	again := mountDisk(t, h, diskName, fusefs.Options{})
	if got := read(t, again.Dir()+"/f"); got != "x" {
		t.Errorf("the file has %q", got)
	}
}

// helperServe mounts a new disk in a directory and serves it until killed:
// args are the host's directory and the mount point.
func helperServe(args []string) error {
	h, err := openHost(args[0])
	if err != nil {
		return err
	}
	m, err := mountAt(h, diskName, fusefs.Options{Dir: args[1]})
	if err != nil {
		return err
	}
	fmt.Println("mounted")
	<-m.Done()
	return nil
}

// TestWritebackIsExclusive: with a write-back cache the kernel believes its
// own sizes only, so the disk must not be shared.
func TestWritebackIsExclusive(t *testing.T) {
	needFUSE(t)
	h := newHost(t)
	mountDisk(t, h, diskName, fusefs.Options{})
	_, err := mountAt(h, diskName, fusefs.Options{Dir: t.TempDir(), Writeback: true})
	wantKind(t, err, tine.KindBusy)
}

// TestDeadServer kills a server: programs must not hang on its mount, and the
// next server must be able to mount there.
func TestDeadServer(t *testing.T) {
	needFUSE(t)
	dir := t.TempDir()
	server := startHelper(t, "serve", t.TempDir(), dir)
	server.line()
	fd := open(t, dir+"/f", unix.O_RDWR|unix.O_CREAT)
	defer unix.Close(fd)
	check(t, server.cmd.Process.Kill())
	server.cmd.Wait()
	_, err := unix.Write(fd, []byte("x"))
	wantErrno(t, "write to a dead mount", err, unix.ENOTCONN)
	_, err = os.Stat(dir)
	wantErrno(t, "stat of a dead mount", err, unix.ENOTCONN)
	m, err := mountAt(newHost(t), diskName, fusefs.Options{Dir: dir})
	check(t, err)
	write(t, dir+"/f", "new")
	check(t, m.Unmount(context.Background()))
	check(t, fusefs.CleanStale(dir))
	check(t, fusefs.CleanStale(dir+"/absent"))
}

func TestReadOnly(t *testing.T) {
	needFUSE(t)
	h := newHost(t)
	rw := mountDisk(t, h, diskName, fusefs.Options{})
	write(t, rw.Dir()+"/f", "before")
	_, err := h.Checkpoint(context.Background(), caller(), diskName, "cp", "", volume.WaitRunnable)
	check(t, err)
	write(t, rw.Dir()+"/f", "after")
	for name, m := range map[string]*fusefs.Mount{
		"checkpoint": mountDisk(t, h, diskName+"@cp", fusefs.Options{}),
		"read-only":  mountDisk(t, h, diskName, fusefs.Options{ReadOnly: true}),
	} {
		want := map[string]string{"checkpoint": "before", "read-only": "after"}[name]
		if got := read(t, m.Dir()+"/f"); got != want {
			t.Errorf("%s: the file has %q, want %q", name, got, want)
		}
		_, err := unix.Open(m.Dir()+"/f", unix.O_WRONLY, 0)
		wantErrno(t, name+": open for writing", err, unix.EROFS)
		wantErrno(t, name+": mkdir", unix.Mkdir(m.Dir()+"/d", 0o755), unix.EROFS)
		wantErrno(t, name+": unlink", unix.Unlink(m.Dir()+"/f"), unix.EROFS)
		wantErrno(t, name+": chmod", unix.Chmod(m.Dir()+"/f", 0o600), unix.EROFS)
	}
}

func TestOrdinaryErrorsAreNotLogged(t *testing.T) {
	needFUSE(t)
	var text bytes.Buffer
	m := mountDisk(t, newHost(t), diskName, fusefs.Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
	_, err := os.Stat(m.Dir() + "/absent")
	wantErrno(t, "absent", err, syscall.ENOENT)
	if text.Len() > 0 {
		t.Errorf("an ordinary error is logged: %s", &text)
	}
}
