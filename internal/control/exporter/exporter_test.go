package exporter_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tine.dev/tine/internal/control/exporter"
	"tine.dev/tine/internal/control/importer"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// fill makes the disk d: /dir with a file that has another name outside of it,
// and a link to it.
func (b *bench) fill() *volume.Session {
	b.t.Helper()
	var a bytes.Buffer
	w := tar.NewWriter(&a)
	for _, h := range []tar.Header{
		{Name: "dir/", Typeflag: tar.TypeDir, Mode: 0o755}, {Name: "dir/a", Typeflag: tar.TypeReg, Mode: 0o644},
		{Name: "dir/b", Linkname: "dir/a", Typeflag: tar.TypeLink}, {Name: "outside", Linkname: "dir/a", Typeflag: tar.TypeLink},
		{Name: "to dir", Linkname: "dir", Typeflag: tar.TypeSymlink},
	} {
		b.ok(w.WriteHeader(&h))
	}
	b.ok(w.Close())
	_, _, err := b.unpack(importer.Tar{Disk: "d"}, &a)
	b.ok(err)
	s, err := b.host.Attach(b.t.Context(), me, volume.Ref{Disk: "d"}, volume.AttachOptions{})
	b.ok(err)
	b.t.Cleanup(func() { _ = s.Detach(context.Background()) })
	return s
}

// list returns the entries of an archive as type, name and target.
func list(t *testing.T, b []byte) []string {
	t.Helper()
	var out []string
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.TrimSpace(string(h.Typeflag)+" "+h.Name+" "+h.Linkname))
	}
}

func TestParts(t *testing.T) {
	b := newBench(t)
	b.fill()
	ref := volume.Ref{Disk: "d"}
	for _, x := range []struct {
		from exporter.From
		want []string
	}{
		{exporter.From{Ref: ref, Path: "/dir"}, []string{"5 ./", "0 ./a", "1 ./b ./a"}},
		{exporter.From{Ref: ref, Path: "to dir", Follow: true}, []string{"5 ./", "0 ./a", "1 ./b ./a"}},
		{exporter.From{Ref: ref, Path: "to dir"}, []string{"2 to dir dir"}},
		{exporter.From{Ref: ref, Path: "dir/b", Live: true}, []string{"0 b"}},
		{exporter.From{Ref: ref, Live: true}, []string{"5 ./", "5 ./dir/", "0 ./dir/a", "1 ./dir/b ./dir/a", "1 ./outside ./dir/a", "2 ./to dir dir"}},
	} {
		got, _ := b.export(x.from)
		if l := list(t, got); !slices.Equal(l, x.want) {
			t.Errorf("%+v: %q, want %q", x.from, l, x.want)
		}
	}
	for path, want := range map[string]tine.ErrorKind{"/none": tine.KindNotFound, "dir/a/": tine.KindNotDir} {
		if _, err := b.ex.Begin(t.Context(), me, exporter.From{Ref: ref, Path: path}); tine.KindOf(err) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	b.nothingLeft()
}

// nothingLeft checks that no export has left a checkpoint or a note.
func (b *bench) nothingLeft() {
	b.t.Helper()
	ds, err := b.host.Disks(context.Background(), me, false)
	b.ok(err)
	for _, d := range ds {
		cps, err := b.host.Checkpoints(context.Background(), me, d.Name)
		if err != nil || len(cps) > 0 {
			b.t.Errorf("%s: %+v, %v", d.Name, cps, err)
		}
	}
	if left, err := os.ReadFile(filepath.Join(b.data, "exports.json")); err != nil || strings.Contains(string(left), "@") {
		b.t.Errorf("a note is left: %s, %v", left, err)
	}
}

// TestOneMoment: what is written while an export runs is not in it, even if
// the disk gets another name or is rolled back.
func TestOneMoment(t *testing.T) {
	b := newBench(t)
	s := b.fill()
	x, err := b.ex.Begin(t.Context(), me, exporter.From{Ref: volume.Ref{Disk: "d"}})
	b.ok(err)
	b.ok(s.Unlink(root, volume.Root, "outside"))
	_, _, err = s.Mkdir(root, volume.Root, "new", 0o755)
	b.ok(err)
	_, err = b.host.RenameDisk(t.Context(), me, "d", "renamed")
	b.ok(err)
	var out bytes.Buffer
	_, err = x.Write(&out)
	b.ok(err)
	x.Close()
	if l := list(t, out.Bytes()); len(l) != 6 || !slices.Contains(l, "1 ./outside ./dir/a") {
		t.Errorf("%q", l)
	}
	b.nothingLeft()
}

// TestFailedExports leave nothing behind either: cancelled, with a reader that
// goes away, and with a server that was killed.
func TestFailedExports(t *testing.T) {
	b := newBench(t)
	b.fill()
	ctx, cancel := context.WithCancel(t.Context())
	x, err := b.ex.Begin(ctx, me, exporter.From{Ref: volume.Ref{Disk: "d"}})
	b.ok(err)
	cancel()
	if _, err := x.Write(io.Discard); tine.KindOf(err) != tine.KindInterrupted {
		t.Errorf("cancelled: %v", err)
	}
	x.Close()
	b.nothingLeft()

	x, err = b.ex.Begin(t.Context(), me, exporter.From{Ref: volume.Ref{Disk: "d"}})
	b.ok(err)
	gone := errors.New("gone")
	if _, err := x.Write(broken{gone}); !errors.Is(err, gone) {
		t.Errorf("a reader that is gone: %v", err)
	}
	x.Close()
	b.nothingLeft()

	x, err = b.ex.Begin(t.Context(), me, exporter.From{Ref: volume.Ref{Disk: "d"}})
	b.ok(err)
	note, err := os.ReadFile(filepath.Join(b.data, "exports.json"))
	b.ok(err)
	cps, err := b.host.Checkpoints(t.Context(), me, "d")
	if err != nil || len(cps) != 1 || !strings.Contains(string(note), "d@"+cps[0].Name) {
		t.Fatalf("during an export: %+v, %v, %s", cps, err, note)
	}
	x.Close()
	// The same as a crash leaves it: the checkpoint and the note.
	_, err = b.host.Checkpoint(t.Context(), me, "d", cps[0].Name, "", volume.WaitDurable)
	b.ok(err, os.WriteFile(filepath.Join(b.data, "exports.json"), note, 0o600))
	next, err := exporter.Open(b.host, b.data, slog.New(slog.DiscardHandler))
	b.ok(err)
	next.CleanUp(t.Context())
	b.nothingLeft()
}

type broken struct{ err error }

func (w broken) Write([]byte) (int, error) { return 0, w.err }
