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

const stagedPiece = 100 << 10

// stagedDisk is the head of a disk whose segments have room for four pieces.
type stagedDisk struct {
	*testing.T
	e *timeline.Engine
	v *timeline.View
}

func chunkKey(ino tine.Ino) record.Logical { return record.ChunkKey(ino, 0) }

func pieceOf(ino tine.Ino) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%08d", ino), stagedPiece/8)
}

func (d stagedDisk) stage(ino tine.Ino) timeline.Staged {
	d.Helper()
	s, err := d.v.Stage(pieceOf(ino))
	must(d.T, err)
	return s
}

func (d stagedDisk) name(ino tine.Ino, s timeline.Staged) {
	d.Helper()
	must(d.T, d.v.Change(func(x *timeline.Txn) error {
		x.Name(s, s.Len)
		return x.PutChunk(chunkKey(ino), timeline.Found{}, &record.Chunk{Extents: []record.Extent{{Len: s.Len, Segment: s.Segment(), Off: s.Off, Birth: x.Epoch()}}})
	}))
}

func (d stagedDisk) remove(inos ...tine.Ino) {
	d.Helper()
	must(d.T, d.v.Change(func(x *timeline.Txn) error {
		for _, ino := range inos {
			f, err := x.Get(chunkKey(ino))
			if err != nil {
				return err
			}
			if err := x.DelChunk(chunkKey(ino), f); err != nil {
				return err
			}
		}
		return nil
	}))
}

func (d stagedDisk) tidy() {
	d.Helper()
	must(d.T, d.v.Sync(d.Context()))
	must(d.T, d.e.Tidy(d.Context()))
}

// shown checks what the inode shows.
func (d stagedDisk) shown(ino tine.Ino) error {
	return d.v.Read(func(r *timeline.Reader) error {
		f, err := r.Get(chunkKey(ino))
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
		got := make([]byte, stagedPiece)
		if err := h.ReadAt(got, c.Extents[0].Off); err != nil {
			return err
		}
		if !bytes.Equal(got, pieceOf(ino)) {
			return fmt.Errorf("other bytes")
		}
		return nil
	})
}

func testStaged(t *testing.T, others, named bool) {
	segs, err := segment.Open(segment.Options{FS: vfs.NewMem(), Dir: "segments"})
	must(t, err)
	e, err := timeline.Open(timeline.Options{Rows: mem.New(), Segments: segs, CommitInterval: -1, Manual: true, SegmentBytes: 4 * stagedPiece,
		Reap: func(*timeline.Txn) (bool, error) { return false, nil }})
	must(t, err)
	disk, err := e.Create(t.Context(), tine.DefaultTenant, "disk", timeline.Actor{}, timeline.Origin{Counters: record.Counters{NextIno: 9, NextCookie: 1}})
	must(t, err)
	a, err := disk.Attach("")
	must(t, err)
	v, _, err := a.Enter(0)
	must(t, err)
	d := stagedDisk{t, e, v}
	write := func(ino tine.Ino) {
		s := d.stage(ino)
		d.name(ino, s)
		s.Release()
	}
	live := []tine.Ino{6, 7}
	write(1)
	if others {
		write(2)
		live = append(live, 2)
	}
	late := d.stage(3)
	for ino := tine.Ino(4); ino < 8; ino++ {
		write(ino) // the first segment is full by now
	}
	d.tidy()
	d.remove(1, 4, 5) // all in the first segment but 2
	d.tidy()
	if named {
		d.name(3, late)
		live = append(live, 3)
	}
	late.Release()
	d.tidy()
	for _, ino := range live {
		if err := d.shown(ino); err != nil {
			t.Errorf("what was written to inode %d is lost: %v", ino, err)
		}
	}
	// What is dead in the segment that is open stays: one piece at most.
	if st := e.Stats(); st.SegmentBytes > int64(len(live)+1)*stagedPiece+3*segment.BlockBytes*int64(st.Segments) {
		t.Errorf("%d bytes of segments are left for %d that live", st.SegmentBytes, len(live)*stagedPiece)
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
