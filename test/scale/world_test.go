package scale_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/fusefs"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

var (
	long  = flag.Bool("long", false, "hold the promised numbers at the promised sizes")
	files = flag.Int("files", 0, "files of the large disk; 0: 20,000, or 1,000,000 with -long")
	forks = flag.Int("forks", 0, "idle forks; 0: 1,000, or 10,000 with -long")
	count = flag.Int("rounds", 0, "rounds of fork and promote, and of checkpoint and rollback; 0: 300, or 10,000 with -long")
	deep  = flag.Int("depth", 0, "levels of forks of forks; 0: 100")

	entries   = flag.Int("entries", 0, "names in the large directory; 0: 4,000, or 1,000,000 with -long")
	writes    = flag.Int("writes", 0, "random writes into the sparse file; 0: 2,000, or 100,000 with -long")
	written   = flag.Int("written-forks", 0, "forks that are mounted and written to; 0: 150, or 10,000 with -long")
	deeper    = flag.Int("deeper", 0, "levels of forks of forks without a mount; 0: 200, or 1,000 with -long")
	heldFiles = flag.Int("held-files", 0, "files below a held checkpoint; 0: 200, or 3,000 with -long")
	rewrites  = flag.Int("rewrites", 0, "how often the tree below a checkpoint is rewritten; 0: 8, or 20 with -long")
)

// size is what a flag asks for, or what the form of the run does.
func size(flag, short, longer int) int {
	switch {
	case flag > 0:
		return flag
	case *long:
		return longer
	}
	return short
}

// bound is a promised bound, or in the short form one that a machine under
// load keeps too.
func bound(promised, loose float64) float64 {
	if *long {
		return promised
	}
	return loose
}

var (
	ctx  = context.Background()
	me   = volume.Caller{Tenant: tine.DefaultTenant, Author: "scale"}
	root = volume.Cred{}
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func needFUSE(t testing.TB) {
	t.Helper()
	if r := fusefs.Probe(); r.Err != nil {
		t.Skipf("nothing can be mounted here: %v", r.Err)
	}
}

// openHost opens a data directory; the caller closes it.
func openHost(t testing.TB, dir string) *volume.Host {
	t.Helper()
	h, err := volume.Open(ctx, volume.Options{Dir: dir})
	check(t, err)
	return h
}

func newHost(t testing.TB) *volume.Host {
	t.Helper()
	h := openHost(t, t.TempDir())
	t.Cleanup(func() { check(t, h.Close(ctx)) })
	return h
}

func attach(t testing.TB, h *volume.Host, disk string) *volume.Session {
	t.Helper()
	s, err := h.Attach(ctx, me, volume.Ref{Disk: disk}, volume.AttachOptions{})
	check(t, err)
	return s
}

func fork(t testing.TB, h *volume.Host, from, name string) {
	t.Helper()
	_, err := h.Fork(ctx, me, volume.Ref{Disk: from}, []string{name}, volume.WaitRunnable)
	check(t, err)
}

// mount mounts a disk or checkpoint on a new directory until the end of the test.
func mount(t testing.TB, h *volume.Host, disk string) string {
	t.Helper()
	return mountOn(t, h, disk).Dir()
}

// mountOn is mount for those who may unmount earlier.
func mountOn(t testing.TB, h *volume.Host, disk string) *fusefs.Mount {
	t.Helper()
	m := mountUntil(t, h, disk, filepath.Join(t.TempDir(), "mnt"))
	t.Cleanup(func() { unmount(t, m) })
	return m
}

// mountUntil mounts a disk or checkpoint on a directory, which it makes; the
// caller unmounts.
func mountUntil(t testing.TB, h *volume.Host, disk, dir string) *fusefs.Mount {
	t.Helper()
	ref, err := volume.ParseRef(disk)
	check(t, err)
	check(t, os.MkdirAll(dir, 0o755))
	m, err := fusefs.New(ctx, fusefs.Options{
		Dir: dir,
		Attach: func(ctx context.Context, o volume.AttachOptions) (*volume.Session, error) {
			return h.Attach(ctx, me, ref, o)
		},
	})
	check(t, err)
	return m
}

func unmount(t testing.TB, m *fusefs.Mount) {
	t.Helper()
	// A mount that was copied into another mount namespace never ends.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := m.Unmount(ctx); err != nil {
		t.Errorf("unmount: %v", err)
	}
}

