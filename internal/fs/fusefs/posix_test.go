package fusefs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/fs/fusefs"
)

// behaviours are what a program may expect of any directory. They run on the
// machine's own file system too, which shows that they expect nothing odd.
var behaviours = []struct {
	name string
	run  func(t *testing.T, dir string)
}{
	{"names", testNames},
	{"rename", testRename},
	{"links", testLinks},
	{"unlinked", testUnlinked},
	{"referenced", testReferenced},
	{"modes", testModes},
	{"times", testTimes},
	{"special", testSpecial},
	{"exclusive", testExclusive},
	{"tmpfile", testTmpfile},
	{"contents", testContents},
	{"append", testAppend},
	{"holes", testHoles},
	{"copy", testCopyRange},
	{"large", testLarge},
	{"sync", testSync},
	{"mmap", testMmap},
	{"listing", testListing},
	{"listing-removing", testListingWhileRemoving},
	{"listing-seek", testListingSeek},
	{"parallel", testParallel},
	{"xattr", testXattr},
	{"acl", testACL},
	{"acl-inherited", testACLInherited},
	{"acl-permission", testACLPermission},
	{"posix-lock", testPosixLock},
	{"flock", testFlock},
	{"tools", testTools},
}

func TestBehaviourOfLocalFileSystem(t *testing.T) {
	needFUSE(t) // being root is part of it
	runBehaviours(t, t.TempDir(), true)
}

func TestBehaviour(t *testing.T) {
	needFUSE(t)
	for name, o := range map[string]options{
		"default":      {},
		"features-off": {Disable: fusefs.AllFeatures &^ fusefs.Locks},
		"cache-none":   {CacheNone: true},
		"write-back":   {Writeback: true},
		"id-mapped":    {IDMapped: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := startServer(t).mount(diskName, o)
			runBehaviours(t, dir, !o.Disable.Has(fusefs.ACLs))
		})
	}
}

func runBehaviours(t *testing.T, base string, acls bool) {
	for _, b := range behaviours {
		t.Run(b.name, func(t *testing.T) {
			if strings.HasPrefix(b.name, "acl") && !acls {
				t.Skip("ACLs are turned off")
			}
			dir := filepath.Join(base, b.name)
			check(t, os.Mkdir(dir, 0o755))
			b.run(t, dir)
		})
	}
}

func testNames(t *testing.T, dir string) {
	f := filepath.Join(dir, "file")
	write(t, f, "x")
	long := filepath.Join(dir, strings.Repeat("n", 255))
	write(t, long, "long")
	check(t, os.Remove(long))
	odd := filepath.Join(dir, "odd \xff\x01\n name")
	write(t, odd, "odd")
	if got := read(t, odd); got != "odd" {
		t.Errorf("file with an odd name has %q", got)
	}
	_, err := os.Stat(filepath.Join(dir, "absent"))
	wantErrno(t, "absent name", err, unix.ENOENT)
	_, err = os.Stat(filepath.Join(dir, "absent"))
	wantErrno(t, "absent name again", err, unix.ENOENT)
	write(t, filepath.Join(dir, "absent"), "now there")
	if got := read(t, filepath.Join(dir, "absent")); got != "now there" {
		t.Errorf("a name that was absent before has %q", got)
	}
	wantErrno(t, "too long a name", unix.Mkdir(long+"n", 0o755), unix.ENAMETOOLONG)
	wantErrno(t, "mkdir over a file", unix.Mkdir(f, 0o755), unix.EEXIST)
	wantErrno(t, "a file as a directory", unix.Mkdir(f+"/d", 0o755), unix.ENOTDIR)
	wantErrno(t, "rmdir of a file", unix.Rmdir(f), unix.ENOTDIR)
	check(t, unix.Mkdir(dir+"/d", 0o755))
	wantErrno(t, "unlink of a directory", unix.Unlink(dir+"/d"), unix.EISDIR)
	_, err = unix.Open(dir+"/d", unix.O_WRONLY, 0)
	wantErrno(t, "open of a directory for writing", err, unix.EISDIR)
	if n := stat(t, dir).Nlink; n != 3 && n != 1 { // 1: a file system that does not count
		t.Errorf("a directory with one subdirectory has %d links", n)
	}
	write(t, dir+"/d/f", "")
	wantErrno(t, "rmdir of a full directory", unix.Rmdir(dir+"/d"), unix.ENOTEMPTY)
	check(t, os.RemoveAll(dir+"/d"))
	_, err = os.Stat(dir + "/d")
	wantErrno(t, "removed directory", err, unix.ENOENT)
}

