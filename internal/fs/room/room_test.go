package room_test

import (
	"testing"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/mem"
	"tine.dev/tine/internal/fs/room"
	"tine.dev/tine/internal/tine"
)

// TestTakeLeavesWhatTheRowsNeed: however much is asked for in whatever pieces, at
// most what is free beyond the rows' share is given, and it is asked again.
func TestTakeLeavesWhatTheRowsNeed(t *testing.T) {
	const keep, piece = 10 << 20, 1 << 20
	free := int64(100 << 20)
	d := room.New(mem.New(), room.Options{FreeBytes: func() int64 { return free }, KeepBytes: keep})
	taken := int64(0)
	for d.Take(piece) == nil {
		free -= piece
		if taken += piece; taken > 200<<20 {
			t.Fatal("it never ends")
		}
	}
	if free < keep || free > keep+piece {
		t.Errorf("%d bytes were left at the end; the rows need %d", free, keep)
	}
	if err := d.Take(piece); tine.KindOf(err) != tine.KindNoSpace {
		t.Errorf("the next: %v, want no space", err)
	}
	free += 2 * piece
	if err := d.Take(piece); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// full is a store that refuses commits while it is told to.
type full struct {
	kv.Store
	on bool
}

func (f *full) Commit(b kv.Batch, sync bool) error {
	if f.on {
		b.Discard()
		return tine.ErrNoSpace
	}
	return f.Store.Commit(b, sync)
}

// TestFullIsRememberedAndAskedAgain: a refused commit makes the device full until
// a probe is let in; before one was made it stays full, whatever there is.
func TestFullIsRememberedAndAskedAgain(t *testing.T) {
	rows := &full{Store: mem.New(), on: true}
	d := room.New(rows, room.Options{})
	if d.Full() || d.Probe() {
		t.Error("a new device is full")
	}
	if !d.Refused(nil) || !d.Full() {
		t.Error("after a refused commit it is not full")
	}
	if !d.Probe() {
		t.Error("the first probe was refused, and it is not full")
	}
	rows.on = false
	if !d.Full() {
		t.Error("it has room before it was asked")
	}
	for d.Probe() { // an answer is good for a while
	}
	if d.Full() {
		t.Error("it was let in and is still full")
	}
	quit := make(chan struct{})
	close(quit)
	if d.Refused(quit) {
		t.Error("it waits though the engine closes")
	}
	waits := room.New(rows, room.Options{RowsWait: func() bool { return true }})
	if !waits.Full() {
		t.Error("the rows wait for room, and it is not full")
	}
}
