package fsck

import (
	"time"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Change is one thing that repair has done.
type Change struct {
	Code string `json:"code,omitempty"` // of the finding; none for what a head shows, which is mended as a whole
	What string `json:"what"`           // the finding's particulars
	Disk string `json:"disk,omitempty"`
	Path string `json:"path,omitempty"`
	Done string `json:"done"`
}

// Repaired is the outcome of a repair.
type Repaired struct {
	Before  *Report  `json:"before"` // what was found
	Changes []Change `json:"changes"`
	After   *Report  `json:"after"` // what is left, by a check of its own
}

// The stages of a repair. Each rests on the ones before: what hangs together
// first, then where data lies, then single rows, then what heads show, and the
// counts of bytes last, when nothing else moves any more.
const (
	stageRecords = iota
	stageFiles
	stageRows
	stageHeads
	stageCounts
	numStages
)

// maxRounds bounds a repair; each round is a check and the changes of one
// stage. What is not mended by then is told of as remaining.
const maxRounds = 24

// Repair checks a directory that no server has open, and mends what it can; see
// the package comment. It refuses, changing nothing, where rows are of a newer
// version (KindVersion) and where rows or files cannot be read at all, for what
// cannot be read now may be read another time (KindIO). Changes are durable when
// it returns; a repair that is cut off is made whole by running it again.
func Repair(o Options, now time.Time) (*Repaired, error) {
	if o.Live {
		return nil, tine.Errorf(tine.KindBusy, "repair needs the data directory for itself").WithHint("stop the server first")
	}
	out := &Repaired{Changes: []Change{}}
	before := &Report{}
	rounds := maxRounds
	if len(o.Salvaged) > 0 {
		var err error
		if before, out.Changes, err = told(o); err != nil {
			return out, err
		}
		rounds *= 10 // each mends at most one checkpoint of a tree
	}
	for i := range rounds {
		done, err := round(o, now, out)
		if err != nil {
			return out, err
		}
		if i == 0 {
			first := *out.Before
			out.Before = &first
			out.Before.with(before)
		}
		if out.After != nil {
			return out, out.tellAgain(o)
		}
		out.Changes = append(out.Changes, done...)
		o.Found = nil // the rounds after the first look at what is left
	}
	var err error
	out.After, err = Check(o)
	return out, err
}

// round checks, and makes the changes of one stage. With nothing left to change
// its report is what remains.
func round(o Options, now time.Time, out *Repaired) ([]Change, error) {
	w := newWorld(o)
	defer w.snap.Close()
	r := &repairer{now: now, w: w}
	w.fixing = r
	if err := w.all(); err != nil {
		return nil, err
	}
	report := w.rep.report()
	if out.Before == nil {
		out.Before = report
	}
	switch {
	case w.newer:
		return nil, tine.Errorf(tine.KindVersion, "the data directory has rows of a newer version; nothing was changed").
			WithHint("repair it with that version")
	case report.Incomplete:
		return nil, tine.Errorf(tine.KindIO, "some rows or files cannot be read; nothing more was changed").
			WithHint("what cannot be read must not be taken for missing: copy the data directory to a sound device, and repair the copy")
	}
	done, err := r.apply()
	if err == nil && len(done) == 0 {
		out.After = report
	}
	return done, err
}

// repairer gathers the changes of one round.
type repairer struct {
	w      *world
	now    time.Time
	stages [numStages][]change

	lostDisks         []lostRecord
	orphanCheckpoints []*checkpoint
	dangling          []danglingCheckpoint
	unheld            []*line
	epochs            map[*line]bool // whose record is to be written
	names             int            // given so far
	adopted           map[tine.SegmentID]bool
	pieces            map[*seg]bool
	mending           map[*tree]bool // of which a view is mended in this round
}

// danglingCheckpoint names a line that does not exist.
type danglingCheckpoint struct {
	rec record.Checkpoint
	key []byte
}

// change is one thing to do: rows for the batch, or something with files.
type change struct {
	Change
	do func(kv.Batch) error
}

// mend has a finding mended, if this is a repair. It is called right after the
// finding is told.
func (w *world) mend(fn func(*repairer)) {
	if w.fixing != nil {
		fn(w.fixing)
	}
}

// mendIn is mend for what rests on how the lines of a tree hang together: with
// that in doubt, rows that seem wrong or unneeded may be all that is left of
// something, so they are not touched.
func (w *world) mendIn(t *tree, fn func(*repairer)) {
	if !t.broken {
		w.mend(fn)
	}
}

// plan adds a change to a stage.
func (r *repairer) plan(stage int, done string, do func(kv.Batch) error) {
	f := r.w.last
	r.stages[stage] = append(r.stages[stage], change{Change{Code: f.Code, What: f.What, Disk: f.Disk, Path: f.Path, Done: done}, do})
}

// batchBytes is how large a batch of changes grows.
const batchBytes = 4 << 20

// apply makes the changes of the first stage that has any.
func (r *repairer) apply() ([]Change, error) {
	r.planDisks()
	var done []Change
	for _, cs := range r.stages {
		if len(cs) == 0 {
			continue
		}
		b := r.w.Rows.NewBatch()
		for _, c := range cs {
			if err := c.do(b); err != nil {
				b.Discard()
				return done, err
			}
			done = append(done, c.Change)
			if b.Size() > batchBytes {
				if err := r.w.Rows.Commit(b, true); err != nil {
					return done, err
				}
				b = r.w.Rows.NewBatch()
			}
		}
		return done, r.w.Rows.Commit(b, true)
	}
	return nil, nil
}

// set and del are changes of single rows.
func set(key, val []byte) func(kv.Batch) error {
	return func(b kv.Batch) error { b.Set(key, val); return nil }
}

func del(keys ...[]byte) func(kv.Batch) error {
	return func(b kv.Batch) error {
		for _, k := range keys {
			b.Delete(k)
		}
		return nil
	}
}

// batchDelete removes one row.
func (r *repairer) batchDelete(key []byte, done string) { r.plan(stageRows, done, del(key)) }

// batchMove puts a version where look-ups find it first.
func (r *repairer) batchMove(from, to, val []byte) {
	r.plan(stageRows, "moved it to the newer stratum", func(b kv.Batch) error {
		b.Delete(from)
		b.Set(to, val)
		return nil
	})
}

// dropStratum removes rows that no line has. While a record is damaged that may
// have named them, they stay.
func (r *repairer) dropStratum(s tine.StratumID) {
	if r.w.damaged || r.w.missingLines() {
		return
	}
	r.plan(stageRows, "removed them", func(b kv.Batch) error {
		b.DeleteRange(s[:], record.PrefixEnd(s[:]))
		return nil
	})
}

// freeVersion removes a version that nothing needs.
func (r *repairer) freeVersion(row *row, o *one) {
	if row.line.unheld {
		return // a disk's record may be lost, which needs it
	}
	r.plan(stageRows, "removed it", del(row.full(o)))
}

// tombstone is the value of a deleted row.
var tombstone = []byte{0}

// dropVersion takes an undecodable version away that only the head shows. Older
// versions of inodes and counters then show; names and attributes must not come
// back, so a tombstone takes their place.
func (r *repairer) dropVersion(row *row, o *one, key []byte) {
	switch row.key.Table() {
	case record.TableInode, record.TableCounters:
		r.plan(stageRows, "removed it; an older state shows, if there is one", del(key))
	default:
		r.plan(stageRows, "removed it", set(key, tombstone))
	}
}
