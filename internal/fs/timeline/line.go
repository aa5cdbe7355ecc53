package timeline

import (
	"slices"
	"sync"
	"sync/atomic"

	"tine.dev/tine/internal/fs/reclaim"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/fs/step"
	"tine.dev/tine/internal/fs/stratum"
	"tine.dev/tine/internal/tine"
)

// line is a timeline in memory.
//
// When a line is absorbed, the child's object lives on as both and the other
// points to it: pointers to a line that are kept (by children, checkpoints,
// views, segments) are followed with root before use.
type line struct {
	tree *tree
	id   tine.TimelineID

	// What connects lines: written with tree.mu, line.mu and tree.topo held,
	// read with any of them.
	merged   atomic.Pointer[line] // not nil: this line was absorbed
	strata   []*stratum.Stratum
	parent   *line
	branch   tine.Epoch
	first    tine.Epoch
	children map[*line]struct{}
	aka      []tine.TimelineID // aliases that mean this line; guarded by tree.mu

	mu       sync.RWMutex
	epoch    tine.Epoch   // of new rows
	pins     reclaim.Pins // written with mu and tree.mu held, read with either
	head     *Disk        // the disk whose head this is; nil if it has none
	open     *layer
	counters lineCounters
	state    lineState
	after    *step.Step // what the next commit depends on: the last record that concerns this line
	opens    map[tine.Ino]*Handles
	commits  committer
	space    space
	tasks    int // drops of this line that are not finished; guarded by tree.mu

	sealed atomic.Pointer[[]*layer] // oldest first; dropped only once applied; nil: none
	view   View                     // the head
}

// lineState is what a line knows of its rows; guarded by line.mu.
type lineState struct {
	touched bool                 // the line has, or had, rows of its own
	written bool                 // a row has been put at the present epoch
	reap    bool                 // unlinked files without a handle may have become this line's
	stored  atomic.Bool          // some row of the line has been committed
	disk    atomic.Pointer[Disk] // line.head, for a look without the lock
}

// lineCounters are a line's counters: loaded when they are known, dirty when
// they have changed since they were last in a layer.
type lineCounters struct {
	record.Counters
	at            Found // where their row stands, without its value
	loaded, dirty bool
	orphans       orphans
}

// committer is the state of a line's commit stream; guarded by line.mu.
type committer struct {
	running bool
	idle    chan struct{} // closed when running ends
	wanted  bool          // someone waits for the open layer
	timer   bool          // the interval timer is set
	between []func()      // run by the committer between two commits
	failed  error
}

// space is what a line writes to, and the segments it owns.
type space struct {
	mu     sync.Mutex // guards all but segs; held during Append
	writer *segment.Writer
	info   *segInfo
	full   []segmentEnd                // earlier writers of this line not yet sealed
	segs   map[tine.SegmentID]*segInfo // guarded by line.mu

	// unnamed are those that no row has named: a write was given up after its
	// data was staged, or has not come that far. A commit gives them a row all
	// the same, so they must go with the line.
	unnamed map[tine.SegmentID]*segInfo
}

// segInfo is what a tree knows of a segment.
type segInfo struct {
	id     tine.SegmentID
	line   *line // the owner; follow with root
	loc    atomic.Pointer[record.Segment]
	live   int64          // bytes that rows of the owner name; guarded by the owner's mu
	pieces reclaim.Pieces // guarded by the owner's mu
	staged atomic.Int32   // operations under way that may still name bytes of it
	gone   bool           // its row's removal stands in a layer; guarded by the owner's mu
	tails  segment.Tails  // known to the owner's committer only
	firm   int64          // dead bytes that a repack would leave, as last looked; known to the janitor only
	copies int64          // live, when it became a candidate for a repack; known to the janitor only
}

// root follows absorption to the line that lives.
func (l *line) root() *line {
	r := l
	for {
		into := r.merged.Load()
		if into == nil {
			break
		}
		r = into
	}
	if into := l.merged.Load(); into != nil && into != r {
		l.merged.Store(r) // shorten the way for the next one
	}
	return r
}

// pinsWithHead returns all pins in order, the head's last.
func (l *line) pinsWithHead() []tine.Epoch {
	ps := slices.Clone(l.pins.Sorted())
	if l.head != nil {
		ps = append(ps, tine.Head)
	}
	return ps
}

// floor is the newest epoch whose rows this line must not replace (I9): those
// of its newest pin, and all that belongs to its parent.
func (l *line) floor() tine.Epoch { return max(l.pins.Newest(), l.branch) }

// timeline returns the line's record.
func (l *line) timeline() record.Timeline {
	t := record.Timeline{Branch: l.branch, Epoch: l.epoch, First: l.first}
	for _, s := range l.strata {
		t.Strata = append(t.Strata, s.ID)
	}
	if l.parent != nil {
		t.Parent = l.parent.root().id
	}
	return t
}

// untouched reports that the line has never had a row of its own, nor a pin:
// its state is exactly its parent's at the branch.
func (l *line) untouched() bool {
	return l.parent != nil && !l.state.touched && !l.counters.dirty && l.epoch == l.first && len(l.pins.Sorted()) == 0
}

// layers returns the sealed layers, oldest first.
func (l *line) layers() []*layer {
	if ys := l.sealed.Load(); ys != nil {
		return *ys
	}
	return nil
}

// Handles counts the handles on an inode of a head; the file system keeps it.
type Handles struct {
	Count  int
	Orphan bool  // it has no name left; it is removed at the last close
	Bytes  int64 // of an orphan's data, which the counters have given up
}
