package fusefs_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// testReferenced: an inode without a name lives as long as anything refers to
// it, and be it only a descriptor for its path, or a process in it.
func testReferenced(t *testing.T, dir string) {
	write(t, dir+"/f", "content")
	f := open(t, dir+"/f", unix.O_PATH)
	defer unix.Close(f)
	check(t, unix.Unlink(dir+"/f"))
	write(t, dir+"/f", "another")
	if got := read(t, fmt.Sprintf("/proc/self/fd/%d", f)); got != "content" {
		t.Errorf("through a descriptor for its path an unlinked file has %q", got)
	}
	write(t, dir+"/g", "replaced")
	g := open(t, dir+"/g", unix.O_PATH)
	defer unix.Close(g)
	check(t, unix.Rename(dir+"/f", dir+"/g"))
	if got := read(t, fmt.Sprintf("/proc/self/fd/%d", g)); got != "replaced" {
		t.Errorf("through a descriptor for its path a replaced file has %q", got)
	}
	check(t, os.Mkdir(dir+"/d", 0o755))
	got := shell(t, dir+"/d", `rmdir ../d; stat -c %h .; ls -A; mkdir x 2>/dev/null || echo no`)
	if got != "0\nno" {
		t.Errorf("in a directory that was removed: %q", got)
	}
}

// TestRemovedFreesAtOnce: what is removed is not kept for longer than the
// kernel knows it.
func TestRemovedFreesAtOnce(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	dir := s.mount(diskName, options{})
	used := func() uint64 {
		var st unix.Statfs_t
		check(t, unix.Statfs(dir, &st))
		return st.Files - st.Ffree
	}
	before := used()
	for round := range 3 {
		makeFiles(t, dir, 300)
		check(t, os.Mkdir(dir+"/d", 0o755))
		if n := used(); n != before+301 {
			t.Errorf("round %d: %d inodes, want %d", round, n, before+301)
		}
		shell(t, dir, "rm -r *")
		eventually(t, 10*time.Second, "as many inodes as before", func() bool { return used() == before })
	}
}

// TestRoomOfTheRemoved: on a full disk there is room right after a removal.
func TestRoomOfTheRemoved(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	s.do(order{Do: "quota", Bytes: 4 << 20})
	dir := s.mount(diskName, options{})
	content := make([]byte, 3<<20)
	for range 50 {
		check(t, os.WriteFile(dir+"/f", content, 0o644))
		err := os.WriteFile(dir+"/g", content, 0o644)
		wantErrno(t, "writing beyond the quota", err, unix.ENOSPC)
		check(t, os.Remove(dir+"/f"))
		check(t, os.WriteFile(dir+"/g", content, 0o644))
		check(t, os.Remove(dir+"/g"))
	}
}
