package scale_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/volume"
)

var manyDisks = flag.Int("disks", 0, "disks of the server that is started; 0: 100, or 1,000 with -long")

const (
	startMounts  = 4 // disks that are mounted, and written to when the server is killed
	startWriters = 2 // for each of them
	startRounds  = 5 // of either kind
)

// TestStart measures the time from the start of the program to the first
// answer of a mount that it has brought back: after a stop, and after a kill in
// the midst of writes. Neither may grow with what there is.
func TestStart(t *testing.T) {
	nFiles, nDisks := size(*files, 20_000, 1_000_000), size(*manyDisks, 100, 1000)
	s := newServed(t, func(h *volume.Host) { fillDisks(t, h, nFiles, nDisks) })
	s.start(t)
	var dirs []string
	for i := range startMounts {
		dirs = append(dirs, s.mount(t, fmt.Sprintf("disk-%d", i)))
	}
	file := filepath.Join("top", "dir-0", "file-0")
	stat := func() {
		st, err := os.Lstat(filepath.Join(dirs[0], file))
		check(t, err)
		if st.Size() != fileBytes {
			t.Fatalf("%s has %d bytes, want %d", file, st.Size(), fileBytes)
		}
	}
	var clean, killed times
	for range startRounds {
		check(t, s.Stop(ctx))
		clean.timed(func() {
			_, err := s.Start(ctx)
			check(t, err)
			stat()
		})
		s.logParts(t, "after a stop", clean[len(clean)-1])
	}
	// What a kill leaves to be recovered depends on when it comes: the number
	// of writes before it changes.
	for i := range startRounds {
		s.killUnderLoad(t, dirs, size(0, 1000, 12_000)*(i+1))
		killed.timed(func() {
			_, err := s.Start(ctx)
			check(t, err)
			stat()
		})
		s.logParts(t, "after a kill", killed[len(killed)-1])
	}
	t.Logf("%d files, %d disks: start to first stat\n\tafter a stop: %v\n\tafter a kill under load: %v", nFiles, nDisks, clean, killed)
	if most := time.Duration(bound(300, 1500)) * time.Millisecond; clean.at(1) > most {
		t.Errorf("after a stop it took %v; at most %v", clean.at(1), most)
	}
	if most := time.Duration(bound(3000, 6000)) * time.Millisecond; killed.at(1) > most {
		t.Errorf("after a kill it took %v; at most %v", killed.at(1), most)
	}
	check(t, s.Stop(ctx))
}

// fillDisks puts half of the files into the first disk and spreads the rest
// over the others. Each disk also has data in a segment.
func fillDisks(t *testing.T, h *volume.Host, nFiles, nDisks int) {
	t.Helper()
	for i := range nDisks {
		name := fmt.Sprintf("disk-%d", i)
		_, err := h.CreateDisk(ctx, me, name)
		check(t, err)
		session := attach(t, h, name)
		n := nFiles / 2
		if i > 0 {
			n /= nDisks - 1
		}
		makeTreeOf(t, session, max(n, 1), incompressible())
		put(t, session, volume.Root, "large", make([]byte, 64<<10))
		check(t, session.Detach(ctx))
	}
}

// killUnderLoad kills the server while programs make, overwrite and flush
// files on all mounts, once they have done n such things.
func (s *served) killUnderLoad(t *testing.T, dirs []string, n int) {
	t.Helper()
	var done atomic.Int64
	enough, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for _, dir := range dirs {
		for w := range startWriters {
			wg.Go(func() {
				work := fmt.Sprintf("%s/work-%d-%d", dir, w, n)
				if err := os.Mkdir(work, 0o755); err != nil {
					t.Error(err)
					cancel()
					return
				}
				for i := 0; writeSome(work, i) == nil; i++ { // until the server is gone
					if done.Add(1) == int64(n) {
						cancel()
					}
				}
				if enough.Err() == nil {
					t.Errorf("writing to %s failed before the kill", work)
					cancel()
				}
			})
		}
	}
	<-enough.Done()
	check(t, s.Kill())
	wg.Wait()
}

// writeSome makes a small file, now and then with a flush, or overwrites a
// part of a large one.
func writeSome(dir string, i int) error {
	if i%4 == 3 {
		f, err := os.OpenFile(filepath.Join(dir, "large"), os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteAt(make([]byte, 16<<10), int64(i%1000)*(10<<10))
		return err
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("file-%d", i)))
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = f.Write(make([]byte, fileBytes)); err == nil && i%64 == 0 {
		err = f.Sync()
	}
	return err
}

// logParts logs what the server says of its own start.
func (s *served) logParts(t *testing.T, what string, took time.Duration) {
	t.Helper()
	log, err := os.ReadFile(s.LogFile())
	check(t, err)
	var parts []string
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, `msg="opened the data directory"`) {
			parts = nil // another start
		}
		if _, after, ok := strings.Cut(strings.TrimSpace(line), " msg="); ok {
			parts = append(parts, after)
		}
	}
	t.Logf("%s: %v:\n\t%s", what, took.Round(time.Millisecond), strings.Join(parts, "\n\t"))
}
