package volume_test

import (
	"testing"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// TestNULIsInNoText: no call of a kernel brings a NUL byte, but archives and
// clients may. Keys end at it, and readers of the disk would see a part.
func TestNULIsInNoText(t *testing.T) {
	h := newDisk(t)
	s := attach(t, h, "d")
	write(t, s, "f", []byte("x"))
	f := node(t, s, "f")
	before := inodes(t, s)
	for _, text := range []string{"\x00", "a\x00", "\x00b", "a\x00b"} {
		_, _, dir := s.Mkdir(root, volume.Root, text, 0o755)
		_, _, special := s.Mknod(root, volume.Root, text, 0o10644, 0)
		_, _, link := s.Symlink(root, volume.Root, text, "t")
		_, _, target := s.Symlink(root, volume.Root, "l", text)
		_, hard := s.Link(root, f, volume.Root, text)
		for what, err := range map[string]error{
			"mkdir": dir, "mknod": special, "symlink": link, "symlink to": target, "link": hard,
			"setxattr": s.SetXattr(root, f, "user."+text, []byte("v"), 0), "setxattr of any kind": s.SetXattr(root, f, text, nil, 0),
		} {
			if tine.KindOf(err) != tine.KindInvalid || err == nil {
				t.Errorf("%s %q: %v", what, text, err)
			}
		}
	}
	names, err := s.ListXattr(f)
	if err != nil || len(names) != 0 || inodes(t, s) != before {
		t.Errorf("%q, %v, %d inodes, were %d", names, err, inodes(t, s), before)
	}
}
