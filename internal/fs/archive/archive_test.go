package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"tine.dev/tine/internal/tine"
)

// fill writes an entry with data in which every byte says where it is.
func fill(t testing.TB, w *Writer, e *Entry) {
	t.Helper()
	if err := w.Entry(e); err != nil {
		t.Fatal(err)
	}
	for _, r := range e.Data() {
		p := make([]byte, r.Len)
		for i := range p {
			p[i] = byte((r.Off + int64(i)) % 251)
		}
		if _, err := w.Write(p); err != nil {
			t.Fatal(err)
		}
	}
}

// take reads an entry's data and checks it.
func take(t testing.TB, r *Reader, e *Entry) {
	t.Helper()
	for _, run := range e.Data() {
		p := make([]byte, run.Len)
		if _, err := io.ReadFull(r, p); err != nil {
			t.Fatalf("%q: %v", e.Name, err)
		}
		for i, c := range p {
			if c != byte((run.Off+int64(i))%251) {
				t.Fatalf("%q: byte %d is %d", e.Name, run.Off+int64(i), c)
			}
		}
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("%q: more data: %d, %v", e.Name, n, err)
	}
}

// aclValue is an ACL of the kernel's form.
func aclValue(id uint32) []byte {
	v := []byte{2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 5, 0}
	v = append(v, byte(id), byte(id>>8), byte(id>>16), byte(id>>24))
	return append(v, 4, 0, 4, 0, 255, 255, 255, 255, 16, 0, 5, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255)
}

// samples are entries with all that is hard to archive.
func samples() []*Entry {
	ns := func(n int64) *int64 { return &n }
	long := strings.Repeat("l", 300)
	return []*Entry{
		{Name: "./", Type: Directory, Mode: 0o1777, Mtime: 1e18},
		{Name: "plain", Type: Regular, Mode: 0o644, UID: 1, GID: 2, Mtime: 5e9, Size: 700},
		{Name: long + "/" + long, Type: Regular, Mode: 0o7777, UID: math.MaxUint32, GID: 1 << 21, Mtime: -1, Atime: ns(-1500000001), Size: 1},
		{Name: "not utf-8 \xff", Type: Symlink, Mode: 0o777, Link: "\xfe" + long, Mtime: math.MaxInt64 - 1e9},
		{Name: "\xc3\xa4", Type: HardLink, Link: long + "/" + long},
		{Name: "dev", Type: Block, Major: 4095, Minor: 1<<20 - 1, Mtime: math.MinInt64 + 2e9},
		{Name: "fifo", Type: Fifo}, {Name: "char", Type: Char, Major: 1, Minor: 3},
		{Name: "xattrs", Type: Regular, Size: 0, Xattrs: []Xattr{{"user.a=b%3D\n", []byte("v\x00=\n1")}, {"user.empty", []byte{}},
			{xattrACLAccess, aclValue(1000)}, {xattrACLDefault, []byte("not an ACL")}}},
		{Name: "holes", Type: Regular, Size: 1 << 40, Runs: []Run{{0, 512}, {4096, 100}, {1<<40 - 5, 5}}},
		{Name: long + "holes", Type: Regular, Size: 1000, Runs: []Run{}},
		{Name: "hole at the end", Type: Regular, Size: 5000, Runs: []Run{{100, 1000}}},
		{Name: "last", Type: Directory, Mode: 0o700},
	}
}

