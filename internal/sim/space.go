package sim

import (
	"context"
	"fmt"
	"slices"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// purge removes a disk for good, nothing of which may be open, and checks that
// its usage was what this frees, to the byte: segments by the Host's count,
// bytes inside rows by reading all rows before and after. It returns early,
// with nothing checked, when a crash comes in between.
func (w *World) purge(x *disk) error {
	ctx := context.Background()
	if err := w.host.ReclaimIdle(ctx); err != nil {
		return fmt.Errorf("reclaim: %w", err)
	}
	u, err := w.host.Usage(ctx, caller, x.name) // before what is in memory is committed: it sees that too
	if err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	before, err := w.idle()
	if err != nil || w.crashed() {
		return err
	}
	live := w.host.Stats().LiveBytes
	if _, err := w.host.RemoveDisk(ctx, caller, x.name, true); err != nil {
		return err
	}
	after, err := w.idle()
	if err != nil || w.crashed() {
		return err
	}
	segments, rows := live-w.host.Stats().LiveBytes, before.inlineBytes()-after.inlineBytes()
	shown := before.head(x.id)
	logical := int64(0)
	for _, v := range shown {
		logical += v.bytes()
	}
	least, most := before.remaining(shown, after)
	if u.Inodes != x.fs.Tree.Inodes || u.LogicalBytes != logical || u.UniqueBytes != segments+rows || u.SharedBytes < least || u.SharedBytes > most {
		return fmt.Errorf("its usage was %+v; it had %d inodes and %d bytes, and removing it freed %d bytes of segments and %d in rows; of what it showed %d to %d bytes are left",
			u, x.fs.Tree.Inodes, logical, segments, rows, least, most)
	}
	return nil
}

// idle waits until all is committed and no background work is left, and reads
// all rows.
func (w *World) idle() (*audit, error) {
	ctx := context.Background()
	if err := w.host.ReclaimIdle(ctx); err != nil {
		return nil, fmt.Errorf("reclaim: %w", err)
	}
	for _, d := range w.disks {
		if err := w.host.SyncDisk(ctx, caller, d.name); err != nil && tine.KindOf(err) != tine.KindNotFound {
			return nil, fmt.Errorf("syncing %s: %w", d.name, err)
		}
	}
	a, err := w.readClone()
	if err != nil || w.crashed() {
		return nil, err
	}
	return a, a.compare()
}

func (v *auditVersion) bytes() int64 {
	n := int64(len(v.inline))
	for _, x := range v.xs {
		n += x.Len
	}
	return n
}

// inlineBytes adds up the bytes inside all versions of all chunk rows.
func (a *audit) inlineBytes() (n int64) {
	for _, vs := range a.chunks {
		for _, v := range vs {
			n += int64(len(v.inline))
		}
	}
	return n
}

// head returns the chunks that a disk's head shows: of each row the newest
// version on its path, but for files without a name.
func (a *audit) head(id tine.DiskID) map[record.Logical]auditVersion {
	shown := a.shown(a.chunks, id)
	for k := range a.shown(a.orphans, id) {
		for c := range shown {
			if c.Ino() == k.Ino() {
				delete(shown, c)
			}
		}
	}
	return shown
}

func (a *audit) shown(rows map[auditKey][]auditVersion, id tine.DiskID) map[record.Logical]auditVersion {
	shown := map[record.Logical]auditVersion{}
	line, limit := a.resolve(a.disks[id].Timeline), tine.Head
	for {
		for k, vs := range rows {
			if _, found := shown[k.key]; found || k.line != line {
				continue
			}
			for _, v := range vs {
				if v.birth <= limit {
					shown[k.key] = v
				}
			}
		}
		t := a.timelines[line]
		if t.Parent.IsZero() {
			break
		}
		line, limit = a.resolve(t.Parent), t.Branch
	}
	for k, v := range shown {
		if v.tomb {
			delete(shown, k)
		}
	}
	return shown
}

// inlineRow is a version of a row, but for its line, whose name may be gone.
// Two sibling lines can have the same.
type inlineRow struct {
	key    record.Logical
	birth  tine.Epoch
	inline string
}

func (a *audit) inlineRows() map[inlineRow]int {
	rows := map[inlineRow]int{}
	for k, vs := range a.chunks {
		for _, v := range vs {
			rows[inlineRow{k.key, v.birth, v.inline}]++
		}
	}
	return rows
}

// remaining returns how many of the bytes that a head showed are still kept
// later. There is a choice only where two lines had the same version of a row
// and one of them is gone.
func (a *audit) remaining(shown map[record.Logical]auditVersion, later *audit) (least, most int64) {
	rows, left, kept := a.inlineRows(), later.inlineRows(), later.kept()
	for k, v := range shown {
		for _, x := range v.xs {
			n := int64(0)
			for _, r := range kept[x.Segment] {
				n += max(0, min(r.end, x.Off+x.Len)-max(r.off, x.Off))
			}
			least, most = least+n, most+n
		}
		row, n := inlineRow{k, v.birth, v.inline}, int64(len(v.inline))
		if left[row] == rows[row] {
			least += n
		}
		if left[row] > 0 {
			most += n
		}
	}
	return least, most
}

type byteRange struct{ off, end int64 }

// kept returns, disjoint, the bytes of each segment that are kept: those that
// rows of its owner name, and whole pieces.
func (a *audit) kept() map[tine.SegmentID][]byteRange {
	all := map[tine.SegmentID][]byteRange{}
	for seg, ps := range a.pieces {
		for _, p := range ps {
			all[seg] = append(all[seg], byteRange{p.off, p.off + p.len})
		}
	}
	for k, vs := range a.chunks {
		for _, v := range vs {
			for _, x := range v.xs {
				if a.owner(x.Segment) == k.line {
					all[x.Segment] = append(all[x.Segment], byteRange{x.Off, x.Off + x.Len})
				}
			}
		}
	}
	for seg, rs := range all {
		all[seg] = disjoint(rs)
	}
	return all
}

// disjoint sorts ranges and joins those that overlap.
func disjoint(rs []byteRange) []byteRange {
	slices.SortFunc(rs, func(x, y byteRange) int { return int(min(1, max(-1, x.off-y.off))) })
	out := rs[:0]
	for _, r := range rs {
		if n := len(out); n > 0 && r.off <= out[n-1].end {
			out[n-1].end = max(out[n-1].end, r.end)
			continue
		}
		out = append(out, r)
	}
	return out
}
