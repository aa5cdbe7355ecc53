package fusefs_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func wholeFile(typ int16) *unix.Flock_t { return &unix.Flock_t{Type: typ} }

// helperLock takes a write lock on the bytes 10 to 19 of the file and keeps
// it until its input ends; with a second argument it then waits for a lock on
// the whole file.
func helperLock(args []string) error {
	fd, err := unix.Open(args[0], unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	if len(args) == 1 {
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: 10, Len: 10}
		if err := unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &l); err != nil {
			return err
		}
		fmt.Println("locked")
		untilStdinCloses()
		return nil
	}
	fmt.Println("waiting")
	if err := unix.FcntlFlock(uintptr(fd), unix.F_SETLKW, wholeFile(unix.F_WRLCK)); err != nil {
		return err
	}
	fmt.Println("locked")
	untilStdinCloses()
	return nil
}

func testPosixLock(t *testing.T, dir string) {
	f := dir + "/f"
	write(t, f, "")
	fd := open(t, f, unix.O_RDWR)
	defer unix.Close(fd)
	holder := startHelper(t, "posix-lock", f)
	holder.line()

	l := wholeFile(unix.F_WRLCK)
	check(t, unix.FcntlFlock(uintptr(fd), unix.F_GETLK, l))
	if l.Type != unix.F_WRLCK || l.Start != 10 || l.Len != 10 || int(l.Pid) != holder.cmd.Process.Pid {
		t.Errorf("F_GETLK says %+v, holder is %d", *l, holder.cmd.Process.Pid)
	}
	wantErrno(t, "lock over another's", unix.FcntlFlock(uintptr(fd), unix.F_SETLK, wholeFile(unix.F_RDLCK)), unix.EAGAIN)
	check(t, unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: 20}))

	waiter := startHelper(t, "posix-lock", f, "wait")
	waiter.line()
	holder.finish() // its end releases its lock
	check(t, unix.FcntlFlock(uintptr(fd), unix.F_SETLK, wholeFile(unix.F_UNLCK)))
	if got := waiter.line(); got != "locked" {
		t.Fatalf("waiter says %q", got)
	}
	wantErrno(t, "lock over the waiter's", unix.FcntlFlock(uintptr(fd), unix.F_SETLK, wholeFile(unix.F_WRLCK)), unix.EAGAIN)

	// A signal ends the wait of a waiter, and its end does not leave a lock.
	second := startHelper(t, "posix-lock", f, "wait")
	second.line()
	check(t, second.cmd.Process.Signal(syscall.SIGKILL))
	second.cmd.Wait()
	waiter.finish()
	check(t, unix.FcntlFlock(uintptr(fd), unix.F_SETLKW, wholeFile(unix.F_WRLCK)))

	// Closing any descriptor of the file releases the locks of the process.
	other := open(t, f, unix.O_RDONLY)
	check(t, unix.Close(other))
	third := startHelper(t, "posix-lock", f)
	third.line()
	third.finish()
}

// helperFlock takes an exclusive flock, waiting, and keeps it until its input
// ends.
func helperFlock(args []string) error {
	f, err := os.OpenFile(args[0], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	fmt.Println("waiting")
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	fmt.Println("locked")
	untilStdinCloses()
	return nil
}

func testFlock(t *testing.T, dir string) {
	f := dir + "/f"
	write(t, f, "")
	a := open(t, f, unix.O_RDONLY)
	b := open(t, f, unix.O_RDONLY)
	defer unix.Close(b)
	check(t, unix.Flock(a, unix.LOCK_EX))
	wantErrno(t, "a second handle", unix.Flock(b, unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
	waiter := startHelper(t, "flock", f)
	waiter.line()
	check(t, unix.Close(a)) // the last close releases
	if got := waiter.line(); got != "locked" {
		t.Fatalf("waiter says %q", got)
	}
	wantErrno(t, "against another process", unix.Flock(b, unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
	waiter.finish()
	check(t, unix.Flock(b, unix.LOCK_EX))
	check(t, unix.Flock(b, unix.LOCK_UN))
}
