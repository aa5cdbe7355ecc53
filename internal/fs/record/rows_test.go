package record

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"tine.dev/tine/internal/tine"
)

// recoders decode a row of each kind and encode it again.
var recoders = []struct {
	name   string
	recode func([]byte) ([]byte, error)
}{
	{"inode", func(b []byte) ([]byte, error) { n, err := DecodeInode(b); return n.Append(nil), err }},
	{"dentry", func(b []byte) ([]byte, error) { n, err := DecodeDentry(b); return n.Append(nil), err }},
	{"cookie", func(b []byte) ([]byte, error) { n, err := DecodeCookie(b); return n.Append(nil), err }},
	{"chunk", func(b []byte) ([]byte, error) { n, err := DecodeChunk(b); return n.Append(nil), err }},
	{"counters", func(b []byte) ([]byte, error) { n, err := DecodeCounters(b); return n.Append(nil), err }},
	{"tree", func(b []byte) ([]byte, error) { n, err := DecodeTree(b); return n.Append(nil), err }},
	{"timeline", func(b []byte) ([]byte, error) { n, err := DecodeTimeline(b); return n.Append(nil), err }},
	{"alias", func(b []byte) ([]byte, error) { n, err := DecodeAlias(b); return n.Append(nil), err }},
	{"checkpoint", func(b []byte) ([]byte, error) { n, err := DecodeCheckpoint(b); return n.Append(nil), err }},
	{"disk", func(b []byte) ([]byte, error) { n, err := DecodeDisk(b); return n.Append(nil), err }},
	{"log", func(b []byte) ([]byte, error) { n, err := DecodeLogEntry(b); return n.Append(nil), err }},
	{"task", func(b []byte) ([]byte, error) { n, err := DecodeTask(b); return n.Append(nil), err }},
	{"segment", func(b []byte) ([]byte, error) { n, err := DecodeSegment(b); return n.Append(nil), err }},
	{"live", func(b []byte) ([]byte, error) { n, err := DecodeLive(b); return n.Append(nil), err }},
	{"piece", func(b []byte) ([]byte, error) { n, err := DecodePiece(b); return n.Append(nil), err }},
	{"disk", func(b []byte) ([]byte, error) { n, err := DecodeDisk(b); return n.Append(nil), err }},
	{"disk", func(b []byte) ([]byte, error) { n, err := DecodeDisk(b); return n.Append(nil), err }},
	{"grave", func(b []byte) ([]byte, error) { n, err := DecodeGrave(b); return n.Append(nil), err }},
	{"shipped", func(b []byte) ([]byte, error) { n, err := DecodeShipped(b); return n.Append(nil), err }},
	{"policy", func(b []byte) ([]byte, error) { n, err := DecodePolicy(b); return n.Append(nil), err }},
}

// samples are whole rows, one of each kind in the order of recoders.
func samples() [][]byte {
	now := time.Unix(1600000000, 123456789)
	seg, line := tine.NewID[tine.SegmentID](now), tine.NewID[tine.TimelineID](now)
	n := Inode{Mode: 0o100644, UID: 1, GID: 2, Nlink: 1, Size: 5, Bytes: 5, Mtime: -1, Ctime: now.UnixNano(), Parent: 1, Target: "x"}
	c := Chunk{Extents: []Extent{{Pos: 3, Len: 10, Segment: seg, Off: 7, Birth: 2}, {Pos: 13, Len: 1, Segment: seg, Off: 99, Birth: 3}}}
	l := Timeline{Strata: []tine.StratumID{tine.NewID[tine.StratumID](now)}, Parent: line, Branch: 4, Epoch: 6, First: 5}
	p := Checkpoint{Disk: tine.NewID[tine.DiskID](now), Timeline: line, Epoch: 3, Name: "a", Author: "b", Caller: "c", Message: "d", Created: 5, Auto: true}
	k := Disk{Tree: tine.NewID[tine.TreeID](now), Timeline: line, Name: "n", Created: 1, Deleted: 2, Origin: "o", Moves: 3}
	q, b := k, k
	q.Quota = Quota{Bytes: 1 << 40, Inodes: 7}
	b.Durable = DurableBucket
	e := LogEntry{Time: 1, Op: "fork", Detail: "d", Author: "a", Caller: "c"}
	return [][]byte{
		n.Append(nil), Dentry{Ino: 5, Type: 8, Cookie: 9}.Append(nil), Cookie{Ino: 5, Type: 8, Name: "n"}.Append(nil), c.Append(nil),
		Counters{Inodes: 3, Bytes: 9, NextIno: 7, NextCookie: 8, Commits: 1}.Append(nil), Tree{Tenant: tine.DefaultTenant, Created: 3}.Append(nil),
		l.Append(nil), Alias{Into: line}.Append(nil), p.Append(nil), k.Append(nil), e.Append(nil),
		Task{Kind: TaskDrop, Timeline: line, Epoch: 4}.Append(nil),
		Segment{Timeline: line, State: SegmentSealed, Generation: 1, End: 10, Synced: 10, Physical: 200, Created: 5}.Append(nil),
		Live{Bytes: 12}.Append(nil), Piece{Len: 5, Runs: 2}.Append(nil), q.Append(nil), b.Append(nil),
		Grave{Since: 5e18, Below: 1 << 33}.Append(nil),
		Shipped{Number: 9, Term: 2, Sequence: 700, Checksum: 1 << 31}.Append(nil),
		Policy{Every: 6e11, KeepFor: 9e13, KeepCount: 7, Since: 5, TTL: 8, Expires: 13}.Append(nil),
	}
}

