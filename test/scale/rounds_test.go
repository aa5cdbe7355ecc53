package scale_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// rounds is one disk through thousands of rounds of work, kept or taken back,
// with background work running beside.
type rounds struct {
	t    *testing.T
	h    *volume.Host
	s    *volume.Session // on the disk, for the look-ups
	rnd  *rand.Rand
	keep bool // the checkpoints
	i    int

	promote, rollback, present, absent times
}

const (
	roundFiles  = 200       // names of the disk
	roundWrites = 64        // how many of them the rounds overwrite
	roundBytes  = 128 << 10 // what a round writes
	roundLooks  = 20        // look-ups a round, of either kind
)

func newRounds(t *testing.T, keep bool) *rounds {
	t.Helper()
	const seed = 7
	t.Logf("seed %d", seed)
	r := &rounds{t: t, h: openHost(t, t.TempDir()), rnd: rand.New(rand.NewPCG(seed, 0)), keep: keep}
	_, err := r.h.CreateDisk(ctx, me, "disk")
	check(t, err)
	r.s = attach(t, r.h, "disk")
	t.Cleanup(r.close)
	for i := range roundFiles {
		put(t, r.s, volume.Root, fmt.Sprintf("file-%d", i), random(r.rnd, 10_000))
	}
	check(t, r.s.Sync(ctx))
	return r
}

// close ends it before the test does.
func (r *rounds) close() {
	if r.s != nil {
		check(r.t, r.s.Detach(ctx))
		check(r.t, r.h.Close(ctx))
		r.s = nil
	}
}

// work overwrites one file.
func (r *rounds) work(s *volume.Session) {
	put(r.t, s, volume.Root, fmt.Sprintf("file-%d", r.rnd.IntN(roundWrites)), random(r.rnd, roundBytes))
}

// round is one of either kind, and some look-ups.
func (r *rounds) round() {
	t, h := r.t, r.h
	r.i++
	r.promote.timed(func() {
		name := fmt.Sprintf("try-%d", r.i)
		fork(t, h, "disk", name)
		s := attach(t, h, name)
		r.work(s)
		check(t, s.Detach(ctx))
		_, err := h.Promote(ctx, me, name, "disk", false)
		check(t, err)
	})
	r.rollback.timed(func() {
		name := fmt.Sprintf("cp-%d", r.i)
		_, err := h.Checkpoint(ctx, me, "disk", name, "", volume.WaitRunnable)
		check(t, err)
		r.work(r.s)
		_, err = h.Rollback(ctx, me, "disk", name)
		check(t, err)
		if !r.keep {
			check(t, h.RemoveCheckpoint(ctx, me, "disk", name))
		}
	})
	for range roundLooks {
		r.present.timed(func() {
			_, _, err := r.s.Lookup(volume.Root, fmt.Sprintf("file-%d", r.rnd.IntN(roundFiles)))
			check(t, err)
		})
		r.absent.timed(func() {
			_, _, err := r.s.Lookup(volume.Root, fmt.Sprintf("none-%d", r.rnd.Uint32()))
			if tine.KindOf(err) != tine.KindNotFound {
				t.Fatalf("an absent name: %v", err)
			}
		})
	}
}

// window is a hundred rounds that are compared with another hundred.
const window = 100

// last are what the last hundred rounds took; each of d is one of n a round.
func (d times) last(n int) times { return d[len(d)-window*n:] }

// compareRounds compares the last hundred rounds of a disk with a long history
// with the last hundred of one with a short one. They were made in turn, so
// that what else the machine did fell on both.
func compareRounds(t *testing.T, young, old *rounds, most float64) {
	t.Helper()
	for _, c := range []struct {
		what       string
		young, old times
		each       int
	}{
		{"fork, write, promote", young.promote, old.promote, 1},
		{"checkpoint, write, rollback", young.rollback, old.rollback, 1},
		{"look-up of a present name", young.present, old.present, roundLooks},
		{"look-up of an absent name", young.absent, old.absent, roundLooks},
	} {
		compare(t, c.what, fmt.Sprintf("rounds %d to %d", young.i-window+1, young.i), c.young.last(c.each),
			fmt.Sprintf("rounds %d to %d", old.i-window+1, old.i), c.old.last(c.each), most)
	}
}

