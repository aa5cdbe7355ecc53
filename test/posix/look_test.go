package posix

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// seenWithin is how long what was done through one mount may take to be seen
// through another. The promise is 100 ms; the rest is for a machine under load.
const seenWithin = 2 * time.Second

// see asks until look has no complaint, and notes the complaint that is left.
// Where the case looks through the path that it works with, it asks once.
func (c *kase) see(look func() string) {
	complaint := look()
	if c.here != c.there {
		for end := time.Now().Add(seenWithin); complaint != "" && time.Now().Before(end); {
			complaint = look()
		}
	}
	if complaint != "" {
		c.failf("%s%s", complaint, caller())
	}
}

// sees asks for the status of a name, not following symbolic links.
func (c *kase) sees(name string, look func(st *unix.Stat_t) string) {
	c.see(func() string {
		var st unix.Stat_t
		if err := unix.Fstatat(c.view, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Sprintf("lstat %s: %s", short(name), errnoText(err))
		}
		if complaint := look(&st); complaint != "" {
			return short(name) + ": " + complaint
		}
		return ""
	})
}

// differs is a complaint unless the two are equal.
func differs[T comparable](what string, got, want T) string {
	if got == want {
		return ""
	}
	return fmt.Sprintf("%s %v, want %v", what, got, want)
}

func (c *kase) seesSize(name string, want int64) {
	c.sees(name, func(st *unix.Stat_t) string { return differs("size", st.Size, want) })
}

func (c *kase) seesLinks(name string, want uint64) {
	c.sees(name, func(st *unix.Stat_t) string { return differs("link count", uint64(st.Nlink), want) })
}

func (c *kase) seesIno(name string, want uint64) {
	c.sees(name, func(st *unix.Stat_t) string { return differs("inode", st.Ino, want) })
}

// seesMode looks at the twelve bits that chmod(2) can set.
func (c *kase) seesMode(name string, want uint32) {
	c.sees(name, func(st *unix.Stat_t) string {
		return differs("mode", fmt.Sprintf("%04o", st.Mode&0o7777), fmt.Sprintf("%04o", want))
	})
}

func (c *kase) seesType(name string, want uint32) {
	c.sees(name, func(st *unix.Stat_t) string {
		return differs("type", fmt.Sprintf("%o", st.Mode&unix.S_IFMT), fmt.Sprintf("%o", want))
	})
}

func (c *kase) seesOwner(name string, uid, gid uint32) {
	c.sees(name, func(st *unix.Stat_t) string { return differs("owner", [2]uint32{st.Uid, st.Gid}, [2]uint32{uid, gid}) })
}

// seesTimes looks at the times of access and modification.
func (c *kase) seesTimes(name string, atime, mtime unix.Timespec) {
	c.sees(name, func(st *unix.Stat_t) string {
		return differs("times", [2]unix.Timespec{st.Atim, st.Mtim}, [2]unix.Timespec{atime, mtime})
	})
}

func (c *kase) seesNone(name string) {
	c.see(func() string {
		var st unix.Stat_t
		return differs("lstat "+short(name), errnoText(unix.Fstatat(c.view, name, &st, unix.AT_SYMLINK_NOFOLLOW)), "ENOENT")
	})
}

func (c *kase) seesContent(name, want string) {
	c.see(func() string {
		got, err := contentAt(c.view, name)
		if err != nil {
			return fmt.Sprintf("read %s: %s", short(name), errnoText(err))
		}
		return contentDiffers(short(name), got, want)
	})
}

// contentDiffers tells contents apart without printing all of them.
func contentDiffers(what, got, want string) string {
	if got == want {
		return ""
	}
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	return fmt.Sprintf("%s has %d bytes, want %d; at %d: %q, want %q", what, len(got), len(want), at, part(got, at), part(want, at))
}

func part(s string, at int) string { return s[at:min(len(s), at+16)] }

func contentAt(dir int, name string) (string, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	p := make([]byte, st.Size+1)
	n := 0
	for n < len(p) {
		got, err := unix.Read(fd, p[n:])
		if err != nil {
			return "", err
		}
		if got == 0 {
			break
		}
		n += got
	}
	return string(p[:n]), nil
}

func (c *kase) seesTarget(name, want string) {
	c.see(func() string {
		p := make([]byte, 8192)
		n, err := unix.Readlinkat(c.view, name, p)
		if err != nil {
			return fmt.Sprintf("readlink %s: %s", short(name), errnoText(err))
		}
		return differs("target of "+short(name), string(p[:n]), want)
	})
}

// seesNames looks at what a directory lists, without "." and "..".
func (c *kase) seesNames(dir string, want ...string) {
	slices.Sort(want)
	c.see(func() string {
		got, err := namesAt(c.view, dir)
		if err != nil {
			return fmt.Sprintf("list %s: %s", short(dir), errnoText(err))
		}
		return differs("names in "+short(dir), strings.Join(got, " "), strings.Join(want, " "))
	})
}

func namesAt(dir int, name string) ([]string, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	entries, err := entriesOf(fd, 32<<10)
	var names []string
	for _, e := range entries {
		if e.name != "." && e.name != ".." {
			names = append(names, e.name)
		}
	}
	slices.Sort(names)
	return names, err
}

// seesXattr looks at an extended attribute through an open of the file: there
// is no *at form of getxattr(2). Descriptors for it need no permission.
func (c *kase) seesXattr(name, attr, want string) {
	c.see(func() string {
		got, err := xattrAt(c.view, name, attr)
		if err != nil {
			return fmt.Sprintf("getxattr %s of %s: %s", attr, short(name), errnoText(err))
		}
		return differs("attribute "+attr+" of "+short(name), short(got), short(want))
	})
}

func (c *kase) seesNoXattr(name, attr string) {
	c.see(func() string {
		_, err := xattrAt(c.view, name, attr)
		return differs("getxattr "+attr+" of "+short(name), errnoText(err), "ENODATA")
	})
}

func xattrAt(dir int, name, attr string) (string, error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return xattrOf(fmt.Sprintf("/proc/self/fd/%d", fd), attr)
}

func xattrOf(path, attr string) (string, error) {
	p := make([]byte, 70000)
	n, err := unix.Getxattr(path, attr, p)
	return string(p[:max(n, 0)]), err
}