// TestRowsComeBack: what is encoded decodes to the same bytes, every prefix of
// it is damaged, and a newer format is refused as such.
func TestRowsComeBack(t *testing.T) {
	for i, b := range samples() {
		r := recoders[i]
		got, err := r.recode(b)
		if err != nil || !bytes.Equal(got, b) {
			t.Errorf("%s: %x came back as %x, %v", r.name, b, got, err)
		}
		for n := range b {
			if r.name == "chunk" && n == 0 {
				continue
			}
			if _, err := r.recode(b[:n]); err == nil {
				t.Errorf("%s: the first %d of %d bytes decode", r.name, n, len(b))
			}
		}
		newer := bytes.Clone(b)
		newer[0] = 200
		if _, err := r.recode(newer); tine.KindOf(err) != tine.KindVersion {
			t.Errorf("%s: format 200 gives %v", r.name, err)
		}
	}
}

// TestDiskFormats: a disk without a quota is written as before there were
// any, and one with a quota never without it.
func TestDiskFormats(t *testing.T) {
	k := Disk{Name: "n"}
	plain := k.Append(nil)
	if plain[0] != diskFormatPlain {
		t.Errorf("a disk without a quota has format %d", plain[0])
	}
	k.Quota.Inodes = 1
	if got, err := DecodeDisk(k.Append(nil)); err != nil || got.Quota != k.Quota {
		t.Errorf("%+v, %v", got, err)
	}
	if got := k.Append(nil)[0]; got != diskFormatQuota {
		t.Errorf("a disk with a quota has format %d", got)
	}
	for _, q := range []Quota{{}, {Bytes: 5}} {
		b := Disk{Name: "n", Quota: q, Durable: DurableBucket}
		p := b.Append(nil)
		if got, err := DecodeDisk(p); err != nil || got != b || p[0] != diskFormat {
			t.Errorf("%+v of format %d, %v", got, p[0], err)
		}
		p[len(p)-1] = 0
		if _, err := DecodeDisk(p); tine.KindOf(err) != tine.KindCorrupt {
			t.Errorf("format %d of a disk that is not durable in a bucket gives %v", diskFormat, err)
		}
	}
	none := append(bytes.Clone(plain), 0, 0)
	none[0] = diskFormatQuota
	if _, err := DecodeDisk(none); tine.KindOf(err) != tine.KindCorrupt {
		t.Errorf("format %d without a quota gives %v", diskFormatQuota, err)
	}
}

// TestInlineChunk: an inline chunk has no end of its own, so it is tested
// apart.
func TestInlineChunk(t *testing.T) {
	c := Chunk{Inline: []byte("hello"), Birth: 3}
	got, err := DecodeChunk(c.Append(nil))
	if err != nil || string(got.Inline) != "hello" || got.Birth != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	c.Inline = make([]byte, tine.InlineBytes+1)
	if _, err := DecodeChunk(c.Append(nil)); tine.KindOf(err) != tine.KindCorrupt {
		t.Errorf("an inline chunk of %d bytes gives %v", len(c.Inline), err)
	}
}

// FuzzRows: no bytes make a decoder panic, and what decodes can be encoded and
// decoded again without a change.
func FuzzRows(f *testing.F) {
	for i, b := range samples() {
		f.Add(uint8(i), b)
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		r := recoders[int(kind)%len(recoders)]
		once, err := r.recode(b)
		if err != nil {
			return
		}
		twice, err := r.recode(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%s: %x decodes, is encoded as %x and that as %x, %v", r.name, b, once, twice, err)
		}
	})
}

// TestKeysSortAsTheyShould: plain byte order of full keys is the order by
// logical key and then newest first, and every part of a key can be taken out.
func TestKeysSortAsTheyShould(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	names := []string{"a", "ab", "b", "a\x01", "\xff", "\xff\xff"}
	key := func() (Logical, tine.Epoch) {
		ino, name := tine.Ino(r.IntN(3)), names[r.IntN(len(names))]
		ls := []Logical{InodeKey(ino), DentryKey(ino, name), CookieKey(ino, r.Uint64N(3)), ChunkKey(ino, r.Uint64N(3)),
			XattrKey(ino, name), LinkKey(ino, 7, name), OrphanKey(ino), TableKey(TableCounters)}
		return ls[r.IntN(len(ls))], tine.Epoch(r.IntN(4))
	}
	owner := tine.NewID[tine.StratumID](time.Unix(0, 0))
	for range 20000 {
		l, e := key()
		m, g := key()
		want := bytes.Compare([]byte(l), []byte(m))
		if want == 0 {
			want = int(g) - int(e)
		}
		if got := bytes.Compare(Key(owner, l, e), Key(owner, m, g)); (got < 0) != (want < 0) || (got > 0) != (want > 0) {
			t.Fatalf("%q %v and %q %v compare as %d, want %d", l, e, m, g, got, want)
		}
		o, k, epoch, err := SplitKey(Key(owner, l, e))
		if err != nil || o != owner || k != l || epoch != e {
			t.Fatalf("%q %v comes apart as %q %v, %v", l, e, k, epoch, err)
		}
	}
}
