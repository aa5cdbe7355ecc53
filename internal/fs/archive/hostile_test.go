package archive

import (
	"bytes"
	"strings"
	"testing"

	"tine.dev/tine/internal/tine"
)

// header makes an archive of one entry whose header is changed.
func header(change func(*block), more ...[]byte) []byte {
	var h block
	h.setText(fieldName, "f")
	h.setNumber(fieldMode, 0o644)
	h.setNumber(fieldSize, 0)
	h[fieldType] = '0'
	copy(h.get(fieldMagic), "ustar\x0000")
	change(&h)
	h.setSum()
	b := h[:]
	for _, m := range more {
		b = append(b, m...)
	}
	return append(b, make([]byte, 2*blockBytes)...)
}

// special makes an entry that describes another.
func special(kind byte, body []byte) []byte {
	b := header(func(h *block) { h[fieldType] = kind; h.setNumber(fieldSize, int64(len(body))) })[:blockBytes]
	return append(append(b, body...), make([]byte, -len(body)&(blockBytes-1))...)
}

// pax makes an archive of one entry with records.
func pax(size int64, records ...string) []byte {
	var rs []byte
	for i := 0; i+1 < len(records); i += 2 {
		rs = appendPax(rs, records[i], records[i+1])
	}
	x := special('x', rs)
	return append(x, header(func(h *block) { h.setNumber(fieldSize, size) }, make([]byte, padded(size)))...)
}

// TestHostileArchives: nothing in an archive is believed.
func TestHostileArchives(t *testing.T) {
	sized := func(n int64) func(*block) { return func(h *block) { h.setNumber(fieldSize, n) } }
	typed := func(c byte, n int64) func(*block) {
		return func(h *block) { h[fieldType] = c; h.setNumber(fieldSize, n) }
	}
	for name, b := range map[string][]byte{
		"a size beyond the end":            header(sized(1 << 30)),
		"a negative size":                  header(func(h *block) { copy(h.get(fieldSize), "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff") }),
		"a name that takes all memory":     header(typed('L', 1<<33-1)),
		"records that take all memory":     header(typed('x', 1<<33-1)),
		"global records likewise":          header(typed('g', 1<<33-1)),
		"a user that is none":              header(func(h *block) { copy(h.get(fieldUID), "999") }),
		"a device that is none":            header(func(h *block) { h[fieldType] = '4'; h.setNumber(fieldDevMajor, 1<<20) }),
		"records that are none":            header(typed('x', 5), []byte("hello"), make([]byte, 507)),
		"a second volume":                  header(typed('M', 0)),
		"star's sparse format":             header(typed('S', 0)),
		"a user in records":                pax(0, paxUID, "4294967296"),
		"a size in records":                pax(0, paxSize, "-5"),
		"a time in records":                pax(0, paxMtime, "yesterday"),
		"a sparse map without a size":      pax(0, paxSparseMap, "0,0"),
		"a sparse map of words":            pax(0, paxSparseSize, "10", paxSparseMap, "a,b"),
		"half a sparse map":                pax(512, paxSparseSize, "512", paxSparseMap, "0,512,5"),
		"a sparse map that overlaps":       pax(512, paxSparseSize, "512", paxSparseMap, "0,300,200,212"),
		"a sparse map out of order":        pax(512, paxSparseSize, "900", paxSparseMap, "400,256,0,256"),
		"a sparse map beyond the size":     pax(512, paxSparseSize, "100", paxSparseMap, "0,512"),
		"a sparse map that overflows":      pax(512, paxSparseSize, "9223372036854775807", paxSparseMap, "9223372036854775800,512"),
		"a sparse map of less than data":   pax(512, paxSparseSize, "512", paxSparseMap, "0,100"),
		"a sparse map of more than data":   pax(512, paxSparseSize, "5120", paxSparseMap, "0,1000"),
		"negative runs":                    pax(512, paxSparseSize, "512", paxSparseMap, "0,600,600,-88"),
		"an unknown sparse format":         pax(512, paxSparseMajor, "2", paxSparseMinor, "0", paxSparseRealSize, "10"),
		"a sparse map in front, of zeros":  pax(512, paxSparseMajor, "1", paxSparseMinor, "0", paxSparseRealSize, "10"),
		"a sparse map in front, of none":   pax(0, paxSparseMajor, "1", paxSparseMinor, "0", paxSparseRealSize, "10"),
		"pairs of the oldest out of order": pax(0, paxSparseSize, "10", paxSparseNumBytes, "0", paxSparseOffset, "0"),
	} {
		err := readAll(b)
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		if k := tine.KindOf(err); k != tine.KindCorrupt && k != tine.KindUnsupported && k != tine.KindInvalid {
			t.Errorf("%s: %v (%v)", name, err, k)
		}
	}
	many := "2000000\n" + strings.Repeat("0\n0\n", 100)
	many += strings.Repeat("\x00", -len(many)&(blockBytes-1))
	b := pax(int64(len(many)), paxSparseMajor, "1", paxSparseMinor, "0", paxSparseRealSize, "10")
	copy(b[3*blockBytes:], many)
	if err := readAll(b); tine.KindOf(err) != tine.KindCorrupt || !strings.Contains(err.Error(), "too many pieces") {
		t.Errorf("two million runs: %v", err)
	}
}

// TestForgivingReader: what other programs write is read as they mean it.
func TestForgivingReader(t *testing.T) {
	read := func(b []byte) *Entry {
		t.Helper()
		e, err := NewReader(bytes.NewReader(b), nil).Next()
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	if e := read(header(func(h *block) { h[fieldType] = 0; h.setText(fieldName, "d/"); copy(h.get(fieldMagic), make([]byte, 8)) })); e.Type != Directory {
		t.Errorf("a directory of v7 is %q", e.Type)
	}
	if e := read(header(func(h *block) { h.setText(fieldPrefix, "some/where") })); e.Name != "some/where/f" {
		t.Errorf("a prefix gives %q", e.Name)
	}
	if e := read(header(func(h *block) { copy(h.get(fieldMagic), "ustar  \x00"); h.setText(fieldPrefix, "some/where") })); e.Name != "f" {
		t.Errorf("GNU's own fields give %q", e.Name)
	}
	if e := read(header(func(h *block) { h[fieldType] = 'Q' })); e.Type != Unknown {
		t.Errorf("an unknown type is %q", e.Type)
	}
	if e := read(header(func(h *block) { h[fieldType] = '5'; h.setNumber(fieldSize, 4096) })); e.Type != Directory {
		t.Errorf("a directory with a size is %q", e.Type)
	}
	long := strings.Repeat("n", 600)
	if e := read(append(special('L', []byte(long+"\x00")), header(func(*block) {})...)); e.Name != long {
		t.Errorf("a long name is %q", e.Name)
	}
	e := read(pax(0, paxACLAccess, "user::rw-,user:who:rwx,group::r--,mask::rwx,other::r--", "vendor.thing", "x", paxMtime, "1.5"))
	if len(e.Notes) != 1 || len(e.Xattrs) != 1 || e.Mtime != 1500000000 {
		t.Errorf("%+v", e)
	}
	global := special('g', appendPax(nil, "mtime", "7"))
	r := NewReader(bytes.NewReader(append(global, pax(0, paxUID, "5")...)), nil)
	if e, err := r.Next(); err != nil || e.Mtime != 7e9 || e.UID != 5 {
		t.Errorf("global records: %+v, %v", e, err)
	}
}
