package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/api"
)

// process is a program that was started and is to be stopped.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
	err  error         // how; set before done is closed
}

// stopPatience is how long a program may take to stop when told to.
const stopPatience = 30 * time.Second

// launch starts a program in a process group of its own, so that a signal
// from the keyboard reaches it only through tearDown.
func (b *bench) launch(name, program string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(program, args...), log: b.at(name + ".log"), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	b.after(p.stop)
	return p, nil
}

// stop asks the program to end, and insists.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.done:
	case <-time.After(stopPatience):
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s did not stop within %s and was killed", p.name, stopPatience)
	}
	if p.err != nil {
		return p.failure()
	}
	return nil
}

// failure tells how the program ended, with the end of its log.
func (p *process) failure() error {
	log, err := os.ReadFile(p.log)
	if err != nil {
		log = []byte(err.Error())
	}
	if n := len(log); n > 2000 {
		log = log[n-2000:]
	}
	return fmt.Errorf("%s ended: %v: %s", p.name, p.err, log)
}

// await calls ready every few milliseconds until it returns true.
func (p *process) await(ctx context.Context, ready func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-p.done:
			return p.failure()
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

func (b *bench) startServer(ctx context.Context, program string) error {
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	socket := b.at("sock")
	b.client = api.NewClient(socket, "bench")
	b.after(func() error { b.client.Close(); return nil })
	// A stopped server has taken its mounts away; this is for one that was killed.
	b.after(func() error { return detach(b.at("mnt")) })
	if b.server, err = b.launch("server", program, "serve", "--data", b.at("data"), "--socket", socket); err != nil {
		return err
	}
	err = b.server.await(ctx, func() bool { _, err := b.client.Server(ctx); return err == nil })
	if err != nil {
		return err
	}
	if _, err := b.client.CreateDisk(ctx, disk); err != nil {
		return err
	}
	_, err = b.client.Mount(ctx, api.NewMount{Ref: disk, Dir: b.at("mnt")})
	return err
}

func (b *bench) startMemfs(ctx context.Context) error {
	dir := b.at("memfs")
	outside, err := device(dir)
	if err != nil {
		return err
	}
	b.after(func() error { return detach(dir) })
	p, err := b.launch("memfs", b.at("memfs-program"), dir)
	if err != nil {
		return err
	}
	return p.await(ctx, func() bool { d, err := device(dir); return err == nil && d != outside })
}

func device(dir string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat(dir, &st)
	return st.Dev, err
}

// detach takes away what is mounted on a directory, if anything is.
func detach(dir string) error {
	err := unix.Unmount(dir, unix.MNT_DETACH)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		return nil
	}
	return err
}

// peakMiB is the most memory that the server has had.
func (b *bench) peakMiB() int64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", b.server.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			if err == nil {
				return kib / 1024
			}
		}
	}
	return 0
}
