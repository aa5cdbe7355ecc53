package timeline

import (
	"testing"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// TestFirmBytesStartNoRepack: dead bytes that the last look has found to stay,
// because live ones share their blocks, start no other; those that die after it
// do, and so does somebody who asks for all to be done.
func TestFirmBytesStartNoRepack(t *testing.T) {
	const physical = 64 << 20
	tr := newTree(&Engine{}, tine.TreeID{1}, record.Tree{})
	l := tr.newLine(tine.TimelineID{2}, nil, 0)
	info := &segInfo{id: tine.SegmentID{3}, line: l, live: physical - 40<<20}
	info.loc.Store(&record.Segment{State: record.SegmentSealed, Physical: physical, End: physical})
	l.space.segs = map[tine.SegmentID]*segInfo{info.id: info}
	found := func(thorough bool) int { return len(tr.candidates(thorough, false)) }
	if found(false) != 1 {
		t.Fatal("40 MiB that are dead start no repack")
	}
	info.firm = 36 << 20
	if n := found(false); n != 0 {
		t.Errorf("%d segments are looked at again for 4 MiB that have died since", n)
	}
	if found(true) != 1 {
		t.Error("who asks for all to be done has it not looked at")
	}
	if len(tr.candidates(false, true)) != 1 {
		t.Error("4 MiB that have died since are not looked at on a device that is short of room")
	}
	info.live -= 20 << 20
	info.firm = 20 << 20
	if found(false) != 1 {
		t.Error("40 MiB that have died since the last look start no repack")
	}
}
