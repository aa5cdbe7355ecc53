package fusefs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/fs/fusefs"
	"tine.dev/tine/internal/tine"
)

// ordinary is the user and group of servers that are not root: nobody, for
// fusermount3 wants a name for who calls it, and every system has this one.
const ordinary = 65534

// userDir makes a directory of the ordinary user.
func userDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	check(t, os.Chmod(filepath.Dir(dir), 0o755))
	check(t, os.Chmod(dir, 0o755))
	check(t, os.Chown(dir, ordinary, ordinary))
	return dir
}

// startUserServer starts a server as an ordinary user. Its /etc/fuse.conf has
// the given content, and a control file system of FUSE is there if asked for.
func startUserServer(t testing.TB, fuseConf string, setup ...string) *server {
	t.Helper()
	needFUSE(t)
	if _, err := exec.LookPath("fusermount3"); err != nil {
		t.Skip("fusermount3 is not installed (apt install fuse3)")
	}
	if _, err := os.Stat("/etc/mtab"); err != nil {
		t.Skip("fusermount3 wants /etc/mtab, which is not here (ln -s ../proc/self/mounts /etc/mtab)")
	}
	etc := t.TempDir()
	write(t, etc+"/fuse.conf", fuseConf)
	check(t, os.Chmod(etc+"/fuse.conf", 0o644))
	check(t, unix.Mknod(etc+"/fuse", unix.S_IFCHR, int(stat(t, "/dev/fuse").Rdev)))
	check(t, os.Chmod(etc+"/fuse", 0o666)) // as systems usually have it
	// A mount namespace of its own: what it mounts is not seen outside.
	attr := &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	return awaitServer(t, startHelperWith(t, attr, "serve-user", append([]string{userDir(t), etc}, setup...)...))
}

// helperServeUser is helperServe for another user. Args are the directory of
// the host, one with what takes the place of /etc/fuse.conf and /dev/fuse, and
// words that ask for more.
func helperServeUser(args []string) error {
	if err := dropCopies(); err != nil {
		return err
	}
	for _, over := range []string{"/etc/fuse.conf", "/dev/fuse"} {
		if err := unix.Mount(filepath.Join(args[1], filepath.Base(over)), over, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount over %s: %w", over, err)
		}
	}
	for _, word := range args[2:] {
		switch word {
		case "fusectl":
			if err := unix.Mount("fusectl", "/sys/fs/fuse/connections", "fusectl", 0, ""); err != nil && err != unix.EBUSY {
				return fmt.Errorf("mount the control file system: %w", err)
			}
		case "no-program":
			// An empty file in its place cannot be run.
			path, err := exec.LookPath("fusermount3")
			if err != nil {
				return err
			}
			if err := unix.Mount(args[1]+"/fuse.conf", path, "", unix.MS_BIND, ""); err != nil {
				return err
			}
		case "closed-device":
			if err := os.Chmod("/dev/fuse", 0o600); err != nil {
				return err
			}
		}
	}
	if err := becomeOrdinary(); err != nil {
		return err
	}
	return helperServe(args[:1])
}

// dropCopies takes the copies of other servers' mounts out of the new mount
// namespace, which would keep those from ending.
func dropCopies() error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); strings.Contains(line, " - fuse.tine ") {
			if err := unix.Unmount(fields[4], unix.MNT_DETACH); err != nil {
				return fmt.Errorf("let go of %s: %w", fields[4], err)
			}
		}
	}
	return nil
}

func becomeOrdinary() error {
	if err := syscall.Setgroups(nil); err != nil {
		return err
	}
	if err := syscall.Setgid(ordinary); err != nil {
		return err
	}
	return syscall.Setuid(ordinary)
}

