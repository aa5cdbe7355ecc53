package cache

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"tine.dev/tine/internal/tine"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0 draws one")

// newRand returns a random source and prints how to get the same again.
func newRand(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay: go test ./internal/fs/cache -run '^%s$' -seed %d", t.Name(), seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func open(t testing.TB, o Options) *Cache {
	t.Helper()
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// settle waits until nothing runs in the background.
func (c *Cache) settle() {
	<-c.listed
	c.work.Wait()
}

// content is what frame k has, always.
func content(k Key, n int) []byte {
	b := []byte(fmt.Sprintf("%s/%d ", k.Object, k.Frame))
	return bytes.Repeat(b, n/len(b)+1)[:n]
}

// from fetches the right bytes and counts how often.
func from(k Key, n int, count *atomic.Int64) Fetch {
	return func(context.Context) ([]byte, error) {
		count.Add(1)
		return content(k, n), nil
	}
}

func get(t testing.TB, c *Cache, k Key, n int, count *atomic.Int64) {
	t.Helper()
	b, err := c.Get(context.Background(), k, from(k, n, count))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, content(k, n)) {
		t.Fatalf("%v: wrong bytes", k)
	}
}

func wantKind(t testing.TB, err error, k tine.ErrorKind) {
	t.Helper()
	if err == nil || tine.KindOf(err) != k {
		t.Fatalf("want an error of kind %v, got %v (%v)", k, err, tine.KindOf(err))
	}
}

// deviceBytes is what lies in the directory.
func deviceBytes(t testing.TB, dir string) (total int64, files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if d.IsDir() {
			return nil
		}
		st, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			total, files = total+st.Size(), append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return total, files
}

func TestHitsAndRestart(t *testing.T) {
	dir := t.TempDir()
	var fetched atomic.Int64
	o := Options{Dir: dir, MaxBytes: 4 << 20, MemoryBytes: 100 << 10}
	c := open(t, o)
	for range 2 {
		for i := range int64(20) {
			get(t, c, Key{"a", i}, 40<<10, &fetched)
			c.settle()
		}
	}
	s := c.Stats()
	if fetched.Load() != 20 || s.Misses != 20 || s.MemoryHits+s.DeviceHits != 20 || s.DeviceHits < 15 || s.Frames != 20 {
		t.Fatalf("%d fetched, %+v", fetched.Load(), s)
	}
	c.Close()
	_, err := c.Get(context.Background(), Key{"a", 1}, from(Key{"a", 1}, 40<<10, &fetched))
	wantKind(t, err, tine.KindUnavailable)
	if c.Prefetch(Key{"b", 1}, from(Key{"b", 1}, 1, &fetched)) {
		t.Fatal("a closed cache fetches")
	}
	c = open(t, o)
	for i := range int64(20) { // some before the listing has ended, some after
		get(t, c, Key{"a", i}, 40<<10, &fetched)
	}
	c.settle()
	if s := c.Stats(); fetched.Load() != 20 || s.DeviceHits != 20 || s.Frames != 20 || s.Bytes != 20*costOf(40<<10) {
		t.Fatalf("after the restart %d fetched, %+v", fetched.Load(), s)
	}
}

// TestDamage changes every byte of a file, cuts it at every length, and puts
// it in another's place: each is a miss, and the right bytes come.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	var fetched atomic.Int64
	c := open(t, Options{Dir: dir, MaxBytes: 1 << 20, MemoryBytes: -1})
	k, other := Key{"object", 7}, Key{"object", 8}
	const n = 50
	get(t, c, k, n, &fetched)
	get(t, c, other, n, &fetched)
	c.settle()
	path := c.path(frameID{idOf(k.Object), 7})
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := [][]byte{
		encode(frameID{idOf(k.Object), 8}, content(other, n)), encode(frameID{idOf("other"), 7}, content(other, n)), append(bytes.Clone(good), 0),
	}
	for i := range good {
		flipped := bytes.Clone(good)
		flipped[i] ^= 0x10
		bad = append(bad, flipped, good[:i])
	}
	want := fetched.Load()
	for i, b := range bad {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		get(t, c, k, n, &fetched)
		c.settle()
		if want++; fetched.Load() != want {
			t.Fatalf("damage %d was not found", i)
		}
		get(t, c, k, n, &fetched)
		c.settle()
		if fetched.Load() != want {
			t.Fatalf("the frame was not kept after damage %d", i)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	get(t, c, k, n, &fetched)
	c.settle()
	if s := c.Stats(); s.Damaged != int64(len(bad)) || s.Frames != 2 || s.Bytes != 2*minCost {
		t.Fatalf("%+v of %d", s, len(bad))
	}
}

// TestBound looks at the directory before and after every write to it.
func TestBound(t *testing.T) {
	dir := t.TempDir()
	const most = 1 << 20
	var worst atomic.Int64
	fsys := vfs.FS(&watched{FS: vfs.Default, measure: func() {
		if n, _ := deviceBytes(t, dir); n > worst.Load() {
			worst.Store(n)
		}
	}})
	c := open(t, Options{FS: fsys, Dir: dir, MaxBytes: most, MemoryBytes: -1})
	var fetched atomic.Int64
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 5))
			for range 60 {
				k := Key{fmt.Sprint(r.IntN(3)), r.Int64N(40)}
				get(t, c, k, 30000+1000*int(k.Frame), &fetched)
			}
		})
	}
	wg.Wait()
	c.settle()
	s := c.Stats()
	if worst.Load() > most || worst.Load() < most/2 || s.Evictions == 0 || s.Bytes > most {
		t.Fatalf("the device held %d of %d bytes, %+v", worst.Load(), most, s)
	}
	if n, files := deviceBytes(t, dir); int64(len(files)) != s.Frames || n > s.Bytes {
		t.Fatalf("%d files of %d bytes; %+v", len(files), n, s)
	}
	c.Close()
	c = open(t, Options{Dir: dir, MaxBytes: most / 4, MemoryBytes: -1})
	c.settle()
	if n, _ := deviceBytes(t, dir); n > most/4 || n == 0 {
		t.Fatalf("a smaller cache starts with %d bytes", n)
	}
}

