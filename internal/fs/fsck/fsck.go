package fsck

import (
	"context"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Options say what to check.
type Options struct {
	Rows kv.Store // read through one snapshot; repair also writes
	// FS and SegmentDir are where the segment files lie; FS nil: the files are
	// not looked at.
	FS         vfs.FS
	SegmentDir string
	// Live is set when a server has the directory open: files come and go, so
	// files without a row are not reported, and a file that is missing is looked
	// for once more where the newest row says.
	Live bool
	// Data reads and verifies every block of every segment. Without it, the
	// ends and lengths of the files are verified, and no content.
	Data bool
	// Disks restricts the check to the trees that these disks are in; none: all.
	Disks []string
	// Salvaged is what was lost with damaged files of the row store before a repair:
	// repair names whose rows lay there, mends what checkpoints show too, and marks missing
	// data as lost.
	Salvaged []kv.Damage
	PerCode  int             // findings of one code that are told in full; 0: 100; negative: all
	Found    func(Finding)   // called for each finding that is told in full
	Progress func(Progress)  // called now and then
	Context  context.Context // may end the check early; nil: never
}

// world is what one check knows.
type world struct {
	Options
	rep  *reporter
	snap kv.Snapshot

	tenants map[tine.TenantID]bool
	trees   map[tine.TreeID]*tree
	order   []*tree
	strata  map[tine.StratumID]*line   // of all trees
	owners  []tine.StratumID           // that have rows of files
	segs    map[tine.SegmentID]*seg    // of all trees
	files   map[tine.SegmentID][]*file // as they lie on the device
	sound   map[tine.SegmentID]bool    // segments without a row: whether a file is sound
	newer   bool                       // R003 was found
	damaged bool                       // a record that may have named strata is damaged
	hurt    []view                     // in which something was found
	last    Finding                    // the newest
	fixing  *repairer                  // set when findings are to be mended
	key     []byte
}

// Check looks at a whole data directory, or the trees of some disks. An error
// means that the check could not be made at all: a disk that does not exist
// (KindNotFound), a store or context that failed. What is wrong with the data
// is in the report. Nothing is changed.
func Check(o Options) (*Report, error) {
	w := newWorld(o)
	defer w.snap.Close()
	if err := w.all(); err != nil {
		return nil, err
	}
	if err := w.verifyRows(); err != nil {
		return nil, err
	}
	return w.rep.report(), nil
}

// all runs the whole check.
func (w *world) all() error {
	if err := w.catalog(); err != nil {
		return err
	}
	w.structure()
	if err := w.choose(); err != nil {
		return err
	}
	w.checkFiles()
	for _, t := range w.order {
		if err := w.checkTree(t); err != nil {
			return err
		}
	}
	w.strayRows()
	w.strayFiles()
	return w.ended()
}

func newWorld(o Options) *world {
	return &world{
		Options: o, rep: newReporter(o), tenants: map[tine.TenantID]bool{}, trees: map[tine.TreeID]*tree{},
		strata: map[tine.StratumID]*line{}, segs: map[tine.SegmentID]*seg{}, files: map[tine.SegmentID][]*file{},
		sound: map[tine.SegmentID]bool{}, snap: o.Rows.Snapshot(),
	}
}

// ended reports that the caller has given up.
func (w *world) ended() error {
	if w.Context == nil || w.Context.Err() == nil {
		return nil
	}
	return tine.Errorf(tine.KindInterrupted, "the check was interrupted: %w", context.Cause(w.Context))
}

// choose leaves the trees that are asked for.
func (w *world) choose() error {
	for _, t := range w.trees {
		w.order = append(w.order, t)
	}
	slices.SortFunc(w.order, func(a, b *tree) int { return slices.Compare(a.id[:], b.id[:]) })
	if len(w.Disks) == 0 {
		return nil
	}
	wanted := map[*tree]bool{}
	for _, name := range w.Disks {
		any := false
		for _, t := range w.order {
			for _, d := range t.disks {
				if d.rec.Name == name {
					wanted[t], any = true, true
				}
			}
		}
		if !any {
			return tine.Errorf(tine.KindNotFound, "there is no disk %q", name).
				WithHint("`tine fsck` without a name checks all disks")
		}
	}
	w.order = slices.DeleteFunc(w.order, func(t *tree) bool { return !wanted[t] })
	return nil
}

// whole reports that all trees are checked.
func (w *world) whole() bool { return len(w.Disks) == 0 }

// checkTree checks the rows of one tree.
func (w *world) checkTree(t *tree) error {
	w.rep.Stats.Trees++
	w.rep.Stats.Disks += int64(len(t.disks))
	w.rep.Stats.Checkpoints += int64(len(t.checkpoints))
	for _, l := range t.sorted() {
		w.rep.Stats.Lines++
		if err := w.checkLine(l); err != nil {
			w.fail(place{line: l}, err)
		}
		if err := w.ended(); err != nil {
			return err
		}
	}
	w.checkSegments(t)
	for _, l := range t.sorted() {
		if l.broken {
			continue
		}
		if err := w.checkViews(l); err != nil {
			w.fail(place{line: l}, err)
		}
		if err := w.ended(); err != nil {
			return err
		}
	}
	return nil
}

// key0 is the full key of a row without versions.
func key0(owner [tine.IDSize]byte, l record.Logical) []byte { return record.Key(owner, l, 0) }

// lostSegment is the segment that repair names where data is lost: it exists
// nowhere, so reading there is an error of the row, and the row can be replaced
// and removed like any other.
var lostSegment = tine.SegmentID{}

// isLost reports that a repair has marked the extent.
func isLost(x record.Extent) bool { return x.Segment == lostSegment }
