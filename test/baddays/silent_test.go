package baddays

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/api"
)

// silentLimit is how long a command may take against a server that says nothing.
const silentLimit = 20 * time.Second

// waiters are programs that hang on a mount, each in another call.
type waiters struct {
	t    *testing.T
	cmds []*exec.Cmd
	dead chan int
	left map[int]bool // those that have not ended
}

// byPath are programs that have to find their files first, and byHandle some that
// have theirs open already when they go on. MNT is the mount.
var (
	byPath = []string{
		"exec cat MNT/f", "exec stat MNT/none", "exec ls MNT/d", "echo x > MNT/new", "exec rm MNT/g", "exec mv MNT/g2 MNT/h", "exec df MNT",
		"exec dd if=/dev/zero of=MNT/big bs=1M count=4 conv=fsync", "cd MNT && exec ls",
	}
	byHandle = []string{"exec 3>>MNT/f; go; echo x >&3", "exec 3<MNT/f; go; exec cat <&3", "cd MNT/d; go; exec stat none", "exec 3>>MNT/f; go; exec flock 3"}
)

// hang starts programs that are to wait for a server that freeze, called on the
// way, makes silent.
func hang(t *testing.T, mnt string, freeze func()) *waiters {
	t.Helper()
	h := &waiters{t: t, dead: make(chan int, 32), left: map[int]bool{}}
	// A program must not be started in the mount: starting it would wait.
	start := func(line string) (in io.WriteCloser, out *bufio.Reader) {
		cmd := exec.Command("sh", "-c", "go() { echo ready; read _; }; "+strings.ReplaceAll(line, "MNT", mnt))
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		h.cmds = append(h.cmds, cmd)
		return in, bufio.NewReader(stdout)
	}
	var goOn []io.Closer
	for _, line := range byHandle {
		in, out := start(line)
		if said, err := out.ReadString('\n'); said != "ready\n" {
			t.Fatalf("%s: %q, %v", line, said, err)
		}
		goOn = append(goOn, in)
	}
	freeze()
	for _, c := range goOn {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range byPath {
		start(line)
	}
	for i, cmd := range h.cmds {
		h.left[i] = true
		go func() {
			_, _ = cmd.Process.Wait()
			h.dead <- i
		}()
	}
	return h
}

// stuck waits until all of the programs wait in the kernel for the server.
func (h *waiters) stuck() {
	h.t.Helper()
	for _, c := range h.cmds {
		_, err := eventually(callLimit, func() error {
			at, err := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", c.Process.Pid))
			if err == nil && !strings.Contains(string(at), "request") && !strings.Contains(string(at), "fuse") {
				err = fmt.Errorf("%v waits in %q", c.Args, at)
			}
			return err
		})
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

// kill sends SIGKILL to all of them. Those that hold a file open then wait in its
// close, which the kernel lets nothing interrupt; the others must end at once.
func (h *waiters) kill() {
	h.t.Helper()
	for _, c := range h.cmds {
		if err := c.Process.Signal(syscall.SIGKILL); err != nil {
			h.t.Fatal(err)
		}
	}
	h.end(len(byHandle))
}

// end wants all of them to end but for the first few.
func (h *waiters) end(but int) {
	h.t.Helper()
	limit := time.After(silentLimit)
	for {
		waiting := ""
		for i := range h.left {
			if i >= but {
				at, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", h.cmds[i].Process.Pid))
				waiting += fmt.Sprintf("\n%q waits in %s", h.cmds[i].Args[2], at)
			}
		}
		if waiting == "" {
			return
		}
		select {
		case i := <-h.dead:
			delete(h.left, i)
		case <-limit:
			h.t.Fatalf("some programs do not end:%s", waiting)
		}
	}
}

// silentWorld has a mounted disk with some files, whose names and pages the
// kernel does not keep.
func silentWorld(t *testing.T) (*world, string) {
	w := newWorld(t, nil)
	w.start()
	w.tine("disk", "create", "work")
	mnt := w.rig.At("work")
	if err := os.MkdirAll(mnt, 0o755); err != nil {
		t.Fatal(err)
	}
	w.tine("mount", "--cache", "none", "work", mnt)
	for _, p := range []string{"f", "g", "g2", "d/x"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(mnt, p)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := writeSynced(filepath.Join(mnt, p), []byte("content")); err != nil {
			t.Fatal(err)
		}
	}
	return w, mnt
}

func writeSynced(path string, p []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(p); err != nil {
		return err
	}
	return f.Sync()
}

// pid is the server's process.
func (w *world) pid() int {
	w.t.Helper()
	s, err := w.api.Server(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return s.PID
}

// freeze stops the server in its tracks, each of its threads: one that still ran
// could take a request, which nothing interrupts then. thaw lets it go on.
func (w *world) freeze(pid int) {
	w.t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		w.t.Fatal(err)
	}
	if _, err := eventually(callLimit, func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, thread := range threads {
			if stat, err := os.ReadFile(thread); err == nil && !strings.Contains(string(stat), ") T ") {
				return fmt.Errorf("it runs: %.60s", stat)
			}
		}
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) thaw(pid int) {
	w.t.Helper()
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		w.t.Fatal(err)
	}
}

// TestSilentServerProgramsCanBeKilled: a stopped server does not make programs
// that nothing can kill, and when it goes on the others get their answers.
func TestSilentServerProgramsCanBeKilled(t *testing.T) {
	t.Parallel()
	w, mnt := silentWorld(t)
	pid := w.pid()
	hang(t, mnt, func() {}).end(0) // none of them waits while the server answers
	doomed := hang(t, mnt, func() { w.freeze(pid) })
	doomed.stuck()
	doomed.kill()
	w.thaw(pid)
	doomed.end(0)
	patient := hang(t, mnt, func() { w.freeze(pid) })
	patient.stuck()
	w.thaw(pid)
	patient.end(0)
	if b, err := os.ReadFile(filepath.Join(mnt, "f")); err != nil || !strings.HasPrefix(string(b), "content") {
		t.Errorf("%q, %v", b, err)
	}
}

// TestSilentServerCommands: every command against a stopped server ends, and
// says what to do; a mount can be taken away from it.
func TestSilentServerCommands(t *testing.T) {
	t.Parallel()
	w, mnt := silentWorld(t)
	pid := w.pid()
	users := hang(t, mnt, func() { w.freeze(pid) })
	users.stuck()
	commands := [][]string{{"disk", "ls"}, {"disk", "show", "work"}, {"mounts"}, {"fork", "work", "f"}, {"checkpoint", "create", "work", "c"}, {"sync", "work"},
		{"du", "work"}, {"log", "work"}, {"events"}, {"fsck"}, {"export", "work", "--to-tar", filepath.Join(w.rig.Dir(), "out.tar")}, {"umount", mnt}, {"mount", "work", w.rig.Dir()},
		{"doctor"}, {"diff", "work", "work@x"}}
	type answer struct {
		args []string
		out  string
		code int
		took time.Duration
	}
	answers := make(chan answer)
	for _, args := range commands {
		go func() {
			began := time.Now()
			out, err := w.rig.Tine(t.Context(), args...)
			code := 0
			if ended, ok := asExit(err); ok {
				code = ended
			}
			answers <- answer{args, out, code, time.Since(began)}
		}()
	}
	for range commands {
		a := <-answers
		name := "tine " + strings.Join(a.args, " ")
		if a.took > silentLimit || a.code != 10 && a.args[0] != "doctor" {
			t.Errorf("%s ends with %d after %v: %s", name, a.code, a.took, a.out)
		}
		for _, want := range []string{"does not answer", fmt.Sprint("process ", pid), fmt.Sprint("kill -CONT ", pid), "tine umount --force", "may still do"} {
			if !strings.Contains(a.out, want) {
				t.Errorf("%s does not say %q: %s", name, want, a.out)
			}
		}
	}
	began := time.Now()
	users.kill()
	if out, code := w.run("umount", "--force", mnt); code != 0 || time.Since(began) > silentLimit {
		t.Errorf("tine umount --force ends with %d after %v: %s", code, time.Since(began), out)
	}
	users.end(0) // they were let go, those that nothing could kill too
	w.thaw(pid)
	// What it was asked meanwhile it may do now, and then it forgets the mount, too.
	_, err := eventually(callLimit, func() error {
		ms, err := w.api.Mounts(t.Context())
		if err == nil && len(ms) > 0 && ms[0].State != "down" {
			err = fmt.Errorf("%+v", ms)
		}
		return err
	})
	if err != nil {
		t.Errorf("what the server says of a mount that was taken from it: %v", err)
	}
	w.mount("work")
}

// TestSilentServerUmount: umount(8) -f takes the mount of a stopped server away.
func TestSilentServerUmount(t *testing.T) {
	t.Parallel()
	w, mnt := silentWorld(t)
	pid := w.pid()
	users := hang(t, mnt, func() { w.freeze(pid) })
	users.stuck()
	// The first call lets the programs go, who then leave the mount.
	err := w.within("umount -f", func() error {
		_, err := eventually(silentLimit, func() error {
			out, err := exec.Command("umount", "-f", mnt).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return err
		})
		return err
	})
	if err != nil {
		t.Error(err)
	}
	users.end(0)
	w.thaw(pid)
	if _, err := eventually(callLimit, func() error { _, err := w.api.Disks(t.Context(), false); return err }); err != nil {
		t.Error(err)
	}
}

// TestSilentServerKilled: programs that hang on a server that was stopped and is
// then killed are let go, and the next server brings the mount back.
func TestSilentServerKilled(t *testing.T) {
	t.Parallel()
	w, mnt := silentWorld(t)
	pid := w.pid()
	users := hang(t, mnt, func() { w.freeze(pid) })
	users.stuck()
	w.kill()
	users.end(0)
	if _, err := os.Stat(mnt); err != unix.ENOTCONN && !strings.Contains(fmt.Sprint(err), "not connected") {
		t.Errorf("a dead mount answers %v", err)
	}
	w.start()
	if b, err := os.ReadFile(filepath.Join(mnt, "f")); err != nil || string(b) != "content" {
		t.Errorf("%q, %v", b, err)
	}
	w.kill()
	began := time.Now()
	if out, code := w.run("umount", mnt, "--data", w.rig.Data()); code != 0 || time.Since(began) > silentLimit {
		t.Errorf("tine umount without a server ends with %d after %v: %s", code, time.Since(began), out)
	}
}

// TestSilentClient: the client of package api gives up too, and tells it apart
// from a server that is not there.
func TestSilentClient(t *testing.T) {
	t.Parallel()
	w, _ := silentWorld(t)
	pid := w.pid()
	w.freeze(pid)
	defer w.thaw(pid)
	began := time.Now()
	_, err := w.api.Disks(t.Context(), false)
	if !api.IsSilent(err) || time.Since(began) > silentLimit {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}
