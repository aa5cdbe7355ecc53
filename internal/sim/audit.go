package sim

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// audit reads the rows that a crash has left and counts anew, from nothing but
// the formats, what the engine keeps counts of: the live bytes of every
// segment and the runs of every shared piece. A count that is wrong here is
// data lost or space lost later, at a moment that tells nothing of the cause.
type audit struct {
	disks     map[tine.DiskID]record.Disk
	timelines map[tine.TimelineID]record.Timeline
	lines     map[tine.StratumID]tine.TimelineID
	aliases   map[tine.TimelineID]tine.TimelineID
	segments  map[tine.SegmentID]record.Segment
	live      map[tine.SegmentID]int64
	pieces    map[tine.SegmentID][]auditPiece
	chunks    map[auditKey][]auditVersion
	orphans   map[auditKey][]auditVersion
}

type auditPiece struct{ off, len, runs int64 }

type auditKey struct {
	line tine.TimelineID
	key  record.Logical
}

type auditVersion struct {
	birth  tine.Epoch
	tomb   bool
	inline string
	xs     []record.Extent
}

// auditClone audits a copy of the file system, so that the one which the Host
// will open stays as the crash left it.
func (w *World) auditClone() error {
	if err := w.fsckClone(); err != nil {
		return err
	}
	a, err := w.readClone()
	if a == nil || err != nil {
		return err
	}
	return a.compare()
}

// readClone reads the rows of a copy of the file system: nil if the crash came
// before there were any.
func (w *World) readClone() (*audit, error) {
	clone := w.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))})
	if _, err := clone.Stat("/data/rows"); err != nil {
		return nil, nil
	}
	rows, err := pebble.Open(pebble.Options{Dir: "/data/rows", FS: clone, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("opening the rows: %w", err)
	}
	defer rows.Close()
	a := &audit{disks: map[tine.DiskID]record.Disk{}, timelines: map[tine.TimelineID]record.Timeline{},
		lines: map[tine.StratumID]tine.TimelineID{}, aliases: map[tine.TimelineID]tine.TimelineID{},
		segments: map[tine.SegmentID]record.Segment{}, live: map[tine.SegmentID]int64{},
		pieces: map[tine.SegmentID][]auditPiece{}, chunks: map[auditKey][]auditVersion{}, orphans: map[auditKey][]auditVersion{}}
	for _, pass := range []func([tine.IDSize]byte, record.Logical, tine.Epoch, []byte) error{a.treeRow, a.fileRow} {
		if err := eachRow(rows, pass); err != nil {
			return nil, err
		}
	}
	for _, rows := range []map[auditKey][]auditVersion{a.chunks, a.orphans} {
		for _, vs := range rows {
			slices.SortFunc(vs, func(x, y auditVersion) int { return int(min(1, max(-1, int64(x.birth)-int64(y.birth)))) })
		}
	}
	return a, nil
}

func eachRow(rows kv.Store, fn func([tine.IDSize]byte, record.Logical, tine.Epoch, []byte) error) error {
	snap := rows.Snapshot()
	defer snap.Close()
	scan, err := snap.Scan(nil, nil, nil)
	if err != nil {
		return err
	}
	defer scan.Close()
	for scan.Next() {
		owner, l, epoch, err := record.SplitKey(scan.Key())
		if err != nil {
			return err
		}
		if err := fn(owner, l, epoch, scan.Value()); err != nil {
			return fmt.Errorf("the row %s %x at %v: %w", tableName(l.Table()), l, epoch, err)
		}
	}
	return scan.Err()
}

// treeRow takes in what a tree says of itself.
func (a *audit) treeRow(_ [tine.IDSize]byte, l record.Logical, _ tine.Epoch, v []byte) error {
	id, off := l.ID()
	switch l.Table() {
	case record.TableTimeline:
		t, err := record.DecodeTimeline(v)
		if err != nil {
			return err
		}
		for _, s := range t.Strata {
			if _, twice := a.lines[s]; twice {
				return fmt.Errorf("stratum %s belongs to two timelines", s)
			}
			a.lines[s] = id
		}
		a.timelines[id] = t
	case record.TableDisk:
		d, err := record.DecodeDisk(v)
		a.disks[id] = d
		return err
	case record.TableAlias:
		t, err := record.DecodeAlias(v)
		a.aliases[id] = t.Into
		return err
	case record.TableSegment:
		s, err := record.DecodeSegment(v)
		a.segments[id] = s
		return err
	case record.TableLive:
		n, err := record.DecodeLive(v)
		a.live[id] = n.Bytes
		return err
	case record.TablePiece:
		p, err := record.DecodePiece(v)
		a.pieces[id] = append(a.pieces[id], auditPiece{int64(off), p.Len, p.Runs})
		return err
	}
	return nil
}

