package posix

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

var statCases = []behaviour{
	works("stat", "tells type, mode, owner, links and size of each type", func(c *kase) {
		c.put("f", "content")
		c.mkdir("d", 0o755)
		c.symlink("target", "s")
		c.fifo("p")
		c.mknod("k", unix.S_IFSOCK|0o666)
		c.whiteDevice("n")
		for name, want := range map[string]struct {
			mode uint32
			size int64
		}{
			"f": {unix.S_IFREG | 0o644, 7}, "s": {unix.S_IFLNK | 0o777, 6}, "p": {unix.S_IFIFO | 0o666, 0},
			"k": {unix.S_IFSOCK | 0o666, 0}, "n": {unix.S_IFCHR | 0o666, 0},
		} {
			st := c.stat(name)
			equal(c, "mode of "+name, st.Mode, want.mode)
			equal(c, "size of "+name, st.Size, want.size)
			equal(c, "links of "+name, st.Nlink, 1)
			equal(c, "device of "+name, st.Dev, c.stat(".").Dev)
		}
		equal(c, "mode of a directory", c.stat("d").Mode, uint32(unix.S_IFDIR|0o755))
	}),
	works("stat", "follows a symbolic link, lstat does not", func(c *kase) {
		c.put("f", "content")
		c.symlink("f", "s")
		var st unix.Stat_t
		c.ok(unix.Stat("s", &st), "stat")
		equal(c, "inode", st.Ino, c.stat("f").Ino)
		equal(c, "type of the link", c.stat("s").Mode&unix.S_IFMT, uint32(unix.S_IFLNK))
	}),
	works("stat", "of a descriptor and with AT_EMPTY_PATH is of the open file", func(c *kase) {
		fd := c.file("f", "content")
		var st unix.Stat_t
		c.ok(unix.Fstatat(fd, "", &st, unix.AT_EMPTY_PATH), "fstatat")
		equal(c, "inode", st.Ino, c.fstat(fd).Ino)
		equal(c, "size", st.Size, 7)
	}),
	works("stat", "every file has an inode number of its own", func(c *kase) {
		seen := map[uint64]bool{}
		for i := range 200 {
			name := fmt.Sprint("f", i)
			c.put(name, "")
			seen[c.stat(name).Ino] = true
		}
		equal(c, "inode numbers", len(seen), 200)
	}),
	works("stat", "blocks are as many as the content takes, about", func(c *kase) {
		fd := c.file("f", letters(1<<20))
		c.ok(unix.Fsync(fd), "fsync")
		if got := c.fstat(fd).Blocks; got < 1<<20/512 || got > 1<<20/512+64 {
			c.failf("1 MiB takes %d blocks of 512 bytes", got)
		}
	}),
	refuse("stat", unix.EBADF, "no descriptor", func(c *kase) error {
		var st unix.Stat_t
		return unix.Fstat(c.closed(), &st)
	}),
	refuse("stat", unix.EINVAL, "an unknown flag", func(c *kase) error {
		var st unix.Stat_t
		c.put("f", "")
		return unix.Fstatat(here, "f", &st, 1<<20)
	}),
	refuse("stat", unix.ENOTDIR, "a file by a name that ends with a slash", func(c *kase) error {
		var st unix.Stat_t
		c.put("f", "")
		return unix.Stat("f/", &st)
	}),
	works("stat", "a name that ends with a slash leads through a symbolic link", func(c *kase) {
		c.mkdir("d", 0o755)
		c.symlink("d", "s")
		equal(c, "type", c.stat("s/").Mode&unix.S_IFMT, uint32(unix.S_IFDIR))
	}),
	works("statx", "tells what stat tells, and the time of birth", func(c *kase) {
		fd := c.file("f", "content")
		c.chmod("f", 0o640)
		var x unix.Statx_t
		c.ok(unix.Statx(here, "f", 0, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &x), "statx")
		st := c.fstat(fd)
		equal(c, "mask", x.Mask&(unix.STATX_BASIC_STATS|unix.STATX_BTIME), uint32(unix.STATX_BASIC_STATS|unix.STATX_BTIME))
		equal(c, "inode", x.Ino, st.Ino)
		equal(c, "mode", uint32(x.Mode), st.Mode)
		equal(c, "size", x.Size, 7)
		equal(c, "links", x.Nlink, 1)
		equal(c, "owner", [2]uint32{x.Uid, x.Gid}, [2]uint32{st.Uid, st.Gid})
		equal(c, "device", unix.Mkdev(x.Dev_major, x.Dev_minor), st.Dev)
		equal(c, "time of modification", x.Mtime.Sec, st.Mtim.Sec)
		equal(c, "nanosecond of modification", x.Mtime.Nsec, uint32(st.Mtim.Nsec))
		equal(c, "birth is now", isNow(unix.Timespec{Sec: x.Btime.Sec, Nsec: int64(x.Btime.Nsec)}), true)
	}),
	works("statx", "the time of birth never changes", func(c *kase) {
		born := func() unix.StatxTimestamp {
			var x unix.Statx_t
			c.ok(unix.Statx(here, "f", 0, unix.STATX_BTIME, &x), "statx")
			return x.Btime
		}
		c.put("f", "content")
		before := born()
		c.tick()
		c.put("f", "changed")
		c.ok(utime("f", timeOld, timeOld), "utimensat")
		c.chmod("f", 0o600)
		c.rename("f", "g")
		c.rename("g", "f")
		equal(c, "birth", born(), before)
	}),
	works("statx", "AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW and the sync flags", func(c *kase) {
		fd := c.file("f", "content")
		c.symlink("f", "s")
		var x unix.Statx_t
		c.ok(unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_SIZE, &x), "statx")
		equal(c, "size", x.Size, 7)
		c.ok(unix.Statx(here, "s", unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &x), "statx")
		equal(c, "type", x.Mode&unix.S_IFMT, unix.S_IFLNK)
		for _, flag := range []int{unix.AT_STATX_FORCE_SYNC, unix.AT_STATX_DONT_SYNC} {
			c.ok(unix.Statx(here, "f", flag, unix.STATX_SIZE, &x), "statx")
			equal(c, "size", x.Size, 7)
		}
	}),
	refuse("statx", unix.EINVAL, "both sync flags", func(c *kase) error {
		var x unix.Statx_t
		return unix.Statx(here, ".", unix.AT_STATX_FORCE_SYNC|unix.AT_STATX_DONT_SYNC, unix.STATX_SIZE, &x)
	}),
	refuse("statx", unix.EINVAL, "the reserved bit of the mask", func(c *kase) error {
		var x unix.Statx_t
		return unix.Statx(here, ".", 0, 1<<31, &x)
	}),
}

