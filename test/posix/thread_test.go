package posix

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// user is who makes a call.
type user struct {
	uid, gid uint32
	groups   []uint32 // supplementary
}

// The users of the suite. None of them is known to the machine.
var (
	alice = user{uid: 54001, gid: 55001}
	bob   = user{uid: 54002, gid: 55002}
)

// team is a group that nobody has as the first one.
const team = 56001

// in is the user with supplementary groups.
func (u user) in(groups ...uint32) user {
	u.groups = groups
	return u
}

// become changes the user of the calling thread only: the library's functions
// change all threads.
func (u user) become() error {
	var groups unsafe.Pointer
	if len(u.groups) > 0 {
		groups = unsafe.Pointer(&u.groups[0])
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(u.groups)), uintptr(groups), 0); e != 0 {
		return e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(u.gid), uintptr(u.gid), uintptr(u.gid)); e != 0 {
		return e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(u.uid), uintptr(u.uid), uintptr(u.uid)); e != 0 {
		return e
	}
	return nil
}

// own makes the directory of the case one in which everybody may do everything.
func (c *kase) own() { c.ok(unix.Chmod(".", 0o777), "chmod") }

// thread starts f on a new thread with the working directory of the case. The
// channel is closed when it is done.
func (c *kase) thread(prepare func() error, f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here
		defer close(done)
		defer leave()
		defer c.catch()
		c.ok(unix.Unshare(unix.CLONE_FS), "unshare")
		c.ok(unix.Fchdir(c.home), "chdir")
		unix.Umask(0)
		c.ok(prepare(), "prepare a thread")
		f()
	}()
	return done
}

// as does f as another user, and waits for it.
func (c *kase) as(u user, f func()) {
	before := c.failed()
	<-c.thread(u.become, f)
	if c.failed() > before {
		panic(ended{})
	}
}

// tries does f as another user and returns its error.
func (c *kase) tries(u user, f func() error) (err error) {
	c.as(u, func() { err = f() })
	return err
}

func (c *kase) failed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.failures)
}

// elsewhere does f in the directory as it is seen through the other path.
func (c *kase) elsewhere(f func()) {
	before := c.failed()
	<-c.thread(func() error { return unix.Chdir(c.other()) }, f)
	if c.failed() > before {
		panic(ended{})
	}
}

// together does f n times at once, each on a thread of its own; every other
// one works through the other path.
func (c *kase) together(n int, f func(i int)) {
	var ready sync.WaitGroup
	ready.Add(n)
	var threads []<-chan struct{}
	for i := range n {
		prepare := func() error { return nil }
		if i%2 == 1 {
			prepare = func() error { return unix.Chdir(c.other()) }
		}
		threads = append(threads, c.thread(prepare, func() {
			ready.Done()
			ready.Wait()
			f(i)
		}))
	}
	for _, done := range threads {
		<-done
	}
}

// apart gives the thread of the case a mount namespace of its own, which ends
// with it.
func (c *kase) apart() {
	c.ok(unix.Unshare(unix.CLONE_NEWNS), "unshare the mount namespace")
	c.ok(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), "make the mounts private")
}

// bind mounts what is in a directory, or a file, over itself with more flags.
func (c *kase) bind(name string, flags uintptr) {
	c.apart()
	c.ok(unix.Mount(name, name, "", unix.MS_BIND, ""), "bind "+name)
	if flags != 0 {
		flags |= uintptr(c.statfs().Flags) & (unix.ST_NOSUID | unix.ST_NODEV)
		c.ok(unix.Mount("", name, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""), "remount "+name)
	}
}

// tick waits until the clock of file times, which is coarse, shows another
// time than at the call. What is changed after it gets a later time.
func (c *kase) tick() {
	now := func() unix.Timespec {
		var ts unix.Timespec
		c.ok(unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts), "clock_gettime")
		return ts
	}
	for began := now(); now() == began; {
		runtime.Gosched()
	}
}

// interrupted makes a call that waits on a thread of its own and interrupts it
// with a signal until it returns.
func (c *kase) interrupted(call func() error) error {
	c.handleSignal()
	var tid atomic.Int64
	var err error
	done := c.thread(func() error { return nil }, func() {
		tid.Store(int64(unix.Gettid()))
		err = call()
	})
	for end := time.Now().Add(10 * time.Second); ; {
		select {
		case <-done:
			return err
		default:
		}
		if t := int(tid.Load()); t != 0 && waits(t) {
			unix.Tgkill(os.Getpid(), t, unix.SIGUSR2)
		}
		if time.Now().After(end) {
			c.fatalf("a signal does not end a call that waits")
		}
		runtime.Gosched()
	}
}

// waits reports whether a thread sleeps in the kernel.
func waits(tid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", tid))
	if err != nil {
		return false
	}
	for i := len(stat) - 1; i >= 0; i-- {
		if stat[i] == ')' {
			return i+2 < len(stat) && stat[i+2] == 'S'
		}
	}
	return false
}

// handleSignal has SIGUSR2 handled, and calls that it interrupts not begun
// again, which the Go runtime asks for otherwise.
func (c *kase) handleSignal() {
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, syscall.SIGUSR2)
	c.after(func() { signal.Stop(ignored) })
	type action struct {
		handler, flags, restorer, mask uintptr
	}
	var a action
	const restart = 0x10000000 // SA_RESTART
	_, err := raw(unix.SYS_RT_SIGACTION, uintptr(unix.SIGUSR2), 0, uintptr(unsafe.Pointer(&a)), 8)
	c.ok(err, "sigaction")
	a.flags &^= restart
	_, err = raw(unix.SYS_RT_SIGACTION, uintptr(unix.SIGUSR2), uintptr(unsafe.Pointer(&a)), 0, 8)
	c.ok(err, "sigaction")
	runtime.KeepAlive(&a)
}
