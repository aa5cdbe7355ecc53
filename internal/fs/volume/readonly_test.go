package volume_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// TestSessionBecomesReadOnly: a session follows what its mount has become, both
// ways, and what it wrote while it could is durable when it ends.
func TestSessionBecomesReadOnly(t *testing.T) {
	fs := vfs.NewCrashableMem()
	h := open(t, volume.Options{FS: fs, CommitInterval: -1})
	_, err := h.CreateDisk(ctx, me, "disk")
	check(t, err)
	r, err := volume.ParseRef("disk")
	check(t, err)
	s, err := h.Attach(ctx, me, r, volume.AttachOptions{ReadOnly: true})
	check(t, err)
	refused := func(when string, s *volume.Session, want bool) {
		t.Helper()
		_, _, err := s.Mkdir(root, volume.Root, when, 0o755)
		if got := tine.KindOf(err) == tine.KindReadOnly && err != nil; got != want || !got && err != nil || s.ReadOnly() != want {
			t.Errorf("%s: %v, read-only %v; want %v", when, err, s.ReadOnly(), want)
		}
	}
	refused("at first", s, true)
	s.SetReadOnly(false)
	refused("opened", s, false)
	write(t, s, "file", content(1))
	_, err = h.Checkpoint(ctx, me, "disk", "cp", "", volume.WaitDurable)
	check(t, err)
	write(t, s, "last", content(2))
	s.SetReadOnly(true)
	refused("closed again", s, true)
	check(t, s.Detach(ctx))

	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	check(t, h.Close(ctx))
	h = open(t, volume.Options{FS: crashed})
	defer h.Close(ctx)
	s = attach(t, h, "disk")
	if got := read(t, s, "last"); string(got) != string(content(2)) {
		t.Errorf("after a crash the file has %d bytes", len(got))
	}
	check(t, s.Detach(ctx))
	s = attach(t, h, "disk@cp")
	s.SetReadOnly(false)
	refused("a checkpoint", s, true)
	check(t, s.Detach(ctx))
}