var statfsCases = []behaviour{
	works("statfs", "tells sizes that fit together, and the longest name", func(c *kase) {
		st := c.statfs()
		equal(c, "longest name", st.Namelen, 255)
		if st.Blocks == 0 || st.Bfree > st.Blocks || st.Bavail > st.Bfree || st.Bsize <= 0 || st.Ffree > st.Files {
			c.failf("statfs: %+v", st)
		}
	}),
	works("statfs", "of a file, a directory, a descriptor is the same", func(c *kase) {
		fd := c.file("f", "")
		var a, b unix.Statfs_t
		c.ok(unix.Statfs("f", &a), "statfs")
		c.ok(unix.Fstatfs(fd, &b), "fstatfs")
		equal(c, "id", a.Fsid, b.Fsid)
		equal(c, "type", a.Type, b.Type)
	}),
	refuse("statfs", unix.EBADF, "no descriptor", func(c *kase) error {
		var st unix.Statfs_t
		return unix.Fstatfs(c.closed(), &st)
	}),
}

// entry is a name in a directory. The offset is where the listing goes on.
type entry struct {
	ino    uint64
	offset int64
	kind   byte
	name   string
}

// entriesOf lists all that is left of a directory, with a buffer of size bytes.
func entriesOf(fd, size int) ([]entry, error) {
	var all []entry
	for {
		some, err := nextEntries(fd, size)
		if err != nil || len(some) == 0 {
			return all, err
		}
		all = append(all, some...)
	}
}

