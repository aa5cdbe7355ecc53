package scale_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/test/rig"
)

// served is the real program on a data directory of its own.
type served struct {
	*rig.Rig
	api *api.Client
	pid int // of the server that runs
}

// newServed prepares a server, and fills its data directory before it starts.
func newServed(t *testing.T, fill func(*volume.Host), flags ...string) *served {
	t.Helper()
	needFUSE(t)
	dir, err := os.MkdirTemp("", "tine-scale-") // not t.TempDir, which would be emptied with a mount in it
	check(t, err)
	binary := filepath.Join(dir, "tine")
	var r *rig.Rig
	if err = rig.Build(ctx, binary); err == nil {
		r, err = rig.New(binary, dir, flags...)
	}
	if err != nil {
		t.Fatal(errors.Join(err, os.RemoveAll(dir)))
	}
	s := &served{Rig: r, api: api.NewClient(filepath.Join(r.Dir(), "tine.sock"), "scale")}
	t.Cleanup(func() {
		s.api.Close()
		if t.Failed() {
			t.Logf("the end of the server's log:\n%s", r.LogEnd())
		}
		check(t, r.Close())
	})
	h := openHost(t, r.Data())
	fill(h)
	check(t, h.Close(ctx))
	return s
}

// start returns how long the server took until it was ready.
func (s *served) start(t *testing.T) time.Duration {
	t.Helper()
	took, err := s.Start(ctx)
	check(t, err)
	about, err := s.api.Server(ctx)
	check(t, err)
	s.pid = about.PID
	return took
}

func (s *served) mount(t *testing.T, disk string) string {
	t.Helper()
	dir, err := s.Mount(ctx, disk)
	check(t, err)
	return dir
}

// memory is what the kernel says of a process, in bytes.
type memory struct{ resident, peak int64 }

func memoryOf(t *testing.T, pid int) (m memory) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	check(t, err)
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			m.resident = kib << 10
		case "VmHWM":
			m.peak = kib << 10
		default:
			continue
		}
		check(t, err)
	}
	if m.resident == 0 || m.peak == 0 {
		t.Fatalf("/proc/%d/status does not tell the memory:\n%s", pid, status)
	}
	return m
}

func (m memory) String() string {
	return fmt.Sprintf("%d MiB resident, %d MiB at most", m.resident>>20, m.peak>>20)
}

// fileBytes is the size of the files of incompressible.
const fileBytes = 512

// incompressible returns contents of files, each with other bytes, that do not
// compress. One is good until the next is asked for.
func incompressible() func() []byte {
	content := make([]byte, fileBytes)
	x := uint64(1)
	return func() []byte {
		for at := 0; at < len(content); at += 8 {
			x ^= x << 13 // xorshift: any bytes will do, and a million files want them fast
			x ^= x >> 7
			x ^= x << 17
			binary.LittleEndian.PutUint64(content[at:], x)
		}
		return content
	}
}

// find does what find(1) with a test of each file does, and reads a part of each.
func find(t *testing.T, dir string) (found int) {
	t.Helper()
	part := make([]byte, 64)
	check(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		st, err := os.Lstat(path)
		if err != nil {
			return err
		}
		if st.Size() != fileBytes {
			return fmt.Errorf("%s has %d bytes, want %d", path, st.Size(), fileBytes)
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		found++
		_, err = f.ReadAt(part, int64(found%(fileBytes-len(part))))
		return err
	}))
	return found
}

// TestFootprint is what a server with a small cache takes of memory when all
// files of a disk were looked at and read. The kernel keeps them all, and the
// server must know which.
func TestFootprint(t *testing.T) {
	const cacheMiB, promised = 64, 400 << 20
	n := size(*files, 20_000, 1_000_000)
	// A few files do not fill the cache. They may take no more than would break
	// the promise, were it not for the cache's limit.
	atMost := min(promised, 80<<20+int64(n)<<10)
	s := newServed(t, func(h *volume.Host) {
		_, err := h.CreateDisk(ctx, me, "disk")
		check(t, err)
		session := attach(t, h, "disk")
		makeTreeOf(t, session, n, incompressible())
		check(t, session.Detach(ctx))
	}, "--cache-bytes", fmt.Sprintf("%dMiB", cacheMiB))
	t.Logf("started with %d files in %v", n, s.start(t))
	dir := s.mount(t, "disk")
	before := memoryOf(t, s.pid)
	for round := range 2 { // what is kept of a file must not grow with the next look at it
		began := time.Now()
		if found := find(t, dir); found != n {
			t.Fatalf("found %d files, want %d", found, n)
		}
		m := memoryOf(t, s.pid)
		t.Logf("walk %d of %d files in %v: %v; before the first walk %v", round+1, n, time.Since(began).Round(time.Millisecond), m, before)
		if m.peak > atMost {
			t.Errorf("the server has %v; at most %d MiB", m, atMost>>20)
		}
	}
	check(t, s.Stop(ctx))
}
