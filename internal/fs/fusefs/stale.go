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
// open.
func served(dev uint64) bool {
	yes, _ := findService().of(dev)
	return yes
}

// service is which connections of FUSE living processes have open. Kernels
// before 6.15 do not tell which one a descriptor belongs to.
type service struct {
	connections map[string]bool
	untold      bool // there is a descriptor of which the kernel does not tell
}

// of reports whether the mount may have a server, and whether that is certain.
func (s service) of(dev uint64) (served, certain bool) {
	if s.connections[strconv.FormatUint(uint64(unix.Minor(dev)), 10)] {
		return true, true
	}
	return s.untold, false
}

// findService looks at the open files of all processes that it may look at,
// which takes some milliseconds.
func findService() service {
	s := service{connections: make(map[string]bool)}
	infos, _ := filepath.Glob("/proc/[0-9]*/fdinfo/*")
	for _, info := range infos {
		target, err := os.Readlink(strings.Replace(info, "/fdinfo/", "/fd/", 1))
		if err != nil || target != "/dev/fuse" {
			continue
		}
		text, err := os.ReadFile(info)
		if err != nil || dying(filepath.Dir(filepath.Dir(info))) {
			continue // ended meanwhile, or about to
		}
		if id, told := field(string(text), "fuse_connection:"); told {
			s.connections[id] = true
		} else {
			s.untold = true
		}
	}
	return s
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

// GiveUp takes the mount of a server that lives but does not answer from dir:
// the kernel fails whatever waits for it, at once, and what was written and not
// synced may be lost. It asks the mount nothing, so it does not wait for it.
//
// Errors: tine.KindNotFound when no mount of ours is there.
func GiveUp(dir string) error {
	top, ok := mountedAt(dir)
	if !ok || top.fsType != fsType {
		return tine.Errorf(tine.KindNotFound, "no tine disk is mounted on %s", dir).
			WithHint("name the directory as /proc/mounts has it, without symbolic links")
	}
	if err := unmountAt(dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
		return tine.Errorf(tine.KindIO, "cannot give up the mount on %s: %w", dir, err)
	}
	return nil
}
