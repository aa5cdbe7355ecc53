package behaviours

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func renameOfOneInode(t *testing.T, w *world) {
	a, b := w.dirs(t)
	one, two := filepath.Join(a, "one"), filepath.Join(a, "two")
	write(t, one, []byte("x"))
	must(t, os.Link(one, two))
	must(t, unix.Rename(one, two))
	if x, y := stat(t, one), stat(t, two); x.Ino != y.Ino || x.Nlink != 2 {
		t.Errorf("inodes %d and %d, %d links", x.Ino, y.Ino, x.Nlink)
	}
	var ps []*actor
	for i := range 4 {
		dir := []string{a, b}[i%2]
		ps = append(ps, act(t, false, nil, "link-unlink", filepath.Join(dir, "one"), filepath.Join(dir, fmt.Sprint("link-", i))))
	}
	for _, p := range ps {
		p.wait()
	}
	for _, dir := range []string{a, b} {
		if st := stat(t, filepath.Join(dir, "one")); st.Nlink != 2 {
			t.Errorf("%d links after a thousand came and went; want 2", st.Nlink)
		}
	}
}

func directoryLinkCounts(t *testing.T, w *world) {
	a, b := w.dirs(t)
	want := func(what, name string, n uint64) {
		t.Helper()
		if st := stat(t, filepath.Join(a, name)); uint64(st.Nlink) != n {
			t.Errorf("%s: %s has %d links; want %d", what, name, st.Nlink, n)
		}
		soon(t, what, func() bool {
			var st syscall.Stat_t
			return syscall.Lstat(filepath.Join(b, name), &st) == nil && uint64(st.Nlink) == n
		})
	}
	for _, d := range []string{"p", "q", "p/x", "p/y"} {
		must(t, os.Mkdir(filepath.Join(a, d), 0o755))
	}
	write(t, filepath.Join(a, "q/file"), nil)
	want("mkdir", "p", 4)
	want("mkdir", "q", 2)
	must(t, os.Rename(filepath.Join(a, "p/x"), filepath.Join(a, "q/x")))
	want("rename", "p", 3)
	want("rename", "q", 3)
	must(t, unix.Renameat2(unix.AT_FDCWD, filepath.Join(a, "p/y"), unix.AT_FDCWD, filepath.Join(a, "q/file"), unix.RENAME_EXCHANGE))
	want("exchange with a file", "p", 2)
	want("exchange with a file", "q", 4)
	must(t, os.Remove(filepath.Join(a, "q/x")))
	want("rmdir", "q", 3)
	must(t, os.Mkdir(filepath.Join(a, "p/z"), 0o755))
	must(t, unix.Rename(filepath.Join(a, "p/z"), filepath.Join(a, "q/file"))) // over an empty directory
	want("rename over", "p", 2)
	want("rename over", "q", 3)
}

func renameOverOpen(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	old, path := noise(10_000, 1), filepath.Join(a, "file")
	write(t, path, old)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, len(old), unix.PROT_READ, unix.MAP_SHARED)
	must(t, err)
	defer func() { must(t, unix.Munmap(m)) }()
	write(t, filepath.Join(a, "new"), []byte("new"))
	must(t, os.Rename(filepath.Join(a, "new"), path))
	wantContent(t, path, []byte("new"))
	if got, err := readAll(f); err != nil || !bytes.Equal(got, old) || !bytes.Equal(m, old) {
		t.Errorf("the old descriptor reads %d bytes, %v", len(got), err)
	}
	_, err = f.WriteAt([]byte("still"), 0)
	must(t, err)
	wantContent(t, path, []byte("new"))
}

