package object

import (
	"bytes"
	"context"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/mem"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/tine"
)

// golden is the segment whose object lies in testdata: 18 full blocks and 40
// bytes, of which a repack has left block 0, which compresses, and the last two,
// which do not.
func golden() *model {
	m := &model{generation: 3, data: make([]byte, 18*segment.BlockBytes+40)}
	copy(m.id[:], "\x01\x8b\xcf\xe5\x68\x00\x70\x00\x80\x00segmnt")
	for i := range m.data {
		m.data[i] = byte(i / 1000)
	}
	seed := uint32(1)
	for i := 17 * segment.BlockBytes; i < len(m.data); i++ {
		seed = seed*1664525 + 1013904223
		m.data[i] = byte(seed >> 24)
	}
	m.present = []segment.Range{{Off: 0, Len: segment.BlockBytes}, {Off: 17 * segment.BlockBytes, Len: segment.BlockBytes + 40}}
	return m
}

// readGolden returns the object of testdata/v1.hex: lines of hexadecimal, with
// remarks after a "#". A line "noise" stands for the payload that does not
// compress.
func readGolden(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/v1.hex")
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.Join(strings.Fields(line), "")
		if line == "noise" {
			out = append(out, golden().data[17*segment.BlockBytes:]...)
			continue
		}
		b, err := hex.DecodeString(line)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
	}
	return out
}

// putGolden puts the object of testdata into a store.
func putGolden(t testing.TB, d blob.Driver) *Store {
	t.Helper()
	s := newStore(t, d, once(1))
	m := golden()
	if _, err := s.blobs.Put(context.Background(), Key(m.id, m.generation), bytes.NewReader(readGolden(t)), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestGolden reads the object that testdata has, with every version of this
// program, and checks that what is written now is the same but for what
// another compressor would make of it.
func TestGolden(t *testing.T) {
	m := golden()
	s := putGolden(t, mem.New(mem.Options{}))
	r := open(t, s, m, 0)
	for _, p := range m.present {
		read(t, r, m, p.Off, p.Len)
	}
	if _, err := s.Verify(context.Background(), m.id, m.generation); err != nil {
		t.Fatal(err)
	}
	if info := write(t, s, m); !info.Found {
		t.Fatal("the writer does not know the object for its own")
	}
	file := readGolden(t)
	if end := r.index.encodeEnd(); !bytes.HasSuffix(file, end) || !bytes.HasPrefix(file, r.index.encodeHeader()) {
		t.Fatal("header or index are encoded otherwise")
	}
	fresh, err := s.build(context.Background(), r.place, m)
	if err != nil {
		t.Fatal(err)
	}
	now := make([]byte, fresh.Size())
	if _, err := fresh.ReadAt(now, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(now, file) {
		t.Errorf("the object is written otherwise than in testdata/v1.hex; if only the compressor is new, renew it:\n%s", hex.Dump(now[:200]))
	}
}

// TestEveryBit changes one bit in each byte of an object: Verify finds it, and
// a reader finds it or gets the right bytes.
func TestEveryBit(t *testing.T) {
	m := golden()
	object := readGolden(t)
	w := &watch{Driver: mem.New(mem.Options{})}
	putGolden(t, w)
	ctx := context.Background()
	step := 1
	if testing.Short() {
		step = 7
	}
	harmless := 0
	for at := 0; at < len(object); at += step {
		if at == 400 {
			at = len(object) - 400 // in between there is only noise, which the first of it stands for
		}
		w.mu.Lock()
		w.alter = func(_ blob.Key, off int64, b []byte) {
			if i := int64(at) - off; i >= 0 && i < int64(len(b)) {
				b[i] ^= 1 << (at % 8)
			}
		}
		w.mu.Unlock()
		s := newStore(t, w, once(1))
		if _, err := s.Verify(ctx, m.id, m.generation); err == nil {
			t.Fatalf("Verify does not see a change of byte %d", at)
		}
		r, err := s.Open(ctx, m.id, m.generation, 0)
		if err != nil {
			continue
		}
		fine := true
		for _, p := range m.present {
			b := make([]byte, p.Len)
			if err := r.ReadAt(ctx, b, p.Off); err != nil {
				fine = false
			} else if !bytes.Equal(b, m.data[p.Off:p.Off+p.Len]) {
				t.Fatalf("a change of byte %d gives wrong bytes", at)
			}
		}
		if fine {
			harmless++
		}
	}
	if harmless > headerBytes {
		t.Fatalf("%d changes were harmless; there are %d bytes of header, which readers do not look at", harmless, headerBytes)
	}
}

func TestUnknownFormats(t *testing.T) {
	whole := readGolden(t)
	end := whole[len(whole)-2*entryBytes-trailerBytes:]
	for _, at := range []int{6, 7} { // codec, cipher
		b := bytes.Clone(end)
		b[at] = 2
		_, err := decodeEnd(resum(b), 0)
		wantKind(t, err, tine.KindVersion)
	}
	x, err := decodeEnd(end, int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	h := x.encodeHeader()
	h[8]++
	wantKind(t, x.checkHeader(h), tine.KindCorrupt)
	putSum(h[:60], h[60:])
	wantKind(t, x.checkHeader(h), tine.KindVersion)
	other := *x
	other.generation++
	wantKind(t, x.checkHeader(other.encodeHeader()), tine.KindCorrupt)
}

// resum makes the checksum of an end right.
func resum(b []byte) []byte {
	putSum(b[:len(b)-12], b[len(b)-12:])
	return b
}

func putSum(b, to []byte) {
	sum := checksum(b)
	for i := range 4 {
		to[i] = byte(sum >> (8 * i))
	}
}

// FuzzDecodeEnd holds the decoder to what it takes: encoded again, it is the
// same bytes; what it says is there can be counted and asked for.
func FuzzDecodeEnd(f *testing.F) {
	whole := readGolden(f)
	f.Add(whole[len(whole)-2*entryBytes-trailerBytes:])
	empty := index{}
	f.Add(empty.encodeEnd())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if b = bytes.Clone(b); len(b) >= trailerBytes {
			resum(b) // or the checksum would stop all
		}
		x, err := decodeEnd(b, 0)
		if err != nil {
			return
		}
		if again := (&index{id: x.id, generation: x.generation, end: x.end, frames: x.frames}).encodeEnd(); !bytes.Equal(again, b) {
			t.Fatalf("%x is read and encoded as %x", b, again)
		}
		sum := int64(0)
		y := &index{end: x.end}
		for _, r := range x.present() {
			sum += r.Len
			if err := y.mark(r); err != nil {
				t.Fatal(err)
			}
		}
		for i, fr := range x.frames {
			sum -= fr.payload(x.end)
			if y.frames[i].window != fr.window || y.frames[i].present != fr.present {
				t.Fatalf("frame %d is %+v, then %+v", i, fr, y.frames[i])
			}
		}
		if sum != 0 {
			t.Fatalf("the ranges and the frames differ by %d bytes", sum)
		}
	})
}
