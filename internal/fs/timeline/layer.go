package timeline

import (
	"github.com/tidwall/btree"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/room"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/fs/step"
	"tine.dev/tine/internal/tine"
)

// below tells what is known of the versions under a row of a layer.
type below uint8

const (
	belowUnknown below = iota
	belowNothing       // no older version and no tombstone exists anywhere under it
	belowSomething
)

// entry is one row of a layer. A row is a value, a tombstone, or gone: there is
// nothing, and nothing below either, but a version in the store must go.
type entry struct {
	val      []byte
	tomb     bool
	gone     bool
	below    below
	replaces tine.Epoch // birth of the version of this line that it takes the place of; 0: none
}

// layer is a commit of a line before it is applied: open while operations add
// to it (guarded by line.mu), sealed and immutable afterwards. All its rows
// are born at its epoch.
type layer struct {
	*step.Step
	line  *line
	epoch tine.Epoch
	rows  btree.Map[record.Logical, entry]
	frees map[record.Logical][]tine.Epoch // versions that nothing needs any more
	raw   kv.Changes                      // records of the tree that belong to this commit
	segs  map[tine.SegmentID]struct{}     // whose live bytes or pieces changed
	bytes int                             // approximate memory held
	held  room.Share                      // the same, as the room counts it
	grows bool                            // it makes the disk larger: refused on a full device

	// set when sealed
	ends []segmentEnd
	dead []deadSegment
}

// segmentEnd is how much of an open segment a commit needs durable.
type segmentEnd struct {
	info *segInfo
	w    *segment.Writer
	end  int64
}

type deadSegment struct {
	id  tine.SegmentID
	gen uint64
}

func newLayer(l *line, epoch tine.Epoch) *layer {
	return &layer{Step: step.New(), line: l, epoch: epoch}
}

func (y *layer) empty() bool {
	return y.rows.Len() == 0 && len(y.frees) == 0 && len(y.raw) == 0 && len(y.segs) == 0
}

func (y *layer) set(l record.Logical, e entry) {
	y.rows.Set(l, e)
	y.bytes += len(l) + len(e.val) + 96
}

func (y *layer) free(l record.Logical, birth tine.Epoch) {
	if y.frees == nil {
		y.frees = map[record.Logical][]tine.Epoch{}
	}
	y.frees[l] = append(y.frees[l], birth)
	y.bytes += len(l) + 64
}

func (y *layer) touch(id tine.SegmentID) {
	if y.segs == nil {
		y.segs = map[tine.SegmentID]struct{}{}
	}
	y.segs[id] = struct{}{}
}
