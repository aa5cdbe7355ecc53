package volume_test

import (
	"fmt"
	"testing"

	"tine.dev/tine/internal/fs/volume"
)

// BenchmarkCreate is create, write of 4 KiB and close of new files, without a
// kernel between.
func BenchmarkCreate(b *testing.B) {
	h, s := benchDisk(b)
	defer h.Close(ctx)
	defer s.Detach(ctx)
	p := make([]byte, 4096)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		f, _, _, err := s.Create(root, volume.Root, fmt.Sprintf("file-%d", i), 0o644, true)
		if err != nil {
			b.Fatal(err)
		}
		f.WriteAt(root, p, 0)
		f.Close()
	}
}

// BenchmarkLookup is a look-up of a name among 20,000 committed ones.
func BenchmarkLookup(b *testing.B) {
	h, s := benchDisk(b)
	defer h.Close(ctx)
	defer s.Detach(ctx)
	names := make([]string, 20000)
	for i := range names {
		names[i] = fmt.Sprintf("file-%d", i)
		if _, _, err := s.Mknod(root, volume.Root, names[i], 0o644, 0); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Sync(ctx); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, _, err := s.Lookup(volume.Root, names[i*7919%len(names)]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRename moves one name to and fro.
func BenchmarkRename(b *testing.B) {
	h, s := benchDisk(b)
	defer h.Close(ctx)
	defer s.Detach(ctx)
	if _, _, err := s.Mknod(root, volume.Root, "a", 0o644, 0); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		from, to := "a", "b"
		if i%2 == 1 {
			from, to = to, from
		}
		if err := s.Rename(root, volume.Root, from, volume.Root, to, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func benchDisk(b *testing.B) (*volume.Host, *volume.Session) {
	b.Helper()
	h, err := volume.Open(ctx, volume.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := h.CreateDisk(ctx, me, "a"); err != nil {
		b.Fatal(err)
	}
	s, err := h.Attach(ctx, me, volume.Ref{Disk: "a"}, volume.AttachOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return h, s
}
