package scale_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/btree"
	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/fs/volume"
)

// sparse is a file that is nearly all hole, at a mount, beside a model of it.
type sparse struct {
	t     *testing.T
	f     *os.File
	rnd   *rand.Rand
	model extents
	size  int64
	hot   []int64 // places that are written near again and again
}

const (
	sparseSize  = 1 << 40
	sparseWrite = 16 << 10 // bytes of a write at most
	sparseHot   = 64       // places; a quarter of the writes goes near one
)

// extents is the model: what was written, by its first byte. Extents do not
// overlap; each remembers the write that it is from.
type extents struct{ m btree.Map[int64, extent] }

type extent struct {
	end   int64
	write uint64 // see pattern
}

// cut takes [from, to) away.
func (x *extents) cut(from, to int64) {
	if start, e, ok := x.before(from); ok && e.end > from {
		x.m.Set(start, extent{from, e.write})
		if e.end > to {
			x.m.Set(to, e)
			return
		}
	}
	var gone []int64
	var rest extent
	x.m.Ascend(from, func(at int64, e extent) bool {
		if at >= to {
			return false
		}
		gone, rest = append(gone, at), e
		return true
	})
	for _, at := range gone {
		x.m.Delete(at)
	}
	if rest.end > to {
		x.m.Set(to, rest)
	}
}

// before returns the extent that starts last before a byte.
func (x *extents) before(at int64) (start int64, e extent, ok bool) {
	x.m.Descend(at-1, func(s int64, v extent) bool {
		start, e, ok = s, v, true
		return false
	})
	return start, e, ok
}

// fill puts into p what write has at off; the bytes follow from both.
func fill(p []byte, write uint64, off int64) {
	var word [8]byte
	for i := 0; i < len(p); {
		at := off + int64(i)
		binary.LittleEndian.PutUint64(word[:], (write+1)*0x9e3779b97f4a7c15^uint64(at>>3)*0xbf58476d1ce4e5b9|1)
		i += copy(p[i:], word[at&7:])
	}
}

// write writes at a random place, or near one of a few.
func (s *sparse) write(n uint64) {
	length := 1 + s.rnd.Int64N(sparseWrite)
	off := s.rnd.Int64N(s.size - length)
	if s.rnd.IntN(4) == 0 {
		off = s.hot[s.rnd.IntN(len(s.hot))] + s.rnd.Int64N(8*sparseWrite)
	}
	p := make([]byte, length)
	fill(p, n, off)
	_, err := s.f.WriteAt(p, off)
	check(s.t, err)
	s.model.cut(off, off+length)
	s.model.m.Set(off, extent{off + length, n})
}

