// Package crashpoint names every moment at which the engine's state on the
// device is between two steps, and says what recovery must show for a crash at
// that moment. The crash simulator cuts at each of them; a new step in the
// engine gets a new name here first.
package crashpoint

// Point is one named moment.
type Point uint8

// The points, in the order of a commit's life, then of the tree's records,
// then of background work. "The commit" is the one under way; "before" means
// that recovery shows the state without it, "after" with it, "either" that
// both are right as long as the whole commit is there or none of it.
const (
	SegmentCreated      Point = iota // a new segment file exists that no row names: before; the file is removed at open
	SegmentWritten                   // full blocks are written, not flushed: before
	SegmentSynced                    // full blocks are flushed, the batch is not yet applied: before
	BatchBuilt                       // data is durable, the batch stands in memory only: before
	BatchApplied                     // the batch is applied and flushed, the waiters not yet told: after
	SegmentSealing                   // the last block is written, the footer is not: after; the tail rows rebuild the end
	SegmentSealed                    // the footer is flushed, the row still says open: after; the segment is sealed anew
	RecordBuilt                      // a fork, checkpoint, rollback or promote stands in memory only: before, whole
	RecordApplied                    // the record is flushed, the caller not yet told: after, whole
	DropStarted                      // a pin is gone and its task recorded, nothing freed yet: after; the task runs again
	DropStep                         // some of what a drop frees is freed: after; the task runs again
	AbsorbApplied                    // two lines have become one: after
	FoldStep                         // some rows of a stratum have moved into its neighbour: after
	RepackWritten                    // the new file of a segment is flushed, its row still names the old one: before; the new file is removed
	RepackApplied                    // the row names the new file, the old one still exists: after; the old file is removed
	SegmentUnreferenced              // the row of a dead segment is gone, its file still exists: after; the file is removed
	NumPoints
)

var names = [NumPoints]string{
	"segment-created", "segment-written", "segment-synced", "batch-built", "batch-applied", "segment-sealing",
	"segment-sealed", "record-built", "record-applied", "drop-started", "drop-step", "absorb-applied", "fold-step",
	"repack-written", "repack-applied", "segment-unreferenced",
}

// String returns the point's name.
func (p Point) String() string {
	if p < NumPoints {
		return names[p]
	}
	return "unknown"
}

// Hook is told of every point that is passed. The simulator's hook clones the
// crashable file system; elsewhere it is nil. It is called with locks held and
// must not call back into the engine.
type Hook func(Point)

// At calls the hook, if there is one.
func (h Hook) At(p Point) {
	if h != nil {
		h(p)
	}
}
