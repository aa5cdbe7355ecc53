package volume_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

func TestResolve(t *testing.T) {
	h := open(t, volume.Options{FS: vfs.NewMem()})
	defer h.Close(ctx)
	if _, err := h.CreateDisk(ctx, me, "d"); err != nil {
		t.Fatal(err)
	}
	s := attach(t, h, "d")
	defer s.Detach(ctx)
	dir := func(parent volume.Node, name string) volume.Node {
		_, n, err := s.Mkdir(root, parent, name, 0o755)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	usr := dir(volume.Root, "usr")
	bin := dir(usr, "bin")
	link := func(parent volume.Node, name, target string) {
		if _, _, err := s.Symlink(root, parent, name, target); err != nil {
			t.Fatal(err)
		}
	}
	write(t, s, "f", nil)
	_, f, err := s.Lookup(volume.Root, "f")
	if err != nil {
		t.Fatal(err)
	}
	link(volume.Root, "bin", "usr/bin")
	link(bin, "up", "../../../../f")
	link(bin, "abs", "/usr")
	link(volume.Root, "loop", "loop")
	link(volume.Root, "gone", "nowhere")
	top, err := s.GetAttr(volume.Root)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]tine.Ino{
		"": top.Ino, "/": top.Ino, "/..": top.Ino, "/bin/..": usr.Ino, "usr//./bin": bin.Ino, "/bin/up": f.Ino, "/bin/abs/bin/": bin.Ino, "bin/../../f": f.Ino,
	} {
		if _, n, err := s.Resolve(path, true); err != nil || n.Ino != want {
			t.Errorf("%q: %v, %v, want inode %d", path, n, err, want)
		}
	}
	for path, want := range map[string]tine.ErrorKind{
		"/none": tine.KindNotFound, "/gone": tine.KindNotFound, "/loop": tine.KindLoop, "/f/x": tine.KindNotDir, "/f/..": tine.KindNotDir, "/f/": tine.KindNotDir,
	} {
		if _, n, err := s.Resolve(path, true); err == nil || tine.KindOf(err) != want {
			t.Errorf("%q: %v, %v, want %v", path, n, err, want)
		}
	}
	if a, _, err := s.Resolve("/gone", false); err != nil || a.Mode&0o170000 != 0o120000 {
		t.Errorf("a link itself: %o, %v", a.Mode, err)
	}
}