// nextEntries is one getdents64(2).
func nextEntries(fd, size int) ([]entry, error) {
	p := make([]byte, size)
	n, err := unix.Getdents(fd, p)
	if err != nil {
		return nil, err
	}
	var all []entry
	for p = p[:n]; len(p) > 0; {
		length := binary.NativeEndian.Uint16(p[16:])
		name, _, _ := strings.Cut(string(p[19:length]), "\x00")
		all = append(all, entry{binary.NativeEndian.Uint64(p), int64(binary.NativeEndian.Uint64(p[8:])), p[18], name})
		p = p[length:]
	}
	return all, nil
}

func listed(entries []entry) []string {
	var names []string
	for _, e := range entries {
		names = append(names, e.name)
	}
	slices.Sort(names)
	return names
}

// crowd makes files whose names it returns, sorted.
func (c *kase) crowd(dir string, n int) []string {
	var names []string
	c.mkdir(dir, 0o755)
	for i := range n {
		names = append(names, fmt.Sprintf("file-%04d", i))
		c.put(dir+"/"+names[i], "")
	}
	return names
}

var listCases = []behaviour{
	works("getdents", "lists . and .. with their inodes", func(c *kase) {
		c.mkdir("d", 0o755)
		entries, err := entriesOf(c.open("d", unix.O_RDONLY), 4096)
		c.ok(err, "getdents")
		equal(c, "entries", fmt.Sprint(listed(entries)), "[. ..]")
		for _, e := range entries {
			equal(c, "inode of "+e.name, e.ino, c.stat("d/"+e.name).Ino)
			equal(c, "type of "+e.name, e.kind, byte(unix.DT_DIR))
		}
	}),
	works("getdents", "tells the type and inode of each entry", func(c *kase) {
		c.put("f", "")
		c.mkdir("d", 0o755)
		c.symlink("f", "s")
		c.fifo("p")
		c.mknod("k", unix.S_IFSOCK|0o666)
		c.ok(unix.Mknod("n", unix.S_IFCHR|0o666, nullDevice), "mknod")
		c.ok(unix.Mknod("b", unix.S_IFBLK|0o666, nullDevice), "mknod")
		want := map[string]byte{"f": unix.DT_REG, "d": unix.DT_DIR, "s": unix.DT_LNK, "p": unix.DT_FIFO, "k": unix.DT_SOCK, "n": unix.DT_CHR, "b": unix.DT_BLK, ".": unix.DT_DIR, "..": unix.DT_DIR}
		entries, err := entriesOf(c.open(".", unix.O_RDONLY), 4096)
		c.ok(err, "getdents")
		equal(c, "entries", len(entries), len(want))
		for _, e := range entries {
			equal(c, "type of "+e.name, e.kind, want[e.name])
			equal(c, "inode of "+e.name, e.ino, c.stat(e.name).Ino)
		}
	}),
	works("getdents", "lists each name once, however small the buffer", func(c *kase) {
		want := append(c.crowd("d", 500), ".", "..")
		slices.Sort(want)
		for _, size := range []int{48, 300, 4096, 1 << 20} {
			entries, err := entriesOf(c.open("d", unix.O_RDONLY), size)
			c.ok(err, "getdents")
			equal(c, "names", strings.Join(listed(entries), " "), strings.Join(want, " "))
		}
	}),
	works("getdents", "comes to an end though each name that it tells is renamed", func(c *kase) {
		const files = 300
		c.crowd("d", files)
		fd, told := c.open("d", unix.O_RDONLY), 0
		buf := make([]byte, 1000)
		for {
			n, err := unix.Getdents(fd, buf)
			c.ok(err, "getdents")
			if n == 0 {
				break
			}
			_, _, names := unix.ParseDirent(buf[:n], -1, nil)
			for _, name := range names {
				c.rename("d/"+name, "d/other name")
				c.rename("d/other name", "d/"+name)
			}
			if told += len(names); told > 3*files {
				c.fatalf("it has told %d names of %d files, and goes on", told, files)
			}
		}
		if told < files/2 {
			c.failf("it has told %d names of %d files", told, files)
		}
	}),
	works("getdents", "goes on from every offset that it has told", func(c *kase) {
		c.crowd("d", 200)
		fd := c.open("d", unix.O_RDONLY)
		entries, err := entriesOf(fd, 1000)
		c.ok(err, "getdents")
		for i := 0; i < len(entries); i += 7 {
			must[int64](c, "lseek")(unix.Seek(fd, entries[i].offset, unix.SEEK_SET))
			rest, err := entriesOf(fd, 1000)
			c.ok(err, "getdents")
			equal(c, "entries left", len(rest), len(entries)-i-1)
			if len(rest) > 0 {
				equal(c, "next", rest[0].name, entries[i+1].name)
			}
		}
	}),
	works("getdents", "begins anew after a seek to 0, and then sees what is new", func(c *kase) {
		c.crowd("d", 10)
		fd := c.open("d", unix.O_RDONLY)
		before, err := entriesOf(fd, 4096)
		c.ok(err, "getdents")
		c.put("d/new", "")
		c.unlink("d/file-0003")
		must[int64](c, "lseek")(unix.Seek(fd, 0, unix.SEEK_SET))
		after, err := entriesOf(fd, 4096)
		c.ok(err, "getdents")
		equal(c, "entries", len(after), len(before))
		equal(c, "has the new name", slices.Contains(listed(after), "new"), true)
		equal(c, "has the removed name", slices.Contains(listed(after), "file-0003"), false)
	}),
	works("getdents", "while names are removed, the others are listed once", func(c *kase) {
		names := c.crowd("d", 500)
		fd := c.open("d", unix.O_RDONLY)
		var got []entry
		for {
			some, err := nextEntries(fd, 500)
			c.ok(err, "getdents")
			if len(some) == 0 {
				break
			}
			got = append(got, some...)
			for _, e := range some {
				if e.name != "." && e.name != ".." {
					c.unlink("d/" + e.name)
				}
			}
		}
		equal(c, "names", strings.Join(listed(got), " "), ". .. "+strings.Join(names, " "))
		c.seesNames("d")
	}),
	works("getdents", "while names are added, the others are listed once", func(c *kase) {
		names := c.crowd("d", 300)
		fd := c.open("d", unix.O_RDONLY)
		seen := map[string]int{}
		for i := 0; ; i++ {
			some, err := nextEntries(fd, 500)
			c.ok(err, "getdents")
			if len(some) == 0 {
				break
			}
			for _, e := range some {
				seen[e.name]++
			}
			if i < 100 {
				c.put(fmt.Sprintf("d/new-%d", i), "")
			}
		}
		for _, name := range names {
			if seen[name] != 1 {
				c.failf("%s is listed %d times", name, seen[name])
			}
		}
		for name, n := range seen {
			if n > 1 {
				c.failf("%s is listed %d times", name, n)
			}
		}
	}),
	works("getdents", "while names are replaced by rename, the others are listed once", func(c *kase) {
		names := c.crowd("d", 300)
		c.put("x", "")
		fd := c.open("d", unix.O_RDONLY)
		seen := map[string]int{}
		for i := 0; ; i++ {
			some, err := nextEntries(fd, 500)
			c.ok(err, "getdents")
			if len(some) == 0 {
				break
			}
			for _, e := range some {
				seen[e.name]++
			}
			c.put("x", "")
			c.rename("x", "d/file-0150")
		}
		for _, name := range names {
			if seen[name] != 1 && name != "file-0150" {
				c.failf("%s is listed %d times", name, seen[name])
			}
		}
	}),
	refuse("getdents", unix.EBADF, "no descriptor", func(c *kase) error { return failure(unix.Getdents(c.closed(), make([]byte, 100))) }),
	refuse("getdents", unix.ENOTDIR, "a file", func(c *kase) error { return failure(unix.Getdents(c.file("f", ""), make([]byte, 100))) }),
	refuse("getdents", unix.EINVAL, "a buffer too small for an entry", func(c *kase) error {
		return failure(unix.Getdents(c.open(".", unix.O_RDONLY), make([]byte, 10)))
	}),
	refuse("getdents", unix.ENOENT, "a directory that was removed", func(c *kase) error {
		return failure(unix.Getdents(c.removed(), make([]byte, 100)))
	}),
}
