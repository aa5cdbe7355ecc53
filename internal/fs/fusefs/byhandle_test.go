package fusefs_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHandlesOutliveTheMount: the kernel of a new mount knows no node, and has
// to ask for what a file handle names.
func TestHandlesOutliveTheMount(t *testing.T) {
	needFUSE(t)
	s := startServer(t)
	dir := s.mount(diskName, options{})
	shell(t, dir, `mkdir -p a/b; echo one >a/b/f; echo two >gone; ln -s f a/b/l; mkfifo p`)
	handles := map[string]unix.FileHandle{}
	for _, name := range []string{"", "a/b", "a/b/f", "gone", "a/b/l", "p"} {
		h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, dir+"/"+name, 0)
		check(t, err)
		handles[name] = h
	}
	shell(t, dir, `mv a/b a/c; rm gone; echo three >gone`)
	s.do(order{Do: "unmount", Dir: dir})
	dir = s.mount(diskName, options{})
	root := open(t, dir, unix.O_RDONLY|unix.O_DIRECTORY)
	defer unix.Close(root)
	for name, want := range map[string]string{"": dir, "a/b": dir + "/a/c", "a/b/f": dir + "/a/c/f", "a/b/l": dir + "/a/c/l", "p": dir + "/p"} {
		fd, err := unix.OpenByHandleAt(root, handles[name], unix.O_PATH|unix.O_NOFOLLOW)
		if errors.Is(err, unix.EPERM) {
			t.Skip("opening by handle is not permitted here")
		}
		if err != nil {
			t.Errorf("the handle of %q: %v", name, err)
			continue
		}
		var got, there unix.Stat_t
		check(t, unix.Fstat(fd, &got))
		check(t, unix.Lstat(want, &there))
		if got.Ino != there.Ino || got.Mode != there.Mode {
			t.Errorf("the handle of %q leads to inode %d, %s is %d", name, got.Ino, want, there.Ino)
		}
		check(t, unix.Close(fd))
	}
	if fd, err := unix.OpenByHandleAt(root, handles["gone"], unix.O_RDONLY); err != unix.ESTALE {
		t.Errorf("the handle of a removed file: %d, %v", fd, err)
	}
}
