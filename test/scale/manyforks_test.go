package scale_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/fusefs"
	"tine.dev/tine/internal/fs/volume"
)

const (
	mountedAtOnce = 100      // forks
	forkWrites    = 64 << 10 // bytes of the hot file that a fork overwrites, and of its new file
	hotBytes      = 1 << 20
)

// forkful is one fork of many, mounted for as long as there is room for it.
type forkful struct {
	name    string
	mount   *fusefs.Mount
	content []byte // of what it has written
	off     int64  // where in the hot file
}

// manyForks is one disk with a file that all its forks overwrite a part of.
type manyForks struct {
	t   *testing.T
	h   *volume.Host
	rnd *rand.Rand
	hot []byte
	dir string // of the mount points
	all []*forkful
}

func newManyForks(t *testing.T, seed uint64) *manyForks {
	t.Helper()
	t.Logf("seed %d", seed)
	m := &manyForks{t: t, h: newHost(t), rnd: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir()}
	_, err := m.h.CreateDisk(ctx, me, "disk")
	check(t, err)
	s := attach(t, m.h, "disk")
	m.hot = random(m.rnd, hotBytes)
	put(t, s, volume.Root, "hot", m.hot)
	for i := range 1000 {
		put(t, s, volume.Root, fmt.Sprintf("file-%d", i), random(m.rnd, 10_000))
	}
	check(t, s.Detach(ctx))
	check(t, m.h.ReclaimIdle(ctx))
	return m
}

func (m *manyForks) mount(f *forkful) {
	m.t.Helper()
	f.mount = mountUntil(m.t, m.h, f.name, filepath.Join(m.dir, f.name))
}

// write makes n forks, mounts each and writes to it; of those that are mounted
// one at random makes room for the next. It returns what a fork took.
func (m *manyForks) write(n int) (made times) {
	m.t.Helper()
	var open []*forkful
	m.t.Cleanup(func() {
		for _, f := range open { // those that a failure has left
			unmount(m.t, f.mount)
		}
	})
	for i := range n {
		if len(open) == mountedAtOnce {
			j := m.rnd.IntN(len(open))
			unmount(m.t, open[j].mount)
			open[j] = open[len(open)-1]
			open = open[:len(open)-1]
		}
		f := &forkful{name: fmt.Sprintf("fork-%d", i), content: random(m.rnd, forkWrites), off: m.rnd.Int64N(hotBytes - forkWrites)}
		made.timed(func() {
			fork(m.t, m.h, "disk", f.name)
			m.mount(f)
			open = append(open, f)
			f.write(m.t)
		})
		m.all = append(m.all, f)
	}
	for _, f := range open {
		f.look(m.t, m.hot)
		unmount(m.t, f.mount)
	}
	open = nil
	return made
}

// remove removes all forks in random order, and looks once more at some.
func (m *manyForks) remove() {
	m.t.Helper()
	n := len(m.all)
	m.rnd.Shuffle(n, func(i, j int) { m.all[i], m.all[j] = m.all[j], m.all[i] })
	for i, f := range m.all {
		if i%max(n/50, 1) == 0 {
			m.mount(f)
			f.look(m.t, m.hot)
			unmount(m.t, f.mount)
		}
		_, err := m.h.RemoveDisk(ctx, me, f.name, true)
		check(m.t, err)
	}
}

// TestWrittenForks forks one disk thousands of times, mounts each fork, overwrites
// a part of a file that all share and makes a new one; then removes the forks in
// random order. What they took is then free again, and the disk is what it was.
func TestWrittenForks(t *testing.T) {
	needFUSE(t)
	n := size(*written, 150, 10_000)
	m := newManyForks(t, 5)
	before := m.h.Stats()
	start := time.Now()
	made := m.write(n)
	full := m.h.Stats()
	t.Logf("%d forks made, mounted and written in %v, one: %v; %+v", n, time.Since(start).Round(time.Millisecond), made, full)
	compare(t, "to fork, mount and write", "the first hundred forks", made[:100], "the last hundred", made[n-100:], bound(2, 4))
	if least := int64(n) * 2 * forkWrites; full.LiveBytes < before.LiveBytes+least {
		t.Errorf("%d bytes are live, of which the forks have written %d", full.LiveBytes, least)
	}
	start = time.Now()
	m.remove()
	gone := time.Since(start)
	check(t, m.h.ReclaimIdle(ctx))
	after := m.h.Stats()
	t.Logf("removed in %v, space free after %v", gone.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
	held, took, left := space(before), space(full), space(after)
	t.Logf("space: %d before, %d with the forks, %d after; %+v", held, took, left, after)
	slack := int64(64 << 20)
	if !*long {
		slack = 8 << 20 // less than what the forks have taken
	}
	if limit := held + held/20 + slack; left > limit {
		t.Errorf("%d bytes of space are taken, %d before the forks; at most %d", left, held, limit)
	}
	if after.Lines != before.Lines || after.LiveBytes != before.LiveBytes {
		t.Errorf("%d lines and %d live bytes are left, before the forks there were %d and %d", after.Lines, after.LiveBytes, before.Lines, before.LiveBytes)
	}
	s := attach(t, m.h, "disk")
	if got := get(t, s, "hot"); got != string(m.hot) {
		t.Errorf("the disk's own file has changed")
	}
	check(t, s.Detach(ctx))
}

// space is what a host takes on the device.
func space(st volume.HostStats) int64 { return st.SegmentBytes + st.RowBytes }

func (f *forkful) write(t *testing.T) {
	t.Helper()
	w, err := os.OpenFile(filepath.Join(f.mount.Dir(), "hot"), os.O_WRONLY, 0)
	check(t, err)
	_, err = w.WriteAt(f.content, f.off)
	check(t, err)
	check(t, w.Close())
	check(t, os.WriteFile(filepath.Join(f.mount.Dir(), "new"), f.content, 0o644))
}

// look checks what the fork shows.
func (f *forkful) look(t *testing.T, hot []byte) {
	t.Helper()
	want := bytes.Clone(hot)
	copy(want[f.off:], f.content)
	for name, want := range map[string][]byte{"hot": want, "new": f.content} {
		got, err := os.ReadFile(filepath.Join(f.mount.Dir(), name))
		check(t, err)
		if !bytes.Equal(got, want) {
			t.Fatalf("%s shows other content in %q than was written", f.name, name)
		}
	}
}
