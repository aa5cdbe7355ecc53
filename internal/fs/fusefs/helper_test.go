package fusefs_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/fs/fusefs"
)

// helperEnv names what a child of the test binary does instead of testing.
// Children exist for what one process cannot do to itself: hold a lock against
// itself, crash, or use a mount that it serves.
const helperEnv = "TINE_FUSEFS_TEST_HELPER"

var helpers = map[string]func(args []string) error{
	"posix-lock": helperLock,
	"flock":      helperFlock,
	"mmap":       helperMmap,
	"serve":      helperServe,
	"guard":      helperGuard,
	"as-user":    helperAsUser,
	"user":       helperUser,
	"serve-user": helperServeUser,
	"clean-user": helperCleanUser,
}

func TestMain(m *testing.M) {
	name := os.Getenv(helperEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := helpers[name](os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// child is a running helper.
type child struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Scanner
}

func startHelper(t testing.TB, name string, args ...string) *child {
	t.Helper()
	return startHelperWith(t, nil, name, args...)
}

func startHelperWith(t testing.TB, attr *syscall.SysProcAttr, name string, args ...string) *child {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), helperEnv+"="+name)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = attr
	stdin, err := cmd.StdinPipe()
	check(t, err)
	stdout, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	c := &child{t, cmd, stdin, bufio.NewScanner(stdout)}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	return c
}

// line waits for the next line that the helper prints.
func (c *child) line() string {
	c.t.Helper()
	if !c.out.Scan() {
		c.t.Fatalf("the helper ended early: %v", c.out.Err())
	}
	return c.out.Text()
}

// finish lets the helper go on to its end and fails the test if it fails.
func (c *child) finish() {
	c.t.Helper()
	c.stdin.Close()
	for c.out.Scan() {
	}
	if err := c.cmd.Wait(); err != nil {
		c.t.Fatalf("helper: %v", err)
	}
}

func runHelper(t testing.TB, name string, args ...string) {
	t.Helper()
	startHelper(t, name, args...).finish()
}

func untilStdinCloses() { io.Copy(io.Discard, os.Stdin) }

// needFUSE skips a test on a machine that cannot mount.
func needFUSE(t testing.TB) {
	t.Helper()
	if r := fusefs.Probe(); r.Err != nil {
		t.Skipf("cannot mount here: %v", r.Err)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErrno(t testing.TB, what string, err error, want syscall.Errno) {
	t.Helper()
	if want == 0 && err != nil || want != 0 && !errors.Is(err, want) {
		t.Errorf("%s: %v, want errno %v", what, err, want)
	}
}

func write(t testing.TB, path, content string) {
	t.Helper()
	check(t, os.WriteFile(path, []byte(content), 0o644))
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	check(t, err)
	return string(b)
}

func stat(t testing.TB, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatalf("stat %s: %v", path, err)
	}
	return st
}

func open(t testing.TB, path string, flags int) int {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	return fd
}

// eventually waits until cond holds, at most for the given time.
func eventually(t testing.TB, within time.Duration, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !cond(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, within)
		}
	}
}

// shell runs a script with the directory as its $1.
func shell(t testing.TB, dir, script string) string {
	t.Helper()
	out, err := exec.Command("sh", "-euc", `cd "$1"; `+script, "sh", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}
