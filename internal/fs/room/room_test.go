package room_test

import (
	"testing"
	"time"

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
	waits := room.New(rows, room.Options{Waiter: waiting{}})
	if !waits.Full() {
		t.Error("the rows wait for room, and it is not full")
	}
}

// waiting is a store that waits for room.
type waiting struct{}

func (waiting) Waiting() bool      { return true }
func (waiting) Room() kv.Room      { return kv.Room{} }
func (waiting) AlwaysBytes() int64 { return 0 }

// store is one whose room can be set.
type store struct {
	kv.Store
	room   kv.Room
	always int64
}

func (s *store) Waiting() bool      { return false }
func (s *store) Room() kv.Room      { return s.room }
func (s *store) AlwaysBytes() int64 { return s.always }

// until asks until it is so: an answer is good for a while.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); {
		if time.Now().After(end) {
			t.Fatalf("it is never %s", what)
		}
	}
}

// TestFullIsSeenBeforeACommitIsRefused: what makes a disk larger is refused as
// soon as the store would refuse its rows; what is asked of the whole device too,
// and nothing is stuck by that.
func TestFullIsSeenBeforeACommitIsRefused(t *testing.T) {
	rows := &store{Store: mem.New(), room: kv.Room{SpareBytes: 1 << 30}}
	d := room.New(rows, room.Options{Waiter: rows, FreeBytes: func() int64 { return 1 << 40 }})
	if d.Full() || d.Scarce() || d.Short() || d.Grow() != nil {
		t.Fatal("a device with room is full")
	}
	rows.room = kv.Room{Low: true, SpareBytes: 1 << 20}
	until(t, "full", d.Full)
	if err := d.Grow(); tine.KindOf(err) != tine.KindNoSpace || tine.HintOf(err) == "" {
		t.Errorf("something new on a full device: %v", err)
	}
	if d.Stuck() || d.Scarce() || !d.Short() || !d.Probe() {
		t.Error("a full device that takes deletions is not known as such")
	}
	rows.room.Last = true
	until(t, "scarce", d.Scarce)
	rows.room = kv.Room{SpareBytes: 1 << 30}
	until(t, "free again", func() bool { return !d.Full() && !d.Scarce() && d.Grow() == nil })
}

// TestShortOfRoomForData: a device may be short for data while rows have room.
func TestShortOfRoomForData(t *testing.T) {
	free := int64(100)
	d := room.New(mem.New(), room.Options{KeepBytes: 80, FreeBytes: func() int64 { return free }})
	if d.Short() {
		t.Error("with room for data it is short")
	}
	free = 85
	if !d.Short() || d.Full() {
		t.Errorf("with hardly any: short %v, full %v", d.Short(), d.Full())
	}
}

// TestCrowded: no more is held than what the store always takes and a small share
// of what is free.
func TestCrowded(t *testing.T) {
	rows := &store{Store: mem.New(), always: 1 << 20}
	d := room.New(rows, room.Options{Waiter: rows})
	var mine, others room.Share
	mine.Set(d, 1<<20)
	if d.Crowded() {
		t.Error("what the store always takes is too much")
	}
	others.Set(d, 1)
	if !d.Crowded() {
		t.Error("more than what the store always takes is not too much, with no room")
	}
	rows.room.SpareBytes = 1 << 30
	until(t, "less crowded", func() bool { return !d.Crowded() })
	mine.Set(d, 3<<20)
	if !d.Crowded() {
		t.Error("any amount may be held")
	}
	mine.Set(d, 0)
	others.Set(d, 0)
	if d.Crowded() {
		t.Error("nothing is held, and that is too much")
	}
}
