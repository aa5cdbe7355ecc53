package volume_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

var (
	ctx  = context.Background()
	me   = volume.Caller{Tenant: tine.DefaultTenant, Author: "test"}
	root = volume.Cred{}
)

func open(t *testing.T, o volume.Options) *volume.Host {
	t.Helper()
	if o.Dir == "" {
		o.Dir = "/data"
	}
	h, err := volume.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func attach(t *testing.T, h *volume.Host, name string) *volume.Session {
	t.Helper()
	r, err := volume.ParseRef(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Attach(ctx, me, r, volume.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t *testing.T, s *volume.Session, name string, p []byte) {
	t.Helper()
	f, _, _, err := s.Create(root, volume.Root, name, 0o644, false)
	if err == nil {
		_, err = f.WriteAt(root, p, 0)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, s *volume.Session, name string) []byte {
	t.Helper()
	a, n, err := s.Lookup(volume.Root, name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	f, err := s.Open(n)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := make([]byte, a.Size)
	if _, err := f.ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestForkRollbackPromote(t *testing.T) {
	fs := vfs.NewMem()
	h := open(t, volume.Options{FS: fs})
	if _, err := h.CreateDisk(ctx, me, "a"); err != nil {
		t.Fatal(err)
	}
	s := attach(t, h, "a")
	big := bytes.Repeat([]byte("0123456789abcdef"), 20000)
	write(t, s, "small", []byte("hello"))
	write(t, s, "big", big)
	if _, err := h.Checkpoint(ctx, me, "a", "one", "first", volume.WaitDurable); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Fork(ctx, me, volume.Ref{Disk: "a"}, []string{"b", "c"}, volume.WaitRunnable); err != nil {
		t.Fatal(err)
	}
	b := attach(t, h, "b")
	write(t, b, "small", []byte("changed in b"))
	write(t, s, "small", []byte("changed in a"))
	if got := read(t, b, "small"); string(got) != "changed in b" {
		t.Fatalf("%q", got)
	}
	if got := read(t, b, "big"); !bytes.Equal(got, big) {
		t.Fatal("big differs in the fork")
	}
	if err := b.Detach(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Promote(ctx, me, "b", "a", false); !errors.Is(err, &tine.Error{Kind: tine.KindConflict}) {
		t.Fatalf("promote onto a changed disk: %v", err)
	}
	if _, err := h.Promote(ctx, me, "b", "a", true); err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, "small"); string(got) != "changed in b" {
		t.Fatalf("%q", got)
	}
	if _, err := h.Rollback(ctx, me, "a", "one"); err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, "small"); string(got) != "hello" {
		t.Fatalf("%q", got)
	}
	for range 2 {
		if _, err := h.Undo(ctx, me, "a"); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.ReclaimIdle(ctx); err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, "small"); string(got) != "hello" {
		t.Fatalf("after two undos: %q", got)
	}
	s.Detach(ctx)
	if err := h.Close(ctx); err != nil {
		t.Fatal(err)
	}
	h = open(t, volume.Options{FS: fs})
	s = attach(t, h, "a")
	if got := read(t, s, "big"); !bytes.Equal(got, big) {
		t.Fatal("big differs after a restart")
	}
	t.Logf("%+v", h.Stats())
	s.Detach(ctx)
	if err := h.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestRoundsStayFlat is F7's rounds in small: a line stays one level deep, and
// the space is that of the live bytes.
func TestRoundsStayFlat(t *testing.T) {
	h := open(t, volume.Options{FS: vfs.NewMem(), Manual: true, CommitInterval: -1})
	defer h.Close(ctx)
	if _, err := h.CreateDisk(ctx, me, "a"); err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		fork := fmt.Sprintf("f%d", i)
		if _, err := h.Fork(ctx, me, volume.Ref{Disk: "a"}, []string{fork}, volume.WaitRunnable); err != nil {
			t.Fatal(err)
		}
		s := attach(t, h, fork)
		write(t, s, "file", bytes.Repeat([]byte{byte(i)}, 100000))
		s.Detach(ctx)
		if _, err := h.Promote(ctx, me, fork, "a", false); err != nil {
			t.Fatal(err)
		}
		if err := h.ReclaimIdle(ctx); err != nil {
			t.Fatal(err)
		}
	}
	st := h.Stats()
	t.Logf("%+v", st)
	if st.Lines > 6 || st.Strata > 12 {
		t.Errorf("%d lines and %d strata are left", st.Lines, st.Strata)
	}
	if st.LiveBytes > 5*100000 {
		t.Errorf("%d bytes live", st.LiveBytes)
	}
}

// TestADataDirectoryKeepsAReserve: on a real device, which is what a host has
// when it is told of none, space is laid aside for the day when it is full.
func TestADataDirectoryKeepsAReserve(t *testing.T) {
	dir := t.TempDir()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < 1<<30 {
		t.Skipf("too little room in %s to keep any aside: %v", dir, err)
	}
	h := open(t, volume.Options{Dir: dir})
	defer h.Close(ctx)
	fi, err := os.Stat(filepath.Join(dir, "rows", "RESERVE"))
	if err != nil {
		t.Fatal(err)
	}
	if on := fi.Sys().(*syscall.Stat_t).Blocks * 512; on < fi.Size() || on < 1<<20 {
		t.Errorf("the reserve has %d bytes, %d of them on the device", fi.Size(), on)
	}
}
