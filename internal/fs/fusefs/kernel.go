package fusefs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/tine"
)

// fsType is the type of our mounts in /proc/mounts.
const fsType = "fuse.tine"

// readAheadKiB is how far the kernel reads ahead of a sequential reader.
const readAheadKiB = 1024

// mountPoint checks dir and returns its absolute path without symbolic links,
// as /proc/mounts will have it. A dead mount there is removed.
func mountPoint(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", tine.Errorf(tine.KindInvalid, "the mount point %q: %w", dir, err)
	}
	if err := CleanStale(abs); err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, os.ErrNotExist) {
		return "", tine.Errorf(tine.KindNotFound, "the mount point %s does not exist", abs).WithHint("mkdir -p %s", abs)
	} else if err != nil {
		return "", tine.Errorf(tine.KindInvalid, "the mount point: %w", err)
	}
	if st, err := os.Stat(real); err != nil {
		return "", tine.Errorf(tine.KindInvalid, "the mount point: %w", err)
	} else if !st.IsDir() {
		return "", tine.Errorf(tine.KindNotDir, "the mount point %s is not a directory", real)
	}
	if top, ok := mountedAt(real); ok && top.fsType == fsType {
		return "", tine.Errorf(tine.KindBusy, "a disk is already mounted on %s", real).WithHint("unmount it first: umount %s", real)
	}
	return real, nil
}

// mountFUSE opens /dev/fuse, mounts it on dir and returns the descriptor. Its
// first request is then under way. Who may not mount has fusermount3 do it.
func mountFUSE(dir string, o Options, maxRead int, readOnly bool) (int, error) {
	fd, err := mountBySelf(dir, o, maxRead, readOnly)
	if tine.KindOf(err) == tine.KindAccess && os.Geteuid() != 0 {
		return mountByHelper(dir, o, maxRead, readOnly)
	}
	return fd, err
}

func mountBySelf(dir string, o Options, maxRead int, readOnly bool) (int, error) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == unix.EACCES || err == unix.EPERM {
		return -1, tine.Errorf(tine.KindAccess, "cannot open /dev/fuse: %w", err).
			WithHint("run the server as root or with CAP_SYS_ADMIN")
	}
	if err != nil {
		return -1, tine.Errorf(tine.KindUnsupported, "cannot open /dev/fuse: %w", err).
			WithHint("load the kernel module (modprobe fuse), or give the container the device /dev/fuse")
	}
	options := fmt.Sprintf("fd=%d,rootmode=%o,user_id=%d,group_id=%d,max_read=%d,default_permissions",
		fd, unix.S_IFDIR, os.Geteuid(), os.Getegid(), maxRead)
	if o.AllowOther || os.Geteuid() == 0 {
		options += ",allow_other"
	}
	if err := unix.Mount(o.Source, dir, fsType, mountFlags(o, readOnly), options); err != nil {
		unix.Close(fd)
		e := tine.Errorf(tine.KindIO, "cannot mount on %s: %w", dir, err)
		if err == unix.EPERM || err == unix.EACCES {
			e.Kind = tine.KindAccess
			e = e.WithHint("run the server as root or with CAP_SYS_ADMIN")
		}
		return -1, e
	}
	return fd, nil
}

// mountFlags are those of mount(2).
func mountFlags(o Options, readOnly bool) uintptr {
	// The kernel leaves access times to us, and reading does not change them;
	// the flag says so.
	var flags uintptr = unix.MS_NOATIME
	if !o.AllowSUID {
		flags |= unix.MS_NOSUID
	}
	if !o.AllowDev {
		flags |= unix.MS_NODEV
	}
	if o.NoExec {
		flags |= unix.MS_NOEXEC
	}
	if readOnly {
		flags |= unix.MS_RDONLY
	}
	return flags
}

func statMount(dir string) (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return st, tine.Errorf(tine.KindIO, "the new mount on %s does not answer: %w", dir, err)
	}
	return st, nil
}

// errUnreachable says that a path no longer leads to the mount.
var errUnreachable = tine.Errorf(tine.KindNotFound, "the mount is not at its path")

