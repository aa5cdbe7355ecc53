package posix

import (
	"encoding/gob"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// peerEnv makes the test binary a peer.
const peerEnv = "TINE_POSIX_PEER"

// peer is a second process, which makes the system calls that it is told to.
// It works through the other path to the directory of the case.
type peer struct {
	c     *kase
	stdin io.WriteCloser
	out   *gob.Encoder
	cmd   *exec.Cmd

	mu      sync.Mutex
	next    int
	waiting map[int]chan peerAnswer
}

// peerCall is a system call. An argument that is not nil stands for a pointer
// to its bytes, which come back as the call has left them.
type peerCall struct {
	ID   int
	Nr   uintptr
	Args [6]uintptr
	Data [6][]byte
}

type peerAnswer struct {
	ID    int
	N     int
	Errno syscall.Errno
	Data  [6][]byte
}

// servePeer is the peer's side. It ends when its standard input does.
func servePeer() {
	signal.Ignore(unix.SIGXFSZ)
	in, out := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.Stdout)
	var mu sync.Mutex
	for {
		var call peerCall
		if in.Decode(&call) != nil {
			return
		}
		go func() {
			for i, d := range call.Data {
				if len(d) > 0 {
					call.Args[i] = addressOf(d)
				}
			}
			a := call.Args
			n, _, errno := unix.Syscall6(call.Nr, a[0], a[1], a[2], a[3], a[4], a[5])
			mu.Lock()
			defer mu.Unlock()
			if out.Encode(peerAnswer{call.ID, int(n), errno, call.Data}) != nil {
				os.Exit(1)
			}
		}()
	}
}

// peer starts a peer, which ends with the case.
func (c *kase) peer() *peer {
	cmd := exec.Command(self)
	cmd.Dir = c.other()
	cmd.Env = append(os.Environ(), peerEnv+"=1", "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	c.ok(err, "peer")
	stdout, err := cmd.StdoutPipe()
	c.ok(err, "peer")
	c.ok(cmd.Start(), "peer")
	p := &peer{c: c, stdin: stdin, out: gob.NewEncoder(stdin), cmd: cmd, waiting: map[int]chan peerAnswer{}}
	go p.receive(gob.NewDecoder(stdout))
	c.after(p.end)
	return p
}

// end kills the peer, whatever it waits for, and waits until it is gone.
func (p *peer) end() {
	if p.cmd.ProcessState == nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	}
}

func (p *peer) receive(in *gob.Decoder) {
	for {
		var a peerAnswer
		if in.Decode(&a) != nil {
			return
		}
		p.mu.Lock()
		answer := p.waiting[a.ID]
		delete(p.waiting, a.ID)
		p.mu.Unlock()
		answer <- a
	}
}

// begin makes a call that may wait; the answer comes over the channel.
func (p *peer) begin(nr uintptr, args ...any) <-chan peerAnswer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	call := peerCall{ID: p.next, Nr: nr}
	for i, a := range args {
		switch a := a.(type) {
		case int:
			call.Args[i] = uintptr(a)
		case string:
			call.Data[i] = append([]byte(a), 0)
		case []byte:
			call.Data[i] = a
		}
	}
	answer := make(chan peerAnswer, 1)
	p.waiting[p.next] = answer
	p.c.ok(p.out.Encode(call), "tell the peer")
	return answer
}

// call makes a call and waits for the answer.
func (p *peer) call(nr uintptr, args ...any) (int, [6][]byte, error) {
	a := <-p.begin(nr, args...)
	if a.Errno != 0 {
		return -1, a.Data, a.Errno
	}
	return a.N, a.Data, nil
}

func (p *peer) open(name string, flags int) int {
	fd, _, err := p.call(unix.SYS_OPENAT, unix.AT_FDCWD, name, flags, 0o644)
	p.c.ok(err, "open by the peer")
	return fd
}

// limit sets both limits of a resource.
func (p *peer) limit(resource, most int) {
	limit := structBytes(&unix.Rlimit{Cur: uint64(most), Max: uint64(most)})
	_, _, err := p.call(unix.SYS_PRLIMIT64, 0, resource, limit, 0)
	p.c.ok(err, "setrlimit by the peer")
}

// pid is the peer's process id.
func (p *peer) pid() int32 { return int32(p.cmd.Process.Pid) }
