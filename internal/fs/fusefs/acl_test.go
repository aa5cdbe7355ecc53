package fusefs_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/fs/fusefs"
)

const (
	accessACL  = "system.posix_acl_access"
	defaultACL = "system.posix_acl_default"
)

// list writes an ACL from text like "u::rw- u:1000:r-- g::--- m::r-- o::---".
func list(text string) []byte {
	b := []byte{2, 0, 0, 0}
	for entry := range strings.FieldsSeq(text) {
		kind, rest, _ := strings.Cut(entry, ":")
		who, rights, _ := strings.Cut(rest, ":")
		tag := map[string]uint16{"u": 1, "g": 4, "m": 0x10, "o": 0x20}[kind]
		id := uint64(1<<32 - 1)
		if who != "" {
			id, _ = strconv.ParseUint(who, 10, 32)
			tag *= 2
		}
		var perm uint16
		for i, c := range "rwx" {
			if rights[i] == byte(c) {
				perm |= 4 >> i
			}
		}
		b = binary.LittleEndian.AppendUint16(b, tag)
		b = binary.LittleEndian.AppendUint16(b, perm)
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return b
}

func setACL(t testing.TB, path, name, text string) {
	t.Helper()
	if err := unix.Setxattr(path, name, list(text), 0); err != nil {
		t.Fatalf("set %s of %s: %v", name, path, err)
	}
}

// wantACL compares a list; "" is none.
func wantACL(t testing.TB, path, name, text string) {
	t.Helper()
	buf := make([]byte, 4096)
	n, err := unix.Lgetxattr(path, name, buf)
	switch {
	case text == "":
		wantErrno(t, name+" of "+path, err, unix.ENODATA)
	case err != nil || !bytes.Equal(buf[:n], list(text)):
		t.Errorf("%s of %s is %x, %v; want %x", name, path, buf[:max(n, 0)], err, list(text))
	}
	n, err = unix.Llistxattr(path, buf)
	check(t, err)
	if shown := slices.Contains(strings.Split(string(buf[:n]), "\x00"), name); shown != (text != "") {
		t.Errorf("the list of attributes of %s is %q", path, buf[:n])
	}
}

func wantMode(t testing.TB, path string, want uint32) {
	t.Helper()
	if got := stat(t, path).Mode & 0o7777; got != want {
		t.Errorf("the mode of %s is %o, want %o", path, got, want)
	}
}

func testACL(t *testing.T, dir string) {
	f := dir + "/f"
	write(t, f, "x")
	wantACL(t, f, accessACL, "")
	setACL(t, f, accessACL, "u::rw- u:1000:rwx g::r-- g:2000:--x m::rwx o::---")
	wantACL(t, f, accessACL, "u::rw- u:1000:rwx g::r-- g:2000:--x m::rwx o::---")
	wantMode(t, f, 0o670)
	check(t, unix.Chmod(f, 0o641))
	wantACL(t, f, accessACL, "u::rw- u:1000:rwx g::r-- g:2000:--x m::r-- o::--x")
	setACL(t, f, accessACL, "u::rwx g::r-x o::--x")
	wantACL(t, f, accessACL, "")
	wantMode(t, f, 0o751)
	setACL(t, f, accessACL, "u::rwx g::r-x m::--x o::--x")
	wantMode(t, f, 0o711)
	check(t, unix.Removexattr(f, accessACL))
	check(t, unix.Removexattr(f, accessACL))
	wantACL(t, f, accessACL, "")
	wantMode(t, f, 0o711)

	check(t, os.Mkdir(dir+"/d", 0o755))
	setACL(t, dir+"/d", defaultACL, "u::rwx g::r-x o::--x")
	wantACL(t, dir+"/d", defaultACL, "u::rwx g::r-x o::--x")
	wantMode(t, dir+"/d", 0o755)
	check(t, unix.Setxattr(dir+"/d", defaultACL, list(""), 0))
	wantACL(t, dir+"/d", defaultACL, "")

	good := list("u::rwx g::r-x o::--x")
	wantErrno(t, "default ACL of a file", unix.Setxattr(f, defaultACL, good, 0), unix.EACCES)
	check(t, unix.Symlink("f", dir+"/s"))
	wantErrno(t, "ACL of a symbolic link", unix.Lsetxattr(dir+"/s", accessACL, good, 0), unix.EOPNOTSUPP)
	for what, bad := range map[string][]byte{
		"no other":      list("u::rwx g::r-x"),
		"out of order":  list("g::r-x u::rwx o::---"),
		"twice":         list("u::rwx u::rwx g::r-x o::---"),
		"no mask":       list("u::rwx u:1:r-x g::r-x o::---"),
		"cut off":       good[:len(good)-1],
		"half a header": good[:3],
		"unknown right": bytes.Replace(good, []byte{1, 0, 7, 0}, []byte{1, 0, 8, 0}, 1),
		"unknown tag":   bytes.Replace(good, []byte{1, 0, 7, 0}, []byte{3, 0, 7, 0}, 1),
	} {
		wantErrno(t, what, unix.Setxattr(f, accessACL, bad, 0), unix.EINVAL)
	}
	wantErrno(t, "another version", unix.Setxattr(f, accessACL, []byte{1, 0, 0, 0}, 0), unix.EOPNOTSUPP)
}

// testACLInherited: in a directory with a default list that takes the place of
// the umask.
func testACLInherited(t *testing.T, dir string) {
	const given = "u::rwx u:1000:rwx g::r-x m::rwx o::r--"
	setACL(t, dir, defaultACL, given)
	defer unix.Umask(unix.Umask(0o077))
	fd, err := unix.Open(dir+"/f", unix.O_CREAT|unix.O_RDWR, 0o666)
	check(t, err)
	unix.Close(fd)
	wantACL(t, dir+"/f", accessACL, "u::rw- u:1000:rwx g::r-x m::rw- o::r--")
	wantACL(t, dir+"/f", defaultACL, "")
	wantMode(t, dir+"/f", 0o664)
	check(t, unix.Mkfifo(dir+"/fifo", 0o620))
	wantACL(t, dir+"/fifo", accessACL, "u::rw- u:1000:rwx g::r-x m::-w- o::---")
	check(t, unix.Mkdir(dir+"/d", 0o770))
	wantACL(t, dir+"/d", accessACL, "u::rwx u:1000:rwx g::r-x m::rwx o::---")
	wantACL(t, dir+"/d", defaultACL, given)
	wantMode(t, dir+"/d", 0o770)
	check(t, unix.Symlink("f", dir+"/s"))
	wantMode(t, dir+"/s", 0o777)
	fd, err = unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR, 0o660)
	check(t, err)
	defer unix.Close(fd)
	check(t, unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, dir+"/tmp", unix.AT_SYMLINK_FOLLOW))
	wantACL(t, dir+"/tmp", accessACL, "u::rw- u:1000:rwx g::r-x m::rw- o::---")
	// A list that says no more than a mode is inherited as one.
	setACL(t, dir, defaultACL, "u::rwx g::r-x o::---")
	check(t, unix.Mkdir(dir+"/plain", 0o777))
	wantACL(t, dir+"/plain", accessACL, "")
	wantMode(t, dir+"/plain", 0o750)
	check(t, unix.Removexattr(dir, defaultACL))
	check(t, unix.Mkdir(dir+"/masked", 0o777))
	wantMode(t, dir+"/masked", 0o700)
}