// in runs a script as seen by the server: in its mount namespace, as the user.
func (s *server) in(uid int, dir, script string) (string, error) {
	cmd := exec.Command("nsenter", "-t", fmt.Sprint(s.cmd.Process.Pid), "-m", "setpriv", fmt.Sprintf("--reuid=%d", uid),
		fmt.Sprintf("--regid=%d", uid), "--clear-groups", "sh", "-euc", `cd "$1"; `+script, "sh", dir)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (s *server) mustIn(uid int, dir, script string) string {
	s.t.Helper()
	out, err := s.in(uid, dir, script)
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

// TestOrdinaryUser mounts, works, checkpoints and unmounts without root.
func TestOrdinaryUser(t *testing.T) {
	s := startUserServer(t, "")
	dir := userDir(t)
	s.do(order{Do: "mount", Ref: diskName, Dir: dir})
	line := s.mustIn(ordinary, "/", fmt.Sprintf(`grep " %s " /proc/mounts`, dir))
	for _, want := range []string{"tine ", " fuse.tine ", "nosuid", "nodev", "noatime", "user_id=65534,group_id=65534", "default_permissions"} {
		if !strings.Contains(line, want) {
			t.Errorf("/proc/mounts says %q, not %q", line, want)
		}
	}
	if strings.Contains(line, "allow_other") {
		t.Errorf("allow_other was not asked for: %q", line)
	}
	s.mustIn(ordinary, dir, `echo kept >f; mkdir d; ln -s f d/s; test "$(cat f)" = kept; test "$(stat -c %u:%g f)" = 65534:65534`)
	if out, err := s.in(0, dir, "cat f"); err == nil {
		t.Errorf("root is let in without allow_other: %q", out)
	}
	s.checkpoint("cp")
	s.mustIn(ordinary, dir, `echo changed >f`)
	// Needs the notifications that go through our own duplicate of the device.
	s.do(order{Do: "rollback", Name: "cp"})
	if got := s.mustIn(ordinary, dir, "cat f"); got != "kept" {
		t.Errorf("after a rollback the file has %q", got)
	}
	busy := exec.Command("nsenter", "-t", fmt.Sprint(s.cmd.Process.Pid), "-m", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
		"sh", "-c", `cd "$1"; echo in; read x`, "sh", dir)
	stdin, err := busy.StdinPipe()
	check(t, err)
	stdout, err := busy.StdoutPipe()
	check(t, err)
	check(t, busy.Start())
	_, err = stdout.Read(make([]byte, 3))
	check(t, err)
	_, err = s.try(order{Do: "unmount", Dir: dir})
	wantKind(t, err, tine.KindBusy)
	check(t, stdin.Close())
	busy.Wait()
	s.do(order{Do: "unmount", Dir: dir})
	if got := s.mustIn(ordinary, dir, "ls -A"); got != "" {
		t.Errorf("after the unmount the directory has %q", got)
	}
	s.do(order{Do: "mount", Ref: diskName, Dir: dir, Options: options{ReadOnly: true}})
	if out, err := s.in(ordinary, dir, "echo x >f"); err == nil || !strings.Contains(out, "Read-only") {
		t.Errorf("a write to a read-only mount: %q, %v", out, err)
	}
}

// TestOrdinaryUserIsRefused: every refusal says what to do.
func TestOrdinaryUserIsRefused(t *testing.T) {
	s := startUserServer(t, "")
	_, err := s.try(order{Do: "mount", Ref: diskName, Dir: userDir(t), Options: options{AllowOther: true}})
	wantKind(t, err, tine.KindAccess)
	wantMention(t, err, "user_allow_other")
	_, err = s.try(order{Do: "mount", Ref: diskName, Dir: "/mnt"})
	wantKind(t, err, tine.KindAccess)
	wantMention(t, err, "/mnt")
	_, err = s.try(order{Do: "mount", Ref: diskName, Dir: userDir(t), Options: options{AllowSUID: true}})
	wantKind(t, err, tine.KindAccess)
	s = startUserServer(t, "", "no-program")
	_, err = s.try(order{Do: "mount", Ref: diskName, Dir: userDir(t)})
	wantKind(t, err, tine.KindUnsupported)
	wantMention(t, err, "not installed")
	s = startUserServer(t, "", "closed-device")
	_, err = s.try(order{Do: "mount", Ref: diskName, Dir: userDir(t)})
	wantKind(t, err, tine.KindAccess)
	wantMention(t, err, "/dev/fuse")
}

func TestOrdinaryUserAllowsOthers(t *testing.T) {
	s := startUserServer(t, "user_allow_other\n")
	dir := userDir(t)
	s.do(order{Do: "mount", Ref: diskName, Dir: dir, Options: options{AllowOther: true}})
	s.mustIn(ordinary, dir, `echo x >f; chmod 644 f; echo y >secret; chmod 600 secret`)
	if got := s.mustIn(2000, dir, "cat f"); got != "x" {
		t.Errorf("another user reads %q", got)
	}
	if out, err := s.in(2000, dir, "cat secret"); err == nil || !strings.Contains(out, "denied") {
		t.Errorf("another user reads what its mode forbids: %q, %v", out, err)
	}
}

// TestOrdinaryUserForces takes a mount from the programs that use it, and
// cleans up after a killed server.
func TestOrdinaryUserForces(t *testing.T) {
	s := startUserServer(t, "", "fusectl")
	dir := userDir(t)
	s.do(order{Do: "mount", Ref: diskName, Dir: dir})
	busy := exec.Command("nsenter", "-t", fmt.Sprint(s.cmd.Process.Pid), "-m", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
		"sh", "-c", `exec 5>"$1/f"; echo kept >&5; echo in; read x; echo late >&5`, "sh", dir)
	stdin, err := busy.StdinPipe()
	check(t, err)
	stdout, err := busy.StdoutPipe()
	check(t, err)
	check(t, busy.Start())
	_, err = stdout.Read(make([]byte, 3))
	check(t, err)
	s.do(order{Do: "force", Dir: dir})
	check(t, stdin.Close())
	if busy.Wait() == nil {
		t.Error("a handle of a forced unmount still takes writes")
	}
	s.do(order{Do: "mount", Ref: diskName, Dir: dir})
	if got := s.mustIn(ordinary, dir, "cat f"); got != "kept" {
		t.Errorf("what was written before is %q", got)
	}
}

// TestOrdinaryUserCleansUp removes the mount of a killed server of that user.
func TestOrdinaryUserCleansUp(t *testing.T) {
	s := startUserServer(t, "")
	dir := userDir(t)
	s.do(order{Do: "mount", Ref: diskName, Dir: dir})
	exe, err := os.Executable()
	check(t, err)
	cmd := exec.Command("nsenter", "-t", fmt.Sprint(s.cmd.Process.Pid), "-m", exe, dir)
	cmd.Env = append(os.Environ(), helperEnv+"=clean-user")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	check(t, err)
	stdout, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	_, err = stdout.Read(make([]byte, 8)) // it keeps the namespace from now on
	check(t, err)
	check(t, s.cmd.Process.Kill())
	if !s.endsWithin(20 * time.Second) {
		t.Error("a killed server does not end")
	}
	check(t, stdin.Close())
	check(t, cmd.Wait())
}

// helperCleanUser waits, and then as the ordinary user cleans the dead mount
// from a directory, which args name.
func helperCleanUser(args []string) error {
	fmt.Println("ready")
	untilStdinCloses()
	if err := becomeOrdinary(); err != nil {
		return err
	}
	var st unix.Statfs_t // the kernel knows the answer to stat(2)
	if err := unix.Statfs(args[0], &st); err != unix.ENOTCONN {
		return fmt.Errorf("the mount of the killed server answers %v", err)
	}
	if err := fusefs.CleanStale(args[0]); err != nil {
		return err
	}
	_, err := os.ReadDir(args[0])
	return err
}
