package blobtest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/faulty"
	"tine.dev/tine/internal/tine"
)

// noise returns n bytes that do not repeat.
func noise(rng *rand.Rand, n int64) []byte {
	p := make([]byte, n+8)
	for i := int64(0); i < n; i += 8 {
		v := rng.Uint64()
		for j := range int64(8) {
			p[i+j] = byte(v >> (8 * j))
		}
	}
	return p[:n]
}

func ranges(w *world) {
	rng := random(w.T)
	data := noise(rng, 100_000)
	w.must1(w.Put(w.Context(), "k", bytes.NewReader(data), blob.Condition{}))
	size := int64(len(data))
	for _, r := range [][2]int64{{0, 1}, {size - 1, 1}, {0, size}, {1, size - 1}, {size / 2, 0}, {size - 1, 0}, {4096, 8192}} {
		w.sameRange("k", data, blob.Range{Offset: r[0], Length: r[1]})
	}
	for range 20 {
		off := rng.Int64N(size)
		w.sameRange("k", data, blob.Range{Offset: off, Length: 1 + rng.Int64N(size-off)})
	}
	for _, r := range [][2]int64{{0, size + 1}, {size - 1, 2}, {size, 0}, {size, 1}, {size + 1, 0}, {10 * size, 5}} {
		_, _, err := w.Get(w.Context(), "k", blob.Range{Offset: r[0], Length: r[1]}, "")
		w.want(tine.KindRange, err)
	}
	for _, r := range [][2]int64{{-1, 0}, {0, -1}, {-5, 5}} {
		_, _, err := w.Get(w.Context(), "k", blob.Range{Offset: r[0], Length: r[1]}, "")
		w.want(tine.KindInvalid, err)
	}
	w.must1(w.put("empty", "", blob.Condition{}))
	w.have("empty", "")
	_, _, err := w.Get(w.Context(), "empty", blob.Range{Length: 1}, "")
	w.want(tine.KindRange, err)
	_, _, err = w.Get(w.Context(), "nothing", blob.Range{Length: 1}, "")
	w.want(tine.KindNotFound, err)
	small := w.opt
	small.MaxGetBytes = 99_999
	s := open(w.T, w.place, small)
	_, _, err = s.Get(w.Context(), "k", blob.Range{}, "")
	w.want(tine.KindTooBig, err)
	_, _, err = s.Get(w.Context(), "k", blob.Range{Offset: 1}, "")
	w.must(err)
}

func (w *world) sameRange(key blob.Key, data []byte, r blob.Range) {
	w.Helper()
	got, info, err := w.Get(w.Context(), key, r, "")
	w.must(err)
	want := data[r.Offset:]
	if r.Length > 0 {
		want = want[:r.Length]
	}
	if !bytes.Equal(got, want) {
		w.Fatalf("range %+v: %d bytes, not the %d right ones", r, len(got), len(want))
	}
	if info.Size != int64(len(data)) {
		w.Fatalf("range %+v: the object is said to have %d bytes of %d", r, info.Size, len(data))
	}
}

// partBytes is the size of the parts that the suite uses.
func (w *world) partBytes() int64 {
	d := w.place(w.T)
	defer d.Close()
	return max(d.Traits().MinPartBytes, 64<<10)
}

// inParts returns a store that sends all but small bodies in parts.
func (w *world) inParts() (*blob.Store, int64) {
	opt := w.opt
	opt.PartBytes = w.partBytes()
	opt.Parallel = 3
	return open(w.T, w.place, opt), opt.PartBytes
}

func parts(w *world) {
	rng := random(w.T)
	s, part := w.inParts()
	for _, size := range []int64{part, part + 1, 2 * part, 3*part + 777} {
		data := noise(rng, size)
		info, err := s.Put(w.Context(), "big/object", bytes.NewReader(data), blob.Condition{})
		w.must(err)
		w.sameRange("big/object", data, blob.Range{})
		w.sameRange("big/object", data, blob.Range{Offset: part - 5, Length: min(10, size-part+5)})
		stat, err := w.Stat(w.Context(), "big/object")
		w.must(err)
		if stat.Version != info.Version || stat.Mark != info.Mark || !stat.Checked || stat.CRC32C != blob.Checksum(data) {
			w.Fatalf("stat says %+v, put said %+v", stat, info)
		}
	}
	_, err := s.Put(w.Context(), "changing", &changing{Reader: bytes.NewReader(make([]byte, 2*part))}, blob.Condition{})
	w.want(tine.KindInvalid, err)
	_, err = w.Stat(w.Context(), "changing")
	w.want(tine.KindNotFound, err)
	w.nothingLeft()
}

// changing is a body whose bytes are others each time they are read.
type changing struct {
	*bytes.Reader
	reads byte
}

func (c *changing) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.Reader.ReadAt(p, off)
	if off == 0 && n > 0 {
		c.reads++
		p[0] = c.reads
	}
	return n, err
}

// nothingLeft fails the test if an upload was left behind.
func (w *world) nothingLeft() {
	w.Helper()
	n, err := w.Sweep(w.Context(), time.Now().Add(time.Hour))
	w.must(err)
	if n > 0 {
		w.Errorf("%d uploads were left behind", n)
	}
}

