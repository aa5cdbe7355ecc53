package fsck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/fsck/rowform"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// DumpOptions say which rows to dump; the zero value means all.
type DumpOptions struct {
	Disk   string // the records of its tree, and the rows of its line and those that this descends from
	Table  string // the name of a table
	Prefix []byte // of the full key
}

// DumpRows calls fn for the rows in the order of their keys, until it returns an
// error, which is returned. A row that cannot be read ends the walk.
// Errors: KindNotFound for a disk, KindInvalid for a table that does not exist,
// and those of the store.
func DumpRows(rows kv.Store, o DumpOptions, fn func(rowform.Row) error) error {
	if o.Table != "" && !slices.Contains(rowform.Tables(), o.Table) {
		return tine.Errorf(tine.KindInvalid, "there is no table %q", o.Table).WithHint("the tables are: %s", strings.Join(rowform.Tables(), ", "))
	}
	w := newWorld(Options{Rows: rows})
	defer w.snap.Close()
	prefixes := [][]byte{o.Prefix}
	if o.Disk != "" {
		if err := w.catalog(); err != nil {
			return err
		}
		w.structure()
		d := w.diskNamed(o.Disk)
		if d == nil {
			return tine.Errorf(tine.KindNotFound, "there is no disk %q", o.Disk).WithHint("`tine dump rows --table disk` shows those that there are")
		}
		prefixes = [][]byte{key0Prefix(d.tree.tenant, record.IDKey(record.TableTree, d.tree.id)), key0Prefix(d.tree.tenant, record.IDKey(record.TableDisk, d.id)),
			key0Prefix(d.tree.tenant, record.IDKey(record.TablePolicy, d.id)), d.tree.id[:]}
		for l := d.line; l != nil; l = l.parent {
			for _, s := range l.rec.Strata {
				prefixes = append(prefixes, s[:])
			}
		}
	}
	for _, p := range prefixes {
		if err := w.dumpPrefix(p, o, fn); err != nil {
			return err
		}
	}
	return nil
}

func key0Prefix(owner [tine.IDSize]byte, l record.Logical) []byte {
	return record.AppendKey(nil, owner, l)
}

func (w *world) diskNamed(name string) *disk {
	var found *disk
	for _, t := range w.trees {
		for _, d := range t.disks {
			if d.rec.Name == name && (found == nil || d.rec.Deleted == 0) {
				found = d
			}
		}
	}
	return found
}

