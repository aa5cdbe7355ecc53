package keeper

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/fs/fusefs"
)

// Guard waits for the end of the server with that process id and sees to it
// that no program hangs on a mount that it leaves behind. It is the whole work
// of the process that StartGuard starts.
func Guard(pid int) error { return fusefs.Guard(pid) }

// StartGuard starts the guard of this process: the program, which is tine
// itself, with its command for that. The guard has no terminal and no open
// files of the server, outlives it, and ends right after it.
func StartGuard(program string) error {
	cmd := exec.Command(program, "guard", "--pid", strconv.Itoa(os.Getpid()))
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return oserr.Wrap(err, "start the guard of the mounts, %s", program)
	}
	go cmd.Wait() // so that a guard that ends first leaves no zombie
	return nil
}
