package fsck

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Row is a row for people to read.
type Row struct {
	Table     string     `json:"table"`
	Owner     string     `json:"owner"`
	Key       string     `json:"key"` // what the row is of, after owner and table
	Epoch     tine.Epoch `json:"epoch"`
	Tombstone bool       `json:"tombstone,omitempty"`
	Value     any        `json:"value,omitempty"` // decoded
	Raw       string     `json:"raw,omitempty"`   // the value in hexadecimal, if it does not decode
	Error     string     `json:"error,omitempty"` // why
	FullKey   string     `json:"full_key"`        // in hexadecimal
}

// Describe explains one row.
func Describe(key, value []byte) Row {
	r := Row{FullKey: hex.EncodeToString(key)}
	owner, l, epoch, err := record.SplitKey(key)
	if err != nil {
		r.Table, r.Error, r.Raw = "unknown", err.Error(), hex.EncodeToString(value)
		return r
	}
	r.Table, r.Epoch = tableName(l.Table()), epoch
	r.Owner = ownerText(l.Table(), owner)
	if good, _ := shape(l); !good {
		r.Key, r.Error, r.Raw = hex.EncodeToString([]byte(l[1:])), "the key is malformed", hex.EncodeToString(value)
		return r
	}
	r.Key = keyText(l)
	if fileTable(l.Table()) && isTombstone(value) {
		r.Tombstone = true
		return r
	}
	if err := decodes(l.Table(), value); err != nil {
		r.Error, r.Raw = err.Error(), hex.EncodeToString(value)
		return r
	}
	r.Value = valueOf(l.Table(), value)
	return r
}

func ownerText(t record.Table, owner [tine.IDSize]byte) string {
	switch {
	case fileTable(t):
		return tine.StratumID(owner).String()
	case tenantTable(t):
		return tine.TenantID(owner).String()
	}
	return tine.TreeID(owner).String()
}

func keyText(l record.Logical) string {
	id, n := l.ID()
	switch l.Table() {
	case record.TableTree:
		return tine.TreeID(id).String()
	case record.TableDisk, record.TablePolicy:
		return tine.DiskID(id).String()
	case record.TableTimeline, record.TableAlias:
		return tine.TimelineID(id).String()
	case record.TableCheckpoint:
		return tine.CheckpointID(id).String()
	case record.TableSegment, record.TableLive:
		return tine.SegmentID(id).String()
	case record.TableTail, record.TablePiece:
		return fmt.Sprintf("%s %d", tine.SegmentID(id), n)
	case record.TableLog:
		return fmt.Sprintf("%s %d", tine.DiskID(id), n)
	case record.TableTask:
		return fmt.Sprint(l.Seq())
	case record.TableInode, record.TableOrphan:
		return fmt.Sprint(uint64(l.Ino()))
	case record.TableDentry, record.TableXattr:
		return fmt.Sprintf("%d %q", l.Ino(), l.Name())
	case record.TableCookie, record.TableChunk:
		return fmt.Sprintf("%d %d", l.Ino(), l.Number())
	case record.TableLink:
		return fmt.Sprintf("%d %d %q", l.Ino(), l.LinkParent(), l.Name())
	}
	return ""
}

// valueOf decodes a value that is known to decode.
func valueOf(t record.Table, v []byte) any {
	switch t {
	case record.TableTree:
		x, _ := record.DecodeTree(v)
		return x
	case record.TableTimeline:
		x, _ := record.DecodeTimeline(v)
		return x
	case record.TableCheckpoint:
		x, _ := record.DecodeCheckpoint(v)
		return x
	case record.TableSegment:
		x, _ := record.DecodeSegment(v)
		return x
	case record.TableTask:
		x, _ := record.DecodeTask(v)
		return x
	case record.TableLog:
		x, _ := record.DecodeLogEntry(v)
		return x
	case record.TableLive:
		x, _ := record.DecodeLive(v)
		return x
	case record.TablePiece:
		x, _ := record.DecodePiece(v)
		return x
	case record.TableAlias:
		x, _ := record.DecodeAlias(v)
		return x
	case record.TableDisk:
		x, _ := record.DecodeDisk(v)
		return x
	case record.TablePolicy:
		x, _ := record.DecodePolicy(v)
		return x
	case record.TableInode:
		x, _ := record.DecodeInode(v)
		return x
	case record.TableDentry:
		x, _ := record.DecodeDentry(v)
		return x
	case record.TableCookie:
		x, _ := record.DecodeCookie(v)
		return x
	case record.TableChunk:
		x, _ := record.DecodeChunk(v)
		return x
	case record.TableCounters:
		x, _ := record.DecodeCounters(v)
		return x
	case record.TableXattr:
		return map[string]string{"Value": text(v[1:])}
	case record.TableTail:
		return map[string]int{"Bytes": len(v)}
	}
	return nil
}

// text is bytes as text, if they are, and else in hexadecimal.
func text(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return "0x" + hex.EncodeToString(b)
}

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
func DumpRows(rows kv.Store, o DumpOptions, fn func(Row) error) error {
	if o.Table != "" && !slices.Contains(Tables(), o.Table) {
		return tine.Errorf(tine.KindInvalid, "there is no table %q", o.Table).WithHint("the tables are: %s", strings.Join(Tables(), ", "))
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

func (w *world) dumpPrefix(p []byte, o DumpOptions, fn func(Row) error) error {
	scan, err := w.snap.Scan(p, record.PrefixEnd(p), nil)
	if err != nil {
		return err
	}
	defer scan.Close()
	for scan.Next() {
		if o.Disk != "" && !hasPrefix(scan.Key(), o.Prefix) {
			continue
		}
		r := Describe(scan.Key(), scan.Value())
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

// Tables returns the names of all tables.
func Tables() []string {
	var names []string
	for t := range 256 {
		if n := tableName(record.Table(t)); n != "unknown" {
			names = append(names, n)
		}
	}
	return names
}

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