// syncAt is syncfs(2) on the file system with device dev at dir.
func syncAt(dir string, dev uint64) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return errUnreachable
	}
	if err != nil {
		return tine.Errorf(tine.KindIO, "cannot flush %s: %w", dir, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return tine.Errorf(tine.KindIO, "cannot flush %s: %w", dir, err)
	}
	if st.Dev != dev {
		return errUnreachable
	}
	err = unix.Syncfs(fd)
	if err == unix.ESTALE {
		// A page of a state that was rolled back, which nobody wants any
		// more; each error is reported once.
		err = unix.Syncfs(fd)
	}
	if err != nil {
		return tine.Errorf(tine.KindIO, "cannot flush %s: %w", dir, err)
	}
	return nil
}

// setReadAhead raises the kernel's read-ahead for the mount, which INIT
// cannot: it only lowers it.
func setReadAhead(dev uint64) error {
	file := fmt.Sprintf("/sys/class/bdi/%d:%d/read_ahead_kb", unix.Major(dev), unix.Minor(dev))
	return os.WriteFile(file, fmt.Appendf(nil, "%d", readAheadKiB), 0)
}

// refusePolling makes the kernel learn that the mount does not serve poll(2).
// Else a Go program that opens a file of a mount that it serves itself, as
// tests do, asks for it from inside the scheduler and waits for itself. The
// library has a file for this that only it knows.
func refusePolling(dir string) {
	fd, err := unix.Open(filepath.Join(dir, ".go-fuse-epoll-hack"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
}

// mountEntry is a line of /proc/self/mountinfo.
type mountEntry struct {
	dir    string
	fsType string
	dev    uint64
}

// mountTable reads /proc/self/mountinfo, in the order of mounting.
func mountTable() []mountEntry {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	return parseMountTable(string(text))
}

// parseMountTable reads lines of the form
//
//	36 35 98:0 /root /dir rw,noatime master:1 - ext3 /dev/root rw
//
// with any number of optional fields before the dash.
func parseMountTable(text string) []mountEntry {
	var table []mountEntry
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(rest) < 1 {
			continue
		}
		var major, minor uint32
		if _, err := fmt.Sscanf(fields[2], "%d:%d", &major, &minor); err != nil {
			continue
		}
		table = append(table, mountEntry{unescape(fields[4]), rest[0], unix.Mkdev(major, minor)})
	}
	return table
}

// unescape undoes the octal escapes of blanks and backslashes.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// mountedAt returns the uppermost mount on dir.
func mountedAt(dir string) (top mountEntry, ok bool) {
	for _, e := range mountTable() {
		if e.dir == dir {
			top, ok = e, true
		}
	}
	return top, ok
}

// placesOf returns where the file system dev is mounted.
func placesOf(dev uint64) []string {
	var dirs []string
	for _, e := range mountTable() {
		if e.dev == dev {
			dirs = append(dirs, e.dir)
		}
	}
	return dirs
}

// busyError says who keeps dir from being unmounted, as far as can be seen.
func busyError(dir string) error {
	for _, e := range mountTable() {
		if strings.HasPrefix(e.dir, dir+"/") {
			return tine.Errorf(tine.KindBusy, "%s is in use: %s is mounted inside it", dir, e.dir).
				WithHint("unmount that first: umount %s", e.dir)
		}
	}
	users := usersOf(dir, 5)
	if len(users) == 0 {
		return tine.Errorf(tine.KindBusy, "%s is in use", dir).
			WithHint("find the programs that use it with fuser -vm %s, and end them", dir)
	}
	return tine.Errorf(tine.KindBusy, "%s is in use by %s", dir, strings.Join(users, ", ")).
		WithHint("end these programs, or make them leave the directory")
}

// usersOf looks through /proc for processes with something open in dir, and
// describes at most limit of them.
func usersOf(dir string, limit int) []string {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	var users []string
	for _, p := range processes {
		if len(users) == limit {
			break
		}
		if file := openIn(p, dir); file != "" {
			name, _ := os.ReadFile(p + "/comm")
			users = append(users, fmt.Sprintf("%s (process %s, %s)", strings.TrimSpace(string(name)), filepath.Base(p), file))
		}
	}
	return users
}

// openIn returns a file in dir that the process in /proc has open or runs in.
func openIn(process, dir string) string {
	links := []string{process + "/cwd", process + "/root", process + "/exe"}
	fds, _ := filepath.Glob(process + "/fd/*")
	for _, link := range append(links, fds...) {
		target, err := os.Readlink(link)
		if err == nil && (target == dir || strings.HasPrefix(target, dir+"/")) {
			return target
		}
	}
	return ""
}
