package behaviours

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// touches reads or writes one byte of a mapping and reports whether that
// raised SIGBUS.
func touches(page []byte, change bool) (fault bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fault = recover() != nil }()
	if change {
		page[0]++
	} else if page[0] == 0xee {
		page[0] = 0xee
	}
	return false
}

func mappingCoherent(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	path := filepath.Join(a, "file")
	const page = 4096
	write(t, path, noise(4*page, 1))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, 8*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	defer func() { must(t, unix.Munmap(m)) }()
	same := func(when string) {
		t.Helper()
		size := int(stat(t, filepath.Join(filepath.Dir(path), filepath.Base(path))).Size)
		got, err := readAll(f)
		if err != nil || len(got) != size || !bytes.Equal(got, m[:size]) {
			t.Errorf("%s: the mapping and the file differ (%d of %d bytes, %v)", when, len(got), size, err)
		}
	}
	same("at first")
	_, err = f.WriteAt([]byte("by descriptor"), page+7)
	must(t, err)
	same("written by descriptor")
	copy(m[2*page:], "by mapping")
	same("written by mapping")
	must(t, f.Truncate(2*page))
	same("truncated")
	if touches(m[page:], true) || !touches(m[3*page:], false) {
		t.Error("a page inside raised SIGBUS, or one past the end did not")
	}
	must(t, f.Truncate(6*page))
	if touches(m[5*page:], true) {
		t.Error("a page of the extension raised SIGBUS")
	}
	same("extended")
	for _, b := range m[2*page : 5*page] {
		if b != 0 {
			t.Fatal("what was cut off has come back")
		}
	}
	must(t, os.Rename(path, path+"-renamed"))
	path += "-renamed"
	copy(m, "after the rename")
	same("renamed")
	must(t, unix.Msync(m, unix.MS_SYNC))
}

func costByChange(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	r := rand.New(rand.NewPCG(15, 0))
	rewrite := func(f *os.File, size int64) time.Duration {
		began := time.Now()
		for range 1024 { // 4 MiB
			_, err := f.WriteAt(noise(4096, byte(r.IntN(256))), r.Int64N(size/4096)*4096)
			must(t, err)
		}
		must(t, f.Sync())
		return time.Since(began)
	}
	open := func(name string, size int64) *os.File {
		f, err := os.Create(filepath.Join(a, name))
		must(t, err)
		piece := noise(1<<20, 3)
		for off := int64(0); off < size; off += int64(len(piece)) {
			_, err := f.WriteAt(piece, off)
			must(t, err)
		}
		must(t, f.Sync())
		return f
	}
	const small, large = 8 << 20, 256 << 20
	s, l := open("small", small), open("large", large)
	var ofSmall, ofLarge []time.Duration
	for range 5 {
		ofSmall = append(ofSmall, rewrite(s, small))
		ofLarge = append(ofLarge, rewrite(l, large))
	}
	must(t, errors.Join(s.Close(), l.Close()))
	t.Logf("4 MiB in pieces of 4 KiB: %v in a file of 8 MiB, %v in one of 256 MiB", median(ofSmall), median(ofLarge))
	// 32 times the size; what remains of it is that pages lie in more chunks.
	if median(ofLarge) > 6*median(ofSmall)+100*time.Millisecond {
		t.Errorf("in the large file it costs %v, in the small one %v", median(ofLarge), median(ofSmall))
	}
}

// share maps a file and answers each number that another process puts into its
// first byte by putting the next one into its second, up to the last; between
// them it writes under a record lock.
func share(path string, first bool) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(m)
	who := 0
	if !first {
		who = 1
	}
	for range 2000 {
		if err := unix.FcntlFlock(f.Fd(), unix.F_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK, Start: 100, Len: 8}); err != nil {
			return err
		}
		m[8]++ // not atomic: only the lock makes it right
		if m[8] == 0 {
			m[9]++
		}
		m[16+who]++
		if err := unix.FcntlFlock(f.Fd(), unix.F_SETLKW, &unix.Flock_t{Type: unix.F_UNLCK, Start: 100, Len: 8}); err != nil {
			return err
		}
	}
	return nil
}

