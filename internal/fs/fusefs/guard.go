package fusefs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/tine"
)

// guardInterval is how often a guard looks whether its server hangs in its
// own end, and which mounts there are; the end itself, and most changes of the
// mounts, it sees at once.
const guardInterval = 500 * time.Millisecond

// looksAfterChange is how often a guard looks for who serves what after the
// mounts have changed. More than once: fusermount3 hands the device over, and
// for a moment nobody has it.
const looksAfterChange = 4

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
//
// Errors: tine.KindIO and tine.KindAccess when that cannot be done.
func Guard(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return newSightings().free() // gone already
	}
	defer unix.Close(fd)
	polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if table, err := os.Open("/proc/self/mountinfo"); err == nil {
		defer table.Close()
		polled = append(polled, unix.PollFd{Fd: int32(table.Fd()), Events: unix.POLLPRI})
	}
	seen, looks := newSightings(), looksAfterChange
	for {
		switch {
		case dying("/proc/" + strconv.Itoa(pid)):
			if err := seen.free(); err != nil {
				return err
			}
		case looks > 0:
			seen.look()
			looks--
		}
		_, err := unix.Poll(polled, int(guardInterval.Milliseconds()))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return tine.Errorf(tine.KindIO, "cannot watch the server: %w", err)
		case polled[0].Revents != 0:
			return seen.free()
		case polled[len(polled)-1].Revents != 0:
			looks = looksAfterChange
		}
	}
}

// sightings are the mounts of ours, by device, that a living process was seen
// to serve while the guarded server lived. Unless all processes can be seen, no
// others are given up: a server in a container has the mounts of servers
// outside in its table and none of their processes in its /proc, and one of an
// ordinary user sees none of the files that others have open.
type sightings struct {
	devs   map[uint64]bool
	before map[uint64]bool // what there was at first: not the server's, as far as the kernel does not tell
	all    bool            // every process can be seen, so what seems not to be served is not
}

func newSightings() *sightings {
	return &sightings{devs: make(map[uint64]bool), all: seesAll()}
}

// seesAll reports whether this process can see the open files of all others:
// it is root of the machine. The numbers are those that the kernel has for the
// first namespaces.
func seesAll() bool {
	pids, _ := os.Readlink("/proc/self/ns/pid")
	users, _ := os.Readlink("/proc/self/ns/user")
	return os.Geteuid() == 0 && pids == "pid:[4026531836]" && users == "user:[4026531837]"
}

// look notes the mounts that are served, and forgets those that have gone:
// their numbers may come to stand for others.
func (s *sightings) look() {
	there := make(map[uint64]bool)
	for _, e := range mountTable() {
		if e.fsType == fsType {
			there[e.dev] = true
		}
	}
	if s.before == nil {
		s.before = maps.Clone(there)
	}
	gone := func(dev uint64, _ bool) bool { return !there[dev] }
	maps.DeleteFunc(s.before, gone)
	maps.DeleteFunc(s.devs, gone)
	if len(s.devs) == len(there) {
		return
	}
	now := findService()
	for dev := range there {
		if yes, certain := now.of(dev); yes && (certain || !s.before[dev]) {
			s.devs[dev] = true
		}
	}
}

// free makes the kernel give up the mounts that no living process serves any
// more: all that waits for them, and all that comes, fails.
//
// The kernel gives the number of a mount that has gone to a new one. So who is
// served is found out when the files for giving up are open: from then on each
// stands for its connection and no other, even when that goes.
func (s *sightings) free() error {
	connections := make(map[uint64]*os.File)
	defer func() {
		for _, f := range connections {
			f.Close()
		}
	}()
	control := ""
	for _, e := range mountTable() {
		if e.fsType != fsType || connections[e.dev] != nil || !s.all && !s.devs[e.dev] {
			continue
		}
		if control == "" {
			dir, done, err := openControl()
			if err != nil {
				return err
			}
			defer done()
			control = dir
		}
		f, err := os.OpenFile(filepath.Join(control, fmt.Sprint(unix.Minor(e.dev)), "abort"), os.O_WRONLY, 0)
		switch {
		case err == nil:
			connections[e.dev] = f
		case !os.IsNotExist(err) && !os.IsPermission(err): // another user's, or gone
			return tine.Errorf(tine.KindIO, "cannot give up a mount: %w", err)
		}
	}
	now := findService()
	for dev, f := range connections {
		if yes, _ := now.of(dev); yes {
			continue
		}
		if _, err := f.WriteString("1"); err != nil && !os.IsNotExist(err) {
			return tine.Errorf(tine.KindIO, "cannot give up a mount: %w", err)
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
