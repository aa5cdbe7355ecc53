package timeline

import (
	"github.com/tidwall/btree"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/tine"
)

// step is something that becomes durable at one moment: a commit of a line or
// a record of a tree. It starts after the steps it depends on are durable.
type step struct {
	deps []*step
	done chan struct{} // closed when the step is durable or has failed
	err  error         // set before done is closed
}

func newStep(deps ...*step) *step {
	s := &step{done: make(chan struct{})}
	for _, d := range deps {
		if d != nil && !d.isDone() {
			s.deps = append(s.deps, d)
		}
	}
	return s
}

func (s *step) isDone() bool {
	select {
	case <-s.done:
		return s.err == nil
	default:
		return false
	}
}

// awaitDeps waits until all that the step depends on is durable.
func (s *step) awaitDeps() error {
	for _, d := range s.deps {
		<-d.done
		if d.err != nil {
			return d.err
		}
	}
	s.deps = nil
	return nil
}

func (s *step) finish(err error) {
	s.err = err
	close(s.done)
}

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
	*step
	line  *line
	epoch tine.Epoch
	rows  btree.Map[record.Logical, entry]
	frees map[record.Logical][]tine.Epoch // versions that nothing needs any more
	raw   []rawRow                        // records of the tree that belong to this commit
	segs  map[tine.SegmentID]struct{}     // whose live bytes or pieces changed
	bytes int                             // approximate memory held
	grows bool                            // it makes the disk larger: refused on a full device

	// set when sealed
	ends []segmentEnd
	dead []deadSegment
}

// rawRow is a change of a row by its full key: a value sets it, nil deletes it,
// and with until all rows in [key, until) go.
type rawRow struct{ key, value, until []byte }

func (r rawRow) put(b kv.Batch) {
	switch {
	case r.until != nil:
		b.DeleteRange(r.key, r.until)
	case r.value == nil:
		b.Delete(r.key)
	default:
		b.Set(r.key, r.value)
	}
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
	return &layer{step: newStep(), line: l, epoch: epoch}
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
