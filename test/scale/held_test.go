package scale_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/volume"
)

// held is a disk whose first state is kept by a checkpoint.
type held struct {
	t     *testing.T
	h     *volume.Host
	s     *volume.Session
	rnd   *rand.Rand
	sizes []int
	seeds []uint64 // of each file's content
}

// content is what a file has, which follows from its seed and size.
func (d *held) content(i int) []byte {
	p := make([]byte, d.sizes[i])
	fill(p, d.seeds[i], 0)
	return p
}

func (d *held) name(i int) string { return fmt.Sprintf("file-%d", i) }

// rewrite gives a file other content in one of the ways that programs have.
func (d *held) rewrite(i int) {
	d.t.Helper()
	d.seeds[i] = d.rnd.Uint64()
	p := d.content(i)
	switch d.rnd.IntN(3) {
	case 0: // over the old content, piece by piece
		_, n, err := d.s.Lookup(volume.Root, d.name(i))
		check(d.t, err)
		f, err := d.s.Open(n)
		check(d.t, err)
		for off := 0; off < len(p); off += 64 << 10 {
			_, err := f.WriteAt(root, p[off:min(off+64<<10, len(p))], int64(off))
			check(d.t, err)
		}
		check(d.t, f.Close())
	case 1: // a new file in the place of the old one
		put(d.t, d.s, volume.Root, "new", p)
		check(d.t, d.s.Rename(root, volume.Root, "new", volume.Root, d.name(i), 0))
	case 2: // the old one removed first
		check(d.t, d.s.Unlink(root, volume.Root, d.name(i)))
		put(d.t, d.s, volume.Root, d.name(i), p)
	}
}

// same checks that a disk or checkpoint shows files of given seeds.
func (d *held) same(s *volume.Session, seeds []uint64) {
	d.t.Helper()
	now := &held{sizes: d.sizes, seeds: seeds}
	for i := range d.sizes {
		if got := get(d.t, s, d.name(i)); got != string(now.content(i)) {
			d.t.Fatalf("%s shows other content than was written", d.name(i))
		}
	}
}

// TestHeldCheckpoint rewrites a whole tree again and again while a checkpoint
// holds its first state: that costs the first state and the newest one, and
// never more than twice the newest on the way.
func TestHeldCheckpoint(t *testing.T) {
	n, rounds := size(*heldFiles, 200, 3000), size(*rewrites, 8, 20)
	const seed = 9
	t.Logf("seed %d", seed)
	d := &held{t: t, h: newHost(t), rnd: rand.New(rand.NewPCG(seed, 0))}
	_, err := d.h.CreateDisk(ctx, me, "disk")
	check(t, err)
	d.s = attach(t, d.h, "disk")
	live := int64(0)
	for i := range n {
		size := 1 + d.rnd.IntN(4<<10) // most files are small, most bytes in large ones
		if i%4 == 0 {
			size = 1 + d.rnd.IntN(1<<20)
		}
		d.sizes, d.seeds, live = append(d.sizes, size), append(d.seeds, d.rnd.Uint64()), live+int64(size)
		put(t, d.s, volume.Root, d.name(i), d.content(i))
	}
	_, err = d.h.Checkpoint(ctx, me, "disk", "old", "", volume.WaitDurable)
	check(t, err)
	check(t, d.h.ReclaimIdle(ctx))
	old := space(d.h.Stats())
	first := append([]uint64(nil), d.seeds...)
	limit := old + 2*live
	if !*long {
		limit += 64 << 20 // rows and an open segment are large beside such a tree
	}
	t.Logf("%d files, %d bytes; the old state takes %d", n, live, old)
	busiest := int64(0)
	start := time.Now()
	for round := range rounds {
		for k, i := range d.rnd.Perm(n) {
			d.rewrite(i)
			if k%max(n/10, 1) == 0 {
				busiest = max(busiest, space(d.h.Stats()))
			}
		}
		check(t, d.s.Sync(ctx))
		busy := space(d.h.Stats())
		check(t, d.h.ReclaimIdle(ctx))
		st := d.h.Stats()
		t.Logf("rewritten %d times, %v: %d bytes of space, %d once background work was idle; %d are live", round+1,
			time.Since(start).Round(time.Millisecond), busy, space(st), st.LiveBytes)
		if space(st) > limit {
			t.Errorf("rewritten %d times: %d bytes of space are taken; at most %d", round+1, space(st), limit)
		}
	}
	t.Logf("the most space on the way: %d, %.2f times the limit of %d", busiest, float64(busiest)/float64(limit), limit)
	d.same(d.s, d.seeds)
	check(t, d.s.Detach(ctx))
	s, err := d.h.Attach(ctx, me, volume.Ref{Disk: "disk", Checkpoint: "old"}, volume.AttachOptions{ReadOnly: true})
	check(t, err)
	d.same(s, first)
	check(t, s.Detach(ctx))
}