func renameLargeDirectory(t *testing.T, w *world) {
	a, b := w.dirs(t)
	must(t, os.MkdirAll(filepath.Join(a, "large/deep/deeper"), 0o755))
	for i := range 3000 {
		write(t, filepath.Join(a, "large/deep", fmt.Sprint(i)), []byte{byte(i)})
	}
	f, err := os.Create(filepath.Join(a, "large/deep/deeper/log"))
	must(t, err)
	defer f.Close()
	for i := range 20 {
		_, err := fmt.Fprintln(f, "line", i)
		must(t, err)
		from, to := "large", "moved"
		if i%2 == 1 {
			from, to = to, from
		}
		began := time.Now()
		must(t, os.Rename(filepath.Join(a, from), filepath.Join(a, to)))
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("renaming a directory of 3,000 files took %v", took)
		}
		absent(t, filepath.Join(a, from))
		soon(t, "the rename", func() bool {
			_, err := os.Lstat(filepath.Join(b, from))
			_, terr := os.Lstat(filepath.Join(b, to))
			return os.IsNotExist(err) && terr == nil
		})
		got, err := os.ReadFile(filepath.Join(b, to, "deep/deeper/log"))
		if err != nil || bytes.Count(got, []byte("\n")) != i+1 {
			t.Fatalf("after %d renames the log has %d lines, %v", i+1, bytes.Count(got, []byte("\n")), err)
		}
	}
}

func closeAfterRmdir(t *testing.T, w *world) {
	a, b := w.dirs(t)
	dir := filepath.Join(a, "d")
	must(t, os.Mkdir(dir, 0o755))
	f, err := os.Create(filepath.Join(dir, "file"))
	must(t, err)
	_, err = f.Write(noise(1<<20, 1))
	must(t, err)
	must(t, os.Remove(filepath.Join(dir, "file")))
	must(t, os.Remove(dir))
	_, err = f.Write(noise(1<<20, 2))
	must(t, errors.Join(err, f.Sync(), f.Close()))
	w.tine(t, "sync", "work")
	absent(t, dir)
	soon(t, "the removal", func() bool {
		_, err := os.Lstat(filepath.Join(b, "d"))
		return os.IsNotExist(err)
	})
	w.crash(t)
	absent(t, dir)
}

func forgetAndOpen(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	content := noise(300_000, 1)
	path := filepath.Join(a, "file")
	write(t, path, content)
	f, err := os.Open(path)
	must(t, err)
	forget := func() { must(t, os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0)) }
	forget()
	if got, err := readAll(f); err != nil || !bytes.Equal(got, content) {
		t.Errorf("forgotten while open: %d bytes, %v", len(got), err)
	}
	must(t, os.Remove(path))
	forget()
	if got, err := readAll(f); err != nil || !bytes.Equal(got, content) {
		t.Errorf("removed and forgotten while open: %d bytes, %v", len(got), err)
	}
	must(t, f.Close())
	write(t, path, content)
	for range 20 { // closed while its name is known
		f, err := os.Open(path)
		must(t, err)
		must(t, f.Close())
		wantContent(t, path, content)
		forget()
	}
}

