package fusefs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/tine"
)

// answerTime is how long a mount may take to answer before somebody
// looks whether it still has a server.
const answerTime = 3 * time.Second

// CleanStale removes the dead mount of a server that has crashed from dir. It
// touches nothing else: a live mount, another file system or a plain directory
// stay as they are.
//
// A mount is dead when the kernel says so (ENOTCONN), or when it does not
// answer and no living process serves it: a server that was killed while a
// notification of its waited for one of its own answers cannot end by itself.
// Removing the mount frees that process, and every program that hangs on it.
//
// Errors: tine.KindBusy when the mount neither answers nor is known to be
// dead, or is not one of ours.
func CleanStale(dir string) error {
	for {
		err := askWithin(dir, answerTime)
		if err != unix.ENOTCONN && err != unix.ECONNABORTED && err != errNoAnswer {
			return nil
		}
		top, ok := mountedAt(dir)
		switch {
		case !ok || top.fsType != fsType:
			return tine.Errorf(tine.KindBusy, "%s is on a mount that does not answer and is not one of tine", dir).
				WithHint("see what it is with findmnt -T %s", dir)
		case err == errNoAnswer && served(top.dev):
			return tine.Errorf(tine.KindBusy, "the disk mounted on %s does not answer, though its server lives", dir).
				WithHint("look at that server's log; umount -f %s gives the mount up", dir)
		}
		if err := unmountAt(dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			return tine.Errorf(tine.KindIO, "cannot remove the dead mount on %s: %w", dir, err)
		}
	}
}

var errNoAnswer = tine.Errorf(tine.KindUnavailable, "no answer")

// askWithin asks the file system at dir something that the kernel cannot
// answer from its caches: statfs(2). It returns errNoAnswer if that takes too
// long.
func askWithin(dir string, limit time.Duration) error {
	result := make(chan error, 1)
	go func() {
		var st unix.Statfs_t
		result <- unix.Statfs(dir, &st)
	}()
	select {
	case err := <-result:
		return err
	case <-time.After(limit):
		return errNoAnswer
	}
}

// served reports whether a living process has the device of a FUSE mount
// open. Kernels before 6.15 do not tell which connection a descriptor belongs
// to; then any that has a connection open may be the one.
func served(dev uint64) bool {
	connection := strconv.FormatUint(uint64(unix.Minor(dev)), 10)
	infos, _ := filepath.Glob("/proc/[0-9]*/fdinfo/*")
	for _, info := range infos {
		target, err := os.Readlink(strings.Replace(info, "/fdinfo/", "/fd/", 1))
		if err != nil || target != "/dev/fuse" {
			continue
		}
		text, err := os.ReadFile(info)
		if err != nil {
			continue // ended meanwhile
		}
		id, told := field(string(text), "fuse_connection:")
		if (!told || id == connection) && !dying(filepath.Dir(filepath.Dir(info))) {
			return true
		}
	}
	return false
}

// dying reports whether a process has been killed but cannot end.
func dying(process string) bool {
	status, err := os.ReadFile(process + "/status")
	if err != nil {
		return true
	}
	if state, _ := field(string(status), "State:"); strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X") {
		return true
	}
	pending, _ := field(string(status), "SigPnd:")
	mask, err := strconv.ParseUint(pending, 16, 64)
	return err == nil && mask&(1<<(unix.SIGKILL-1)) != 0
}

// field returns what follows a name at the start of a line.
func field(text, name string) (string, bool) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(rest), true
		}
	}
	return "", false
}
