package scale_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// depthFiles is how many files the disk at the bottom has besides a directory.
const depthFiles = 6000

// deepen makes a disk with some files and forks of forks of it, as many levels
// deep, writing something in each.
func deepen(t *testing.T, h *volume.Host, depth int) {
	t.Helper()
	const perLevel = 3
	_, err := h.CreateDisk(ctx, me, "level-0")
	check(t, err)
	s := attach(t, h, "level-0")
	for i := range depthFiles {
		put(t, s, volume.Root, fmt.Sprintf("file-%d", i), []byte("at the bottom"))
	}
	_, list, err := s.Mkdir(root, volume.Root, "list", 0o755)
	check(t, err)
	for i := range 500 {
		put(t, s, list, fmt.Sprintf("entry-%d", i), nil)
	}
	check(t, s.Detach(ctx))
	for level := 1; level <= depth; level++ {
		name := fmt.Sprintf("level-%d", level)
		fork(t, h, fmt.Sprintf("level-%d", level-1), name)
		s := attach(t, h, name)
		for i := range perLevel {
			put(t, s, volume.Root, fmt.Sprintf("%s-%d", name, i), []byte(name))
		}
		check(t, s.Detach(ctx))
	}
}

// TestDepth is F7's first half: look-ups and listings in a fork of forks,
// every one of which is a disk of its own, with something written in each.
func TestDepth(t *testing.T) {
	needFUSE(t)
	depth := size(*deep, 100, 100)
	dir := t.TempDir()
	h := openHost(t, dir)
	deepen(t, h, depth)
	// Opened again, the rows lie in tables and not in memory.
	check(t, h.ReclaimIdle(ctx))
	check(t, h.Close(ctx))
	h = openHost(t, dir)
	t.Cleanup(func() { check(t, h.Close(ctx)) })
	check(t, h.ReclaimIdle(ctx))
	dirs := map[int]string{1: mount(t, h, "level-1"), depth: mount(t, h, fmt.Sprintf("level-%d", depth))}
	for level, dir := range dirs {
		d, err := h.Disk(ctx, me, fmt.Sprintf("level-%d", level))
		check(t, err)
		t.Logf("level %d: depth %d, strata %d", level, d.Depth, d.Strata)
		for k := 1; k <= level; k++ {
			name := fmt.Sprintf("level-%d", k)
			p, err := os.ReadFile(filepath.Join(dir, name+"-0"))
			if err != nil || string(p) != name {
				t.Fatalf("at level %d, the file of level %d: %q, %v", level, k, p, err)
			}
		}
	}

	looks := map[int]*depthTimes{1: {}, depth: {}}
	for i := range depthFiles / 2 { // in turn, so that what else the machine does falls on both
		for level, dir := range dirs {
			looks[level].look(t, dir, i)
		}
	}
	for range 40 {
		for level, dir := range dirs {
			looks[level].list(t, h, dir, level)
		}
	}
	a, b := looks[1], looks[depth]
	name := fmt.Sprintf("depth %d", depth)
	compare(t, "look-up of a present name", "depth 1", a.present, name, b.present, bound(2, 3))
	compare(t, "look-up of an absent name", "depth 1", a.absent, name, b.absent, bound(2, 3))
	compare(t, "listing of 500 names", "depth 1", a.listing, name, b.listing, bound(2, 3))
	t.Logf("%+v", h.Stats())
}

// TestDeeper holds look-ups and reads at ten times that depth, where no mount
// hides what they cost, against those at depth 1.
func TestDeeper(t *testing.T) {
	depth := size(*deeper, 200, 1000)
	dir := t.TempDir()
	h := openHost(t, dir)
	start := time.Now()
	deepen(t, h, depth)
	t.Logf("%d levels made in %v", depth, time.Since(start).Round(time.Millisecond))
	check(t, h.ReclaimIdle(ctx))
	check(t, h.Close(ctx))
	h = openHost(t, dir)
	t.Cleanup(func() { check(t, h.Close(ctx)) })
	check(t, h.ReclaimIdle(ctx))
	levels := []int{1, depth}
	sessions, looks := map[int]*volume.Session{}, map[int]*depthTimes{}
	for _, level := range levels {
		s := attach(t, h, fmt.Sprintf("level-%d", level))
		t.Cleanup(func() { check(t, s.Detach(ctx)) })
		sessions[level], looks[level] = s, &depthTimes{}
		for k := 1; k <= level; k++ {
			name := fmt.Sprintf("level-%d", k)
			if got := get(t, s, name+"-0"); got != name {
				t.Fatalf("at level %d, the file of level %d has %q", level, k, got)
			}
		}
	}
	for i := range depthFiles / 2 {
		for _, level := range levels {
			looks[level].ask(t, sessions[level], i)
		}
	}
	for range 40 {
		for _, level := range levels {
			looks[level].list(t, h, "", level)
		}
	}
	a, b := looks[1], looks[depth]
	name := fmt.Sprintf("depth %d", depth)
	compare(t, "look-up of a present name", "depth 1", a.present, name, b.present, bound(5, 10))
	compare(t, "look-up of an absent name", "depth 1", a.absent, name, b.absent, bound(5, 10))
	compare(t, "open and read of a file", "depth 1", a.reading, name, b.reading, bound(5, 10))
	compare(t, "listing of 500 names", "depth 1", a.listing, name, b.listing, bound(5, 10))
	t.Logf("%+v", h.Stats())
}

// ask looks up names and reads a file through a session.
func (d *depthTimes) ask(t *testing.T, s *volume.Session, i int) {
	t.Helper()
	var n volume.Node
	d.present.timed(func() {
		var err error
		_, n, err = s.Lookup(volume.Root, fmt.Sprintf("file-%d", i))
		check(t, err)
	})
	d.absent.timed(func() {
		if _, _, err := s.Lookup(volume.Root, fmt.Sprintf("none-%d", i)); tine.KindOf(err) != tine.KindNotFound {
			t.Fatalf("an absent name: %v", err)
		}
	})
	d.reading.timed(func() {
		f, err := s.Open(n)
		check(t, err)
		p := make([]byte, 64)
		got, err := f.ReadAt(p, 0)
		check(t, err)
		if string(p[:got]) != "at the bottom" {
			t.Fatalf("file-%d has %q", i, p[:got])
		}
		check(t, f.Close())
	})
}

type depthTimes struct{ present, absent, reading, listing times }

// look looks up names that the kernel has not heard of.
func (d *depthTimes) look(t *testing.T, dir string, i int) {
	d.present.timed(func() {
		_, err := os.Lstat(filepath.Join(dir, fmt.Sprintf("file-%d", i)))
		check(t, err)
	})
	d.absent.timed(func() {
		if _, err := os.Lstat(filepath.Join(dir, fmt.Sprintf("none-%d", i))); !errors.Is(err, syscall.ENOENT) {
			t.Fatalf("an absent name: %v", err)
		}
	})
}

// list lists a directory as a session does: the kernel would answer a second
// listing by itself.
func (d *depthTimes) list(t *testing.T, h *volume.Host, dir string, level int) {
	s := attach(t, h, fmt.Sprintf("level-%d", level))
	defer s.Detach(ctx)
	_, n, err := s.Lookup(volume.Root, "list")
	check(t, err)
	d.listing.timed(func() {
		names := 0
		eachName(t, s, n, func(name string) {
			if !strings.HasPrefix(name, "entry-") {
				t.Errorf("%s lists %q", dir, name)
			}
			names++
		})
		if names != 500 {
			t.Errorf("level %d lists %d names, want 500", level, names)
		}
	})
}