func testRename(t *testing.T, dir string) {
	a, b, d, e := dir+"/a", dir+"/b", dir+"/d", dir+"/e"
	write(t, a, "a")
	write(t, b, "b")
	ino := stat(t, a).Ino
	check(t, unix.Rename(a, b))
	if got := read(t, b); got != "a" || stat(t, b).Ino != ino {
		t.Errorf("after the rename over it b has %q, inode %d (was %d)", got, stat(t, b).Ino, ino)
	}
	_, err := os.Stat(a)
	wantErrno(t, "old name", err, unix.ENOENT)
	write(t, a, "new a")
	wantErrno(t, "RENAME_NOREPLACE", unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_NOREPLACE), unix.EEXIST)
	check(t, unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE))
	if read(t, a) != "a" || read(t, b) != "new a" {
		t.Errorf("after the exchange a has %q and b %q", read(t, a), read(t, b))
	}
	check(t, unix.Mkdir(d, 0o755))
	check(t, unix.Mkdir(e, 0o755))
	write(t, e+"/f", "")
	wantErrno(t, "directory over a full one", unix.Rename(d, e), unix.ENOTEMPTY)
	wantErrno(t, "file over a directory", unix.Rename(a, d), unix.EISDIR)
	wantErrno(t, "directory over a file", unix.Rename(d, a), unix.ENOTDIR)
	wantErrno(t, "directory into itself", unix.Rename(d, d+"/x"), unix.EINVAL)
	wantErrno(t, "absent", unix.Rename(dir+"/absent", a), unix.ENOENT)
	check(t, unix.Rename(e, d))
	if got := shell(t, d, "ls; cd f/.. 2>/dev/null || pwd"); !strings.HasPrefix(got, "f") {
		t.Errorf("the directory moved over an empty one lists %q", got)
	}
	check(t, unix.Mkdir(dir+"/deep", 0o755))
	check(t, unix.Rename(d, dir+"/deep/d"))
	if stat(t, dir+"/deep/d/..").Ino != stat(t, dir+"/deep").Ino {
		t.Error(".. of a moved directory is not its new parent")
	}
}

func testLinks(t *testing.T, dir string) {
	f, l, s := dir+"/f", dir+"/l", dir+"/s"
	write(t, f, "one")
	check(t, unix.Link(f, l))
	if a, b := stat(t, f), stat(t, l); a.Ino != b.Ino || a.Nlink != 2 || b.Nlink != 2 {
		t.Errorf("links: inodes %d %d, counts %d %d", a.Ino, b.Ino, a.Nlink, b.Nlink)
	}
	write(t, l, "other")
	if got := read(t, f); got != "other" {
		t.Errorf("written through one name, the other has %q", got)
	}
	check(t, unix.Unlink(f))
	if n := stat(t, l).Nlink; n != 1 {
		t.Errorf("%d links after removing one of two", n)
	}
	wantErrno(t, "link to an existing name", unix.Link(l, l), unix.EEXIST)
	wantErrno(t, "link of a directory", unix.Link(dir, dir+"/d"), unix.EPERM)
	target := strings.Repeat("t/", 1500)
	check(t, unix.Symlink(target, s))
	if got, err := os.Readlink(s); err != nil || got != target {
		t.Errorf("symbolic link reads %d bytes, %v", len(got), err)
	}
	if st := stat(t, s); st.Size != int64(len(target)) || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		t.Errorf("symbolic link: size %d mode %o", st.Size, st.Mode)
	}
	check(t, unix.Symlink("loop", dir+"/loop"))
	_, err := os.Stat(dir + "/loop")
	wantErrno(t, "a loop", err, unix.ELOOP)
}

func testUnlinked(t *testing.T, dir string) {
	f := dir + "/f"
	fd := open(t, f, unix.O_RDWR|unix.O_CREAT)
	defer unix.Close(fd)
	_, err := unix.Write(fd, []byte("still here"))
	check(t, err)
	check(t, unix.Unlink(f))
	var st unix.Stat_t
	check(t, unix.Fstat(fd, &st))
	if st.Nlink != 0 || st.Size != 10 {
		t.Errorf("unlinked but open: %d links, %d bytes", st.Nlink, st.Size)
	}
	buf := make([]byte, 20)
	n, err := unix.Pread(fd, buf, 0)
	if err != nil || string(buf[:n]) != "still here" {
		t.Errorf("unlinked but open: reads %q, %v", buf[:n], err)
	}
	check(t, unix.Ftruncate(fd, 5))
	check(t, unix.Fchmod(fd, 0o600))
	check(t, unix.Fsync(fd))
	check(t, unix.Fstat(fd, &st))
	if st.Size != 5 || st.Mode&0o777 != 0o600 {
		t.Errorf("unlinked but open, changed: size %d mode %o", st.Size, st.Mode)
	}
	write(t, f, "another")
	if n, err = unix.Pread(fd, buf, 0); err != nil || string(buf[:n]) != "still" {
		t.Errorf("beside a new file of its name it reads %q, %v", buf[:n], err)
	}
	check(t, unix.Mkdir(dir+"/gone", 0o755))
	dfd := open(t, dir+"/gone", unix.O_RDONLY|unix.O_DIRECTORY)
	defer unix.Close(dfd)
	check(t, unix.Rmdir(dir+"/gone"))
	_, err = unix.Openat(dfd, "x", unix.O_CREAT|unix.O_WRONLY, 0o644)
	wantErrno(t, "create in a removed directory", err, unix.ENOENT)
}