// watched calls measure around each change of a directory, and has no other change
// made meanwhile: a listing that others change counts what was never there at once.
type watched struct {
	vfs.FS
	mu      sync.Mutex
	measure func()
}

func (w *watched) Create(name string, cat vfs.DiskWriteCategory) (vfs.File, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.measure()
	f, err := w.FS.Create(name, cat)
	return watchedFile{f, w}, err
}

func (w *watched) Remove(name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.FS.Remove(name)
}

func (w *watched) Rename(from, to string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.FS.Rename(from, to)
}

type watchedFile struct {
	vfs.File
	w *watched
}

func (f watchedFile) Write(p []byte) (int, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	n, err := f.File.Write(p)
	f.w.measure()
	return n, err
}

// TestScan reads a set of frames now and then while a long scan goes by. Each
// frame of the scan is read in many bites.
func TestScan(t *testing.T) {
	c := open(t, Options{FS: vfs.NewMem(), Dir: "d", MaxBytes: 100 * minCost, MemoryBytes: -1})
	var hot, cold atomic.Int64
	readHot := func() {
		for i := range int64(40) {
			get(t, c, Key{"hot", i}, 100, &hot)
			c.settle()
		}
	}
	readHot()
	for i := range int64(2000) {
		if i%150 == 0 {
			readHot()
		}
		for range 8 {
			get(t, c, Key{"scan", i}, 100, &cold)
			c.settle()
		}
	}
	if cold.Load() < 2000 || hot.Load() > 60 {
		t.Fatalf("40 frames in use were fetched %d times beside a scan", hot.Load())
	}
}

// TestDrop forgets an object, also while a frame of it is on its way.
func TestDrop(t *testing.T) {
	dir := t.TempDir()
	c := open(t, Options{Dir: dir, MaxBytes: 1 << 20})
	var fetched atomic.Int64
	for i := range int64(5) {
		get(t, c, Key{"a", i}, 100, &fetched)
		get(t, c, Key{"b", i}, 100, &fetched)
	}
	c.settle()
	began, release := make(chan struct{}), make(chan struct{})
	got := make(chan error, 1)
	go func() {
		_, err := c.Get(context.Background(), Key{"a", 9}, func(context.Context) ([]byte, error) {
			close(began)
			<-release
			return []byte("x"), nil
		})
		got <- err
	}()
	<-began
	c.Drop("a")
	close(release)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	c.settle()
	if _, files := deviceBytes(t, dir); len(files) != 5 || c.Has(Key{"a", 0}) || c.Has(Key{"a", 9}) || !c.Has(Key{"b", 0}) {
		t.Fatalf("left: %q", files)
	}
}

// TestFullDevice has no room, then fails otherwise, then works again.
func TestFullDevice(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EIO, syscall.EROFS} {
		var bad atomic.Bool
		var failures atomic.Int64
		inj := errorfs.InjectorFunc(func(op errorfs.Op) error {
			if bad.Load() && op.Kind != errorfs.OpOpen && op.Kind != errorfs.OpFileReadAt {
				failures.Add(1)
				return &fs.PathError{Op: "write", Path: op.Path, Err: cause}
			}
			return nil
		})
		var log bytes.Buffer
		now := time.Unix(1000, 0)
		c := open(t, Options{
			FS: errorfs.Wrap(vfs.NewMem(), inj), Dir: "d", MaxBytes: 8 * minCost, MemoryBytes: -1,
			Logger: slog.New(slog.NewTextHandler(&log, nil)), Now: func() time.Time { return now },
		})
		var fetched atomic.Int64
		for i := range int64(8) {
			get(t, c, Key{"a", i}, 100, &fetched)
			c.settle()
		}
		bad.Store(true)
		for round := range 3 {
			for i := range int64(30) {
				get(t, c, Key{"b", i}, 100, &fetched)
				c.settle()
			}
			if lines := strings.Count(log.String(), "\n"); lines != 1 {
				t.Fatalf("%v, round %d: %d lines: %s", cause, round, lines, log.String())
			}
			if n := failures.Swap(0); n == 0 || n > 4 {
				t.Fatalf("%v, round %d: the device was tried %d times", cause, round, n)
			}
			now = now.Add(pause)
		}
		if s := c.Stats(); s.Bytes > 8*minCost {
			t.Fatalf("%v: %+v", cause, s)
		}
		bad.Store(false)
		before := c.Stats().Frames
		for i := range int64(30) {
			get(t, c, Key{"c", i}, 100, &fetched)
			c.settle()
		}
		if s := c.Stats(); s.Frames < before || !c.Has(Key{"c", 29}) {
			t.Fatalf("%v: nothing is kept once the device works: %+v", cause, s)
		}
	}
}

// TestNoDirectory works without the device part, and says so once.
func TestNoDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c := open(t, Options{Dir: file + "/cache", MaxBytes: 1 << 20, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	var fetched atomic.Int64
	for range 2 {
		get(t, c, Key{"a", 1}, 100, &fetched)
		c.settle()
	}
	if fetched.Load() != 1 || strings.Count(log.String(), "\n") != 1 {
		t.Fatalf("%d fetched; log %q", fetched.Load(), log.String())
	}
	_, err := Open(Options{MaxBytes: -1})
	wantKind(t, err, tine.KindInvalid)
}
