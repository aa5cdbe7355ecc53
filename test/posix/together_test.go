package posix

import (
	"fmt"
	"sort"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// race has several threads make the same call and wants that exactly one
// succeeds; the others must get the errno.
func (c *kase) race(what string, errno syscall.Errno, do func(name string) error) {
	for round := range 20 {
		var won atomic.Int32
		c.together(4, func(int) {
			switch err := do(fmt.Sprint("x", round)); err {
			case nil:
				won.Add(1)
			default:
				c.refused(err, errno, what)
			}
		})
		equal(c, "threads for which it worked", won.Load(), 1)
	}
}

var togetherCases = []behaviour{
	works("open", "at once: of many O_CREAT|O_EXCL of a name one succeeds", func(c *kase) {
		c.race("open", unix.EEXIST, func(name string) error { return c.opens(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY) })
	}),
	works("mkdir", "at once: of many of a name one succeeds", func(c *kase) {
		c.race("mkdir", unix.EEXIST, func(name string) error { return unix.Mkdir(name, 0o755) })
	}),
	works("symlink", "at once: of many of a name one succeeds", func(c *kase) {
		c.race("symlink", unix.EEXIST, func(name string) error { return unix.Symlink("x", name) })
	}),
	works("link", "at once: of many to a name one succeeds", func(c *kase) {
		c.put("f", "")
		c.race("link", unix.EEXIST, func(name string) error { return unix.Link("f", name) })
		c.seesLinks("f", 21)
	}),
	works("rename", "at once: of many NOREPLACE to a name one succeeds", func(c *kase) {
		for i := range 80 {
			c.put(fmt.Sprint("f", i), "")
		}
		var next atomic.Int32
		c.race("rename", unix.EEXIST, func(name string) error {
			return renameWith(unix.RENAME_NOREPLACE, fmt.Sprint("f", next.Add(1)-1), name)
		})
	}),
	works("unlink", "at once: of many of a name one succeeds", func(c *kase) {
		for i := range 20 {
			c.put(fmt.Sprint("x", i), "")
		}
		c.race("unlink", unix.ENOENT, unix.Unlink)
	}),
	works("rename", "at once: of many of a name one succeeds", func(c *kase) {
		for i := range 20 {
			c.put(fmt.Sprint("x", i), "")
		}
		var next atomic.Int32
		c.race("rename", unix.ENOENT, func(name string) error { return unix.Rename(name, fmt.Sprint("y", next.Add(1))) })
	}),
	works("rmdir", "at once: a directory goes or gets a file, never both", func(c *kase) {
		for round := range 20 {
			d := fmt.Sprint("d", round)
			c.mkdir(d, 0o755)
			var made, gone atomic.Bool
			c.together(2, func(i int) {
				if i == 0 {
					gone.Store(unix.Rmdir(d) == nil)
					return
				}
				made.Store(c.opens(d+"/f", unix.O_CREAT|unix.O_WRONLY) == nil)
			})
			equal(c, "removed and filled", fmt.Sprint(gone.Load() != made.Load()), "true")
		}
	}),
	works("rename", "at once: a name that is replaced again and again is never absent", func(c *kase) {
		c.put("f", "0")
		var done atomic.Bool
		c.together(3, func(i int) {
			if i == 0 {
				for n := range 200 {
					c.put("new", fmt.Sprint(n))
					c.rename("new", "f")
				}
				done.Store(true)
				return
			}
			for !done.Load() {
				if got, err := contentAt(here, "f"); err != nil || got == "" {
					c.failf("a reader gets %q, %s", got, errnoText(err))
					return
				}
			}
		})
	}),
	works("open", "at once: many threads make many files in one directory", func(c *kase) {
		c.mkdir("d", 0o755)
		var want []string
		for i := range 4 {
			for j := range 50 {
				want = append(want, fmt.Sprintf("f-%d-%d", i, j))
			}
		}
		c.together(4, func(i int) {
			for j := range 50 {
				c.put(fmt.Sprintf("d/f-%d-%d", i, j), "x")
			}
		})
		c.seesNames("d", want...)
	}),
	works("write", "at once: appends of several descriptors are whole and all there", func(c *kase) {
		c.put("log", "")
		const writers, lines = 4, 100
		c.together(writers, func(i int) {
			fd, err := unix.Open("log", unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0)
			c.ok(err, "open")
			defer unix.Close(fd)
			for j := range lines {
				c.write(fd, fmt.Sprintf("%d %03d %s\n", i, j, letters(50+j)))
			}
		})
		c.see(func() string { return checkLog(c, writers, lines) })
	}),
	works("write", "at once: writes to other parts of a file are all there", func(c *kase) {
		const part = 50000
		c.file("f", "")
		c.together(4, func(i int) {
			fd, err := unix.Open("f", unix.O_WRONLY|unix.O_CLOEXEC, 0)
			c.ok(err, "open")
			defer unix.Close(fd)
			for at := 0; at < part; at += 1000 {
				c.writeAt(fd, strings.Repeat(fmt.Sprint(i), 1000), int64(i*part+at))
			}
		})
		want := ""
		for i := range 4 {
			want += strings.Repeat(fmt.Sprint(i), part)
		}
		c.seesContent("f", want)
	}),
	works("rename", "at once: directories that move into each other never make a ring", func(c *kase) {
		c.mkdir("a", 0o755)
		c.mkdir("b", 0o755)
		for range 20 {
			c.together(2, func(i int) {
				from, to := "a", "b/a"
				if i == 1 {
					from, to = "b", "a/b"
				}
				_ = unix.Rename(from, to) // one or the other fails
			})
			c.see(func() string {
				// What the other path has done may not be seen yet. The kernel
				// refuses (ESTALE) to move a directory that it still knows by
				// an old name, and asks for that only when it is looked up.
				var st unix.Stat_t
				_, _ = unix.Lstat("a", &st), unix.Lstat("b", &st)
				one, other := unix.Rename("b/a", "a"), unix.Rename("a/b", "b")
				names, err := namesAt(here, ".")
				complaint := differs("names", fmt.Sprint(names, err), "[a b] <nil>")
				if complaint != "" {
					complaint += fmt.Sprintf("; taking a out of b: %s, b out of a: %s", errnoText(one), errnoText(other))
				}
				return complaint
			})
		}
	}),
}

// checkLog complains unless the file log has all lines of all writers, each
// writer's in order.
func checkLog(c *kase, writers, lines int) string {
	content, err := contentAt(c.view, "log")
	if err != nil {
		return errnoText(err)
	}
	got := strings.Split(strings.TrimSuffix(content, "\n"), "\n")
	sort.SliceStable(got, func(a, b int) bool { return got[a][:min(1, len(got[a]))] < got[b][:min(1, len(got[b]))] })
	if len(got) != writers*lines {
		return fmt.Sprintf("%d lines, want %d", len(got), writers*lines)
	}
	for n, line := range got {
		i, j := n/lines, n%lines
		if want := fmt.Sprintf("%d %03d %s", i, j, letters(50+j)); line != want {
			return fmt.Sprintf("line %d of writer %d is %q", j, i, short(line))
		}
	}
	return ""
}

// openFileCases are about files that are open on both sides.
var openFileCases = []behaviour{
	works("read", "what is written through the other path, by a descriptor that was open before", func(c *kase) {
		fd := c.file("f", "content")
		c.readAt(fd, 10, 0)
		c.elsewhere(func() {
			w := c.open("f", unix.O_WRONLY)
			c.writeAt(w, "CHANGED AND LONGER", 0)
		})
		c.see(func() string { return differs("content", c.readAt(fd, 100, 0), "CHANGED AND LONGER") })
		c.elsewhere(func() { c.truncate("f", 3) })
		c.see(func() string { return differs("content", c.readAt(fd, 100, 0), "CHA") })
	}),
	works("read", "a mapping shows what is written through the other path", func(c *kase) {
		fd := c.file("f", letters(page))
		m := c.mapped(fd, page, unix.MAP_SHARED)
		equal(c, "mapping before", string(m[:3]), "abc")
		c.elsewhere(func() { c.writeAt(c.open("f", unix.O_WRONLY), "XYZ", 0) })
		c.see(func() string { return differs("mapping", string(m[:3]), "XYZ") })
	}),
	works("stat", "what is changed through the other path", func(c *kase) {
		c.put("f", "content")
		c.mkdir("d", 0o755)
		c.stat("f")
		c.elsewhere(func() {
			c.chmod("f", 0o600)
			c.chown("f", 1000, 1000)
			c.ok(utime("f", timeOld, timeOld), "utimensat")
			c.link("f", "d/g")
			c.setxattr("f", "user.a", "x")
		})
		c.see(func() string {
			st := c.stat("f")
			return differs("status", fmt.Sprintf("%o %d %d %d", st.Mode, st.Uid, st.Nlink, st.Mtim.Sec), "100600 1000 2 1000000000")
		})
		c.see(func() string {
			got, err := xattrOf("f", "user.a")
			return differs("attribute", got+errnoText(err), "xsuccess")
		})
	}),
	works("stat", "a name that was absent and is made through the other path", func(c *kase) {
		var st unix.Stat_t
		c.refused(unix.Lstat("f", &st), unix.ENOENT, "lstat")
		c.elsewhere(func() { c.put("f", "content") })
		c.see(func() string { return differs("lstat", errnoText(unix.Lstat("f", &st)), "success") })
	}),
	works("unlink", "of a name through the other path", func(c *kase) {
		c.put("f", "content")
		fd := c.open("f", unix.O_RDONLY)
		c.elsewhere(func() { c.unlink("f") })
		c.see(func() string {
			var st unix.Stat_t
			return differs("lstat", errnoText(unix.Lstat("f", &st)), "ENOENT")
		})
		equal(c, "content of what is open", c.readAt(fd, 10, 0), "content")
	}),
	works("rename", "through the other path: of a file, and over one that is open", func(c *kase) {
		old := c.file("f", "old")
		c.elsewhere(func() {
			c.put("new", "new")
			c.rename("new", "f")
		})
		c.see(func() string {
			got, err := contentAt(here, "f")
			return differs("content", got+" "+errnoText(err), "new success")
		})
		equal(c, "content of what is open", c.readAt(old, 10, 0), "old")
	}),
	works("rename", "back what was moved through the other path", func(c *kase) {
		for range 20 {
			c.mkdir("a", 0o755)
			c.mkdir("b", 0o755)
			c.put("b/f", "content")
			c.elsewhere(func() { c.rename("b", "a/b") })
			c.see(func() string { return differs("rename", errnoText(unix.Rename("a/b", "b")), "success") })
			c.seesContent("b/f", "content")
			c.unlink("b/f")
			c.rmdir("b")
			c.rmdir("a")
		}
	}),
	works("rename", "through the other path: of a directory in which one works", func(c *kase) {
		c.mkdir("d", 0o755)
		c.put("d/f", "content")
		dir := c.open("d", unix.O_RDONLY|unix.O_DIRECTORY)
		c.elsewhere(func() { c.rename("d", "e") })
		got, err := contentAt(dir, "f")
		c.ok(err, "read through the open directory")
		equal(c, "content", got, "content")
		c.see(func() string {
			got, err := contentAt(here, "e/f")
			return differs("content", got+" "+errnoText(err), "content success")
		})
	}),
	works("getdents", "names that come and go through the other path", func(c *kase) {
		c.mkdir("d", 0o755)
		for round := range 3 {
			names, err := namesAt(here, "d")
			c.ok(err, "list")
			equal(c, "names", len(names), round)
			c.elsewhere(func() { c.put(fmt.Sprint("d/f", round), "") })
			c.see(func() string {
				names, err := namesAt(here, "d")
				return differs("names", fmt.Sprint(len(names), err), fmt.Sprint(round+1, nil))
			})
		}
	}),
	works("write", "O_APPEND: by turns through both paths", func(c *kase) {
		c.put("f", "")
		fd := c.open("f", unix.O_WRONLY|unix.O_APPEND)
		want := ""
		for i := range 10 {
			mine, theirs := fmt.Sprintf("mine-%d ", i), fmt.Sprintf("theirs-%d ", i)
			c.write(fd, mine)
			c.elsewhere(func() { c.write(c.open("f", unix.O_WRONLY|unix.O_APPEND), theirs) })
			want += mine + theirs
		}
		c.seesContent("f", want)
	}),
}
