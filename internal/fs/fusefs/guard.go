package fusefs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/tine"
)

// guardInterval is how often a guard looks whether its server hangs in its
// own end; the end itself it sees at once.
const guardInterval = 500 * time.Millisecond

// Guard waits for the end of a server and sees to it that it is one: that no
// mount of it is left on which programs hang. It is for a process of its own,
// which the server starts before its first mount; it returns when the server
// is gone.
//
// Usually the kernel does all that is needed when the last descriptor of the
// device is closed. It cannot when a thread of the killed server waits in a
// notification for an answer of the same server: about one kill in twenty
// while two mounts of one disk are both busy. Then the connection has to be
// given up from outside. The dead mounts stay where they are and answer
// ENOTCONN, so that nobody writes into the directory below.
func Guard(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return FreeOrphans() // gone already
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(guardInterval.Milliseconds()))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return tine.Errorf(tine.KindIO, "cannot watch the server: %w", err)
		case n > 0:
			return FreeOrphans()
		case dying("/proc/" + strconv.Itoa(pid)):
			if err := FreeOrphans(); err != nil {
				return err
			}
		}
	}
}

// FreeOrphans makes the kernel give up the mounts of ours that no living
// process serves, which frees what hangs on them. Mounts that are served, and
// other file systems, are left alone.
func FreeOrphans() error {
	orphans := make(map[uint64]bool)
	for _, e := range mountTable() {
		if e.fsType == fsType && !orphans[e.dev] && !served(e.dev) {
			orphans[e.dev] = true
		}
	}
	if len(orphans) == 0 {
		return nil
	}
	control, done, err := openControl()
	if err != nil {
		return err
	}
	defer done()
	for dev := range orphans {
		if err := giveUp(control, dev, func() bool { return !served(dev) }); err != nil {
			return err
		}
	}
	return nil
}

// controlDir is where systems usually have the control file system of FUSE: a
// directory for each connection, whose files belong to who has mounted.
const controlDir = "/sys/fs/fuse/connections"

// openControl returns a directory with the control file system, which it
// mounts itself if nobody has; done undoes that.
func openControl() (dir string, done func(), err error) {
	const magic = 0x65735543
	var st unix.Statfs_t
	if unix.Statfs(controlDir, &st) == nil && st.Type == magic {
		return controlDir, func() {}, nil
	}
	if dir, err = os.MkdirTemp("", "tine-fusectl-"); err != nil {
		return "", nil, tine.Errorf(tine.KindIO, "cannot make a directory for the control file system of FUSE: %w", err)
	}
	if err := unix.Mount("fusectl", dir, "fusectl", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		os.Remove(dir)
		return "", nil, tine.Errorf(tine.KindAccess, "cannot mount the control file system of FUSE: %w", err).
			WithHint("mount it once as root: mount -t fusectl fusectl %s", controlDir)
	}
	return dir, func() {
		unix.Unmount(dir, unix.MNT_DETACH)
		os.Remove(dir)
	}, nil
}

// giveUp makes the kernel give up the connection of a mount, if that is still
// right: all that waits for it, and all that comes, fails.
//
// The kernel gives the number of a mount that has gone to a new one. So whether
// it is right is asked when the file is open: from then on the file stands for
// this connection and no other, even when that goes.
func giveUp(control string, dev uint64, right func() bool) error {
	f, err := os.OpenFile(filepath.Join(control, fmt.Sprint(unix.Minor(dev)), "abort"), os.O_WRONLY, 0)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return tine.Errorf(tine.KindIO, "cannot give up a mount: %w", err)
	}
	defer f.Close()
	if !right() {
		return nil
	}
	if _, err := f.WriteString("1"); err != nil && !os.IsNotExist(err) {
		return tine.Errorf(tine.KindIO, "cannot give up a mount: %w", err)
	}
	return nil
}
