package volume_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// segmentFiles returns the paths of all segment files.
func segmentFiles(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "segments", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// What a crash has left goes once the host is open, whether it is the next
// generation of a segment, an earlier one, or a segment that no row ever named; and
// nothing else does, also not what is made meanwhile. Whoever looks at the files
// from outside sees them without.
func TestStrayFilesGo(t *testing.T) {
	for name, settle := range map[string]func(*volume.Host) error{
		"background work": func(h *volume.Host) error { return h.ReclaimIdle(ctx) },
		"a look from outside": func(h *volume.Host) error {
			_, err := h.Stored(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			h := open(t, volume.Options{Dir: dir, FS: vfs.Default})
			content := bytes.Repeat([]byte("0123456789abcdef"), 16<<10)
			for _, disk := range []string{"a", "b"} {
				if _, err := h.CreateDisk(ctx, me, disk); err != nil {
					t.Fatal(err)
				}
				s := attach(t, h, disk)
				write(t, s, "file", content)
				if err := s.Detach(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if err := h.Close(ctx); err != nil {
				t.Fatal(err)
			}
			named := segmentFiles(t, dir)
			if len(named) != 2 {
				t.Fatalf("segment files: %q, want one for each disk", named)
			}
			base := strings.TrimSuffix(named[0], filepath.Ext(named[0]))
			never := tine.NewID[tine.SegmentID](time.Now()).String()
			shard := filepath.Join(dir, "segments", never[len(never)-2:])
			if err := os.MkdirAll(shard, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, stray := range []string{base + ".9", base + ".10", filepath.Join(shard, never+".1")} {
				if err := os.WriteFile(stray, []byte("left by a crash"), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			h = open(t, volume.Options{Dir: dir, FS: vfs.Default})
			s := attach(t, h, "a")
			write(t, s, "made meanwhile", content)
			if err := settle(h); err != nil {
				t.Fatal(err)
			}
			left := segmentFiles(t, dir)
			for _, f := range named {
				if !slices.Contains(left, f) {
					t.Errorf("%s is gone, which a row names", f)
				}
			}
			if len(left) != len(named)+1 {
				t.Errorf("segment files: %q, want %q and that of the new file", left, named)
			}
			for _, f := range []string{"file", "made meanwhile"} {
				if got := read(t, s, f); !bytes.Equal(got, content) {
					t.Errorf("%s has %d other bytes", f, len(got))
				}
			}
			if err := s.Detach(ctx); err != nil {
				t.Fatal(err)
			}
			if err := h.Close(ctx); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestMissingRowsAreNotAnEmptyServer: file data whose rows are gone is not taken
// for stray and removed.
func TestMissingRowsAreNotAnEmptyServer(t *testing.T) {
	fs := vfs.NewMem()
	h := open(t, volume.Options{FS: fs})
	if _, err := h.CreateDisk(ctx, me, "work"); err != nil {
		t.Fatal(err)
	}
	s := attach(t, h, "work")
	write(t, s, "large", bytes.Repeat([]byte("x"), 1<<20))
	must(t, s.Detach(ctx))
	must(t, h.Close(ctx))
	must(t, fs.Rename("/data/rows", "/elsewhere"))
	for range 2 {
		if _, err := volume.Open(ctx, volume.Options{Dir: "/data", FS: fs}); tine.KindOf(err) != tine.KindCorrupt {
			t.Fatalf("a data directory without its rows: %v", err)
		}
		must(t, fs.MkdirAll("/data/rows", 0o700)) // nor with an empty folder
	}
	must(t, fs.RemoveAll("/data/rows"))
	must(t, fs.Rename("/elsewhere", "/data/rows"))
	h = open(t, volume.Options{FS: fs})
	s = attach(t, h, "work")
	if len(read(t, s, "large")) != 1<<20 {
		t.Error("the file is not as it was")
	}
	must(t, s.Detach(ctx))
	must(t, h.Close(ctx))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
