package fusefs

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/tine"
)

// An ordinary user may not call mount(2). fusermount3, a set-user-ID program
// of the package fuse3, does it for directories that the user may write, opens
// the device itself and passes the descriptor back over a socket. It also
// unmounts what its caller has mounted.

// mountByHelper is mountFUSE with fusermount3.
func mountByHelper(dir string, o Options, maxRead int, readOnly bool) (int, error) {
	if o.AllowSUID || o.AllowDev {
		return -1, tine.Errorf(tine.KindAccess, "only root may mount with set-user-ID programs or device nodes at work")
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, tine.Errorf(tine.KindIO, "cannot make a socket to fusermount3: %w", err)
	}
	defer unix.Close(pair[0])
	escape := strings.NewReplacer(`\`, `\\`, `,`, `\,`)
	options := []string{"rw", "noatime", "default_permissions", fmt.Sprintf("max_read=%d", maxRead),
		"subtype=" + strings.TrimPrefix(fsType, "fuse."), "fsname=" + escape.Replace(o.Source)}
	if readOnly {
		options[0] = "ro"
	}
	if o.AllowOther {
		options = append(options, "allow_other")
	}
	if o.NoExec {
		options = append(options, "noexec")
	}
	said, err := runHelper([]string{"-o", strings.Join(options, ","), "--", dir}, pair[1])
	unix.Close(pair[1])
	if err != nil {
		return -1, err
	}
	if said != "" {
		return -1, helperRefused(dir, said)
	}
	fd, err := receiveDevice(pair[0])
	if err != nil {
		return -1, tine.Errorf(tine.KindIO, "fusermount3 has mounted %s but not passed the device: %w", dir, err)
	}
	return fd, nil
}

func helperRefused(dir, said string) error {
	e := tine.Errorf(tine.KindAccess, "cannot mount on %s: %s", dir, said)
	switch {
	case strings.Contains(said, "user_allow_other"):
		e = e.WithHint("mount without allow_other, or have root add the line user_allow_other to /etc/fuse.conf")
	case strings.Contains(said, "/dev/fuse: Permission denied"):
		e = e.WithHint("have root open the device to all users, as systems usually do: chmod 666 /dev/fuse")
	case strings.Contains(said, "/dev/fuse"):
		e.Kind = tine.KindUnsupported
		e = e.WithHint("load the kernel module (modprobe fuse), or give the container the device /dev/fuse")
	case strings.Contains(said, "write access"), strings.Contains(said, "not owner"):
		e = e.WithHint("mount on a directory of your own")
	}
	return e
}

// receiveDevice takes a descriptor out of a message.
func receiveDevice(socket int) (int, error) {
	var data [1]byte
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, data[:], oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	if err != nil {
		return -1, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return -1, err
	}
	for _, m := range messages {
		if fds, err := unix.ParseUnixRights(&m); err == nil && len(fds) == 1 {
			return fds[0], nil
		}
	}
	return -1, unix.EBADMSG
}

// unmountAt is umount2(2), which takes no mount but the uppermost on dir and
// follows no symbolic link, or for an ordinary user what fusermount3 makes of
// it. That knows no MNT_FORCE; giving the connection up is the same.
func unmountAt(dir string, flags int) error {
	err := unix.Unmount(dir, flags|unix.UMOUNT_NOFOLLOW)
	if err != unix.EPERM || os.Geteuid() == 0 {
		return err
	}
	if top, ok := mountedAt(dir); ok && flags&unix.MNT_FORCE != 0 {
		still := func() bool { now, ok := mountedAt(dir); return ok && now.dev == top.dev }
		if err := giveUp(controlDir, top.dev, still); err != nil {
			return err
		}
	}
	args := []string{"-u", "--", dir}
	if flags&unix.MNT_DETACH != 0 {
		args = append([]string{"-z"}, args...)
	}
	said, err := runHelper(args, -1)
	switch {
	case err != nil:
		return err
	case said == "":
		return nil
	case strings.Contains(said, "busy"):
		return unix.EBUSY
	case strings.Contains(said, "not found"), strings.Contains(said, "Invalid argument"):
		return unix.EINVAL
	}
	return tine.Errorf(tine.KindAccess, "%s", said)
}

// runHelper runs fusermount3 to its end, with a socket for the device if that
// is not negative, and returns why it failed, or "". The calls are those of the
// system and not of os/exec because the caller may be on a thread with
// descriptors of its own (see Mount.apart): other goroutines would read others.
func runHelper(args []string, socket int) (said string, err error) {
	program, err := helperProgram()
	if err != nil {
		return "", err
	}
	messages, err := unix.MemfdCreate("fusermount3", unix.MFD_CLOEXEC)
	if err != nil {
		return "", tine.Errorf(tine.KindIO, "cannot run %s: %w", program, err)
	}
	defer unix.Close(messages)
	files := []uintptr{uintptr(messages), uintptr(messages), uintptr(messages)}
	env := []string{"LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	if socket >= 0 {
		files, env = append(files, uintptr(socket)), append(env, "_FUSE_COMMFD=3")
	}
	pid, err := syscall.ForkExec(program, append([]string{program}, args...), &syscall.ProcAttr{Dir: "/", Env: env, Files: files})
	if err != nil {
		return "", tine.Errorf(tine.KindIO, "cannot run %s: %w", program, err)
	}
	var status unix.WaitStatus
	for {
		if _, err = unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return "", tine.Errorf(tine.KindIO, "cannot wait for %s: %w", program, err)
	}
	if status.ExitStatus() == 0 {
		return "", nil
	}
	text := make([]byte, 4096)
	n, err := unix.Pread(messages, text, 0)
	said = strings.TrimSpace(string(text[:max(n, 0)]))
	if said == "" || err != nil && err != io.EOF {
		said = fmt.Sprintf("%s failed with status %d", program, status.ExitStatus())
	}
	return said, nil
}

func helperProgram() (string, error) {
	for _, name := range []string{"fusermount3", "/usr/bin/fusermount3", "/bin/fusermount3"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", tine.Errorf(tine.KindUnsupported, "an ordinary user mounts with the program fusermount3, which is not installed").
		WithHint("apt install fuse3, or run the server as root")
}
