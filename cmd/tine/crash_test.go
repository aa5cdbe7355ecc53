package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tine.dev/tine/internal/fs/fusefs"
)

// TestMain lets the test binary be the real program, so that a server can be
// started in a process of its own and killed.
func TestMain(m *testing.M) {
	if os.Getenv("TINE_TEST_RUN") == "1" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is a server in a process of its own.
type process struct {
	cmd    *exec.Cmd
	stderr strings.Builder
}

// spawn starts a server on the world's directory and waits until it is ready.
func (w *world) spawn() *process {
	w.t.Helper()
	notify := filepath.Join(w.dir, "notify")
	_ = os.Remove(notify)
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	p := &process{cmd: exec.Command(os.Args[0], "serve", "--data", w.cfg.Data, "--socket", w.cfg.Socket)}
	p.cmd.Env = append(os.Environ(), "TINE_TEST_RUN=1", "NOTIFY_SOCKET="+notify)
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a service has it; see TestAutomount
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = p.end(syscall.SIGKILL) })
	ready := make(chan error, 1)
	go func() {
		buf := make([]byte, 100)
		n, err := conn.Read(buf)
		if err == nil && string(buf[:n]) != "READY=1" {
			err = errors.New(string(buf[:n]))
		}
		ready <- err
	}()
	if err := <-ready; err != nil {
		w.t.Fatalf("the server did not start: %v\n%s", err, p.stderr.String())
	}
	return p
}

// end sends the signal and waits for the process.
func (p *process) end(s syscall.Signal) error {
	if p.cmd.ProcessState != nil {
		return nil
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		return err
	}
	return p.cmd.Wait()
}

// newKernelWorld is a world whose server mounts for real.
func newKernelWorld(t *testing.T) (*world, string) {
	t.Helper()
	if r := fusefs.Probe(); r.Err != nil {
		t.Skipf("nothing can be mounted here: %v", r.Err)
	}
	w := newWorld(t)
	w.stopServe()
	w.env["TINE_DATA"] = w.cfg.Data
	mnt := filepath.Join(w.dir, "mnt")
	if err := os.Mkdir(mnt, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(mnt, syscall.MNT_DETACH); err == nil {
			t.Error("a mount was left")
		}
	})
	return w, mnt
}

func writeSynced(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.Create(path)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, path, want string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != want {
		t.Errorf("%s: %q, %v; want %q", path, b, err, want)
	}
}

func TestMountsSurviveTheServer(t *testing.T) {
	w, mnt := newKernelWorld(t)
	p := w.spawn()
	w.steps([]step{
		{"disk create work", 0, `work`, ""},
		{"mount work DIR/mnt", 0, `mounted`, ""},
	})
	writeSynced(t, filepath.Join(mnt, "kept"), "before the crash")

	// A crash leaves a dead mount; the next start brings it back.
	_ = p.end(syscall.SIGKILL)
	if _, err := os.Stat(mnt); !errors.Is(err, syscall.ENOTCONN) {
		t.Fatalf("after the crash: %v", err)
	}
	p = w.spawn()
	expect(t, filepath.Join(mnt, "kept"), "before the crash")
	writeSynced(t, filepath.Join(mnt, "kept"), "before the stop")

	// A stop unmounts, even in use, and the next start mounts again.
	f, err := os.Open(filepath.Join(mnt, "kept"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatalf("stop: %v\n%s", err, p.stderr.String())
	}
	if left, err := os.ReadDir(mnt); err != nil || len(left) != 0 {
		t.Fatalf("after the stop: %v, %v", left, err)
	}
	p = w.spawn()
	expect(t, filepath.Join(mnt, "kept"), "before the stop")

	// A crash, and umount without a server: gone for good.
	_ = p.end(syscall.SIGKILL)
	w.steps([]step{{"umount DIR/mnt", 0, `unmounted`, ""}})
	p = w.spawn()
	w.steps([]step{
		{"mounts", 0, `^DISK +DIRECTORY +MODE +STATE\n$`, ""},
		{"disk ls", 0, `work `, ""},
	})
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatalf("stop: %v\n%s", err, p.stderr.String())
	}
}

func TestHistoryOnAMount(t *testing.T) {
	w, mnt := newKernelWorld(t)
	p := w.spawn()
	kept := filepath.Join(mnt, "kept")
	w.steps([]step{
		{"disk create work", 0, `work`, ""},
		{"mount work DIR/mnt", 0, `mounted`, ""},
	})
	writeSynced(t, kept, "one")
	w.steps([]step{{"checkpoint create work one", 0, `one`, ""}})
	writeSynced(t, kept, "two")
	writeSynced(t, filepath.Join(mnt, "new"), "")
	w.steps([]step{
		{"diff work@one work", 0, `^(A new\nM kept|M kept\nA new)\n$`, ""},
		{"rollback work one", 0, `rolled work back to one`, ""},
	})
	expect(t, kept, "one")
	w.steps([]step{{"undo work", 0, `took back`, ""}})
	expect(t, kept, "two")
	w.steps([]step{{"fork work other third", 0, `third`, ""}})
	writeSynced(t, kept, "three")
	w.steps([]step{
		{"promote other --onto work", exitConflict, "", `has changed since.*--force`},
		{"promote other --onto work --force", 0, `work is now what other was`, ""},
	})
	expect(t, kept, "two")
	w.steps([]step{
		{"disk show other", exitNotFound, "", `other`},
		{"fork work@one try", 0, `try`, ""},
		{"umount DIR/mnt", 0, `unmounted`, ""},
		{"mount try DIR/mnt", 0, `mounted`, ""},
	})
	expect(t, kept, "one")
	f, err := os.Open(kept)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w.steps([]step{
		{"umount DIR/mnt", exitInUse, "", `in use.*tine umount --force`},
		{"umount --force DIR/mnt", 0, `unmounted`, ""},
		{"disk rm try", 0, `trash`, ""},
	})
	if err := p.end(syscall.SIGINT); err != nil {
		t.Fatalf("stop: %v\n%s", err, p.stderr.String())
	}
}
