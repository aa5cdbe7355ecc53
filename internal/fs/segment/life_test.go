package segment

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

func TestAbandon(t *testing.T) {
	s := openStore(t, Options{FS: vfs.NewMem()})
	w := create(t, s)
	mustAppend(t, w, random(40000, 6))
	hard, err := w.Harden(40000, 0)
	if err != nil {
		t.Fatal(err)
	}
	loc := record.Segment{State: record.SegmentOpen, End: 40000, Synced: hard.Synced}
	_, err = s.Recover(w.ID(), loc, hard.Tails)
	wantKind(t, err, tine.KindBusy)
	h, err := s.Acquire(w.ID(), loc)
	if err != nil {
		t.Fatal(err)
	}
	w.Abandon()
	w.Abandon()
	wantKind(t, h.ReadAt(make([]byte, 1), 0), tine.KindStale)
	_, err = s.Acquire(w.ID(), loc)
	wantKind(t, err, tine.KindUnavailable)
	_, err = w.Append([]byte("x"))
	wantKind(t, err, tine.KindInvalid)
	_, err = w.Seal()
	wantKind(t, err, tine.KindInvalid)
	row, err := s.Recover(w.ID(), loc, hard.Tails)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, s, w.ID(), row, 0, 40000), random(40000, 6)) {
		t.Fatal("recovered wrong bytes")
	}
	h.Release()
	if !bytes.Equal(read(t, s, w.ID(), row, 0, 40000), random(40000, 6)) {
		t.Fatal("releasing the stale handle hurt the recovered file")
	}
}

func TestCreateTwiceAndClose(t *testing.T) {
	s := openStore(t, Options{FS: vfs.NewMem()})
	w := create(t, s)
	_, err := s.Create(w.ID(), testTime)
	wantKind(t, err, tine.KindExists)
	row := mustSeal(t, w)
	s.mu.Lock()
	f := s.files[fileKey{id: w.ID()}]
	s.forget(f)
	s.mu.Unlock()
	_, err = s.Create(w.ID(), testTime)
	wantKind(t, err, tine.KindExists)
	h, err := s.Acquire(w.ID(), row)
	if err != nil {
		t.Fatal(err)
	}
	open := create(t, s)
	s.Close()
	if _, err := open.Append([]byte("x")); tine.KindOf(err) != tine.KindInvalid {
		t.Fatal(err)
	}
	if err := h.ReadAt(nil, 0); err != nil {
		t.Fatal(err)
	}
	h.Release()
	if len(s.files) != 0 {
		t.Fatalf("%d files open after close", len(s.files))
	}
	_, err = s.Acquire(w.ID(), row)
	wantKind(t, err, tine.KindUnavailable)
	_, err = s.Create(newID(), testTime)
	wantKind(t, err, tine.KindUnavailable)
}

func TestRepack(t *testing.T) {
	s := openStore(t, Options{FS: vfs.NewMem()})
	w := create(t, s)
	data := random(10*BlockBytes+100, 7)
	mustAppend(t, w, data)
	row := mustSeal(t, w)
	live := []Range{{9*BlockBytes + 1, 1}, {10*BlockBytes + 50, 50}, {5, 10}, {3 * BlockBytes, 2 * BlockBytes}, {7, 0}}
	next, err := s.Repack(w.ID(), row, live)
	if err != nil {
		t.Fatal(err)
	}
	overlapping := append([]Range{{2, 6}, {9 * BlockBytes, 3}}, live...)
	physical, used, err := Packed(w.ID(), overlapping, row.End)
	if want := int64(10 + 3 + 3 + 50 + 2*BlockBytes); err != nil || physical != next.Physical || used != want {
		t.Fatalf("foretold %d bytes for %d, %v; it has %d, and %d are named", physical, used, err, next.Physical, want)
	}
	_, _, err = Packed(w.ID(), []Range{{row.End - 1, 2}}, row.End)
	wantKind(t, err, tine.KindInvalid)
	if next.Generation != 1 || next.End != row.End || next.Physical >= row.Physical {
		t.Fatalf("repacked to %+v", next)
	}
	for _, r := range live {
		if !bytes.Equal(read(t, s, w.ID(), next, r.Off, r.Len), data[r.Off:r.Off+r.Len]) {
			t.Fatalf("range %v reads wrong", r)
		}
	}
	h, err := s.Acquire(w.ID(), next)
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, h.ReadAt(make([]byte, 1), BlockBytes), tine.KindCorrupt)
	wantKind(t, h.ReadAt(make([]byte, 2*BlockBytes), 4*BlockBytes), tine.KindCorrupt)
	h.Release()
	if err := s.Check(w.ID(), next); err != nil {
		t.Fatal(err)
	}
	// A caller that is behind must not write over generation 1.
	behind, err := s.Repack(w.ID(), row, live[:1])
	if err != nil || behind.Generation != 2 {
		t.Fatalf("%+v, %v", behind, err)
	}
	_, err = s.Repack(w.ID(), behind, live)
	wantKind(t, err, tine.KindCorrupt)
	none, err := s.Repack(w.ID(), next, nil)
	if err != nil || none.Physical != headerBytes+trailerBytes {
		t.Fatalf("%+v, %v", none, err)
	}
	_, err = s.Repack(w.ID(), row, []Range{{row.End - 1, 2}})
	wantKind(t, err, tine.KindInvalid)
	_, err = s.Repack(w.ID(), record.Segment{State: record.SegmentOpen}, nil)
	wantKind(t, err, tine.KindInvalid)
	if want := row.Physical + next.Physical + behind.Physical + none.Physical; s.DiskBytes() != want {
		t.Fatalf("%d bytes counted, want %d", s.DiskBytes(), want)
	}
}

// TestRealFiles runs the whole life on the device, where files can be cut.
func TestRealFiles(t *testing.T) {
	dir := t.TempDir() + "/a/b"
	s := openStore(t, Options{Dir: dir})
	w := create(t, s)
	data := random(9*BlockBytes+77, 8)
	mustAppend(t, w, data)
	hard, err := w.Harden(40000, 10000)
	if err != nil {
		t.Fatal(err)
	}
	mustSeal(t, w) // and crash before the row is committed
	loc := record.Segment{State: record.SegmentOpen, End: 40000, Synced: hard.Synced, Created: testTime.UnixNano()}
	s.Close()
	s = openStore(t, Options{Dir: dir})
	if err := s.Check(w.ID(), loc); err != nil {
		t.Fatal(err)
	}
	row, err := s.Recover(w.ID(), loc, hard.Tails)
	if err != nil {
		t.Fatal(err)
	}
	st, err := vfs.Default.Stat(s.path(fileKey{id: w.ID()}))
	if err != nil || st.Size() != row.Physical || s.DiskBytes() != row.Physical {
		t.Fatalf("file of %d bytes, counted %d, row %+v, %v", st.Size(), s.DiskBytes(), row, err)
	}
	if !bytes.Equal(read(t, s, w.ID(), row, 0, 40000), data[:40000]) {
		t.Fatal("wrong bytes")
	}
	next, err := s.Repack(w.ID(), row, []Range{{20000, 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(w.ID(), row.Generation); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, s, w.ID(), next, 20000, 1000), data[20000:21000]) || s.DiskBytes() != next.Physical {
		t.Fatal("repacked file is wrong")
	}
}