func TestEntriesComeBack(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, e := range samples() {
		fill(t, w, e)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := NewReader(io.MultiReader(&b, strings.NewReader("what follows is of no interest")), nil)
	for _, want := range samples() {
		e, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if want.Type == Directory && !strings.HasSuffix(want.Name, "/") {
			want.Name += "/"
		}
		if want.Atime == nil && e.Atime == nil {
			want.Atime = e.Atime
		}
		got := *e
		got.Offset = 0
		if !reflect.DeepEqual(&got, want) {
			t.Errorf("%.50q came back as\n%+v, want\n%+v", want.Name, got, *want)
		}
		take(t, r, e)
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("after the last entry: %v", err)
	}
}

// TestStandardLibraryReadsIt compares with the standard library's reader.
func TestStandardLibraryReadsIt(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, e := range samples() {
		if e.Size > 1<<20 {
			e.Size, e.Runs = 9000, []Run{{0, 512}, {4096, 100}, {8995, 5}}
		}
		fill(t, w, e)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(&b)
	for _, want := range samples() {
		h, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSuffix(h.Name, "/") != strings.TrimSuffix(want.Name, "/") || h.Typeflag != byte(want.Type) || h.Mode != int64(want.Mode) || h.Uid != int(want.UID) ||
			h.Gid != int(want.GID) || h.Linkname != want.Link || h.Devmajor != int64(want.Major) || h.Devminor != int64(want.Minor) ||
			!h.ModTime.Equal(time.Unix(0, want.Mtime)) {
			t.Errorf("%+v, want %+v", h, want)
		}
		data, err := io.ReadAll(r)
		if err != nil || int64(len(data)) != h.Size {
			t.Errorf("%q: %d bytes of %d, %v", h.Name, len(data), h.Size, err)
		}
		for _, x := range want.Xattrs[:min(2, len(want.Xattrs))] {
			if got := h.PAXRecords[paxXattr+encodeXattrName(x.Name)]; got != string(x.Value) {
				t.Errorf("%s is %q", x.Name, got)
			}
		}
	}
}

// TestEveryCutIsNoticed: an archive that was cut anywhere is an error, and says
// where.
func TestEveryCutIsNoticed(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, e := range samples() {
		fill(t, w, e)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	for n := 0; n <= len(whole)-2*blockBytes; n += 97 {
		err := readAll(whole[:n])
		if err == nil {
			t.Fatalf("cut after %d of %d bytes: no error", n, len(whole))
		}
		if k := tine.KindOf(err); k != tine.KindCorrupt && n >= blockBytes || tine.HintOf(err) == "" && n > 0 {
			t.Errorf("cut after %d bytes: %v (%v)", n, err, k)
		}
	}
	if err := readAll(whole[:len(whole)-blockBytes]); err != nil {
		t.Errorf("with one block of zeros: %v", err)
	}
	// An error of the source is not the archive's.
	broken := errors.New("broken")
	r := NewReader(io.MultiReader(bytes.NewReader(whole[:3000]), failing{broken}), nil)
	for {
		_, err := r.Next()
		if err == nil {
			continue
		}
		if err != broken {
			t.Errorf("%v", err)
		}
		break
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func readAll(b []byte) error {
	r := NewReader(bytes.NewReader(b), nil)
	for {
		e, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			if _, err = Path(e.Name); err == nil {
				_, err = io.Copy(io.Discard, r)
			}
		}
		if err != nil {
			return err
		}
	}
}

func TestTimes(t *testing.T) {
	for ns, text := range map[int64]string{0: "0", 1: "0.000000001", -1: "-0.000000001", 1500000000: "1.5", -1500000000: "-1.5", 5e9: "5",
		math.MinInt64: "-9223372036.854775808", math.MaxInt64: "9223372036.854775807"} {
		if got := formatTime(ns); got != text {
			t.Errorf("%d is written %s, want %s", ns, got, text)
		}
		near := int64(0)
		if ns == math.MinInt64 || ns == math.MaxInt64 {
			near = 1e9 // the last second is not told apart
		}
		if got, ok := parseTime(text); !ok || got-ns > near || ns-got > near {
			t.Errorf("%s is read as %d, %v", text, got, ok)
		}
	}
	for text, want := range map[string]int64{"1.": 1e9, "1.1234567899": 1123456789, "99999999999999999999999": 0, "999999999999": math.MaxInt64, "-999999999999": math.MinInt64} {
		if got, ok := parseTime(text); got != want || ok == (want == 0) {
			t.Errorf("%s is read as %d, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "-", ".5", "x", "1.x", "--1", "1.-1", "+1", "1e5"} {
		if got, ok := parseTime(text); ok {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, x := range []struct {
		p    string
		want int64
		ok   bool
	}{
		{"0000644\x00", 0o644, true}, {"   644 \x00", 0o644, true}, {"\x00\x00\x00", 0, true}, {"9", 0, false}, {"-1", 0, false},
		{"\x80\x00\x00\x00\x00\x00\x00\x01\x00", 256, true}, {"\xff\xff\xff\xff\xff\xff\xff\xff", -1, true},
		{"\x80\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff", math.MaxInt64, true}, {"\x80\x00\x00\x00\x80\x00\x00\x00\x00\x00\x00\x00", 0, false},
		{"\xff\xff\xff\xff\x80\x00\x00\x00\x00\x00\x00\x00", math.MinInt64, true}, {"\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff", 0, false},
	} {
		if got, ok := parseNumber([]byte(x.p)); got != x.want && x.ok || ok != x.ok {
			t.Errorf("%q is %d, %v; want %d, %v", x.p, got, ok, x.want, x.ok)
		}
	}
	var b block
	if b.setNumber(fieldUID, 1<<21) || b.setNumber(fieldUID, -1) || !b.setNumber(fieldUID, 1<<21-1) || b.text(fieldUID) != "7777777" {
		t.Errorf("%q", b.get(fieldUID))
	}
}

func TestPaxRecords(t *testing.T) {
	for n := range 1200 {
		b := appendPax(nil, "k", strings.Repeat("v", n))
		if rs, ok := parsePax(append(b, b...)); !ok || len(rs) != 2 || rs[1] != (paxRecord{"k", strings.Repeat("v", n)}) {
			t.Fatalf("a value of %d bytes: %q, %v", n, b, ok)
		}
	}
	for _, s := range []string{"5 a=b", "6 a=b", "7 a=b\n", "4 a=\n", "5 =b\n", "6 ab\n\n", "x a=b\n", " 6 a=b\n", "-6 a=b\n", "99999999999 a=b\n", "2 \n", "0 a=b\n"} {
		if rs, ok := parsePax([]byte(s)); ok {
			t.Errorf("%q: %q", s, rs)
		}
	}
}

type names map[string]uint32

func (n names) User(s string) (uint32, bool)  { id, ok := n[s]; return id, ok }
func (n names) Group(s string) (uint32, bool) { id, ok := n["group "+s]; return id, ok }

func TestACLs(t *testing.T) {
	want := aclValue(1000)
	for _, text := range []string{
		"user::rw-,user:1000:r-x,group::r--,mask::r-x,other::---", "user::rw-\nuser:lisa:r-x\ngroup::r--\nmask::r-x\nother::---\n",
		"other::---,mask::r-x,group::r--,user:nobody here:r-x:1000,user::rw", " u::rw- , u:1000:r-x # who\n,g::r--,m:r-x,o:---",
	} {
		raw, unknown, ok := parseACL(text, names{"lisa": 1000})
		if !ok || len(unknown) > 0 || !bytes.Equal(raw, want) {
			t.Errorf("%q: %x, %q, %v", text, raw, unknown, ok)
		}
	}
	if text, ok := aclText(want); !ok || text != "user::rw-,user:1000:r-x,group::r--,mask::r-x,other::---" {
		t.Errorf("%q, %v", text, ok)
	}
	raw, unknown, ok := parseACL("user::rw-,user:who:r-x,group:staff:rwx,group::r--,mask::r-x,other::---", names{"group staff": 50, "staff": 1})
	if !ok || len(unknown) != 1 || unknown[0] != "who" || raw[aclHeadBytes+aclEntryBytes*2+4] != 50 {
		t.Errorf("%x, %q, %v", raw, unknown, ok)
	}
	for _, text := range []string{"", "user", "user::rwz", "what::rwx", "mask:5:rwx", "user:1:2:3:4", "user::rw-;"} {
		if raw, _, ok := parseACL(text, nil); ok {
			t.Errorf("%q: %x", text, raw)
		}
	}
	for _, v := range [][]byte{nil, {1, 0, 0, 0}, {2, 0, 0, 0}, append(bytes.Clone(want), 0), append(bytes.Clone(want), want[4:12]...)} {
		if text, ok := aclText(v); ok {
			t.Errorf("%x is written as %q", v, text)
		}
	}
}

func TestPaths(t *testing.T) {
	for name, want := range map[string]string{"/a//b/./c/": "a/b/c", "./": "", ".": "", "a/...": "a/...", "..a": "..a"} {
		if got, err := Path(name); err != nil || strings.Join(got, "/") != want {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"..", "/..", "a/../b", "a/.."} {
		if got, err := Path(name); tine.KindOf(err) != tine.KindInvalid {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
}

// TestCollector: runs that touch are joined, and past the limit the smallest
// holes go, never data.
func TestCollector(t *testing.T) {
	var c Collector
	for i := range int64(5) {
		c.Add(Run{i * 100, 100})
	}
	if c.Runs(500) != nil || len(c.Runs(501)) != 1 {
		t.Errorf("%v", c.runs)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c = Collector{}
	var at, data int64
	var starts []Run
	for i := range 3 * MaxRuns {
		hole := int64(4096)
		if i%1000 == 0 {
			hole = 1 << 40 / 1000
		}
		at += hole
		run := Run{at, 1 + r.Int64N(4096)}
		c.Add(run)
		at = run.End()
		data += run.Len
		if i%997 == 0 {
			starts = append(starts, run)
		}
	}
	runs := c.Runs(at)
	if len(runs) > MaxRuns || len(runs) < 1000 {
		t.Fatalf("%d runs", len(runs))
	}
	if _, ok := checkRuns(runs, at, sum(runs)); !ok || sum(runs) < data {
		t.Errorf("%d bytes in runs, %d of data", sum(runs), data)
	}
	i := 0
	for _, s := range starts {
		for runs[i].End() < s.End() {
			i++
		}
		if s.Off < runs[i].Off {
			t.Fatalf("%v is not in a run", s)
		}
	}
}

func sum(runs []Run) (n int64) {
	for _, r := range runs {
		n += r.Len
	}
	return n
}

func TestWriterRefusesWrongLengths(t *testing.T) {
	w := NewWriter(io.Discard)
	e := &Entry{Name: "f", Type: Regular, Size: 10}
	if err := w.Entry(e); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 11)); err == nil {
		t.Error("too much data")
	}
	if err := w.Entry(e); err == nil {
		t.Error("too little data")
	}
	if err := w.Close(); err == nil {
		t.Error("an end too early")
	}
}
