package posix

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// kase is a running case. Its methods that need what the case is about must
// succeed, and end the case if they do not. They may be called from any thread
// that the case has started.
type kase struct {
	place
	dir  string // the directory of the case: where the changes are made
	view int    // the same directory, for looking at the result
	home int    // the same as dir, as a descriptor

	mu       sync.Mutex
	failures []string
	skipped  string
	cleanup  []func()
	kept     [][]byte // what raw system calls point to
}

// ended is what a case panics with to end early.
type ended struct{}

func newCase(p place, dir string) *kase {
	return &kase{place: p, dir: filepath.Join(p.here, dir), view: -1, home: -1}
}

// run runs the case on the thread that it is called on, and leaves it unusable:
// the thread ends with the goroutine.
func (c *kase) run(b behaviour) {
	runtime.LockOSThread()
	defer leave()
	defer c.clean()
	defer c.catch()
	c.ok(unix.Unshare(unix.CLONE_FS), "unshare")
	c.ok(unix.Chdir(c.dir), "chdir to the directory of the case")
	unix.Umask(0)
	var err error
	c.home, err = unix.Open(".", unix.O_PATH|unix.O_CLOEXEC, 0)
	c.ok(err, "open the directory of the case")
	c.view, err = unix.Open(filepath.Join(c.there, filepath.Base(c.dir)), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	c.ok(err, "open the directory of the case for looking")
	if got := b.do(c); b.errno != 0 {
		c.refused(got, b.errno, b.call)
	}
}

// leave lets go of the directory: a thread ends some time after its goroutine.
func leave() { unix.Chdir("/") }

// catch ends a case, or a thread of it, that has panicked.
func (c *kase) catch() {
	switch r := recover().(type) {
	case nil, ended:
	default:
		c.failf("panic: %v\n%s", r, debug.Stack())
	}
}

func (c *kase) clean() {
	for i := len(c.cleanup) - 1; i >= 0; i-- {
		c.cleanup[i]()
	}
	c.shrink()
	for _, fd := range []int{c.home, c.view} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	runtime.KeepAlive(c.kept)
}

// shrink removes the large files that the case leaves: some are so large that
// whoever reads them later comes to no end.
func (c *kase) shrink() {
	names, err := namesAt(c.home, ".")
	if err != nil {
		return // there is no directory, or none that can be used
	}
	for _, name := range names {
		var st unix.Stat_t
		if unix.Fstatat(c.home, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Size > 1<<20 {
			unix.Unlinkat(c.home, name, 0)
		}
	}
}

// after has f done when the case is over.
func (c *kase) after(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleanup = append(c.cleanup, f)
}

// failf notes a failure; the case goes on.
func (c *kase) failf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, fmt.Sprintf(format, args...))
}

// fatalf notes a failure and ends the case.
func (c *kase) fatalf(format string, args ...any) {
	c.failf(format, args...)
	panic(ended{})
}

// skip ends the case: this machine cannot show it.
func (c *kase) skip(why string) {
	c.mu.Lock()
	c.skipped = why
	c.mu.Unlock()
	panic(ended{})
}

// ok ends the case unless err is nil.
func (c *kase) ok(err error, what string) {
	if err != nil {
		c.fatalf("%s: %s, want success%s", what, errnoText(err), caller())
	}
}

// refused notes a failure unless err is the given errno.
func (c *kase) refused(err error, want syscall.Errno, what string) {
	if !errors.Is(err, want) {
		c.failf("%s: %s, want %s%s", what, errnoText(err), unix.ErrnoName(want), caller())
	}
}

// equal notes a failure unless the two are equal.
func equal[T comparable](c *kase, what string, got, want T) {
	if got != want {
		c.failf("%s: %v, want %v%s", what, got, want, caller())
	}
}

// must ends the case if there is an error, else passes the value on.
func must[T any](c *kase, what string) func(v T, err error) T {
	return func(v T, err error) T {
		c.ok(err, what)
		return v
	}
}

func errnoText(err error) string {
	var e syscall.Errno
	switch {
	case err == nil:
		return "success"
	case errors.As(err, &e) && unix.ErrnoName(e) != "":
		return unix.ErrnoName(e)
	}
	return err.Error()
}

// caller says which line of a table has called.
func caller() string {
	for skip := 2; ; skip++ {
		_, file, line, ok := runtime.Caller(skip)
		if !ok {
			return ""
		}
		if base := filepath.Base(file); base != "case_test.go" && base != "look_test.go" && base != "files_test.go" {
			return fmt.Sprintf(" (%s:%d)", base, line)
		}
	}
}

// cstring returns the address of s and a NUL, which stays until the case ends.
func (c *kase) cstring(s string) uintptr { return c.bytes(append([]byte(s), 0)) }

// bytes returns the address of b, which must not be empty.
func (c *kase) bytes(b []byte) uintptr {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = append(c.kept, b)
	return addressOf(b)
}

// other is the directory of the case as a path to look through, or to work
// through as well.
func (c *kase) other() string { return filepath.Join(c.there, filepath.Base(c.dir)) }

// raw makes a system call by its number.
func raw(nr uintptr, args ...uintptr) (int, error) {
	var a [6]uintptr
	copy(a[:], args)
	n, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// failure is the error of a call, whose result is of no interest.
func failure[T any](_ T, err error) error { return err }

// self is the program that runs, also when its file is gone.
const self = "/proc/self/exe"
