package fsck

import (
	"bytes"
	"fmt"

	"tine.dev/tine/internal/fs/fsck/rowform"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Rows are lost with damaged files of the row store: a salvage has written the rest
// anew (package salvage, which this one does not know), and says between which keys
// they lay. Here the keys become disks and paths, and what is missing is told
// from what never was.

// verifyRows has the row store look at its own files.
func (w *world) verifyRows() error {
	v, ok := w.Rows.(kv.Verifier)
	if !ok {
		return nil
	}
	w.rep.phase("row store", "files")
	err := v.Verify(func(d kv.Damage) error {
		w.tellDamage(d)
		return w.ended()
	})
	if err != nil && w.ended() == nil {
		w.fail(place{}, err)
		return nil
	}
	return err
}

func (w *world) tellDamage(d kv.Damage) { w.add("R010", place{}, "%s%s", d.What, w.rangeText(d)) }

// salvaged reports whether rows were lost.
func (w *world) salvaged() bool { return len(w.Salvaged) > 0 }

// maxHeirs bounds the views that are looked through for files whose rows may be lost
// though their own line has lost none: ten thousand forks inherit from one.
const maxHeirs = 256

// tellSalvaged tells what was damaged, and whose rows lay where some were lost: of every
// inode in every view by each path that it has there.
func (w *world) tellSalvaged() error {
	for _, d := range w.Salvaged {
		w.tellDamage(d)
	}
	for _, t := range w.order {
		told, heirs := map[string]bool{}, 0
		for _, l := range t.sorted() {
			own := w.lostIn([]hop{{line: l}}, "")
			for _, p := range l.pins {
				v := view{l, p}
				if t.broken || l.broken || !own && (heirs >= maxHeirs || !w.lostIn(v.hops(), "")) {
					continue
				}
				if !own {
					heirs++
				}
				if err := w.tellTouched(v, told); err != nil {
					return err
				}
			}
		}
	}
	return w.ended()
}

// tellTouched tells of the inodes of a view that were not told of by the same path before.
func (w *world) tellTouched(v view, told map[string]bool) error {
	hops := v.hops()
	return w.eachIn(v, record.TableKey(record.TableInode), func(l record.Logical, _ []byte) bool {
		ino := l.Ino()
		if !w.touched(hops, ino) {
			return true
		}
		at := fmt.Sprintf("%d %s", ino, w.pathOf(v, ino))
		if told[at] {
			return true
		}
		told[at] = true
		w.add("R011", place{line: v.line, view: &v, ino: ino}, "inode %d", ino)
		return w.ended() == nil
	})
}

// touched reports whether rows of an inode may be among the lost ones.
func (w *world) touched(hops []hop, ino tine.Ino) bool {
	for _, t := range []record.Table{record.TableInode, record.TableDentry, record.TableCookie, record.TableChunk, record.TableXattr, record.TableLink} {
		if w.lostIn(hops, record.InoPrefix(t, ino)) {
			return true
		}
	}
	return false
}

// lostIn reports whether rows of the lines with the prefix may be among the lost ones.
func (w *world) lostIn(hops []hop, prefix record.Logical) bool {
	for _, h := range hops {
		for _, s := range h.line.rec.Strata {
			from := record.AppendKey(nil, s, prefix)
			for _, d := range w.Salvaged {
				if d.Lost && (d.Upper == nil || bytes.Compare(d.Upper, from) >= 0) && (d.Lower == nil || bytes.Compare(d.Lower, record.PrefixEnd(from)) < 0) {
					return true
				}
			}
		}
	}
	return false
}

// rangeText says between which rows others were lost.
func (w *world) rangeText(d kv.Damage) string {
	if !d.Lost {
		return ""
	}
	records := ", and records of disks may be among them"
	if len(d.Lower) > tine.IDSize && len(d.Upper) > tine.IDSize && string(d.Lower[:tine.IDSize]) == string(d.Upper[:tine.IDSize]) &&
		rowform.FileTable(record.Table(d.Lower[tine.IDSize])) {
		records = ""
	}
	return fmt.Sprintf("; they lay between %s and %s%s", w.keyText(d.Lower, "the first row"), w.keyText(d.Upper, "the last row"), records)
}

// keyText names a row by its table, what it is of, and the disk.
func (w *world) keyText(key []byte, none string) string {
	if key == nil {
		return none
	}
	owner, l, _, err := record.SplitKey(key)
	if err != nil {
		return fmt.Sprintf("key %x", key)
	}
	r := rowform.Describe(key, nil)
	what := r.Table + " " + r.Key
	if rowform.FileTable(l.Table()) {
		if line := w.strata[tine.StratumID(owner)]; line != nil && len(line.pins) > 0 {
			if name := w.viewName(view{line, line.pins[len(line.pins)-1]}); name != "" {
				return what + " of disk " + name
			}
		}
	}
	return what + " of " + r.Owner
}

// maxLostChunks bounds how many missing chunks of one file are marked as lost.
const maxLostChunks = 1 << 16

// loseMissing marks what is missing of a file's data where rows were lost, so that
// reading it is an error: a chunk without a row reads as zeros. Holes there cannot be told
// from what was lost, and are marked too; but of a file with all the bytes that its
// inode counts, nothing is missing.
func (h *head) loseMissing(f *fix) {
	w := h.r.w
	if !w.salvaged() || f.blurred || f.Mode&modeType != modeFile || f.Bytes <= f.bytes {
		return
	}
	hops := h.v.hops()
	there := map[uint64]bool{}
	for _, i := range f.index {
		there[i] = true
	}
	marked := 0
	for i := uint64(0); int64(i)*tine.ChunkBytes < f.Size && i < maxLostChunks; i++ {
		k := record.ChunkKey(f.ino, i)
		if there[i] || !w.lostIn(hops, k) {
			continue
		}
		length := min(int64(tine.ChunkBytes), f.Size-int64(i)*tine.ChunkBytes)
		c := record.Chunk{Extents: []record.Extent{{Len: length, Segment: lostSegment, Birth: h.epoch()}}}
		h.want[k] = c.Append(nil)
		f.extents, f.blurred = true, true
		marked++
	}
	if marked > 0 {
		h.note("marked %d missing chunks of inode %d as lost", marked, f.ino)
	}
}

// keepFile moves a segment file out of the way that no row names: the rows that did
// may be among those that are lost.
func (r *repairer) keepFile(f *file) {
	r.plan(stageRows, "moved it to the folder \"damaged\": the rows that named it may be lost", func(kv.Batch) error {
		return r.setAside(f.path)
	})
}

// told makes a report of what was found before a repair, and the changes that it
// stands for.
func told(o Options) (*Report, []Change, error) {
	quiet := o
	quiet.Found = nil
	w := newWorld(quiet)
	defer w.snap.Close()
	if err := w.catalog(); err != nil {
		return nil, nil, err
	}
	w.structure()
	if err := w.choose(); err != nil {
		return nil, nil, err
	}
	for _, t := range w.order {
		for _, l := range t.lines {
			l.rows = 1 // not counted yet; none is left out of a look-up
		}
	}
	w.rep = newReporter(o) // what was found so far is found again by the first round
	if err := w.tellSalvaged(); err != nil {
		return nil, nil, err
	}
	r := w.rep.report()
	var changes []Change
	for _, f := range r.Findings {
		c := Change{Code: f.Code, What: f.What, Disk: f.Disk, Path: f.Path, Done: "look at it: it may be in an older state"}
		if f.Code == "R010" {
			c.Done = "wrote the rows that can be read anew; the damaged files are in the folder \"damaged\""
		} else {
			c.What += ", " + f.Disk + ":" + f.Path
		}
		changes = append(changes, c)
	}
	return r, changes, nil
}

// tellAgain tells whose rows may be lost of what only the repair has made reachable, such
// as a disk whose line it has rebuilt.
func (out *Repaired) tellAgain(o Options) error {
	if len(o.Salvaged) == 0 {
		return nil
	}
	known := map[Change]bool{}
	for _, c := range out.Changes {
		known[c] = true
	}
	_, changes, err := told(o)
	for _, c := range changes {
		if c.Code == "R011" && !known[c] {
			out.Changes = append(out.Changes, c)
		}
	}
	return err
}

// with adds the findings of another report.
func (r *Report) with(o *Report) {
	r.Findings = append(o.Findings, r.Findings...)
	for code, n := range o.Counts {
		r.Counts[code] += n
	}
	r.Errors, r.Leaks, r.Notes = r.Errors+o.Errors, r.Leaks+o.Leaks, r.Notes+o.Notes
}
