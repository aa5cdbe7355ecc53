package main

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// noise is data that nothing compresses.
func noise(n int) []byte {
	r := rand.NewChaCha8([32]byte{1})
	b := make([]byte, n)
	_, _ = r.Read(b) // never fails
	return b
}

// TestDamageIsAnEvent flips a byte of a segment's file while no server runs.
func TestDamageIsAnEvent(t *testing.T) {
	w, mnt := newKernelWorld(t)
	p := w.spawn()
	w.steps([]step{{"disk create work", 0, `work`, ""}, {"mount work DIR/mnt", 0, `mounted`, ""}})
	content := noise(1 << 20)
	writeSynced(t, filepath.Join(mnt, "big"), string(content))
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(w.cfg.Data, "segments", "*", "*"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("%q, %v", segments, err)
	}
	b, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, content[500_000:500_100])
	if at < 0 {
		t.Fatal("the data is not in the segment")
	}
	b[at] ^= 1
	if err := os.WriteFile(segments[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	p = w.spawn()
	if _, err := os.ReadFile(filepath.Join(mnt, "big")); !errors.Is(err, syscall.EIO) {
		t.Fatalf("damaged data was read: %v", err)
	}
	w.await("corrupt")
	w.steps([]step{{"events", 0, `corrupt +work read: [^\n]+\n`, ""}})
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// TestAFullDeviceIsAnEvent fills a small device.
func TestAFullDeviceIsAnEvent(t *testing.T) {
	w, mnt := newKernelWorld(t)
	if err := os.MkdirAll(w.cfg.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", w.cfg.Data, "tmpfs", 0, "size=128m"); err != nil {
		t.Skipf("no tmpfs can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(w.cfg.Data, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	p := w.spawn()
	w.steps([]step{{"disk create work", 0, `work`, ""}, {"mount work DIR/mnt", 0, `mounted`, ""}})
	big, err := os.Create(filepath.Join(mnt, "big"))
	if err != nil {
		t.Fatal(err)
	}
	defer big.Close()
	piece := noise(1 << 20)
	for i := 0; err == nil; i++ {
		if i > 200 {
			t.Fatal("the device takes more than it has")
		}
		if _, err = big.Write(piece); err == nil {
			err = big.Sync()
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	w.await("full")
	w.steps([]step{{"events", 0, `full +work (write|fsync): [^\n]+\n`, ""}})

	// There is room again when something is removed.
	if err := os.Truncate(filepath.Join(mnt, "big"), 0); err != nil {
		t.Fatal(err)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatalf("stop: %v\n%s", err, p.stderr.String())
	}
}
