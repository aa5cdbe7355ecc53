package scale_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// listingHeap is how many bytes of memory may be in use more when the last page
// of a listing is read than when the first one was: pages, not the listing.
const listingHeap = 16 << 20

// listed is what one listing of the directory has shown: how often each name.
type listed struct {
	old, fresh []uint8 // by number
	pages      int
}

// list reads a directory in pages, as readdir(3) does, and calls page after
// each. It holds a byte a name, so what else is in use is the engine's.
func list(t *testing.T, dir string, n, added int, page func(entries int)) listed {
	t.Helper()
	l := listed{old: make([]uint8, n), fresh: make([]uint8, added)}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	check(t, err)
	defer unix.Close(fd)
	buf := make([]byte, 64<<10)
	names := make([]string, 0, 4096)
	entries := 0
	for {
		got, err := unix.Getdents(fd, buf)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		check(t, err)
		if got == 0 {
			return l
		}
		l.pages++
		_, _, names = unix.ParseDirent(buf[:got], -1, names[:0])
		for _, name := range names {
			entries++
			of, number := l.old, strings.TrimPrefix(name, "entry-")
			if number == name {
				of, number = l.fresh, strings.TrimPrefix(name, "added-")
			}
			i, err := strconv.Atoi(number)
			if err != nil || i >= len(of) {
				t.Fatalf("%s lists %q", dir, name)
			}
			of[i]++
		}
		page(entries)
	}
}

// bigDir is a disk with one large directory.
type bigDir struct {
	t *testing.T
	n int
}

func (d *bigDir) path(m string) string { return filepath.Join(m, "big") }

func (d *bigDir) entry(m string, i int) string {
	return filepath.Join(m, "big", "entry-"+strconv.Itoa(i))
}