func testRounds(t *testing.T, keep bool) {
	n := size(*count, 300, 10_000)
	r := newRounds(t, keep)
	var most volume.HostStats
	start := time.Now()
	step := func() {
		r.round()
		if r.i%100 == 0 {
			st := r.h.Stats()
			most.Lines, most.Strata, most.Segments = max(most.Lines, st.Lines), max(most.Strata, st.Strata), max(most.Segments, st.Segments)
			most.PendingTasks, most.SegmentBytes = max(most.PendingTasks, st.PendingTasks), max(most.SegmentBytes, st.SegmentBytes)
			if r.i%1000 == 0 {
				t.Logf("round %d, %v: promote %v; rollback %v; %+v", r.i, time.Since(start).Round(time.Second),
					r.promote.last(1).median(), r.rollback.last(1).median(), st)
			}
		}
	}
	for r.i < n-window {
		step()
	}
	young := newRounds(t, keep)
	for range window {
		young.round()
	}
	for range window {
		step()
		young.round()
	}
	t.Logf("%d rounds of each kind in %v; the most seen on the way: %+v", n, time.Since(start).Round(time.Millisecond), most)
	compareRounds(t, young, r, bound(1.5, 3))
	young.close()

	var idle times
	idle.timed(func() { check(t, r.h.ReclaimIdle(ctx)) })
	st := r.h.Stats()
	t.Logf("background work after the last: %v; %+v", idle, st)
	if st.Lines > 10 || st.Strata > 20 {
		t.Errorf("%d lines and %d strata are left; a disk should be one level deep", st.Lines, st.Strata)
	}
	d, err := r.h.Disk(ctx, me, "disk")
	check(t, err)
	written := openForWriting(t)
	t.Logf("the disk: depth %d, strata %d; %d segments are open for writing", d.Depth, d.Strata, written)
	if written > 8 {
		t.Errorf("%d segments are still open for writing; one disk writes to one", written)
	}
	if d.Depth > 4 || d.Strata > 6 {
		t.Errorf("the disk is %d levels and %d strata deep", d.Depth, d.Strata)
	}
	if space, limit := st.SegmentBytes, st.LiveBytes+st.LiveBytes/20+4<<20; space > limit {
		t.Errorf("%d bytes of segments for %d live bytes; at most %d once the work is done", space, st.LiveBytes, limit)
	}
	if keep {
		return
	}
	// What the automatic checkpoints keep is live as well.
	space, limit := st.SegmentBytes+st.RowBytes, st.LiveBytes+st.LiveBytes/20+64<<20
	t.Logf("space: %d of segments + %d of rows for %d live; at most %d", st.SegmentBytes, st.RowBytes, st.LiveBytes, limit)
	if space > limit {
		t.Errorf("%d bytes of space for %d live bytes; at most %d", space, st.LiveBytes, limit)
	}
	if named := int64(roundFiles+4*roundWrites) * roundBytes; st.LiveBytes > named {
		t.Errorf("%d bytes are live; the disk and its undo can name %d at most", st.LiveBytes, named)
	}
}

// openForWriting counts the segment files that this process can write to.
func openForWriting(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	n := 0
	for _, fd := range fds {
		target, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err != nil || !strings.Contains(target, "/segments/") {
			continue
		}
		info, err := os.ReadFile("/proc/self/fdinfo/" + fd.Name())
		check(t, err)
		if _, flags, ok := strings.Cut(string(info), "flags:\t"); ok {
			flags, _, _ = strings.Cut(flags, "\n")
			mode, err := strconv.ParseUint(strings.TrimSpace(flags), 8, 64)
			check(t, err)
			if mode&3 != 0 { // O_WRONLY or O_RDWR
				n++
			}
		}
	}
	return n
}

func TestRoundsCheckpointsDeleted(t *testing.T) { testRounds(t, false) }
func TestRoundsCheckpointsKept(t *testing.T)    { testRounds(t, true) }
