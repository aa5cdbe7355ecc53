package volume

import (
	"context"
	"slices"
	"sync"

	"tine.dev/tine/internal/fs/timeline"
)

// maxRested is how many disks that nobody uses any more may keep a segment open
// for writing. Each costs two file descriptors, of which a process has some
// thousands, and there may be ten thousand forks; but a disk that is attached and
// written again and again should not begin a segment each time.
const maxRested = 128

// rested are the disks whose last writing session has ended, the one that ended
// first before the others; they may be in use again by now.
type rested struct {
	mu    sync.Mutex // a leaf
	disks []*timeline.Disk
}

// add puts a disk at the end, and returns the first when there are too many.
func (r *rested) add(d *timeline.Disk) (over *timeline.Disk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.disks = append(slices.DeleteFunc(r.disks, func(x *timeline.Disk) bool { return x == d }), d)
	if len(r.disks) > maxRested {
		over, r.disks = r.disks[0], slices.Delete(r.disks, 0, 1)
	}
	return over
}

// letRest notes that a session of the disk has ended, and seals the segment of
// the disk that rests longest, if too many do. A disk that is in use again is
// left alone: it comes back when that use ends.
func (h *Host) letRest(ctx context.Context, d *timeline.Disk) {
	over := h.rested.add(d)
	if over == nil {
		return
	}
	if err := over.SealUnused(ctx); err != nil {
		h.log.Warn("the open segment of an unused disk could not be sealed; it stays open", "disk", over.ID().String(), "error", err)
	}
}