// testACLPermission: the list decides who gets in, at once after a change.
func testACLPermission(t *testing.T, dir string) {
	f := dir + "/f"
	write(t, f, "x")
	check(t, unix.Chmod(f, 0o640))
	user := func(what ...string) {
		t.Helper()
		runHelper(t, "user", append([]string{dir, "1000", "1000", "2000"}, what...)...)
	}
	user("read f EACCES", "write f EACCES")
	setACL(t, f, accessACL, "u::rw- u:1000:rw- g::--- m::r-- o::---")
	user("read f", "write f EACCES")
	check(t, unix.Chmod(f, 0o660))
	user("read f", "write f")
	setACL(t, f, accessACL, "u::rw- u:1000:--- g::--- g:2000:rw- m::rw- o::rw-")
	user("read f EACCES")
	setACL(t, f, accessACL, "u::rw- g::--- g:2000:rw- m::rw- o::---")
	user("read f", "write f")
	check(t, unix.Removexattr(f, accessACL))
	user("read f EACCES")

	check(t, os.Mkdir(dir+"/d", 0o755))
	user("make d/x EACCES")
	setACL(t, dir+"/d", accessACL, "u::rwx u:1000:rwx g::r-x m::rwx o::r-x")
	user("make d/x", "acl d EPERM", "acl d/x")
	// Its owner is not in the group of the file: set-group-ID goes.
	check(t, unix.Chown(dir+"/d/x", 1000, 3000))
	check(t, unix.Chmod(dir+"/d/x", 0o2755))
	user("acl d/x")
	wantMode(t, dir+"/d/x", 0o750)
}

