package fsck

import (
	"encoding/hex"
	"fmt"
	"maps"
	"time"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Finding is one thing that the check has found.
type Finding struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	What     string   `json:"what"` // the particulars
	Tree     string   `json:"tree,omitempty"`
	Timeline string   `json:"timeline,omitempty"`
	Disk     string   `json:"disk,omitempty"` // DISK or DISK@CHECKPOINT, the first that shows it
	Path     string   `json:"path,omitempty"` // of the file in that disk, if it is known
	Key      string   `json:"key,omitempty"`  // of the row, in hexadecimal
}

// Stats say how much was looked at.
type Stats struct {
	Trees        int64 `json:"trees"`
	Disks        int64 `json:"disks"`
	Lines        int64 `json:"lines"`
	Checkpoints  int64 `json:"checkpoints"`
	Views        int64 `json:"views"` // heads, checkpoints and branch points
	Rows         int64 `json:"rows"`
	ViewRows     int64 `json:"view_rows"` // looked at for the views: each row about once, however many views show it
	Segments     int64 `json:"segments"`
	SegmentBytes int64 `json:"segment_bytes"`
	DataBytes    int64 `json:"data_bytes"` // read and verified
	Waiting      int64 `json:"waiting"`    // versions that a task is about to free
}

// Report is the outcome of a check.
type Report struct {
	Findings   []Finding      `json:"findings"` // at most Options.PerCode of each code
	Counts     map[string]int `json:"counts"`   // how many there are of each code
	Errors     int            `json:"errors"`
	Leaks      int            `json:"leaks"`
	Notes      int            `json:"notes"`
	Incomplete bool           `json:"incomplete"` // something could not be read, so more may be wrong
	Stats      Stats          `json:"stats"`
	Seconds    float64        `json:"seconds"`
}

// Clean reports that nothing is wrong: there are no findings but leaks and
// notes.
func (r *Report) Clean() bool { return r.Errors == 0 && !r.Incomplete }

// Progress says how far a check is.
type Progress struct {
	Phase string `json:"phase"` // what is being done
	Done  int64  `json:"done"`  // of Unit, in this phase
	Unit  string `json:"unit"`
}

// perCode is how many findings of one code are told in full, unless set.
const perCode = 100

// reporter collects findings.
type reporter struct {
	Report
	found    func(Finding)
	progress func(Progress)
	perCode  int
	table    map[string]Entry
	start    time.Time
	last     Progress
	ticks    int
}

func newReporter(o Options) *reporter {
	r := &reporter{found: o.Found, progress: o.Progress, perCode: o.PerCode, table: map[string]Entry{}, start: time.Now()}
	if r.perCode == 0 {
		r.perCode = perCode
	}
	r.Counts = map[string]int{}
	for _, e := range Codes() {
		r.table[e.Code] = e
	}
	return r
}

// place is where a finding is.
type place struct {
	tree *tree
	line *line
	view *view
	ino  tine.Ino // of which the path is to be found; 0: none
	in   tine.Ino // or: of the name below this directory
	name string
	key  []byte
}

// add notes a finding. Places cost something to name, so that is left for
// those that are told in full.
func (w *world) add(code string, at place, format string, args ...any) {
	r := w.rep
	e := r.table[code]
	switch e.Severity {
	case Leak:
		r.Leaks++
	case Note:
		r.Notes++
	default:
		r.Errors++
	}
	r.Counts[code]++
	if at.view != nil {
		w.hurt = append(w.hurt, *at.view)
	}
	w.last = Finding{Code: code, Severity: e.Severity}
	if r.perCode > 0 && r.Counts[code] > r.perCode {
		return
	}
	f := Finding{Code: code, Severity: e.Severity, What: fmt.Sprintf(format, args...), Key: hex.EncodeToString(at.key)}
	if at.line != nil {
		f.Timeline, at.tree = at.line.id.String(), at.line.tree
	}
	if at.tree != nil {
		f.Tree = at.tree.id.String()
	}
	if at.view != nil {
		f.Disk = w.viewName(*at.view)
		f.Path = w.placePath(at)
	}
	w.last = f
	r.Findings = append(r.Findings, f)
	if r.found != nil {
		r.found(f)
	}
}

