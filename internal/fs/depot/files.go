package depot

import (
	"context"

	"tine.dev/tine/internal/fs/object"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/tine"
)

// Files is the file data of a tree as the engine keeps it. It implements
// Segments.
type Files struct {
	Local   *segment.Store
	Objects *object.Store
	Seal    func(tine.SegmentID) // has an open segment sealed soon
}

// Upload implements Segments.
func (f Files) Upload(ctx context.Context, id tine.SegmentID, loc record.Segment) error {
	h, err := f.Local.Acquire(id, loc)
	if tine.KindOf(err) == tine.KindNotFound && err != nil {
		// Evicted, or never here: then the store has it.
		_, err = f.Objects.Open(ctx, id, loc.Generation, 0)
		return err
	}
	if err != nil {
		return err
	}
	defer h.Release()
	_, err = f.Objects.Write(ctx, h)
	return err
}

// Read implements Segments.
func (f Files) Read(id tine.SegmentID, loc record.Segment, p []byte, off int64) error {
	h, err := f.Local.Acquire(id, loc)
	if err != nil {
		return err
	}
	defer h.Release()
	return h.ReadAt(p, off)
}

// Forget implements Segments.
func (f Files) Forget(id tine.SegmentID, generation uint64) { f.Objects.Forget(id, generation) }

// Roll implements Segments.
func (f Files) Roll(id tine.SegmentID) { f.Seal(id) }