func (w *world) dumpPrefix(p []byte, o DumpOptions, fn func(rowform.Row) error) error {
	scan, err := w.snap.Scan(p, record.PrefixEnd(p), nil)
	if err != nil {
		return err
	}
	defer scan.Close()
	for scan.Next() {
		if o.Disk != "" && !hasPrefix(scan.Key(), o.Prefix) {
			continue
		}
		r := rowform.Describe(scan.Key(), scan.Value())
		if o.Table != "" && r.Table != o.Table {
			continue
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return scan.Err()
}

func hasPrefix(b, p []byte) bool { return len(b) >= len(p) && string(b[:len(p)]) == string(p) }

// Step is a state that a disk's history knows of: its head, a checkpoint, a
// point at which a fork branches off, or an entry of its log.
type Step struct {
	Epoch   tine.Epoch      `json:"epoch,omitempty"`
	What    string          `json:"what"`
	Line    tine.TimelineID `json:"timeline,omitzero"`
	Commits uint64          `json:"commits,omitempty"` // made in the lineage up to here
	Inodes  int64           `json:"inodes,omitempty"`
	Bytes   int64           `json:"bytes,omitempty"`
	Time    int64           `json:"time,omitempty"` // nanoseconds since 1970
	Author  string          `json:"author,omitempty"`
	Detail  string          `json:"detail,omitempty"`
}

// DumpCommits tells what is known of a disk's commits: the entries of its log,
// then the points of its line and of those that this descends from, newest
// first, each with the number of commits made up to it. Single commits leave no
// trace of their own.
func DumpCommits(rows kv.Store, name string, fn func(Step) error) error {
	w := newWorld(Options{Rows: rows})
	defer w.snap.Close()
	if err := w.catalog(); err != nil {
		return err
	}
	w.structure()
	d := w.diskNamed(name)
	if d == nil {
		return tine.Errorf(tine.KindNotFound, "there is no disk %q", name).WithHint("`tine dump rows --table disk` shows those that there are")
	}
	p := record.AppendKey(nil, d.tree.id, record.IDKey(record.TableLog, d.id))
	scan, err := w.snap.Scan(p, record.PrefixEnd(p), nil)
	if err != nil {
		return err
	}
	defer scan.Close()
	for scan.Next() {
		e, err := record.DecodeLogEntry(scan.Value())
		if err != nil {
			return err
		}
		if err := fn(Step{What: "log: " + e.Op, Detail: e.Detail, Author: e.Author, Time: e.Time}); err != nil {
			return err
		}
	}
	if err := scan.Err(); err != nil {
		return err
	}
	if d.line == nil {
		return tine.Errorf(tine.KindCorrupt, "disk %q names timeline %s, which does not exist", name, d.rec.Timeline)
	}
	limit := tine.Head
	for l := d.line; l != nil; l = l.parent {
		l.rows = 1
		for _, at := range slices.Backward(l.pins) {
			if at > limit {
				continue
			}
			if err := w.dumpPoint(view{l, at}, fn); err != nil {
				return err
			}
		}
		limit = l.rec.Branch
	}
	return nil
}

func (w *world) dumpPoint(v view, fn func(Step) error) error {
	for l := v.line; l != nil; l = l.parent {
		l.rows = max(l.rows, 1)
	}
	s := Step{Epoch: v.at, Line: v.line.id, What: "head of " + w.viewName(v)}
	if v.at != tine.Head {
		s.What = fmt.Sprintf("pin of %d holders: %s", v.line.holds[v.at], w.viewName(v))
	}
	val, _, ok, err := w.lookup(v, record.TableKey(record.TableCounters))
	if err == nil && ok {
		var c record.Counters
		c, err = record.DecodeCounters(val)
		s.Commits, s.Inodes, s.Bytes = c.Commits, c.Inodes, c.Bytes
	}
	if err != nil {
		return tine.Errorf(tine.KindOf(err), "the counters at %s of timeline %s: %w", v.at, v.line.id, err)
	}
	return fn(s)
}

// SegmentPart is a part of a segment file.
type SegmentPart struct {
	What  string `json:"what"` // header, run, block, footer
	From  int64  `json:"from"` // of blocks: the number of the first
	Count int64  `json:"count,omitempty"`
	Text  string `json:"text"`
}

// DumpSegment describes a segment file: header, runs of blocks, each damaged
// block, and footer. What can be read is told before the error that ends it;
// damaged blocks make an error at the end.
func DumpSegment(fs vfs.FS, path string, fn func(SegmentPart) error) error {
	f, err := fs.Open(path)
	if err != nil {
		return tine.Errorf(tine.KindIO, "open %s: %w", path, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return tine.Errorf(tine.KindIO, "stat %s: %w", path, err)
	}
	name, ok := parseFile(fs.PathBase(path))
	if !ok {
		return tine.Errorf(tine.KindInvalid, "%s is not called like a segment file", path).WithHint("SEGMENT.GENERATION")
	}
	if err := checkHead(f, name.id, name.generation); err != nil {
		return err
	}
	if err := fn(SegmentPart{What: "header", Text: fmt.Sprintf("segment %s, generation %d, file of %d bytes", name.id, name.generation, st.Size())}); err != nil {
		return err
	}
	layout, foot := readFoot(f, name.id, name.generation, st.Size())
	if foot != nil {
		// Open, or damaged at its end: the whole blocks that it has.
		n := (st.Size() - headBytes) / blockStride
		layout = wholeRuns(n * blockBytes)
	}
	var damaged int64
	for _, x := range layout.list {
		bad, err := verify(f, name.id, &runs{list: []run{x}, end: layout.end}, func(int64) bool { return true })
		if err != nil {
			return err
		}
		damaged += int64(len(bad))
		if err := fn(SegmentPart{What: "run", From: x.first, Count: x.count, Text: fmt.Sprintf("blocks %d to %d at byte %d", x.first, x.first+x.count-1, headBytes+x.before*blockStride)}); err != nil {
			return err
		}
		for _, b := range bad {
			if err := fn(SegmentPart{What: "damaged", From: b.from / blockBytes, Count: blocksOf(b.len()), Text: fmt.Sprintf("the checksums of bytes %d to %d of the payload do not hold", b.from, b.to)}); err != nil {
				return err
			}
		}
	}
	if foot != nil {
		return tine.Errorf(tine.KindOf(foot), "%s: %w", path, foot).WithHint("a segment that was open at a crash has no footer; the next start seals it")
	}
	if damaged > 0 {
		return tine.Errorf(tine.KindCorrupt, "%s has damaged blocks", path)
	}
	return fn(SegmentPart{What: "footer", Text: fmt.Sprintf("payload of %d bytes, %d runs", layout.end, len(layout.list))})
}