func partsConditions(w *world) {
	rng := random(w.T)
	s, part := w.inParts()
	big := func() *bytes.Reader { return bytes.NewReader(noise(rng, 2*part)) }
	first, err := s.Put(w.Context(), "k", big(), blob.Condition{Absent: true})
	w.must(err)
	_, err = s.Put(w.Context(), "k", big(), blob.Condition{Absent: true})
	w.want(tine.KindExists, err)
	second, err := s.Put(w.Context(), "k", big(), blob.Condition{Version: first.Version})
	w.must(err)
	_, err = s.Put(w.Context(), "k", big(), blob.Condition{Version: first.Version})
	w.want(tine.KindConflict, err)
	stat, err := w.Stat(w.Context(), "k")
	w.must(err)
	if stat.Version != second.Version {
		w.Fatalf("a refused upload changed the object")
	}
	_, err = s.Put(w.Context(), "none", big(), blob.Condition{Version: first.Version})
	w.want(tine.KindConflict, err)
	w.nothingLeft()
}

func copying(w *world) {
	src, err := w.put("from/here", "the bytes", blob.Condition{})
	w.must(err)
	w.must1(w.put("to/there", "others", blob.Condition{}))
	for _, dst := range []blob.Key{"to/there", "to/new/place"} {
		info, err := w.Copy(w.Context(), "from/here", dst)
		w.must(err)
		got := w.have(dst, "the bytes")
		if info.Key != dst || info.Size != src.Size || info.CRC32C != src.CRC32C || !info.Checked || info.Mark != src.Mark || info.Version != got.Version {
			w.Fatalf("copied %+v, got %+v", src, info)
		}
	}
	w.must(w.Delete(w.Context(), "from/here"))
	w.have("to/there", "the bytes")
	_, err = w.Copy(w.Context(), "from/here", "to/there")
	w.want(tine.KindNotFound, err)
	_, err = w.Copy(w.Context(), "to/there", "to/there")
	w.want(tine.KindInvalid, err)
}

// RunDriver holds a driver to what a Store hides: that the receiver checks
// checksums by itself, that leftovers are swept, and sound limits.
func RunDriver(t *testing.T, mk Maker) {
	t.Run("WrongChecksum", func(t *testing.T) {
		d := mk(t)(t)
		defer d.Close()
		data := []byte("these bytes")
		head := blob.Head{Size: int64(len(data)), CRC32C: blob.Checksum(data) ^ 1}
		if _, err := d.Put(t.Context(), "k", data, head); tine.KindOf(err) != tine.KindCorrupt {
			t.Errorf("bytes that do not match: %v", err)
		}
		up, err := d.Upload(t.Context(), "k", blob.Head{Size: head.Size, CRC32C: blob.Checksum(data)})
		if err != nil {
			t.Fatal(err)
		}
		if err := up.Part(t.Context(), 1, 0, data, head.CRC32C); tine.KindOf(err) != tine.KindCorrupt {
			t.Errorf("a part that does not match: %v", err)
		}
		if err := up.Abort(t.Context()); err != nil {
			t.Error(err)
		}
		if err := up.Part(t.Context(), 1, 0, data, blob.Checksum(data)); tine.KindOf(err) != tine.KindStale {
			t.Errorf("a part after the abort: %v", err)
		}
		if _, err := d.Stat(t.Context(), "k"); tine.KindOf(err) != tine.KindNotFound {
			t.Errorf("an object came of it: %v", err)
		}
	})
	t.Run("Sweep", func(t *testing.T) {
		d := mk(t)(t)
		defer d.Close()
		data := []byte("these bytes")
		for i := range 3 {
			up, err := d.Upload(t.Context(), blob.Key(fmt.Sprintf("left/%d", i)), blob.Head{Size: 11, CRC32C: blob.Checksum(data)})
			if err != nil {
				t.Fatal(err)
			}
			if err := up.Part(t.Context(), 1, 0, data, blob.Checksum(data)); err != nil {
				t.Fatal(err)
			}
		}
		left := 3
		if d.Traits().SweepsItself {
			left = 0
		}
		for _, c := range []struct {
			before time.Time
			want   int
		}{{time.Now().Add(-time.Hour), 0}, {time.Now().Add(time.Hour), left}, {time.Now().Add(time.Hour), 0}} {
			if n, err := d.Sweep(t.Context(), c.before); n != c.want || err != nil {
				t.Errorf("swept %d, want %d: %v", n, c.want, err)
			}
			if page, err := d.List(t.Context(), blob.ListOptions{}); err != nil || len(page.Objects)+len(page.Prefixes) > 0 {
				t.Errorf("parts are listed: %+v, %v", page, err)
			}
		}
	})
	t.Run("DeleteInPart", func(t *testing.T) { deleteInPart(t, mk(t)) })
	t.Run("Traits", func(t *testing.T) {
		d := mk(t)(t)
		defer d.Close()
		if tr := d.Traits(); tr.Name == "" || tr.MinPartBytes < 1 || tr.MaxSingleBytes < tr.MinPartBytes || tr.MaxParts < 1 || tr.DeleteBatch < 1 {
			t.Errorf("%+v", tr)
		}
	})
}

// deleteInPart refuses one of ten keys: nine are gone, and the tenth is told of.
func deleteInPart(t *testing.T, place Place) {
	d := faulty.Wrap(place(t), faulty.Plan{Faults: []faulty.Fault{{Ops: faulty.Delete, What: faulty.OneKey, At: 1}}})
	w := &world{T: t, place: place, Store: blob.NewStore(d, blob.Options{})}
	defer w.Close()
	var keys []blob.Key
	for i := range 10 {
		keys = append(keys, blob.Key(fmt.Sprintf("d/%d", i)))
	}
	w.fill(keys)
	err := w.Delete(w.Context(), keys...)
	var partial *blob.PartialError
	if !errors.As(err, &partial) || len(partial.Failed) != 1 || tine.KindOf(err) != tine.KindAccess {
		t.Fatalf("one of ten refused: %v", err)
	}
	w.sameListing([]blob.Key{partial.Failed[0].Key}, blob.ListOptions{})
}
