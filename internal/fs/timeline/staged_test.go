package timeline_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv/mem"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// TestStagedBytesAreKept: an operation stages its data before it names it. Meanwhile
// the segment may get full, be sealed, and all or most of what is named in it die: the
// segment is neither dropped nor written anew without the staged bytes (I19). When the
// operation is over and has named nothing, nothing is left of them.
func TestStagedBytesAreKept(t *testing.T) {
	for _, others := range []bool{false, true} {
		for _, named := range []bool{true, false} {
			t.Run(fmt.Sprintf("others live %v, named in the end %v", others, named), func(t *testing.T) { testStaged(t, others, named) })
		}
	}
}

func testStaged(t *testing.T, others, named bool) {
	const piece = 100 << 10
	segs, err := segment.Open(segment.Options{FS: vfs.NewMem(), Dir: "segments"})
	must(t, err)
	e, err := timeline.Open(timeline.Options{Rows: mem.New(), Segments: segs, CommitInterval: -1, Manual: true, SegmentBytes: 4 * piece,
		Reap: func(*timeline.Txn) (bool, error) { return false, nil }})
	must(t, err)
	d, err := e.Create(t.Context(), tine.DefaultTenant, "disk", timeline.Actor{}, timeline.Origin{Counters: record.Counters{NextIno: 9, NextCookie: 1}})
	must(t, err)
	a, err := d.Attach("")
	must(t, err)
	v, _, err := a.Enter(0)
	must(t, err)
	content := func(ino tine.Ino) []byte { return bytes.Repeat(fmt.Appendf(nil, "%08d", ino), piece/8) }
	key := func(ino tine.Ino) record.Logical { return record.ChunkKey(ino, 0) }
	stage := func(ino tine.Ino) timeline.Staged {
		s, err := v.Stage(content(ino))
		must(t, err)
		return s
	}
	name := func(ino tine.Ino, s timeline.Staged) {
		must(t, v.Change(func(x *timeline.Txn) error {
			x.Name(s, s.Len)
			return x.PutChunk(key(ino), timeline.Found{}, &record.Chunk{Extents: []record.Extent{{Len: s.Len, Segment: s.Segment(), Off: s.Off, Birth: x.Epoch()}}})
		}))
	}
	write := func(ino tine.Ino) {
		s := stage(ino)
		name(ino, s)
		s.Release()
	}
	write(1)
	if others {
		write(2)
	}
	late := stage(3)
	for ino := tine.Ino(4); ino < 8; ino++ {
		write(ino) // the first segment is full by now
	}
	must(t, v.Sync(t.Context()))
	must(t, e.Tidy(t.Context()))
	must(t, v.Change(func(x *timeline.Txn) error {
		for _, ino := range []tine.Ino{1, 4, 5} { // all but 2 that may be in the first segment
			f, err := x.Get(key(ino))
			if err != nil {
				return err
			}
			if err := x.DelChunk(key(ino), f); err != nil {
				return err
			}
		}
		return nil
	}))
	must(t, v.Sync(t.Context()))
	must(t, e.Tidy(t.Context()))
	if named {
		name(3, late)
	}
	late.Release()
	must(t, v.Sync(t.Context()))
	must(t, e.Tidy(t.Context()))
	live := []tine.Ino{6, 7}
	if named {
		live = append(live, 3)
	}
	if others {
		live = append(live, 2)
	}
	for _, ino := range live {
		must(t, v.Read(func(r *timeline.Reader) error {
			f, err := r.Get(key(ino))
			if err != nil {
				return err
			}
			c, err := record.DecodeChunk(f.Val)
			if err != nil {
				return err
			}
			h, err := r.Pin(c.Extents[0].Segment)
			if err != nil {
				return err
			}
			defer h.Release()
			got := make([]byte, piece)
			if err := h.ReadAt(got, c.Extents[0].Off); err != nil || !bytes.Equal(got, content(ino)) {
				t.Errorf("what was written to inode %d is lost: %v", ino, err)
			}
			return nil
		}))
	}
	if st := e.Stats(); st.SegmentBytes > int64(len(live))*piece+3*segment.BlockBytes*int64(st.Segments) {
		t.Errorf("%d bytes of segments are left for %d that live", st.SegmentBytes, len(live)*piece)
	}
	a.Exit()
	a.Detach()
	must(t, e.Close(t.Context()))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