// punch makes a hole: a small one somewhere in what was written, or up to a
// gigabyte anywhere.
func (s *sparse) punch() {
	length := 1 + s.rnd.Int64N(1<<30)
	off := s.rnd.Int64N(s.size - length)
	if s.rnd.IntN(2) == 0 {
		length = 1 + s.rnd.Int64N(2*sparseWrite)
		s.model.m.Ascend(off, func(at int64, _ extent) bool {
			off = at + s.rnd.Int64N(sparseWrite) - sparseWrite/2
			return false
		})
		off = min(max(off, 0), s.size-length)
	}
	check(s.t, unix.Fallocate(int(s.f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, length))
	s.model.cut(off, off+length)
}

func (s *sparse) truncate(size int64) {
	check(s.t, s.f.Truncate(size))
	if size < s.size {
		s.model.cut(size, s.size)
	}
	s.size = size
}

// run is a stretch of data, or of extents that touch.
type run struct{ from, to int64 }

// runs are the stretches of data in the model.
func (s *sparse) runs() (rs []run) {
	s.model.m.Scan(func(at int64, e extent) bool {
		if n := len(rs); n > 0 && rs[n-1].to == at {
			rs[n-1].to = e.end
		} else {
			rs = append(rs, run{at, e.end})
		}
		return true
	})
	return rs
}

// checkSeek walks the file by SEEK_DATA and SEEK_HOLE and holds each answer
// against the model.
func (s *sparse) checkSeek() {
	s.t.Helper()
	at := int64(0)
	rs := s.runs()
	for _, r := range rs {
		from, err := unix.Seek(int(s.f.Fd()), at, unix.SEEK_DATA)
		check(s.t, err)
		to, err := unix.Seek(int(s.f.Fd()), from, unix.SEEK_HOLE)
		check(s.t, err)
		if from != r.from || to != r.to {
			s.t.Fatalf("from byte %d on, data is said to be at [%d, %d); it is at [%d, %d)", at, from, to, r.from, r.to)
		}
		at = to
	}
	if at < s.size {
		if from, err := unix.Seek(int(s.f.Fd()), at, unix.SEEK_DATA); !errors.Is(err, syscall.ENXIO) {
			s.t.Fatalf("after the last data, at byte %d, SEEK_DATA gives %d, %v", at, from, err)
		}
		to, err := unix.Seek(int(s.f.Fd()), at, unix.SEEK_HOLE)
		check(s.t, err)
		if to != at {
			s.t.Fatalf("SEEK_HOLE in the last hole, at byte %d, gives %d", at, to)
		}
	}
	// At places inside of holes and data.
	for range 1000 {
		at := s.rnd.Int64N(s.size)
		wantData, wantHole := int64(-1), at
		for lo, hi := 0, len(rs); ; {
			if lo == hi {
				if lo < len(rs) {
					wantData = max(at, rs[lo].from)
					if rs[lo].from <= at {
						wantHole = rs[lo].to
					}
				}
				break
			}
			if mid := (lo + hi) / 2; rs[mid].to <= at {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		data, err := unix.Seek(int(s.f.Fd()), at, unix.SEEK_DATA)
		if wantData < 0 && !errors.Is(err, syscall.ENXIO) || wantData >= 0 && (err != nil || data != wantData) {
			s.t.Fatalf("SEEK_DATA at byte %d gives %d, %v; want %d", at, data, err, wantData)
		}
		hole, err := unix.Seek(int(s.f.Fd()), at, unix.SEEK_HOLE)
		if err != nil || hole != wantHole {
			s.t.Fatalf("SEEK_HOLE at byte %d gives %d, %v; want %d", at, hole, err, wantHole)
		}
	}
}

// checkContent reads all data with what surrounds it, and some of the holes.
func (s *sparse) checkContent() (bytesRead int64) {
	s.t.Helper()
	for _, r := range s.runs() {
		s.compare(max(r.from-100, 0), min(r.to+100, s.size))
		bytesRead += r.to - r.from
	}
	for range 1000 {
		at := s.rnd.Int64N(s.size)
		s.compare(at, min(at+1<<16, s.size))
	}
	st, err := s.f.Stat()
	check(s.t, err)
	if st.Size() != s.size {
		s.t.Fatalf("the file has %d bytes, want %d", st.Size(), s.size)
	}
	if blocks := st.Sys().(*syscall.Stat_t).Blocks * 512; blocks < bytesRead || blocks > bytesRead+512 {
		s.t.Fatalf("the file is said to take %d bytes; %d were written", blocks, bytesRead)
	}
	return bytesRead
}

// compare reads [from, to) and holds it against the model.
func (s *sparse) compare(from, to int64) {
	s.t.Helper()
	want, got := make([]byte, to-from), make([]byte, to-from)
	put := func(at int64, e extent) {
		a, b := max(at, from), min(e.end, to)
		if a < b {
			fill(want[a-from:b-from], e.write, a)
		}
	}
	if at, e, ok := s.model.before(from); ok {
		put(at, e)
	}
	s.model.m.Ascend(from, func(at int64, e extent) bool {
		if at < to {
			put(at, e)
		}
		return at < to
	})
	_, err := s.f.ReadAt(got, from)
	check(s.t, err)
	if !bytes.Equal(got, want) {
		i := 0
		for got[i] == want[i] {
			i++
		}
		s.t.Fatalf("byte %d is %#x, want %#x", from+int64(i), got[i], want[i])
	}
}

// TestSparse writes at random into a file of a terabyte, makes holes, cuts and
// extends it, and after each of that looks at where its data is and what it is;
// then once more after a restart, and in a checkpoint.
func TestSparse(t *testing.T) {
	needFUSE(t)
	n := size(*writes, 2000, 100_000)
	const seed = 11
	t.Logf("seed %d", seed)
	dir := t.TempDir()
	h := openHost(t, dir)
	_, err := h.CreateDisk(ctx, me, "disk")
	check(t, err)
	m := mountOn(t, h, "disk")
	name := filepath.Join(m.Dir(), "sparse")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	check(t, err)
	s := &sparse{t: t, f: f, rnd: rand.New(rand.NewPCG(seed, 0))}
	s.truncate(sparseSize)
	for range sparseHot {
		s.hot = append(s.hot, s.rnd.Int64N(sparseSize-16*sparseWrite))
	}
	look := func(what string) {
		t.Helper()
		start := time.Now()
		s.checkSeek()
		sought := time.Since(start)
		bytes := s.checkContent()
		t.Logf("%s: %d stretches of data, %d bytes; sought in %v, read in %v", what, len(s.runs()), bytes,
			sought.Round(time.Millisecond), (time.Since(start) - sought).Round(time.Millisecond))
	}
	start := time.Now()
	for i := range n {
		s.write(uint64(i))
	}
	check(t, f.Sync())
	t.Logf("%d writes, synced, in %v", n, time.Since(start).Round(time.Millisecond))
	look("written")
	_, err = h.Checkpoint(ctx, me, "disk", "written", "", volume.WaitDurable)
	check(t, err)
	then := extents{*s.model.m.Copy()}
	for range n / 20 {
		s.punch()
	}
	look("punched")
	// Cut, and extended: what was cut off does not come back.
	s.truncate(sparseSize/2 + 12345)
	look("cut")
	s.truncate(sparseSize)
	for i := range n / 20 {
		s.write(uint64(n + i))
	}
	look("extended and written again")

	check(t, f.Close())
	unmount(t, m)
	check(t, h.ReclaimIdle(ctx))
	st := h.Stats()
	t.Logf("space: %d bytes of segments for %d live", st.SegmentBytes, st.LiveBytes)
	check(t, h.Close(ctx))
	h = openHost(t, dir)
	t.Cleanup(func() { check(t, h.Close(ctx)) })
	s.f, err = os.OpenFile(filepath.Join(mount(t, h, "disk"), "sparse"), os.O_RDWR, 0)
	check(t, err)
	look("after a restart")
	check(t, s.f.Close())
	s.f, err = os.Open(filepath.Join(mount(t, h, "disk@written"), "sparse"))
	check(t, err)
	s.model = then
	look("as the checkpoint shows it")
	check(t, s.f.Close())
}