// helperUser does as another user what is asked for. Args are a directory, a
// user, a group, one more group, and sentences like "read FILE [ERRNO]".
func helperUser(args []string) error {
	if err := os.Chdir(args[0]); err != nil {
		return err
	}
	var ids [3]int
	for i := range ids {
		var err error
		if ids[i], err = strconv.Atoi(args[1+i]); err != nil {
			return err
		}
	}
	if err := syscall.Setgroups(ids[2:]); err != nil {
		return err
	}
	if err := syscall.Setgid(ids[1]); err != nil {
		return err
	}
	if err := syscall.Setuid(ids[0]); err != nil {
		return err
	}
	for _, sentence := range args[4:] {
		verb, rest, _ := strings.Cut(sentence, " ")
		file, want, _ := strings.Cut(rest, " ")
		var err error
		fd := -1
		switch verb {
		case "read":
			fd, err = unix.Open(file, unix.O_RDONLY, 0)
		case "write":
			fd, err = unix.Open(file, unix.O_WRONLY, 0)
		case "make":
			fd, err = unix.Open(file, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o640)
		case "acl":
			err = unix.Setxattr(file, accessACL, list("u::rwx g::r-x m::r-x o::---"), 0)
		default:
			err = fmt.Errorf("not a verb: %q", verb)
		}
		if fd >= 0 {
			unix.Close(fd)
		}
		got := ""
		if errno, ok := err.(syscall.Errno); ok {
			got, err = unix.ErrnoName(errno), nil
		}
		if err != nil || got != want {
			return fmt.Errorf("%s: %q, %v; want %q", sentence, got, err, want)
		}
	}
	return nil
}

// TestACLBetweenMounts changes lists through one mount, whose effect must show
// at the other, which has them cached, and survive a checkpoint.
func TestACLBetweenMounts(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	a := s.mount(diskName, options{})
	check(t, os.Mkdir(a+"/d", 0o755))
	write(t, a+"/d/f", "x")
	check(t, unix.Chmod(a+"/d/f", 0o600))
	try := func(dir, sentence string) bool {
		c := startHelper(t, "user", dir, "1000", "1000", "1000", sentence)
		c.cmd.Stderr = nil
		c.stdin.Close()
		return c.cmd.Wait() == nil
	}
	if !try(a, "read d/f EACCES") {
		t.Fatal("another user may read what only root may")
	}
	b := s.mount(diskName, options{})
	setACL(t, b+"/d/f", accessACL, "u::rw- u:1000:r-- g::--- m::r-- o::---")
	setACL(t, b+"/d", defaultACL, "u::rwx u:1000:r-x g::--- m::rwx o::---")
	eventually(t, soon*10, "the list lets the user in at the other mount", func() bool { return try(a, "read d/f") })
	s.checkpoint("cp")
	check(t, unix.Chmod(b+"/d/f", 0o600))
	eventually(t, soon*10, "the mask keeps the user out at the other mount", func() bool { return try(a, "read d/f EACCES") })
	wantACL(t, a+"/d/f", accessACL, "u::rw- u:1000:r-- g::--- m::--- o::---")
	check(t, unix.Removexattr(b+"/d", defaultACL))
	eventually(t, soon, "the default list is gone", func() bool {
		_, err := unix.Getxattr(a+"/d", defaultACL, nil)
		return err == unix.ENODATA
	})
	cp := s.mount(diskName+"@cp", options{})
	wantACL(t, cp+"/d/f", accessACL, "u::rw- u:1000:r-- g::--- m::r-- o::---")
	wantACL(t, cp+"/d", defaultACL, "u::rwx u:1000:r-x g::--- m::rwx o::---")
}

// TestACLsOff: a mount without them shows none and keeps them.
func TestACLsOff(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	on, off := s.mount(diskName, options{}), s.mount(diskName, options{Disable: fusefs.ACLs})
	write(t, on+"/f", "x")
	setACL(t, on+"/f", accessACL, "u::rw- u:1000:rw- g::--- m::rw- o::---")
	setACL(t, on, defaultACL, "u::rwx u:1000:rwx g::r-x m::rwx o::---")
	_, err := unix.Getxattr(off+"/f", accessACL, nil)
	wantErrno(t, "get", err, unix.EOPNOTSUPP)
	wantErrno(t, "set", unix.Setxattr(off+"/f", accessACL, list("u::rw- g::r-- o::---"), 0), unix.EOPNOTSUPP)
	wantErrno(t, "remove", unix.Removexattr(off+"/f", accessACL), unix.EOPNOTSUPP)
	if n, err := unix.Listxattr(off+"/f", nil); err != nil || n != 0 {
		t.Errorf("%d bytes of names of attributes, %v", n, err)
	}
	check(t, unix.Chmod(off+"/f", 0o640))
	eventually(t, soon, "the mask has followed the mode", func() bool { return stat(t, on+"/f").Mode&0o777 == 0o640 })
	wantACL(t, on+"/f", accessACL, "u::rw- u:1000:rw- g::--- m::r-- o::---")
	check(t, os.Mkdir(off+"/d", 0o777))
	wantACL(t, on+"/d", defaultACL, "u::rwx u:1000:rwx g::r-x m::rwx o::---")
}
