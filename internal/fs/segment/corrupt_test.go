package segment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// damaged opens a store on a file with the given bytes and checks that every
// read gives right bytes or KindCorrupt, and that Check finds the damage.
func damaged(t *testing.T, what string, id tine.SegmentID, loc record.Segment, file, data []byte, live []Range) {
	t.Helper()
	mem := vfs.NewMem()
	s := openStore(t, Options{FS: mem})
	defer s.Close()
	if err := s.makeShard(id); err != nil {
		t.Fatal(err)
	}
	putBytes(t, mem, s.path(fileKey{id, loc.Generation}), file)
	wantCorrupt := func(err error) {
		t.Helper()
		if tine.KindOf(err) != tine.KindCorrupt || !strings.Contains(err.Error(), "segment") {
			t.Fatalf("%s: %v (%v)", what, err, tine.KindOf(err))
		}
	}
	err := s.Check(id, loc)
	if err == nil {
		t.Fatalf("%s: Check finds nothing", what)
	}
	wantCorrupt(err)
	h, err := s.Acquire(id, loc)
	if err != nil {
		wantCorrupt(err)
		return
	}
	defer h.Release()
	bad := 0
	p := make([]byte, BlockBytes)
	for _, l := range live {
		for off := l.Off; off < l.Off+l.Len; off += 5000 {
			q := p[:min(5000, l.Off+l.Len-off)]
			if err := h.ReadAt(q, off); err != nil {
				wantCorrupt(err)
				if !strings.Contains(err.Error(), id.String()) || !strings.Contains(err.Error(), h.f.path) {
					t.Fatalf("%s: %q does not say where", what, err)
				}
				bad++
			} else if !bytes.Equal(q, data[off:off+int64(len(q))]) {
				t.Fatalf("%s: wrong bytes served at %d", what, off)
			}
		}
	}
	if bad == 0 {
		t.Fatalf("%s: no read fails", what)
	}
}

// TestCorrupt flips every byte that is not payload, and a sample of those that
// are, in a segment as appended and in one repacked.
func TestCorrupt(t *testing.T) {
	mem := vfs.NewMem()
	s := openStore(t, Options{FS: mem})
	w := create(t, s)
	data := random(5*BlockBytes+333, 11)
	mustAppend(t, w, data)
	row := mustSeal(t, w)
	live := []Range{{0, 100}, {3 * BlockBytes, 2*BlockBytes + 333}}
	next, err := s.Repack(w.ID(), row, live)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		loc  record.Segment
		live []Range
	}{{row, []Range{{0, row.End}}}, {next, live}} {
		whole := fileBytes(t, mem, s.path(fileKey{w.ID(), c.loc.Generation}))
		for at := range whole {
			inBlock := (at - headerBytes) % blockPhysical
			payload := at >= headerBytes && inBlock > 1 && inBlock < BlockBytes-1 && at < len(whole)-trailerBytes-2*runBytes-6
			if payload && at%1499 != 0 {
				continue
			}
			b := bytes.Clone(whole)
			b[at] ^= 1 << (at % 8)
			damaged(t, fmt.Sprintf("generation %d, flip at %d", c.loc.Generation, at), w.ID(), c.loc, b, data, c.live)
		}
		for _, n := range []int{0, 10, headerBytes, headerBytes + 100, blockPhysical, len(whole) - trailerBytes - 1, len(whole) - 1} {
			damaged(t, fmt.Sprintf("generation %d, cut to %d", c.loc.Generation, n), w.ID(), c.loc, whole[:n], data, c.live)
		}
	}
}

