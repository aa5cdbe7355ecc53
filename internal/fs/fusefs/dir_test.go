package fusefs_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// dirent is one entry as getdents64(2) returns it.
type dirent struct {
	name string
	ino  uint64
	off  int64 // of the entry after it
	typ  uint8
}

func getdents(t testing.TB, fd int, buf []byte) []dirent {
	t.Helper()
	n, err := unix.Getdents(fd, buf)
	check(t, err)
	var list []dirent
	for b := buf[:n]; len(b) > 0; {
		size := binary.NativeEndian.Uint16(b[16:])
		name, _, _ := strings.Cut(string(b[19:size]), "\x00")
		list = append(list, dirent{name, binary.NativeEndian.Uint64(b), int64(binary.NativeEndian.Uint64(b[8:])), b[18]})
		b = b[size:]
	}
	return list
}

func allDirents(t testing.TB, fd int, bufBytes int) []dirent {
	t.Helper()
	var all []dirent
	for buf := make([]byte, bufBytes); ; {
		list := getdents(t, fd, buf)
		if len(list) == 0 {
			return all
		}
		all = append(all, list...)
	}
}

func makeFiles(t testing.TB, dir string, n int) {
	t.Helper()
	for i := range n {
		write(t, fmt.Sprintf("%s/file-%04d", dir, i), "")
	}
}

func testListing(t *testing.T, dir string) {
	check(t, os.Mkdir(dir+"/d", 0o755))
	const files = 700
	makeFiles(t, dir+"/d", files)
	check(t, os.Mkdir(dir+"/d/sub", 0o755))
	check(t, unix.Symlink("x", dir+"/d/sym"))
	for _, size := range []int{1024, 64 << 10} {
		fd := open(t, dir+"/d", unix.O_RDONLY|unix.O_DIRECTORY)
		seen := make(map[string]dirent)
		for _, e := range allDirents(t, fd, size) {
			if _, twice := seen[e.name]; twice {
				t.Errorf("%q is listed twice", e.name)
			}
			seen[e.name] = e
		}
		check(t, unix.Close(fd))
		if len(seen) != files+4 {
			t.Errorf("%d names listed, want %d", len(seen), files+4)
		}
		for name, typ := range map[string]uint8{"sub": unix.DT_DIR, "sym": unix.DT_LNK, "file-0003": unix.DT_REG, ".": unix.DT_DIR, "..": unix.DT_DIR} {
			if e := seen[name]; e.typ != typ || e.ino != stat(t, dir+"/d/"+name).Ino {
				t.Errorf("%s is listed as %+v; its inode is %d", name, e, stat(t, dir+"/d/"+name).Ino)
			}
		}
	}
	write(t, dir+"/d/late", "")
	if got := shell(t, dir+"/d", "ls | wc -l"); got != fmt.Sprint(files+3) {
		t.Errorf("after one more file there are %s", got)
	}
}

// testListingWhileRemoving is rm -rf: what has been listed is removed before
// the next part is read; nothing may be missed.
func testListingWhileRemoving(t *testing.T, dir string) {
	const files = 1000
	makeFiles(t, dir, files)
	fd := open(t, dir, unix.O_RDONLY|unix.O_DIRECTORY)
	defer unix.Close(fd)
	removed := 0
	for buf := make([]byte, 2048); ; {
		list := getdents(t, fd, buf)
		if len(list) == 0 {
			break
		}
		for _, e := range list {
			if e.name != "." && e.name != ".." {
				check(t, unix.Unlink(dir+"/"+e.name))
				removed++
			}
		}
	}
	if removed != files || shell(t, dir, "ls -A") != "" {
		t.Errorf("removed %d of %d", removed, files)
	}
}