func unlinkedOpen(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	used := func() (bytes, inodes int64) {
		var st unix.Statfs_t
		must(t, unix.Statfs(a, &st))
		return int64(st.Blocks-st.Bfree) * st.Bsize, int64(st.Files - st.Ffree)
	}
	bytesBefore, inodesBefore := used()
	f, err := os.Create(filepath.Join(a, "file"))
	must(t, err)
	_, err = f.Write(noise(8<<20, 1))
	must(t, err)
	must(t, os.Remove(filepath.Join(a, "file")))
	_, err = f.WriteAt([]byte("written later"), 5)
	must(t, err)
	must(t, f.Truncate(4<<20))
	got := make([]byte, 13)
	if _, err := f.ReadAt(got, 5); err != nil || string(got) != "written later" {
		t.Errorf("read %q, %v", got, err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != 4<<20 || info.Sys().(*syscall.Stat_t).Nlink != 0 {
		t.Errorf("fstat: %+v, %v", info, err)
	}
	must(t, f.Close())
	if b, i := used(); b > bytesBefore+64<<10 || i > inodesBefore {
		t.Errorf("after the last close %d bytes and %d inodes are in use; before %d and %d", b, i, bytesBefore, inodesBefore)
	}
	f, err = os.Create(filepath.Join(a, "file"))
	must(t, err)
	_, err = f.Write(noise(8<<20, 2))
	must(t, errors.Join(err, os.Remove(filepath.Join(a, "file")), f.Sync()))
	w.crash(t) // its session ends with the server
	soon(t, "the space of a file whose session has ended", func() bool {
		b, i := used()
		return b <= bytesBefore+64<<10 && i <= inodesBefore
	})
	_ = f.Close() // of a server that is gone
}

func twoRemovers(t *testing.T, w *world) {
	a, b := w.dirs(t)
	for i := range 10 {
		for j := range 60 {
			dir := filepath.Join(a, "tree", fmt.Sprint(i), fmt.Sprint(j%6))
			must(t, os.MkdirAll(dir, 0o755))
			write(t, filepath.Join(dir, fmt.Sprint(j)), []byte("x"))
		}
	}
	ps := []*actor{act(t, false, nil, "remove-tree", filepath.Join(a, "tree")), act(t, false, nil, "remove-tree", filepath.Join(b, "tree"))}
	for _, p := range ps {
		p.wait()
	}
	absent(t, filepath.Join(a, "tree"))
	absent(t, filepath.Join(b, "tree"))
}

// raw reads a directory's entries through one buffer of the given size.
func raw(t *testing.T, dir string, size int) (names []string, inos []uint64) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	defer unix.Close(fd)
	buf := make([]byte, size)
	for {
		n, err := unix.Getdents(fd, buf)
		must(t, err)
		if n == 0 {
			return names, inos
		}
		for p := buf[:n]; len(p) > 0; {
			ino := *(*uint64)(p8(p))
			length := int(p[16]) | int(p[17])<<8
			name, _, _ := bytes.Cut(p[19:length], []byte{0})
			names, inos = append(names, string(name)), append(inos, ino)
			p = p[length:]
		}
	}
}

func directorySizes(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	firstPage := map[int][]time.Duration{}
	for _, n := range []int{0, 1000, 1001, 20_000} {
		dir := filepath.Join(a, fmt.Sprint(n))
		must(t, os.Mkdir(dir, 0o755))
		for i := range n {
			must(t, unix.Mknod(filepath.Join(dir, fmt.Sprintf("entry-%0*d", 5+i%40, i)), unix.S_IFREG|0o644, 0))
		}
		for _, size := range []int{300, 4096, 1 << 20} {
			names, _ := raw(t, dir, size)
			seen := map[string]bool{}
			for _, name := range names {
				seen[name] = true
			}
			if len(names) != n+2 || len(seen) != n+2 || !seen["."] || !seen[".."] {
				t.Errorf("%d entries, read by %d bytes: %d names, %d of them different", n, size, len(names), len(seen))
			}
		}
		for range 5 {
			began := time.Now()
			d, err := os.Open(dir)
			must(t, err)
			if _, err := d.ReadDir(100); err != nil && err != io.EOF {
				t.Fatal(err)
			}
			firstPage[n] = append(firstPage[n], time.Since(began))
			must(t, d.Close())
		}
	}
	t.Logf("first page: %v of 1,000 entries, %v of 20,000", median(firstPage[1000]), median(firstPage[20_000]))
	if median(firstPage[20_000]) > 4*median(firstPage[1000])+20*time.Millisecond {
		t.Error("the first page costs with the size of the directory")
	}
}

func removingWhileReading(t *testing.T, w *world) {
	a, b := w.dirs(t)
	const n = 2000
	for i := range n {
		write(t, filepath.Join(a, fmt.Sprint("go-", i)), nil)
		if i%4 == 0 {
			write(t, filepath.Join(a, fmt.Sprint("stay-", i)), nil)
		}
	}
	d, err := os.Open(a)
	must(t, err)
	stayed, removed := map[string]int{}, 0
	for {
		names, err := d.Readdirnames(50)
		for _, name := range names {
			if strings.HasPrefix(name, "stay-") {
				stayed[name]++
				continue
			}
			where := []string{a, b}[removed%2]
			must(t, os.Remove(filepath.Join(where, name)))
			removed++
		}
		if err == io.EOF {
			break
		}
		must(t, err)
	}
	must(t, d.Close())
	if removed != n {
		t.Errorf("one pass removed %d of %d", removed, n)
	}
	for name, times := range stayed {
		if times != 1 {
			t.Errorf("%s appeared %d times", name, times)
		}
	}
	if len(stayed) != n/4 {
		t.Errorf("%d of %d that stayed appeared", len(stayed), n/4)
	}
	fd, err := unix.Open(a, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	defer unix.Close(fd)
	buf := make([]byte, 2000)
	_, err = unix.Getdents(fd, buf)
	must(t, err)
	at, err := unix.Seek(fd, 0, io.SeekCurrent)
	must(t, err)
	var pages [2][]byte
	for i := range pages {
		_, err = unix.Seek(fd, at, io.SeekStart)
		must(t, err)
		pages[i] = make([]byte, 2000)
		k, err := unix.Getdents(fd, pages[i])
		must(t, err)
		pages[i] = pages[i][:k]
	}
	if !bytes.Equal(pages[0], pages[1]) || len(pages[0]) == 0 {
		t.Error("the same place reads differently the second time")
	}
}

func directoryEntries(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	must(t, os.Mkdir(filepath.Join(a, "d"), 0o755))
	write(t, filepath.Join(a, "d/file"), nil)
	names, inos := raw(t, filepath.Join(a, "d"), 4096)
	want := map[string]uint64{".": stat(t, filepath.Join(a, "d")).Ino, "..": stat(t, a).Ino, "file": stat(t, filepath.Join(a, "d/file")).Ino}
	if len(names) != len(want) {
		t.Errorf("entries %q", names)
	}
	for i, name := range names {
		if inos[i] == 0 || inos[i] != want[name] {
			t.Errorf("%s has inode %d; stat says %d", name, inos[i], want[name])
		}
	}
	must(t, os.Chmod(filepath.Join(a, "d"), 0o744))
	if out := act(t, true, nil, "list", filepath.Join(a, "d")).wait(); out != "file\n" {
		t.Errorf("with r and no x it lists %q", out)
	}
}

func namesAreBytes(t *testing.T, w *world) {
	a, b := w.dirs(t)
	odd := "\xff\xfe\x01 \n*\\'\""
	long := strings.Repeat("\xc3", 255)
	for _, name := range []string{odd, long} {
		write(t, filepath.Join(a, name), []byte(name))
		wantContent(t, filepath.Join(b, name), []byte(name))
	}
	names, _ := raw(t, a, 4096)
	if got := strings.Join(names, ""); !strings.Contains(got, odd) || !strings.Contains(got, long) {
		t.Errorf("it lists %q", names)
	}
	_, err := os.Create(filepath.Join(a, long+"x"))
	wantErrno(t, "256 bytes", err, syscall.ENAMETOOLONG)
	_, err = os.Lstat(filepath.Join(a, long+"x"))
	wantErrno(t, "looking 256 bytes up", err, syscall.ENAMETOOLONG)
	fork := filepath.Join(w.fork(t), filepath.Base(a))
	wantContent(t, filepath.Join(fork, odd), []byte(odd))
	must(t, os.Remove(filepath.Join(fork, odd)))
	out := w.tine(t, "diff", "work", filepath.Base(filepath.Dir(fork)))
	if !strings.Contains(out, `\xff\xfe`) {
		t.Errorf("tine diff says %q", out)
	}
}

func inodeNumbers(t *testing.T, w *world) {
	a, b := w.dirs(t)
	write(t, filepath.Join(a, "file"), nil)
	ino := stat(t, filepath.Join(a, "file")).Ino
	for range 3 {
		if x, y := stat(t, filepath.Join(a, "file")).Ino, stat(t, filepath.Join(b, "file")).Ino; x != ino || y != ino {
			t.Errorf("inode %d, then %d and %d", ino, x, y)
		}
	}
	write(t, filepath.Join(b, "new"), nil)
	must(t, os.Rename(filepath.Join(b, "new"), filepath.Join(b, "file")))
	replaced := stat(t, filepath.Join(b, "file")).Ino
	if replaced == ino {
		t.Errorf("replaced, it still has inode %d", ino)
	}
	soon(t, "the new file", func() bool { return stat(t, filepath.Join(a, "file")).Ino == replaced })
	must(t, os.Remove(filepath.Join(a, "file")))
	write(t, filepath.Join(a, "file"), nil)
	if x := stat(t, filepath.Join(a, "file")).Ino; x == ino || x == replaced {
		t.Errorf("made anew, it has an old inode %d", x)
	}
}

func oneDirectoryTwoSides(t *testing.T, w *world) {
	a, b := w.dirs(t)
	within(t, 2*time.Minute, func() {
		var ps []*actor
		for i, dir := range []string{a, b, a, b} {
			ps = append(ps, act(t, false, nil, "churn", dir, fmt.Sprint("p", i)))
		}
		for _, p := range ps {
			p.wait()
		}
	})
	for _, dir := range []string{a, b} {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("%d entries are left, %v", len(entries), err)
		}
	}
}
