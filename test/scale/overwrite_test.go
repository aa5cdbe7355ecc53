package scale_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/volume"
)

var overwriteFor = flag.Duration("overwrite.for", 0, "how long a file is overwritten; 0: 10 s, or 10 minutes with -long")

// overwriteBytes is the size of the file.
func overwriteBytes() int64 { return int64(size(0, 256, 1024)) << 20 }

// overwritten is one file and how long each write to it took.
type overwritten struct {
	f     *os.File
	calls times
}

// newOverwritten fills a file with bytes that do not compress.
func newOverwritten(t *testing.T, path string, seed uint64) *overwritten {
	t.Helper()
	f, err := os.Create(path)
	check(t, err)
	t.Cleanup(func() { f.Close() })
	block := make([]byte, 1<<20)
	rnd := rand.NewChaCha8([32]byte{byte(seed)})
	for range overwriteBytes() / int64(len(block)) {
		rnd.Read(block)
		_, err := f.Write(block)
		check(t, err)
	}
	check(t, f.Sync())
	return &overwritten{f: f}
}

func (o *overwritten) write(t *testing.T, p []byte, off int64) {
	var err error
	o.calls.timed(func() { _, err = o.f.WriteAt(p, off) })
	check(t, err)
}

// TestOverwrite overwrites a file at random offsets for a long time: a write
// must not wait for what the writes before it have left to be done, and the
// space of what was overwritten must come back. The same is written to a file
// of the native file system in turn, on the same device.
func TestOverwrite(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := newServed(t, func(h *volume.Host) {
		_, err := h.CreateDisk(ctx, me, "disk")
		check(t, err)
	})
	s.start(t)
	native := newOverwritten(t, filepath.Join(s.Dir(), "native"), seed)
	tined := newOverwritten(t, filepath.Join(s.mount(t, "disk"), "file"), seed)

	limit := 10 * time.Second
	if *overwriteFor > 0 {
		limit = *overwriteFor
	} else if *long {
		limit = 10 * time.Minute
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	source := random(rnd, 1<<20)
	var written int64
	for began := time.Now(); time.Since(began) < limit; {
		// From 6 bytes to a power of two of up to 64 KiB: small ones are as
		// frequent as large ones.
		n := 6 + rnd.IntN(1<<(3+rnd.IntN(14))-5)
		off := rnd.Int64N(overwriteBytes() - int64(n) + 1)
		from := rnd.IntN(len(source) - n)
		both := [2]*overwritten{native, tined}
		first := rnd.IntN(2)
		both[first].write(t, source[from:from+n], off)
		both[1-first].write(t, source[from:from+n], off)
		written += int64(n)
	}
	t.Logf("%d MiB written in %d calls in %v", written>>20, len(tined.calls), limit)
	for _, q := range []float64{0.5, 0.99, 0.999, 0.9999, 1} {
		t.Logf("%6.2f %% of the writes: native %v, tine %v", 100*q, native.calls.at(q).Round(time.Microsecond), tined.calls.at(q).Round(time.Microsecond))
	}
	most := max(100*time.Millisecond, 2*native.calls.at(0.999))
	if got := tined.calls.at(0.999); got > most {
		t.Errorf("99.9 %% of the writes took %v; at most %v", got, most)
	}
	check(t, tined.f.Sync())
	same(t, native.f, tined.f)
	s.spaceComesBack(t, overwriteBytes())
	check(t, native.f.Close())
	check(t, tined.f.Close())
	check(t, s.Stop(ctx))
}

// same compares two files.
func same(t *testing.T, a, b *os.File) {
	t.Helper()
	p, q := make([]byte, 1<<20), make([]byte, 1<<20)
	for off := int64(0); ; off += int64(len(p)) {
		n, err := a.ReadAt(p, off)
		m, err2 := b.ReadAt(q, off)
		if n != m || err != err2 || !bytes.Equal(p[:n], q[:m]) {
			t.Fatalf("the files differ in the MiB at %d: %d bytes, %v and %d bytes, %v", off, n, err, m, err2)
		}
		if err == io.EOF {
			return
		}
		check(t, err)
	}
}

// spaceComesBack waits for the background work to bring the data directory to
// at most twice what is live in it.
func (s *served) spaceComesBack(t *testing.T, live int64) {
	t.Helper()
	const patience = 5 * time.Minute
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	first, began := s.space(t), time.Now()
	for {
		now := s.space(t)
		stats, err := s.api.Stats(ctx)
		check(t, err)
		if now.counted() <= 2*live {
			t.Logf("for %d MiB live: %v; after %v %v; %v", live>>20, first, time.Since(began).Round(time.Millisecond), now, stats)
			return
		}
		select {
		case <-tick.C:
		case <-limited.Done():
			t.Errorf("for %d MiB live: %v, still after %v; at most twice as much; %v", live>>20, now, patience, stats)
			return
		}
	}
}

// taken is what a data directory takes of the device.
type taken struct{ data, logs int64 }

// counted is what the promise is about. The row store keeps and uses again some
// log files, some tens of MiB for all disks together, which are too much beside
// the file of the short form.
func (s taken) counted() int64 {
	if *long {
		return s.data + s.logs
	}
	return s.data
}

func (s taken) String() string {
	return fmt.Sprintf("%d MiB of space and %d MiB of logs", s.data>>20, s.logs>>20)
}

func (s *served) space(t *testing.T) (sum taken) {
	t.Helper()
	rows := filepath.Join(s.Data(), "rows")
	check(t, filepath.WalkDir(s.Data(), func(path string, d fs.DirEntry, err error) error {
		var st syscall.Stat_t
		if err == nil && d.Type().IsRegular() {
			err = syscall.Stat(path, &st)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist): // it went while we looked
			return nil
		case filepath.Dir(path) == rows && (filepath.Ext(path) == ".log" || d.Name() == "RESERVE"):
			sum.logs += st.Blocks * 512
		default:
			sum.data += st.Blocks * 512
		}
		return err
	}))
	return sum
}