func testModes(t *testing.T, dir string) {
	f := dir + "/f"
	write(t, f, "x")
	check(t, unix.Chmod(f, 0o6755))
	if m := stat(t, f).Mode & 0o7777; m != 0o6755 {
		t.Errorf("chmod 6755 gave %o", m)
	}
	check(t, unix.Chown(f, 1000, 1001))
	if st := stat(t, f); st.Uid != 1000 || st.Gid != 1001 || st.Mode&0o7777 != 0o755 {
		t.Errorf("chown: %d:%d mode %o; set-ID bits must go", st.Uid, st.Gid, st.Mode)
	}
	old := unix.Umask(0o027)
	fd, err := unix.Open(dir+"/masked", unix.O_CREAT|unix.O_WRONLY, 0o666)
	unix.Umask(old)
	check(t, err)
	unix.Close(fd)
	if m := stat(t, dir+"/masked").Mode & 0o7777; m != 0o640 {
		t.Errorf("created under umask 027: %o", m)
	}
	check(t, unix.Mkdir(dir+"/sgid", 0o777))
	check(t, unix.Chown(dir+"/sgid", 0, 1234))
	check(t, unix.Chmod(dir+"/sgid", 0o2777))
	check(t, unix.Mkdir(dir+"/sgid/d", 0o755))
	write(t, dir+"/sgid/f", "")
	if d, f := stat(t, dir+"/sgid/d"), stat(t, dir+"/sgid/f"); d.Gid != 1234 || d.Mode&unix.S_ISGID == 0 || f.Gid != 1234 {
		t.Errorf("in a set-group-ID directory: directory %d %o, file %d", d.Gid, d.Mode, f.Gid)
	}
	check(t, unix.Chmod(dir, 0o777))
	check(t, unix.Chmod(f, 0o4777))
	write(t, dir+"/g", "")
	check(t, unix.Chmod(dir+"/g", 0o6777))
	runHelper(t, "as-user", dir)
	if m := stat(t, f).Mode & 0o7777; m != 0o777 {
		t.Errorf("after a write by another user the mode is %o; set-user-ID must go", m)
	}
	if m := stat(t, dir+"/g").Mode & 0o7777; m != 0o777 {
		t.Errorf("after a fallocate by another user the mode is %o; set-ID bits must go", m)
	}
	if st := stat(t, dir+"/shared"); st.Mode&0o7777 != 0o2770 || st.Gid != 1234 {
		t.Errorf("chmod g+s by a member of the group through a supplementary group: %o, group %d", st.Mode&0o7777, st.Gid)
	}
}