// put creates or overwrites a file.
func put(t testing.TB, s *volume.Session, dir volume.Node, name string, content []byte) {
	t.Helper()
	f, _, _, err := s.Create(root, dir, name, 0o644, false)
	if err == nil {
		_, err = f.WriteAt(root, content, 0)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// get reads a file in the root directory.
func get(t testing.TB, s *volume.Session, name string) string {
	t.Helper()
	a, n, err := s.Lookup(volume.Root, name)
	check(t, err)
	f, err := s.Open(n)
	check(t, err)
	p := make([]byte, a.Size)
	_, err = f.ReadAt(p, 0)
	check(t, err)
	check(t, f.Close())
	return string(p)
}

// eachName lists a directory.
func eachName(t testing.TB, s *volume.Session, dir volume.Node, fn func(name string)) {
	t.Helper()
	l, err := s.OpenDir(dir)
	check(t, err)
	check(t, l.Read(0, func(e volume.DirEntry) bool {
		fn(e.Name)
		return true
	}))
	check(t, l.Close())
}

// filesPerDir is how many files makeTree puts into one directory.
const filesPerDir = 500

// makeTree puts n small files below the directory "top".
func makeTree(t testing.TB, s *volume.Session, n int) {
	t.Helper()
	makeTreeOf(t, s, n, func() []byte { return []byte("a small file\n") })
}

// makeTreeOf is makeTree with other contents.
func makeTreeOf(t testing.TB, s *volume.Session, n int, content func() []byte) {
	t.Helper()
	_, top, err := s.Mkdir(root, volume.Root, "top", 0o755)
	check(t, err)
	var dir volume.Node
	for i := range n {
		if i%filesPerDir == 0 {
			_, dir, err = s.Mkdir(root, top, fmt.Sprintf("dir-%d", i/filesPerDir), 0o755)
			check(t, err)
		}
		put(t, s, dir, fmt.Sprintf("file-%d", i), content())
	}
	check(t, s.Sync(ctx))
}

// walk looks at every name below a directory, which leaves all of them in the
// kernel's caches.
func walk(t testing.TB, dir string) (names int) {
	t.Helper()
	check(t, filepath.Walk(dir, func(_ string, _ os.FileInfo, err error) error {
		names++
		return err
	}))
	return names
}

// random returns bytes that do not compress.
func random(r *rand.Rand, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// treeBytes is what a directory takes on the device.
func treeBytes(t testing.TB, dir string) (bytes int64) {
	t.Helper()
	check(t, filepath.Walk(dir, func(_ string, fi os.FileInfo, err error) error {
		if err == nil && fi.Mode().IsRegular() {
			bytes += fi.Size()
		}
		return err
	}))
	return bytes
}

// times are the durations of one step over several runs.
type times []time.Duration

func (d times) at(q float64) time.Duration {
	s := slices.Sorted(slices.Values(d))
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

func (d times) median() time.Duration { return d.at(0.5) }

func (d times) String() string {
	r := time.Microsecond
	return fmt.Sprintf("median %v, 90%% %v, most %v (%d runs)", d.median().Round(r), d.at(0.9).Round(r), d.at(1).Round(r), len(d))
}

// timed adds the time that f takes.
func (d *times) timed(f func()) {
	start := time.Now()
	f()
	*d = append(*d, time.Since(start))
}

// compare logs two series and fails when the second is out of proportion.
func compare(t *testing.T, what, smallName string, small times, largeName string, large times, most float64) {
	t.Helper()
	ratio := float64(large.median()) / float64(small.median())
	t.Logf("%s: %.2f times\n\t%s: %v\n\t%s: %v", what, ratio, smallName, small, largeName, large)
	if ratio > most {
		t.Errorf("%s takes %.2f times as long with %s as with %s; at most %.1f", what, ratio, largeName, smallName, most)
	}
}