func sharedMemoryAndLocks(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	path := filepath.Join(a, "shm")
	write(t, path, make([]byte, 8192))
	p, q := act(t, false, nil, "share", path, "first"), act(t, false, nil, "share", path, "second")
	p.wait()
	q.wait()
	got, err := os.ReadFile(path)
	must(t, err)
	if n := int(got[8]) | int(got[9])<<8; n != 4000 {
		t.Errorf("two processes counted to %d under a record lock; want 4000", n)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	r, want := rand.New(rand.NewPCG(16, 0)), make([]byte, 1<<20)
	must(t, f.Truncate(0))
	must(t, f.Truncate(int64(len(want))))
	for i := range 500 {
		off, n := r.IntN(len(want)-9000), 1+r.IntN(9000)
		copy(want[off:], noise(n, byte(i)))
		_, err := f.WriteAt(want[off:off+n], int64(off))
		must(t, err)
		if i%50 == 0 {
			must(t, f.Sync())
		}
	}
	wantContent(t, path, want)
}

func checksums(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	bad, good := filepath.Join(a, "bad"), filepath.Join(a, "good")
	content := noise(2<<20, 99)
	write(t, bad, content)
	write(t, good, noise(2<<20, 98))
	w.tine(t, "sync", "work")
	must(t, w.rig.Stop(w.ctx))
	damaged := 0
	must(t, filepath.WalkDir(filepath.Join(w.rig.Data(), "segments"), func(s string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(s)
		if i := bytes.Index(b, content[1<<20:1<<20+200]); err == nil && i >= 0 {
			b[i+50] ^= 1
			damaged++
			err = os.WriteFile(s, b, 0o600)
		}
		return err
	}))
	w.start(t)
	if damaged != 1 {
		t.Fatalf("the content was found in %d segments", damaged)
	}
	_, err := os.ReadFile(bad)
	wantErrno(t, "reading what is damaged", err, syscall.EIO)
	wantContent(t, good, noise(2<<20, 98))
	must(t, os.Remove(bad))
}

func copyPast4GiB(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	const size = 5<<30 + 12345
	src, err := os.Create(filepath.Join(a, "src"))
	must(t, err)
	defer src.Close()
	must(t, src.Truncate(size))
	marks := []int64{0, 1<<30 - 3, 4<<30 - 7000, 4 << 30, size - 5000}
	for i, off := range marks {
		_, err := src.WriteAt(noise(5000, byte(i)), off)
		must(t, err)
	}
	dst, err := os.Create(filepath.Join(a, "dst"))
	must(t, err)
	defer dst.Close()
	var from, to int64
	for from < size {
		n, err := unix.CopyFileRange(int(src.Fd()), &from, int(dst.Fd()), &to, size, 0)
		if err != nil || n <= 0 {
			t.Fatalf("copy_file_range at %d: %d, %v", from, n, err)
		}
		if from != to {
			t.Fatalf("it read up to %d and wrote up to %d", from, to)
		}
	}
	if st := stat(t, filepath.Join(a, "dst")); st.Size != size || to != size {
		t.Errorf("the copy has %d bytes, counted %d; want %d", st.Size, to, size)
	}
	got := make([]byte, 5000)
	for i, off := range marks {
		if _, err := dst.ReadAt(got, off); err != nil || !bytes.Equal(got, noise(5000, byte(i))) {
			t.Errorf("at %d the copy differs: %v", off, err)
		}
	}
	for _, name := range []string{"src", "dst"} {
		must(t, os.Remove(filepath.Join(a, name)))
	}
}

func fsyncDirectory(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	must(t, os.Mkdir(filepath.Join(a, "d"), 0o755))
	write(t, filepath.Join(a, "d", "file"), []byte("content"))
	must(t, syncDir(filepath.Join(a, "d")))
	must(t, syncDir(a))
	w.crash(t)
	wantContent(t, filepath.Join(a, "d", "file"), []byte("content"))
}

func appendSeenByOther(t *testing.T, w *world) {
	a, b := w.dirs(t)
	write(t, filepath.Join(a, "log"), []byte("start\n"))
	follower, err := os.Open(filepath.Join(b, "log"))
	must(t, err)
	defer follower.Close()
	want := "start\n"
	for i := range 50 {
		where := a
		if i%2 == 1 {
			where = b
		}
		f, err := os.OpenFile(filepath.Join(where, "log"), os.O_APPEND|os.O_WRONLY, 0)
		must(t, err)
		line := fmt.Sprintf("line %d of %s\n", i, filepath.Base(filepath.Dir(where)))
		_, err = f.WriteString(line)
		must(t, errors.Join(err, f.Close()))
		want += line
		wantContent(t, filepath.Join(a, "log"), []byte(want))
		wantContent(t, filepath.Join(b, "log"), []byte(want))
		if got, err := readAll(follower); err != nil || string(got) != want {
			t.Fatalf("the follower sees %d bytes of %d, %v", len(got), len(want), err)
		}
	}
}
