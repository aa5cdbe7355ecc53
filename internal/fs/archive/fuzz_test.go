package archive

import (
	"archive/tar"
	"bytes"
	"io"
	"testing"

	"tine.dev/tine/internal/tine"
)

// FuzzReader: no bytes make the reader panic or believe them. What it says of
// an entry's data fits together, its errors have a kind, and where the standard
// library reads the first file it has the same content.
func FuzzReader(f *testing.F) {
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, e := range samples() {
		if e.Size > 1<<20 {
			e.Size, e.Runs = 9000, []Run{{0, 512}, {4096, 100}, {8995, 5}}
		}
		b.Reset()
		fill(f, w, e)
		f.Add(append(bytes.Clone(b.Bytes()), make([]byte, 2*blockBytes)...))
	}
	f.Add(pax(512, paxSparseSize, "1024", paxSparseOffset, "0", paxSparseNumBytes, "256", paxSparseOffset, "700", paxSparseNumBytes, "256"))
	f.Add(pax(512, paxSparseSize, "1024", paxSparseMap, "0,256,700,256"))
	f.Add(header(func(h *block) {
		h[fieldType] = 'S'
		copy(h.get(fieldMagic), "ustar  \x00")
		h.setNumber(fieldSize, 512)
		h.setNumber(gnuRealSize, 1024)
		copy(h.get(gnuSparse), "00000000000\x0000000000400\x0000000001000\x0000000000400\x00")
	}, make([]byte, 512)))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = withSums(b)
		r := NewReader(bytes.NewReader(b), nil)
		for i := 0; ; i++ {
			e, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				if tine.KindOf(err) == tine.KindInternal {
					t.Fatalf("%v", err)
				}
				break
			}
			checkEntry(t, e)
			var data bytes.Buffer
			n, err := io.Copy(&data, r)
			if err != nil {
				if tine.KindOf(err) == tine.KindInternal {
					t.Fatalf("%v", err)
				}
				break
			}
			if e.Type == Regular && n != e.stored() {
				t.Fatalf("%q: %d bytes of data, %d stored", e.Name, n, e.stored())
			}
			if i == 0 && e.Type == Regular && e.Size < 1<<20 {
				compareFirst(t, b, e, data.Bytes())
			}
		}
	})
}

// withSums sets the sums of all headers right, or no change would get beyond
// them.
func withSums(b []byte) []byte {
	b = bytes.Clone(b)
	for at := 0; at+blockBytes <= len(b); at += blockBytes {
		h := (*block)(b[at:])
		if bytes.HasPrefix(h.get(fieldMagic), []byte("ustar")) {
			h.setSum()
		}
	}
	return b
}

func checkEntry(t *testing.T, e *Entry) {
	var at int64
	for _, r := range e.Runs {
		if r.Len <= 0 || r.Off < at || r.End() > e.Size || r.End() < r.Off {
			t.Fatalf("%q of %d bytes has the run %v after %d", e.Name, e.Size, r, at)
		}
		at = r.End()
	}
	if e.Size < 0 || e.Mode > 0o7777 {
		t.Fatalf("%+v", e)
	}
}

// compareFirst compares with the standard library, where that takes the first
// entry for a regular file too.
func compareFirst(t *testing.T, b []byte, e *Entry, data []byte) {
	r := tar.NewReader(bytes.NewReader(b))
	h, err := r.Next()
	for err == nil && h.Typeflag == tar.TypeXGlobalHeader {
		h, err = r.Next()
	}
	if err != nil || h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeGNUSparse {
		return
	}
	want, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil || h.Size != e.Size {
		return
	}
	got := make([]byte, e.Size)
	for _, run := range e.Data() {
		data = data[copy(got[run.Off:run.End()], data):]
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%q: the content differs from what the standard library reads", e.Name)
	}
}

// FuzzPax: records that are read are written as they were, and the values of
// ACLs make nothing panic.
func FuzzPax(f *testing.F) {
	f.Add([]byte("6 a=b\n11 mtime=5\n"))
	f.Add([]byte("46 SCHILY.acl.access=user::rw-,group::r--,other::r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		rs, ok := parsePax(b)
		if !ok {
			return
		}
		var again []byte
		for _, r := range rs {
			again = appendPax(again, r.key, r.value)
			if raw, _, ok := parseACL(r.value, nil); ok {
				if text, ok := aclText(raw); ok {
					if back, _, ok := parseACL(text, nil); !ok || !bytes.Equal(back, raw) {
						t.Fatalf("%q: %x is written as %q and read as %x", r.value, raw, text, back)
					}
				}
			}
			if ns, ok := parseTime(r.value); ok {
				if back, ok := parseTime(formatTime(ns)); !ok || back-ns > 1e9 || ns-back > 1e9 {
					t.Fatalf("%q: %d is written as %s and read as %d", r.value, ns, formatTime(ns), back)
				}
			}
		}
		if back, ok := parsePax(again); !ok || len(back) != len(rs) {
			t.Fatalf("%q is written as %q", b, again)
		}
	})
}
