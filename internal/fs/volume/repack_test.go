package volume_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/volume"
)

// Half of each block of the file is dead: no repack can help, so none may
// copy anything, however often it is asked for. When the rest of some blocks
// dies, it can, once.
func TestRepackGivesBackOrLeavesAlone(t *testing.T) {
	const piece, pieces = 8 << 10, 64 // two to a block
	dir := t.TempDir()
	h := open(t, volume.Options{Dir: dir, FS: vfs.Default, SegmentBytes: piece * pieces})
	if _, err := h.CreateDisk(ctx, me, "disk"); err != nil {
		t.Fatal(err)
	}
	s := attach(t, h, "disk")
	content := make([]byte, piece*pieces)
	for i := range content {
		content[i] = byte(i / 7)
	}
	write(t, s, "file", content)
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	_, n, err := s.Lookup(volume.Root, "file")
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.Open(n)
	if err != nil {
		t.Fatal(err)
	}
	overwrite := func(i int) {
		p := content[i*piece:][:piece]
		for j := range p {
			p[j] ^= 0xff
		}
		if _, err := f.WriteAt(root, p, int64(i*piece)); err != nil {
			t.Fatal(err)
		}
	}
	tidy := func() []string {
		if err := h.ReclaimIdle(ctx); err != nil {
			t.Fatal(err)
		}
		return segmentFiles(t, dir)
	}
	for i := 0; i < pieces; i += 2 {
		overwrite(i)
	}
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	before := segmentFiles(t, dir)
	if after := tidy(); !slices.Equal(before, after) {
		t.Errorf("half of each block is dead: the files were %q and are %q", before, after)
	}
	for i := 1; i < pieces/2; i += 2 {
		overwrite(i)
	}
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	before = segmentFiles(t, dir)
	once := tidy()
	if slices.Equal(before, once) {
		t.Errorf("half of the blocks are dead, and the files are still %q", before)
	}
	if again := tidy(); !slices.Equal(once, again) {
		t.Errorf("nothing has died since: the files were %q and are %q", once, again)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, "file"); !bytes.Equal(got, content) {
		t.Error("the file has other bytes")
	}
	if err := s.Detach(ctx); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(ctx); err != nil {
		t.Fatal(err)
	}
}