func testListingSeek(t *testing.T, dir string) {
	makeFiles(t, dir, 300)
	fd := open(t, dir, unix.O_RDONLY|unix.O_DIRECTORY)
	defer unix.Close(fd)
	all := allDirents(t, fd, 4096)
	for _, i := range []int{0, 1, 2, 150, len(all) - 2} {
		_, err := unix.Seek(fd, all[i].off, 0)
		check(t, err)
		list := getdents(t, fd, make([]byte, 4096))
		if len(list) == 0 || list[0] != all[i+1] {
			t.Errorf("after seeking past %q comes %v, want %v", all[i].name, list, all[i+1])
		}
	}
	// A position stays good when names before and after it go. Whether one
	// that goes after the listing began is still shown is not specified.
	check(t, unix.Unlink(dir+"/"+all[100].name))
	check(t, unix.Unlink(dir+"/"+all[151].name))
	_, err := unix.Seek(fd, all[150].off, 0)
	check(t, err)
	list := getdents(t, fd, make([]byte, 4096))
	if len(list) > 0 && list[0].name == all[151].name {
		list = list[1:]
	}
	if len(list) == 0 || list[0].name != all[152].name {
		t.Errorf("after a removal at the position comes %v, want %v", list, all[152])
	}
	write(t, dir+"/new", "")
	_, err = unix.Seek(fd, 0, 0)
	check(t, err)
	found := false
	for _, e := range allDirents(t, fd, 4096) {
		found = found || e.name == "new"
	}
	if !found {
		t.Error("a rewound listing does not show a new name")
	}
}

// testParallel makes, renames and removes in one directory from many threads.
func testParallel(t *testing.T, dir string) {
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 50 {
				name := fmt.Sprintf("%s/w%d-%d", dir, w, i)
				if err := os.WriteFile(name, []byte(name), 0o644); err != nil {
					t.Error(err)
				}
				if err := os.Rename(name, name+".x"); err != nil {
					t.Error(err)
				}
				if b, err := os.ReadFile(name + ".x"); err != nil || string(b) != name {
					t.Errorf("%s has %q, %v", name, b, err)
				}
				if i%2 == 0 {
					if err := os.Remove(name + ".x"); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if got := shell(t, dir, "ls | wc -l"); got != "200" {
		t.Errorf("%s files are left, want 200", got)
	}
}

func testXattr(t *testing.T, dir string) {
	f := dir + "/f"
	write(t, f, "")
	buf := make([]byte, 100)
	_, err := unix.Getxattr(f, "user.a", buf)
	wantErrno(t, "absent attribute", err, unix.ENODATA)
	check(t, unix.Setxattr(f, "user.a", []byte("value"), unix.XATTR_CREATE))
	check(t, unix.Setxattr(f, "trusted.b", []byte{}, 0))
	wantErrno(t, "XATTR_CREATE again", unix.Setxattr(f, "user.a", nil, unix.XATTR_CREATE), unix.EEXIST)
	wantErrno(t, "XATTR_REPLACE of none", unix.Setxattr(f, "user.c", nil, unix.XATTR_REPLACE), unix.ENODATA)
	if n, err := unix.Getxattr(f, "user.a", nil); err != nil || n != 5 {
		t.Errorf("size of the value: %d, %v", n, err)
	}
	if n, err := unix.Getxattr(f, "user.a", buf); err != nil || string(buf[:n]) != "value" {
		t.Errorf("value: %q, %v", buf[:n], err)
	}
	_, err = unix.Getxattr(f, "user.a", buf[:3])
	wantErrno(t, "too small a buffer", err, unix.ERANGE)
	n, err := unix.Listxattr(f, buf)
	list := string(buf[:max(n, 0)])
	if err != nil || !strings.Contains(list, "user.a\x00") || !strings.Contains(list, "trusted.b\x00") {
		t.Errorf("list: %q, %v", list, err)
	}
	if size, err := unix.Listxattr(f, nil); err != nil || size != n {
		t.Errorf("size of the list: %d, %v, want %d", size, err, n)
	}
	check(t, unix.Removexattr(f, "user.a"))
	wantErrno(t, "removing again", unix.Removexattr(f, "user.a"), unix.ENODATA)
	check(t, unix.Setxattr(dir, "user.on-a-directory", []byte("1"), 0))
	if n, err := unix.Getxattr(dir, "user.on-a-directory", buf); err != nil || n != 1 {
		t.Errorf("attribute of a directory: %d, %v", n, err)
	}
}