// create makes the directory, in two programs at once.
func (d *bigDir) create(m string) {
	d.t.Helper()
	start := time.Now()
	check(d.t, os.Mkdir(d.path(m), 0o755))
	d.both(func(i int) error {
		fd, err := unix.Open(d.entry(m, i), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	})
	d.took("created", d.n, start)
}

// both calls fn with every number, from two programs, one for each half.
func (d *bigDir) both(fn func(i int) error) {
	d.t.Helper()
	var wg sync.WaitGroup
	var errs [2]error
	for half := range errs {
		wg.Go(func() {
			for i := half * d.n / 2; i < (half+1)*d.n/2 && errs[half] == nil; i++ {
				errs[half] = fn(i)
			}
		})
	}
	wg.Wait()
	check(d.t, errors.Join(errs[0], errs[1]))
}

func (d *bigDir) took(what string, n int, start time.Time) {
	e := time.Since(start)
	d.t.Logf("%s %d names in %v, %.0f a second", what, n, e.Round(time.Millisecond), float64(n)/e.Seconds())
}

// page lists the directory and holds the memory that is in use at the end
// against that after the first page.
func (d *bigDir) page(m string) {
	d.t.Helper()
	start := time.Now()
	var first, last, most int64
	step := max(d.n/8, 1)
	next := 1
	l := list(d.t, d.path(m), d.n, 0, func(entries int) {
		if entries < next {
			return
		}
		last = heapBytes()
		if first == 0 {
			first = last
		}
		most = max(most, last)
		next += step
	})
	d.took("listed", d.n, start)
	for i, times := range l.old {
		if times != 1 {
			d.t.Fatalf("entry-%d is listed %d times", i, times)
		}
	}
	d.t.Logf("%d pages; memory in use at the first %d, at most %d, after the last %d", l.pages, first, most, last)
	if most > first+listingHeap {
		d.t.Errorf("listing %d names took %d bytes more of memory than its first page; at most %d", d.n, most-first, listingHeap)
	}
}

// halving removes every second name of the directory in one fork, in random
// order, and adds others beside.
type halving struct {
	*bigDir
	mount         string
	parity, added int
	order         []int // of the removed names
	removed, made atomic.Int64
	tenth         chan struct{} // has one for each tenth of the names, as its removal begins
}

func (v *halving) run() error {
	for k, i := range v.order {
		if k%max(len(v.order)/10, 1) == 0 {
			v.tenth <- struct{}{}
		}
		if err := os.Remove(v.entry(v.mount, i)); err != nil {
			return err
		}
		v.removed.Add(1)
		if n := v.made.Load(); k%50 == 0 && n < int64(v.added) {
			f, err := os.Create(filepath.Join(v.path(v.mount), "added-"+strconv.FormatInt(n, 10)))
			if err != nil {
				return err
			}
			if err := f.Close(); err != nil {
				return err
			}
			v.made.Add(1)
		}
	}
	return nil
}

// look lists the directory once: what is neither removed nor added meanwhile is
// in it once, and nothing is in it twice. It returns how many names were
// removed meanwhile.
func (v *halving) look() int {
	v.t.Helper()
	from, made := int(v.removed.Load()), int(v.made.Load())
	l := list(v.t, v.path(v.mount), v.n, v.added, func(int) {})
	to := int(v.removed.Load())
	least, most := make([]uint8, v.n), make([]uint8, v.n) // how often each name may be listed
	for i := range v.n {
		least[i], most[i] = 1, 1
	}
	for k, i := range v.order[:min(to+1, len(v.order))] { // one may be gone and not yet counted
		least[i] = 0
		if k < from {
			most[i] = 0
		}
	}
	for i, times := range l.old {
		if times < least[i] || times > most[i] {
			v.t.Fatalf("entry-%d is listed %d times; want %d to %d", i, times, least[i], most[i])
		}
	}
	for i, times := range l.fresh {
		if times > 1 || i < made && times == 0 {
			v.t.Fatalf("added-%d is listed %d times; %d were there before", i, times, made)
		}
	}
	return to - from
}

// halve removes and adds names and lists the directory meanwhile, ten times and
// once more.
func (d *bigDir) halve(mount string, parity int, rnd *rand.Rand) {
	d.t.Helper()
	v := &halving{bigDir: d, mount: mount, parity: parity, added: d.n / 100, tenth: make(chan struct{}, 11)}
	for _, j := range rnd.Perm(d.n / 2) {
		v.order = append(v.order, 2*j+parity)
	}
	start := time.Now()
	done := make(chan error, 1)
	go func() { done <- v.run() }()
	listings, beside := 0, 0
	for ended := false; !ended; listings++ {
		select {
		case err := <-done:
			check(d.t, err)
			ended = true
		case <-v.tenth:
		}
		if v.look() > 0 {
			beside++
		}
	}
	d.took("beside listings, removed", d.n/2, start)
	d.t.Logf("%d listings, %d of them beside removals; %d names were added", listings, beside, v.made.Load())
	if beside == 0 {
		d.t.Errorf("no name was removed while the directory was listed")
	}
}

// TestBigDirectory makes a large directory at a mount, lists it in constant
// memory, halves it in two forks at once while it is listed there, and removes it.
func TestBigDirectory(t *testing.T) {
	needFUSE(t)
	const seed = 3
	t.Logf("seed %d", seed)
	d := &bigDir{t, size(*entries, 4000, 1_000_000) &^ 1}
	h := newHost(t)
	_, err := h.CreateDisk(ctx, me, "disk")
	check(t, err)
	first := mountOn(t, h, "disk")
	d.create(first.Dir())
	unmount(t, first)
	check(t, h.ReclaimIdle(ctx))
	// What the kernel knew of the names is gone with the mount. The first
	// listing fills the row store's cache, whose size is fixed.
	names := 0
	warm := attach(t, h, "disk")
	_, big, err := warm.Resolve("/big", false)
	check(t, err)
	eachName(t, warm, big, func(string) { names++ })
	check(t, warm.Detach(ctx))
	if names != d.n {
		t.Fatalf("%d names, want %d", names, d.n)
	}
	disk := mount(t, h, "disk")
	d.page(disk)

	var forks [2]string
	for i := range forks {
		name := fmt.Sprintf("fork-%d", i)
		fork(t, h, "disk", name)
		forks[i] = mount(t, h, name)
	}
	t.Run("halved", func(t *testing.T) {
		for i, m := range forks {
			t.Run(fmt.Sprintf("fork-%d", i), func(t *testing.T) {
				t.Parallel()
				(&bigDir{t, d.n}).halve(m, i, rand.New(rand.NewPCG(seed, uint64(i))))
			})
		}
	})
	if t.Failed() {
		return
	}
	d.page(mount(t, h, "disk")) // which has them all
	for _, m := range forks {
		start := time.Now()
		check(t, os.RemoveAll(d.path(m)))
		d.took("removed in a fork", d.n/2+d.n/100, start)
	}
	start := time.Now()
	d.both(func(i int) error { return unix.Unlink(d.entry(disk, i)) })
	check(t, os.Remove(d.path(disk)))
	d.took("removed", d.n, start)
	for _, m := range []string{disk, forks[0], forks[1]} {
		es, err := os.ReadDir(m)
		check(t, err)
		if len(es) != 0 {
			t.Errorf("%d names are left", len(es))
		}
	}
	var settle times
	settle.timed(func() { check(t, h.ReclaimIdle(ctx)) })
	t.Logf("background work after it: %v; %+v", settle, h.Stats())
}