// fileRow takes in the chunks, and finds rows that no timeline reaches.
func (a *audit) fileRow(owner [tine.IDSize]byte, l record.Logical, birth tine.Epoch, v []byte) error {
	if l.Table() < record.TableInode {
		return nil
	}
	line, ok := a.lines[owner]
	if !ok {
		return fmt.Errorf("no timeline has its stratum %s", tine.StratumID(owner))
	}
	k, version := auditKey{line, l}, auditVersion{birth: birth, tomb: len(v) == 1 && v[0] == 0}
	if l.Table() == record.TableOrphan {
		a.orphans[k] = append(a.orphans[k], version)
	}
	if l.Table() != record.TableChunk {
		return nil
	}
	if !version.tomb {
		c, err := record.DecodeChunk(v)
		if err != nil {
			return err
		}
		version.inline, version.xs = string(c.Inline), c.Extents
	}
	for _, x := range version.xs {
		if s, ok := a.segments[x.Segment]; !ok || x.Off+x.Len > s.End {
			return fmt.Errorf("names bytes %d to %d of segment %s, which has %d (exists: %v)", x.Off, x.Off+x.Len, x.Segment, s.End, ok)
		}
	}
	a.chunks[k] = append(a.chunks[k], version)
	return nil
}

func (a *audit) owner(s tine.SegmentID) tine.TimelineID { return a.resolve(a.segments[s].Timeline) }

// resolve follows aliases to the timeline that an id means.
func (a *audit) resolve(id tine.TimelineID) tine.TimelineID {
	for {
		into, ok := a.aliases[id]
		if !ok {
			return id
		}
		id = into
	}
}

// compare counts anew.
func (a *audit) compare() error {
	named := map[tine.SegmentID][]record.Extent{}
	runs := map[tine.SegmentID][]int64{}
	for k, vs := range a.chunks {
		for seg, ps := range a.pieces {
			if a.owner(seg) != k.line {
				continue
			}
			if runs[seg] == nil {
				runs[seg] = make([]int64, len(ps))
			}
			for i, p := range ps {
				runs[seg][i] += countRuns(vs, seg, p)
			}
		}
		for _, v := range vs {
			for _, x := range v.xs {
				if a.owner(x.Segment) == k.line {
					named[x.Segment] = append(named[x.Segment], x)
				}
			}
		}
	}
	for seg := range a.segments {
		if err := a.compareSegment(seg, named[seg], runs[seg]); err != nil {
			return err
		}
	}
	return nil
}

func (a *audit) compareSegment(seg tine.SegmentID, named []record.Extent, runs []int64) error {
	var want int64
	for i, p := range a.pieces[seg] {
		var n int64
		if runs != nil {
			n = runs[i]
		}
		if n != p.runs {
			return fmt.Errorf("the piece at %d of segment %s is counted with %d runs and has %d", p.off, seg, p.runs, n)
		}
		want += p.len
	}
	slices.SortFunc(named, func(x, y record.Extent) int { return int(min(1, max(-1, x.Off-y.Off))) })
	at := int64(0)
	for _, x := range named {
		from, end := max(at, x.Off), max(at, x.Off+x.Len)
		want += end - from
		for _, p := range a.pieces[seg] {
			want -= max(0, min(end, p.off+p.len)-max(from, p.off))
		}
		at = end
	}
	if want != a.live[seg] {
		return fmt.Errorf("segment %s is counted with %d live bytes; rows name %d", seg, a.live[seg], want)
	}
	return nil
}

// countRuns counts the runs of neighbouring versions that name any byte of a
// piece.
func countRuns(vs []auditVersion, seg tine.SegmentID, p auditPiece) int64 {
	var n int64
	last := false
	for _, v := range vs {
		now := slices.ContainsFunc(v.xs, func(x record.Extent) bool {
			return x.Segment == seg && x.Off < p.off+p.len && p.off < x.Off+x.Len
		})
		if now && !last {
			n++
		}
		last = now
	}
	return n
}
