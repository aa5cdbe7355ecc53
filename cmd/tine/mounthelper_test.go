package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/tine"
)

func TestParseMount(t *testing.T) {
	cases := []struct {
		args string
		want mountRequest
		bad  string
	}{
		{"work /m -o rw", mountRequest{spec: "work", dir: "/m", writable: true}, ""},
		{"tine:work@cp /m -v -o ro,x-systemd.automount,noatime,socket=/s", mountRequest{spec: "work@cp", dir: "/m", readOnly: true, socket: "/s", verbose: true}, ""},
		{"work /m/../n -sfn -t tine -oro,odd", mountRequest{spec: "work", dir: "/n", readOnly: true, sloppy: true, fake: true}, ""},
		{"work /m -r", mountRequest{spec: "work", dir: "/m", readOnly: true}, ""},
		{"work", mountRequest{}, "a disk and a directory"},
		{"work /m /n", mountRequest{}, "a disk and a directory"},
		{"/work /m", mountRequest{}, "tine:DISK"},
		{"work /m -w -o suid,exec", mountRequest{spec: "work", dir: "/m", writable: true, suid: true}, ""},
		{"work /m -o rw,noexec,allow_dev,user,lazytime", mountRequest{spec: "work", dir: "/m", writable: true, dev: true, noExec: true}, ""},
		// mount(8) says what it knows first, whatever the order was.
		{"work /m -o rw,nosuid,nodev,allow_suid,allow_dev", mountRequest{spec: "work", dir: "/m", writable: true}, ""},
		{"work /m -o remount,ro", mountRequest{spec: "work", dir: "/m", remount: true, readOnly: true}, ""},
		{"work /m -o remount,noexec,exec", mountRequest{spec: "work", dir: "/m", remount: true}, ""},
		// What it makes of a remount that names only the directory: the kernel's table, and what is asked for.
		{"tine:work /m -o ro,nosuid,nodev,noatime,remount,user_id=0,group_id=0,default_permissions,allow_other,max_read=1048576",
			mountRequest{spec: "work", dir: "/m", remount: true, readOnly: true}, ""},
		{"tine:work /m -o rw,nodev,noatime,remount,noexec,user_id=0,group_id=0",
			mountRequest{spec: "work", dir: "/m", remount: true, writable: true, suid: true, noExec: true}, ""},
		{"tine:work /m -o rw,nosuid,nodev,remount,user_id=0,allow_suid", mountRequest{spec: "work", dir: "/m", remount: true, writable: true, suid: true}, ""},
		{"work /m -o user_id=0", mountRequest{}, `"user_id=0" is not supported`},
		{"work /m -o strictatime", mountRequest{}, `"strictatime" is not supported`},
		{"work /m -o socket=s", mountRequest{}, "socket=s"},
		{"work /m -N x", mountRequest{}, "namespace"},
		{"work /m -q", mountRequest{}, "-q"},
		{"work /m -o", mountRequest{}, "needs a value"},
	}
	for _, c := range cases {
		got, err := parseMount(strings.Fields(c.args))
		if c.bad != "" {
			if tine.KindOf(err) != tine.KindInvalid || !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%s: %v", c.args, err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.args, got, err, c.want)
		}
	}
}

// helperCommand is this program, called as mount.tine.
func (w *world) helperCommand(args ...string) *exec.Cmd {
	w.t.Helper()
	link := filepath.Join(w.dir, mountHelperName)
	if err := os.Symlink(os.Args[0], link); err != nil && !errors.Is(err, os.ErrExist) {
		w.t.Fatal(err)
	}
	cmd := exec.Command(link, args...)
	cmd.Env = append(os.Environ(), "TINE_TEST_RUN=1", "TINE_SOCKET="+w.cfg.Socket)
	return cmd
}

func (w *world) helper(want int, says string, args ...string) {
	w.t.Helper()
	out, err := w.helperCommand(args...).CombinedOutput()
	var exit *exec.ExitError
	code := 0
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		w.t.Fatal(err)
	}
	if code != want || !matches(says, string(out)) {
		w.t.Errorf("mount.tine %q: %d, %q; want %d, %q", args, code, out, want, says)
	}
}