// fail notes that rows could not be read.
func (w *world) fail(at place, err error) {
	w.rep.Incomplete = true
	w.add("R005", at, "%v", err)
}

// tick tells of progress now and then.
func (r *reporter) tick(phase, unit string, n int64) {
	if r.last.Phase != phase {
		r.last = Progress{Phase: phase, Unit: unit}
	}
	r.last.Done += n
	if r.ticks++; r.progress != nil && r.ticks%1024 == 0 {
		r.progress(r.last)
	}
}

// phase begins a phase.
func (r *reporter) phase(name, unit string) {
	r.last = Progress{Phase: name, Unit: unit}
	if r.progress != nil {
		r.progress(r.last)
	}
}

func (r *reporter) report() *Report {
	out := r.Report
	out.Counts = maps.Clone(r.Counts)
	out.Seconds = time.Since(r.start).Seconds()
	if out.Findings == nil {
		out.Findings = []Finding{}
	}
	return &out
}

func (w *world) placePath(at place) string {
	switch {
	case at.name != "":
		return join(w.pathOf(*at.view, at.in), at.name)
	case at.ino != 0:
		return w.pathOf(*at.view, at.ino)
	}
	return ""
}

func join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

// viewName names a view by a disk or checkpoint that shows it, or one that
// descends from it.
func (w *world) viewName(v view) string {
	if v.at == tine.Head {
		for _, d := range v.line.heads {
			return d.rec.Name
		}
		return ""
	}
	for _, c := range v.line.checkpoints {
		if c.rec.Epoch == v.at {
			if c.disk != nil {
				return c.disk.rec.Name + "@" + c.rec.Name
			}
			return "?@" + c.rec.Name
		}
	}
	for _, c := range v.line.children {
		if c.rec.Branch == v.at {
			for _, p := range c.pins {
				return w.viewName(view{c, p})
			}
		}
	}
	return ""
}

// maxPathDepth bounds the search for a path.
const maxPathDepth = 128

// pathOf finds a path of an inode in a view, by the parents. What cannot be
// found is given by its number.
func (w *world) pathOf(v view, ino tine.Ino) string {
	path := ""
	for range maxPathDepth {
		if ino == tine.RootIno {
			return "/" + path
		}
		parent, name := w.nameOf(v, ino)
		if parent == 0 {
			break
		}
		if path == "" {
			path = name
		} else {
			path = name + "/" + path
		}
		ino = parent
	}
	if path == "" {
		return fmt.Sprintf("inode %d", ino)
	}
	return fmt.Sprintf("inode %d/%s", ino, path)
}

// nameOf finds one name of an inode.
func (w *world) nameOf(v view, ino tine.Ino) (tine.Ino, string) {
	var parent tine.Ino
	if val, _, ok, err := w.lookup(v, record.InodeKey(ino)); err == nil && ok {
		if n, err := record.DecodeInode(val); err == nil {
			parent = n.Parent
		}
	}
	if parent == 0 {
		var name string
		_ = w.eachIn(v, record.InoPrefix(record.TableLink, ino), func(l record.Logical, _ []byte) bool {
			parent, name = l.LinkParent(), l.Name()
			return false
		})
		return parent, name
	}
	var name string
	_ = w.eachIn(v, record.InoPrefix(record.TableDentry, parent), func(l record.Logical, val []byte) bool {
		if d, err := record.DecodeDentry(val); err == nil && d.Ino == ino {
			name = l.Name()
		}
		return name == ""
	})
	if name == "" {
		return 0, ""
	}
	return parent, name
}
