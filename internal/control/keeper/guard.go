package keeper

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/fs/fusefs"
)

// Guard waits for the end of the server with that process id and sees to it
// that no program hangs on a mount that it leaves behind. It is the whole work
// of the process that StartGuard starts.
func Guard(pid int) error { return fusefs.Guard(pid) }

// guardLock is the file in the data directory on which the guard holds a lock
// as long as it runs. A new server waits for it before it mounts: what the
// guard of a killed one gives up it knows by device number, and the kernel hands
// the numbers of mounts that are gone to new ones.
const guardLock = "tine.guard.lock"

// guardWait bounds how long a new server waits for an old one's guard.
const guardWait = 20 * time.Second

// StartGuard waits for the guard of an earlier server of the data directory and
// starts that of this process: the program, which is tine itself, with its
// command for that. The guard has no terminal and of the server's open files
// only the lock, outlives it, and ends right after it.
func StartGuard(program, data string) error {
	path := filepath.Join(data, guardLock)
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return oserr.Wrap(err, "open %s", path)
	}
	defer lock.Close()
	if err := lockWithin(lock, guardWait); err != nil {
		return err
	}
	cmd := exec.Command(program, "guard", "--pid", strconv.Itoa(os.Getpid()))
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.ExtraFiles = []*os.File{lock} // flock(2): the lock is the open file's, so the guard holds it
	if err := cmd.Start(); err != nil {
		return oserr.Wrap(err, "start the guard of the mounts, %s", program)
	}
	go cmd.Wait() // so that a guard that ends first leaves no zombie
	return nil
}

// lockWithin takes the lock, waiting for whoever holds it.
func lockWithin(f *os.File, limit time.Duration) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if err != unix.EWOULDBLOCK || time.Now().After(deadline) {
			return oserr.Wrap(err, "wait for the guard of the server before, which holds %s", f.Name())
		}
	}
}
