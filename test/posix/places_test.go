package posix

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"tine.dev/tine/test/rig"
)

// nativeDir is a directory on the machine's own file system. Where that is one
// whose rules are its own (an overlay, say), it is on an ext4 in a file.
func nativeDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	if st.Type != unix.EXT4_SUPER_MAGIC && st.Type != unix.XFS_SUPER_MAGIC && st.Type != unix.BTRFS_SUPER_MAGIC {
		return ext4Dir(t, 256<<20)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// ext4Dir is the root of a new ext4 of the given size.
func ext4Dir(t *testing.T, bytes int64) string {
	t.Helper()
	dir := t.TempDir()
	image, at := filepath.Join(dir, "ext4"), filepath.Join(dir, "mnt")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, bytes); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range [][]string{{"mkfs.ext4", "-q", "-N", "512", image}, {"mount", "-o", "loop", image, at}} {
		if _, err := rig.Output(rig.Command(t.Context(), cmd[0], cmd[1:]...)); err != nil {
			t.Skipf("no ext4 can be made here: %v", err)
		}
	}
	t.Cleanup(func() {
		if _, err := rig.Output(rig.Command(context.Background(), "umount", at)); err != nil {
			t.Error(err)
		}
	})
	return at
}

// world is a server with mounted disks.
type world struct {
	t   *testing.T
	rig *rig.Rig
}

// newWorld starts a server on a data directory of its own.
func newWorld(t *testing.T) *world {
	t.Helper()
	needRoot(t)
	if err := rig.Usable(); err != nil {
		t.Skipf("needs to mount: %v", err)
	}
	dir, err := os.MkdirTemp("", "tine-posix-")
	if err != nil {
		t.Fatal(err)
	}
	return worldIn(t, dir)
}

// worldIn is newWorld in a directory, which goes with it.
func worldIn(t *testing.T, dir string) *world {
	t.Helper()
	if err := os.Chmod(dir, 0o755); err != nil { // other users work in it
		t.Fatal(err)
	}
	r, err := rig.New(*tineFlag, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the server's log:\n%s", r.LogEnd())
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{t, r}
	w.start()
	return w
}

func (w *world) start() {
	w.t.Helper()
	if _, err := w.rig.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) tine(args ...string) {
	w.t.Helper()
	if _, err := w.rig.Tine(w.t.Context(), args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) mount(ref string) string {
	w.t.Helper()
	dir, err := w.rig.Mount(w.t.Context(), ref)
	if err != nil {
		w.t.Fatal(err)
	}
	return dir
}

// mountAgain mounts a disk a second time.
func (w *world) mountAgain(ref string) string {
	w.t.Helper()
	dir := w.rig.At(ref + ".again")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	w.tine("mount", ref, dir)
	return dir
}

// suiteDir makes a directory for the suite in a mount and prepares it.
func suiteDir(t *testing.T, mount, name string) string {
	t.Helper()
	dir := filepath.Join(mount, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	prepare(t, dir)
	return dir
}