// await waits for an event of the kind.
func (w *world) await(kind string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	found := errors.New("found")
	c := api.NewClient(w.cfg.Socket, "")
	defer c.Close()
	_, err := c.Events(ctx, api.EventQuery{Follow: true}, func(l api.EventLine) error {
		if l.Event != nil && l.Event.Kind == kind {
			return found
		}
		return nil
	})
	if err != found {
		w.t.Fatalf("no event %s came: %v", kind, err)
	}
}

func TestMountHelper(t *testing.T) {
	w, mnt := newKernelWorld(t)
	w.helper(mountFailed, `no server listens`, "work", mnt)
	p := w.spawn()
	w.steps([]step{{"disk create work", 0, `work`, ""}})
	w.helper(mountUsage, `not supported\n.*nosuid`, "work", mnt, "-o", "rw,odd")
	w.helper(mountFailed, `no disk "none"`, "none", mnt, "-o", "rw")
	w.helper(mountFailed, `does not exist`, "work", mnt+"/none", "-o", "rw")
	w.helper(mountOK, "", "work", mnt, "-f")
	w.helper(mountOK, `^mount.tine: work mounted on`, "work", mnt, "-v", "-o", "rw,noatime,x-systemd.requires=tine.service")
	writeSynced(t, filepath.Join(mnt, "kept"), "one")
	w.helper(mountOK, "", "tine:work", mnt, "-o", "rw") // systemd may ask for what the server has brought back
	w.helper(mountFailed, `mounted on`, "work@x", mnt)

	// A restart of the server goes unnoticed, as for any other mount.
	_ = p.end(syscall.SIGKILL)
	p = w.spawn()
	expect(t, filepath.Join(mnt, "kept"), "one")
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p = w.spawn()
	expect(t, filepath.Join(mnt, "kept"), "one")

	// umount(8) takes it away for good.
	if err := syscall.Unmount(mnt, 0); err != nil {
		t.Fatal(err)
	}
	w.await("mount-lost")
	w.steps([]step{{"mounts", 0, `^[^\n]*\n$`, ""}})
	w.helper(mountOK, "", "work", mnt, "-o", "ro")
	if err := os.WriteFile(filepath.Join(mnt, "new"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Errorf("a write to a read-only mount: %v", err)
	}
	// Another start of the machine: whoever asked will ask again.
	if err := p.end(syscall.SIGKILL); err == nil {
		t.Fatal("the server has ended by itself")
	}
	records := filepath.Join(w.cfg.Data, "mounts.json")
	b, err := os.ReadFile(records)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	b = regexp.MustCompile(`,\s*"checksum": "[^"]*"`).ReplaceAll(b, nil) // as whoever changes it by hand must
	other := strings.ReplaceAll(string(b), strings.TrimSpace(string(boot)), "another start")
	if other == string(b) {
		t.Fatalf("the record does not name the start of the machine: %s", b)
	}
	if err := os.WriteFile(records, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Unmount(mnt, syscall.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	p = w.spawn()
	w.steps([]step{{"mounts", 0, `^[^\n]*\n$`, ""}})
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// TestMountedAgainAtOnce mounts as soon as umount(8) is back, which is before the
// server has heard of that. What mount.tine says is mounted must be there.
func TestMountedAgainAtOnce(t *testing.T) {
	w, mnt := newKernelWorld(t)
	p := w.spawn()
	w.steps([]step{{"disk create work", 0, `work`, ""}})
	w.helper(mountOK, "", "work", mnt, "-o", "rw")
	for round := range 20 {
		path := filepath.Join(mnt, fmt.Sprint(round))
		if err := os.WriteFile(path, []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Unmount(mnt, 0); err != nil {
			t.Fatal(err)
		}
		w.helper(mountOK, "", "work", mnt, "-o", "rw")
		expect(t, path, "kept")
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// TestRemount changes mounts as mount(8) has it done, by root: of what `tine mount`
// has made and of its own. The next server shows them so.
func TestRemount(t *testing.T) {
	w, mnt := newKernelWorld(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can change a mount")
	}
	p := w.spawn()
	w.helper(mountFailed, `no tine disk is mounted on`, "work", mnt, "-o", "remount,ro")
	w.steps([]step{{"disk create work", 0, `work`, ""}, {"mount --read-only work DIR/mnt", 0, `mounted`, ""}})
	table := func(mode string) {
		t.Helper()
		w.steps([]step{{"mounts", 0, `work +\S+/mnt +` + mode + ` +mounted\n$`, ""}})
	}
	flags := func(want int64) {
		t.Helper()
		var st unix.Statfs_t
		if err := unix.Statfs(mnt, &st); err != nil {
			t.Fatal(err)
		}
		if got := st.Flags & (unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC); got != want {
			t.Errorf("the kernel has the flags %#x, want %#x", got, want)
		}
	}
	w.helper(mountOK, "", "tine:work", mnt, "-o", "remount,rw")
	table("rw")
	writeSynced(t, filepath.Join(mnt, "kept"), "one")
	f, err := os.OpenFile(filepath.Join(mnt, "kept"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.helper(mountFailed, `open for writing.*\n.*fuser`, "work", mnt, "-o", "remount,ro")
	table("rw")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(w.dir, "link")
	if err := os.Symlink(mnt, link); err != nil {
		t.Fatal(err)
	}
	w.helper(mountOK, "", "tine:work", link, "-o", "ro,remount,noexec,allow_dev")
	table("ro,dev,noexec")
	flags(unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NOEXEC)
	w.await("remount")
	_ = p.end(syscall.SIGKILL)
	p = w.spawn()
	table("ro,dev,noexec")
	flags(unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NOEXEC)
	expect(t, filepath.Join(mnt, "kept"), "one")
	// Neither ro nor rw is named: that stays.
	w.helper(mountOK, "", "work", mnt, "-o", "remount,suid")
	table("ro,suid")
	w.steps([]step{{"umount DIR/mnt", 0, `unmounted`, ""}, {"checkpoint create work cp", 0, `cp`, ""}})

	w.helper(mountOK, "", "work@cp", mnt, "-o", "rw,allow_suid")
	w.helper(mountFailed, `checkpoint, which never changes\n.*tine fork work@cp`, "work@cp", mnt, "-o", "remount,rw")
	w.helper(mountOK, "", "work@cp", mnt, "-o", "remount,noexec")
	flags(unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC)
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// TestMountCommand has mount(8) itself find the helper, in a mount namespace
// whose /sbin has it.
func TestMountCommand(t *testing.T) {
	w, mnt := newKernelWorld(t)
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip("there is no unshare here")
	}
	p := w.spawn()
	w.steps([]step{{"disk create work", 0, `work`, ""}})
	for _, d := range []string{"sbin", "work"} {
		if err := os.Mkdir(filepath.Join(w.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{mountHelperName, remountHelperName} {
		if err := os.Symlink(os.Args[0], filepath.Join(w.dir, "sbin", name)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(script string) string {
		t.Helper()
		script = `sbin=$(realpath /sbin) && mount -t overlay overlay -o "lowerdir=$1/sbin:$sbin" "$sbin" || exit 99
` + script
		cmd := exec.Command(unshare, "--mount", "sh", "-ec", script, "sh", w.dir, mnt)
		cmd.Env = append(os.Environ(), "TINE_TEST_RUN=1", "TINE_SOCKET="+w.cfg.Socket)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 99 {
			t.Skipf("no overlay can be mounted here: %s", out)
		}
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	run(`mount -t tine work "$2" -o rw,noatime`)
	writeSynced(t, filepath.Join(mnt, "kept"), "one")
	w.steps([]step{{"mounts", 0, `work +\S+/mnt +rw +mounted\n$`, ""}})

	// A namespace that has a copy of the mount, and now the helper by its other name.
	shown := run(`mount -o remount,ro "$2"
if echo x 2>/dev/null > "$2/file"; then exit 1; fi
grep " $2 " /proc/mounts
mount -o remount,rw,noexec,allow_dev "$2"
echo after > "$2/file"
grep " $2 " /proc/mounts`)
	if !regexp.MustCompile(`^\S+ \S+ fuse.tine ro,nosuid,nodev,noatime,.*\n\S+ \S+ fuse.tine rw,nosuid,noexec,noatime,.*\n$`).MatchString(shown) {
		t.Errorf("where the mount was changed the kernel shows %q", shown)
	}
	expect(t, filepath.Join(mnt, "file"), "after\n")
	w.steps([]step{{"mounts", 0, `work +\S+/mnt +rw,dev,noexec +mounted\n$`, ""}, {"umount DIR/mnt", 0, `unmounted`, ""}})
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// automounter waits on a directory, as systemd does for x-systemd.automount.
// The process group of this test is the one that the kernel does not hold.
type automounter struct {
	t    *testing.T
	dir  string
	pipe *os.File
	root *os.File
}

func newAutomounter(t *testing.T, dir string) *automounter {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_DIRECT); err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("fd=%d,pgrp=%d,minproto=5,maxproto=5,direct", fds[1], unix.Getpgrp())
	err := unix.Mount("test", dir, "autofs", 0, options)
	unix.Close(fds[1])
	a := &automounter{t: t, dir: dir, pipe: os.NewFile(uintptr(fds[0]), "autofs")}
	if err != nil {
		_ = a.pipe.Close()
		t.Skipf("no automounter can be here: %v", err)
	}
	t.Cleanup(func() {
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		_ = a.root.Close()
		_ = a.pipe.Close()
	})
	if a.root, err = os.Open(dir); err != nil {
		t.Fatal(err)
	}
	return a
}

// answer waits until somebody comes to the directory, mounts, and lets them in.
func (a *automounter) answer(mount func() error) error {
	packet := make([]byte, 304)
	if _, err := a.pipe.Read(packet); err != nil {
		return err
	}
	token := binary.NativeEndian.Uint32(packet[8:])
	err := mount()
	request := uintptr(0x9360) // AUTOFS_IOC_READY
	if err != nil {
		request = 0x9361 // AUTOFS_IOC_FAIL
	}
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, a.root.Fd(), request, uintptr(token)); e != 0 {
		return errors.Join(err, e)
	}
	return err
}

// visit reads a file as a program that knows of nothing.
func visit(path string) (string, error) {
	cmd := exec.Command("cat", path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestAutomount(t *testing.T) {
	w, mnt := newKernelWorld(t)
	p := w.spawn()
	w.steps([]step{{"disk create work", 0, `work`, ""}, {"mount work DIR/mnt", 0, `mounted`, ""}})
	writeSynced(t, filepath.Join(mnt, "kept"), "one")
	w.steps([]step{{"umount DIR/mnt", 0, `unmounted`, ""}})

	t.Cleanup(func() {
		left, _ := filepath.Glob(w.cfg.Socket + ".mounts/*")
		for _, dir := range left {
			if unix.Unmount(dir, unix.MNT_DETACH) == nil {
				t.Errorf("a mount was left on %s", dir)
			}
		}
	})
	a := newAutomounter(t, mnt)
	come := func(what string) {
		t.Helper()
		answered := make(chan error, 1)
		go func() {
			answered <- a.answer(func() error {
				out, err := w.helperCommand("work", mnt, "-o", "rw").CombinedOutput()
				if err != nil {
					err = fmt.Errorf("%w: %s", err, out)
				}
				return err
			})
		}()
		if got, err := visit(filepath.Join(mnt, "kept")); err != nil || got != "one" {
			t.Errorf("%s: %q, %v", what, got, err)
		}
		if err := <-answered; err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	come("the first visitor")
	w.steps([]step{{"mounts", 0, `work +\S+/mnt +rw +mounted\n$`, ""}, {"disk rm work", exitInUse, "", `mnt`}})
	if own, err := os.ReadDir(w.cfg.Socket + ".mounts"); err != nil || len(own) != 1 {
		t.Errorf("%v, %v", own, err)
	}
	// The automounter takes it away when nobody has come for a while.
	if err := unix.Unmount(mnt, 0); err != nil {
		t.Fatal(err)
	}
	w.await("mount-lost")
	w.steps([]step{{"mounts", 0, `^[^\n]*\n$`, ""}})
	if own, err := os.ReadDir(w.cfg.Socket + ".mounts"); err != nil || len(own) != 0 {
		t.Errorf("%v, %v", own, err)
	}
	come("the next visitor")

	// A crash of the server leaves it to the automounter again.
	_ = p.end(syscall.SIGKILL)
	p = w.spawn()
	w.steps([]step{{"mounts", 0, `^[^\n]*\n$`, ""}})
	come("after the crash")
	w.steps([]step{{"umount DIR/mnt", 0, `unmounted`, ""}, {"mounts", 0, `^[^\n]*\n$`, ""}})
	come("after tine umount")
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatalf("stop: %v\n%s", err, p.stderr.String())
	}
	if shown, err := os.ReadFile("/proc/self/mountinfo"); err != nil || slices.ContainsFunc(strings.Split(string(shown), "\n"), func(l string) bool {
		return strings.Contains(l, w.dir) && strings.Contains(l, "fuse.tine")
	}) {
		t.Errorf("a mount is left after the stop: %v", err)
	}
}
