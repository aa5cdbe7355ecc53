package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrCannotMount is what Usable wraps.
var ErrCannotMount = errors.New("this machine cannot mount")

// Usable returns nil if a rig can mount here, else an error that wraps
// ErrCannotMount and says what is missing.
func Usable() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: not root", ErrCannotMount)
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCannotMount, err)
	}
	return f.Close()
}

// Build compiles the tine of the module in the current directory, or in one
// above it, to the file out.
func Build(ctx context.Context, out string) error {
	cmd := Command(ctx, "go", "build", "-trimpath", "-o", out, "tine.dev/tine/cmd/tine")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	_, err := Output(cmd)
	return err
}

// Rig is a server, its data and its mounts, all in one directory. Its methods
// may be called at once, but Start not while the server runs.
type Rig struct {
	binary string
	dir    string
	serve  []string // more flags of tine serve

	mu     sync.Mutex
	server *process // nil if none runs; who ends it takes it
}

// process is a running server.
type process struct {
	cmd   *exec.Cmd
	ended chan error // receives what Wait returns
}

// New makes a rig in dir, which must exist, with the tine at binary. The flags
// are given to `tine serve` at every start. Nothing runs yet.
func New(binary, dir string, serveFlags ...string) (*Rig, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	for _, d := range []string{"data", "mnt"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	return &Rig{binary: binary, dir: dir, serve: serveFlags}, nil
}

// Binary is the tine that the rig runs.
func (r *Rig) Binary() string { return r.binary }

// Dir is the rig's directory, without symbolic links.
func (r *Rig) Dir() string { return r.dir }

// Data is the server's data directory.
func (r *Rig) Data() string { return filepath.Join(r.dir, "data") }

// At is the directory on which Mount mounts the disk or checkpoint ref.
func (r *Rig) At(ref string) string { return filepath.Join(r.dir, "mnt", ref) }

// LogFile is the file to which all runs of the server write their logs.
func (r *Rig) LogFile() string { return filepath.Join(r.dir, "server.log") }

func (r *Rig) env() []string {
	return append(os.Environ(), "TINE_SOCKET="+filepath.Join(r.dir, "tine.sock"), "TINE_AUTHOR=rig")
}

// Start starts the server and returns when it is ready: after a crash, when it
// has recovered and its mounts are back. It returns how long that took.
func (r *Rig) Start(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	ready, address, err := r.listen()
	if err != nil {
		return 0, err
	}
	defer ready.Close()
	log, err := os.OpenFile(r.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	// Not Command: the server outlives ctx, until Stop, Kill or Close.
	cmd := exec.Command(r.binary, append([]string{"serve", "--data", r.Data()}, r.serve...)...)
	cmd.Env = append(r.env(), "NOTIFY_SOCKET="+address)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	r.mu.Lock()
	r.server = &process{cmd: cmd, ended: ended}
	r.mu.Unlock()

	told := make(chan error, 1)
	go func() { told <- awaitReady(ready) }()
	select {
	case err = <-told:
	case err = <-ended:
		r.take()
		err = fmt.Errorf("the server ended before it was ready: %v\n%s", err, r.LogEnd())
	case <-ctx.Done():
		err = ctx.Err()
	}
	return time.Since(began), err
}

// listen opens the socket on which the server tells that it is ready.
func (r *Rig) listen() (*net.UnixConn, string, error) {
	address := filepath.Join(r.dir, "ready.sock")
	if err := os.Remove(address); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, "", err
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	return conn, address, err
}

// awaitReady returns when a message says READY=1, or with an error when conn
// is closed.
func awaitReady(conn *net.UnixConn) error {
	message := make([]byte, 4096)
	for {
		n, err := conn.Read(message)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(message[:n])) {
			if strings.TrimSpace(line) == "READY=1" {
				return nil
			}
		}
	}
}

// LogEnd returns the last lines of the server's log.
func (r *Rig) LogEnd() string {
	log, err := os.ReadFile(r.LogFile())
	if err != nil {
		return err.Error()
	}
	return lastLines(string(log), 30)
}

// Kill ends the server with SIGKILL, which it cannot see coming, and waits
// until it is gone. Its mounts stay, dead.
func (r *Rig) Kill() error { return r.end(syscall.SIGKILL, nil) }

// Stop ends the server with SIGTERM: what was written is durable and the
// mounts are gone when it returns. If ctx ends first the server is killed.
func (r *Rig) Stop(ctx context.Context) error { return r.end(syscall.SIGTERM, ctx.Done()) }

func (r *Rig) end(s syscall.Signal, giveUp <-chan struct{}) error {
	p := r.take()
	if p == nil {
		return errNotRunning
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("the server has ended by itself: %w\n%s", err, r.LogEnd())
	}
	select {
	case err := <-p.ended:
		if s == syscall.SIGTERM && err != nil {
			return fmt.Errorf("stop the server: %w\n%s", err, r.LogEnd())
		}
		return nil
	case <-giveUp:
		err := p.cmd.Process.Kill()
		<-p.ended
		return errors.Join(fmt.Errorf("the server did not stop in time\n%s", r.LogEnd()), err)
	}
}

var errNotRunning = errors.New("the server does not run")

// take returns the running server, if any; ending it is then the caller's.
func (r *Rig) take() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.server
	r.server = nil
	return p
}

// Tine runs a tine command against the server and returns its output. One that
// takes longer than a minute hangs, for all a rig is used for: the server is
// then made to tell what all its goroutines do, and ends.
func (r *Rig) Tine(ctx context.Context, args ...string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := Command(limited, r.binary, args...)
	cmd.Env = r.env()
	out, err := Output(cmd)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = errors.Join(err, r.dump())
	}
	return out, err
}

// dump ends a server that hangs, so that it writes its goroutines to the log,
// and returns an error that names a copy of the log that Close leaves.
func (r *Rig) dump() error {
	if err := r.end(syscall.SIGQUIT, nil); errors.Is(err, errNotRunning) {
		return nil // another call has done it
	} else if err != nil {
		return err
	}
	log, err := os.ReadFile(r.LogFile())
	if err != nil {
		return err
	}
	f, err := os.CreateTemp("", "tine-hangs-*.log")
	if err != nil {
		return err
	}
	_, err = f.Write(log)
	return errors.Join(fmt.Errorf("the server hangs; its log and all its goroutines are in %s", f.Name()), err, f.Close())
}

// Mount mounts a disk or checkpoint and returns the directory, At(ref).
func (r *Rig) Mount(ctx context.Context, ref string) (string, error) {
	at := r.At(ref)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return "", err
	}
	_, err := r.Tine(ctx, "mount", ref, at)
	return at, err
}

// Unmount unmounts what Mount(ref) has mounted.
func (r *Rig) Unmount(ctx context.Context, ref string) error {
	_, err := r.Tine(ctx, "umount", r.At(ref))
	return err
}

// Close ends the server if it runs, takes away all mounts below the rig's
// directory and removes the directory. It does as much of that as it can and
// returns everything that went wrong.
func (r *Rig) Close() error {
	err := r.Kill()
	if errors.Is(err, errNotRunning) {
		err = nil
	}
	err = errors.Join(err, unmountBelow(r.dir))
	// A mount that is still there must not be emptied.
	if left, lerr := mountsBelow(r.dir); lerr != nil || len(left) > 0 {
		return errors.Join(err, lerr, fmt.Errorf("%s is not removed: mounts below it: %v", r.dir, left))
	}
	return errors.Join(err, os.RemoveAll(r.dir))
}