// TestMisplaced puts good blocks where they do not belong.
func TestMisplaced(t *testing.T) {
	mem := vfs.NewMem()
	s := openStore(t, Options{FS: mem})
	block := func(b []byte, i int) []byte { return b[headerBytes+i*blockPhysical:][:blockPhysical] }
	var files [2][]byte
	var ws [2]*Writer
	var row record.Segment
	data := make([]byte, 4*BlockBytes) // all blocks alike but for their place
	for i := range files {
		ws[i] = create(t, s)
		mustAppend(t, ws[i], data)
		row = mustSeal(t, ws[i])
		files[i] = fileBytes(t, mem, s.path(fileKey{id: ws[i].ID()}))
	}
	live := []Range{{0, row.End}}
	swapped := bytes.Clone(files[0])
	copy(block(swapped, 1), block(files[0], 2))
	copy(block(swapped, 2), block(files[0], 1))
	damaged(t, "swapped blocks", ws[0].ID(), row, swapped, data, live)
	foreign := bytes.Clone(files[0])
	copy(block(foreign, 3), block(files[1], 3))
	damaged(t, "foreign block", ws[0].ID(), row, foreign, data, live)
	damaged(t, "foreign file", ws[0].ID(), row, files[1], data, live)
	hole := bytes.Clone(files[0])
	clear(block(hole, 2))
	damaged(t, "hole", ws[0].ID(), row, hole, data, live)
	other := row
	other.End--
	damaged(t, "other end", ws[0].ID(), other, files[0], data, live)
}

// TestRecoverFindsDamage damages what recovery looks at.
func TestRecoverFindsDamage(t *testing.T) {
	mem := vfs.NewMem()
	s := openStore(t, Options{FS: mem})
	w := create(t, s)
	mustAppend(t, w, random(3*BlockBytes+10, 12))
	h, err := w.Harden(w.End(), 0)
	if err != nil {
		t.Fatal(err)
	}
	loc := record.Segment{State: record.SegmentOpen, End: w.End(), Synced: h.Synced}
	w.Abandon()
	path := s.path(fileKey{id: w.ID()})
	good := fileBytes(t, mem, path)
	for _, at := range []int{20, headerBytes + 3*blockPhysical - 1, headerBytes + 2*blockPhysical} {
		b := bytes.Clone(good)
		b[at] ^= 1
		putBytes(t, mem, path, b)
		_, err := s.Recover(w.ID(), loc, h.Tails)
		wantKind(t, err, tine.KindCorrupt)
	}
	putBytes(t, mem, path, good[:len(good)-1])
	_, err = s.Recover(w.ID(), loc, h.Tails)
	wantKind(t, err, tine.KindCorrupt)
	putBytes(t, mem, path, good)
	if _, err = s.Recover(w.ID(), loc, h.Tails); err != nil {
		t.Fatal(err)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(header{id: newID(), generation: 3, created: -5}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == headerBytes {
			b = bytes.Clone(b)
			binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
		}
		h, err := decodeHeader(b)
		if err == nil && !bytes.Equal(h.encode(), b) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", b, h, h.encode())
		}
	})
}

func FuzzFooter(f *testing.F) {
	id := newID()
	for _, l := range []*layout{
		wholeLayout(0), wholeLayout(12345), newLayout([]run{{start: 1, count: 2}, {start: 4, count: 1}}, 5*BlockBytes-9),
	} {
		f.Add(l.encodeFooter(id, 7), l.physical)
	}
	f.Fuzz(func(t *testing.T, b []byte, physical int64) {
		if len(b) < trailerBytes || physical < 0 {
			return
		}
		// Make the checksum right, so that what lies behind it is reached.
		b = bytes.Clone(b)
		copy(b[len(b)-8:], trailerMagic)
		binary.LittleEndian.PutUint32(b[len(b)-12:], crc32.Checksum(b[:len(b)-12], castagnoli))
		tr, err := decodeTrailer(b[len(b)-trailerBytes:], physical)
		if err != nil {
			return
		}
		l, err := decodeFooter(b, tr)
		if err != nil {
			return
		}
		if got := l.encodeFooter(tr.id, tr.generation); !bytes.Equal(got, b) || l.physical != physical {
			t.Fatalf("%x decodes to %+v, which encodes to %x", b, l, got)
		}
		for _, r := range l.runs {
			if g, ok := find(l.runs, r.start+r.count-1); !ok || g != r {
				t.Fatalf("block %d is not found", r.start+r.count-1)
			}
			if _, ok := find(l.runs, r.start+r.count); ok {
				t.Fatalf("block %d is found", r.start+r.count)
			}
		}
	})
}