// helperAsUser does what root may do but others may not, or with another
// effect: args are the directory.
func helperAsUser(args []string) error {
	if err := os.Chdir(args[0]); err != nil { // the directories above may be closed to others
		return err
	}
	check := func(what string, err error, want error) error {
		if err != want {
			return fmt.Errorf("%s as an ordinary user: %v, want %v", what, err, want)
		}
		return nil
	}
	if err := syscall.Setgroups([]int{1234}); err != nil {
		return err
	}
	if err := syscall.Setgid(2000); err != nil {
		return err
	}
	if err := syscall.Setuid(2000); err != nil {
		return err
	}
	fd, err := unix.Open("f", unix.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte("y")); err != nil {
		return err
	}
	g, err := unix.Open("g", unix.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(g)
	if err := unix.Fallocate(g, 0, 0, 10); err != nil {
		return err
	}
	if err := check("chmod of another's file", unix.Chmod("f", 0o777), unix.EPERM); err != nil {
		return err
	}
	_, err = unix.Open("masked", unix.O_RDONLY, 0)
	if err := check("open without permission", err, unix.EACCES); err != nil {
		return err
	}
	if err := unix.Mkdir("shared", 0o770); err != nil {
		return err
	}
	if err := unix.Chown("shared", -1, 1234); err != nil {
		return fmt.Errorf("chown to a supplementary group: %w", err)
	}
	return unix.Chmod("shared", 0o2770)
}

func testTimes(t *testing.T, dir string) {
	f := dir + "/f"
	before := time.Now().Add(-time.Second)
	write(t, f, "x")
	st := stat(t, f)
	if m := time.Unix(st.Mtim.Unix()); m.Before(before) || m.After(time.Now().Add(time.Second)) {
		t.Errorf("modification time of a new file is %v", m)
	}
	times := []unix.Timespec{{Sec: 1, Nsec: 5}, {Sec: 1234567890, Nsec: 123456789}}
	check(t, unix.UtimesNanoAt(unix.AT_FDCWD, f, times, 0))
	if st = stat(t, f); st.Mtim != times[1] || st.Atim != times[0] {
		t.Errorf("times are %v %v, want %v", st.Atim, st.Mtim, times)
	}
	now := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_NOW}}
	check(t, unix.UtimesNanoAt(unix.AT_FDCWD, f, now, 0))
	if st = stat(t, f); st.Atim != times[0] || time.Unix(st.Mtim.Unix()).Before(before) {
		t.Errorf("UTIME_OMIT and UTIME_NOW gave %v %v", st.Atim, st.Mtim)
	}
	check(t, unix.UtimesNanoAt(unix.AT_FDCWD, dir, times, 0))
	write(t, dir+"/another", "")
	if m := stat(t, dir).Mtim; m == times[1] {
		t.Error("a new name does not change the directory's modification time")
	}
}

func testSpecial(t *testing.T, dir string) {
	check(t, unix.Mkfifo(dir+"/fifo", 0o644))
	check(t, unix.Mknod(dir+"/dev", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	check(t, unix.Mknod(dir+"/sock", unix.S_IFSOCK|0o600, 0))
	check(t, unix.Mknod(dir+"/reg", unix.S_IFREG|0o600, 0))
	for name, want := range map[string]uint32{"fifo": unix.S_IFIFO, "dev": unix.S_IFCHR, "sock": unix.S_IFSOCK, "reg": unix.S_IFREG} {
		if st := stat(t, dir+"/"+name); st.Mode&unix.S_IFMT != want {
			t.Errorf("%s has mode %o", name, st.Mode)
		}
	}
	if st := stat(t, dir+"/dev"); st.Rdev != unix.Mkdev(1, 3) {
		t.Errorf("device node is %d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	}
	if got := shell(t, dir, "cat fifo & echo through >fifo; wait"); got != "through" {
		t.Errorf("a fifo passes on %q", got)
	}
	var x unix.Statx_t
	check(t, unix.Statx(unix.AT_FDCWD, dir+"/dev", 0, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &x))
	if x.Rdev_major != 1 || x.Rdev_minor != 3 || x.Mode&unix.S_IFMT != unix.S_IFCHR {
		t.Errorf("statx: device %d:%d, mode %o", x.Rdev_major, x.Rdev_minor, x.Mode)
	}
	var fs unix.Statfs_t
	check(t, unix.Statfs(dir, &fs))
	if fs.Blocks == 0 || fs.Bavail == 0 || fs.Bavail > fs.Blocks || fs.Namelen != 255 {
		t.Errorf("statfs: %+v", fs)
	}
}

// testExclusive is how git and many others lock: create with O_EXCL, write,
// rename over.
func testExclusive(t *testing.T, dir string) {
	lock, f := dir+"/f.lock", dir+"/f"
	for i := range 20 {
		fd := open(t, lock, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR)
		_, err := unix.Open(lock, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o644)
		wantErrno(t, "a second O_EXCL", err, unix.EEXIST)
		_, err = unix.Write(fd, fmt.Appendf(nil, "version %d", i))
		check(t, err)
		check(t, unix.Close(fd))
		check(t, unix.Rename(lock, f))
		if got, want := read(t, f), fmt.Sprintf("version %d", i); got != want {
			t.Fatalf("after the rename the file has %q, want %q", got, want)
		}
	}
}

func testTmpfile(t *testing.T, dir string) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	check(t, err)
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte("unnamed"))
	check(t, err)
	if names := shell(t, dir, "ls -A"); names != "" {
		t.Errorf("O_TMPFILE shows as %q", names)
	}
	check(t, unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, dir+"/named", unix.AT_SYMLINK_FOLLOW))
	if got := read(t, dir+"/named"); got != "unnamed" {
		t.Errorf("linked O_TMPFILE has %q", got)
	}
}
