package timeline

import (
	"cmp"
	"context"
	"slices"
	"time"

	"tine.dev/tine/internal/fs/crashpoint"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/fs/stratum"
	"tine.dev/tine/internal/tine"
)

// worthRepack: dead bytes of a tree that start a scan.
const worthRepackBytes = 32 << 20

// candidates returns the sealed segments with enough dead bytes, those with the
// least to copy first; t.mu is not held. Blocks go as a whole, so dead bytes beside
// live ones stay: those that the last look has found to be such count no more, or a
// file that was written in small pieces would be looked at, and written anew, for
// ever. All means whatever has dead bytes, however few the tree has.
func (t *tree) candidates(thorough, all bool) []*segInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []*segInfo
	var dead, live int64
	for _, l := range t.lines {
		l.mu.RLock()
		for _, info := range l.space.segs {
			live += info.live
			if info.loc.Load().State != record.SegmentSealed || info.live == 0 || info.staged.Load() > 0 {
				continue
			}
			if waste, worth := info.waste(thorough); worth {
				info.copies = info.live
				found = append(found, info)
				dead += waste
			}
		}
		l.mu.RUnlock()
	}
	if !thorough && !all && dead < worthRepackBytes+live/40 {
		return nil
	}
	slices.SortFunc(found, func(a, b *segInfo) int { return cmp.Compare(a.copies, b.copies) })
	return found
}

// waste returns how many bytes of the segment are dead, and whether that is worth
// a look; the owner's mu is held.
func (info *segInfo) waste(thorough bool) (bytes int64, worth bool) {
	loc := info.loc.Load()
	size := loc.Physical
	if loc.State == record.SegmentOpen {
		size = loc.End
	}
	bytes = size - info.live
	if !thorough {
		bytes -= info.firm
	}
	return bytes, bytes > size/50+2*segment.BlockBytes
}

// repack writes anew the segments of a tree that are worth it, if enough bytes
// are dead, or any on a device that is short of room. What is dead is not tracked
// range by range, which would cost every overwrite a row: one scan over the tree's
// chunk rows finds what is named, for all candidates at once. Between two segments
// the pass does what else has come up, for look-ups get dearer while lines wait to
// be joined, and rests.
func (t *tree) repack(ctx context.Context, p *pass, thorough bool) error {
	short := t.engine.Room.Short()
	if short {
		if err := t.sealWasted(ctx); err != nil {
			return err
		}
	}
	segs := t.candidates(thorough, short)
	spare := t.engine.Room.Spare()
	segs = slices.DeleteFunc(segs, func(info *segInfo) bool { return info.copies > spare })
	if len(segs) == 0 {
		return nil
	}
	found := map[*segInfo][]segment.Range{}
	for _, info := range segs {
		found[info] = nil
	}
	if err := t.liveRanges(ctx, found); err != nil {
		return err
	}
	for _, info := range segs {
		if stop, err := p.Stopped(ctx); stop {
			return err
		}
		began := time.Now()
		if packed, worth, err := info.worth(found[info]); err != nil {
			return err
		} else if !worth || packed > t.engine.Room.Spare() {
			continue
		}
		if err := t.repackOne(info, found[info]); err != nil {
			return err
		}
		worked := time.Since(began)
		if err := p.tidy(ctx); err != nil {
			return err
		}
		if err := p.rest(ctx, worked); err != nil {
			return err
		}
	}
	return nil
}

// sealWasted seals the open segments of which enough is dead, so that they can be
// repacked. No more data comes to them while the device is short of room, and a
// new one costs next to nothing afterwards.
func (t *tree) sealWasted(ctx context.Context) error {
	for _, l := range t.sorted() {
		if l.openWaste() {
			if err := l.syncAndSeal(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// openWaste reports whether enough of the line's open segment is dead, or an
// earlier one waits to be sealed.
func (l *line) openWaste() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	l.space.mu.Lock()
	defer l.space.mu.Unlock()
	if len(l.space.full) > 0 || l.space.info == nil {
		return len(l.space.full) > 0
	}
	_, worth := l.space.info.waste(false)
	return worth
}

// liveRanges finds the ranges of the candidates that any row of the tree
// names (I19). A snapshot of the committed rows is enough: rows that are not in it
// name bytes of these segments only if a row in it does. For the first to name them
// was there when its line was synced, as a segment with staged bytes is no candidate;
// others are derived from one, and the snapshot has a prefix of every line's history.
func (t *tree) liveRanges(ctx context.Context, found map[*segInfo][]segment.Range) error {
	byID := map[tine.SegmentID]*segInfo{}
	for info := range found {
		byID[info.id] = info
	}
	for _, l := range t.sorted() {
		if err := l.sync(ctx); err != nil {
			return err
		}
	}
	lines := t.sorted()
	snap := t.engine.Rows.Snapshot()
	defer snap.Close()
	for _, l := range lines {
		for _, s := range l.strataNow() {
			err := stratum.ScanTable(snap, s.ID, record.TableChunk, func(_ record.Logical, v []byte) error {
				if stratum.IsTombstone(v) {
					return nil
				}
				c, err := record.DecodeChunk(v)
				if err != nil {
					return err
				}
				for _, x := range c.Extents {
					if info := byID[x.Segment]; info != nil {
						found[info] = append(found[info], segment.Range{Off: x.Off, Len: x.Len})
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// names reports whether the segment is still one of the line's.
func (l *line) names(info *segInfo) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return !info.gone && l.space.segs[info.id] == info
}

// worth reports whether a repack would make the segment's file enough smaller,
// and how large, and notes what it would leave.
func (info *segInfo) worth(live []segment.Range) (packed int64, worth bool, err error) {
	loc := info.loc.Load()
	packed, used, err := segment.Packed(info.id, live, loc.End)
	if err != nil {
		return 0, false, err
	}
	gain := loc.Physical - packed
	info.firm = max(0, packed-used)
	return packed, gain >= segment.BlockBytes && gain > loc.Physical/50, nil
}

// repackOne writes the segment's live blocks to a file of the next generation
// and changes the location row; the old file goes once that is durable and its
// last Reader is done.
func (t *tree) repackOne(info *segInfo, live []segment.Range) error {
	old := *info.loc.Load()
	l := info.line.root()
	if !l.names(info) {
		return nil // it went while others were repacked
	}
	slices.SortFunc(live, func(a, b segment.Range) int {
		if a.Off < b.Off {
			return -1
		}
		return 1
	})
	loc, err := t.engine.Segments.RepackFrom(info.id, old, live, t.place.Segments, t.place.Above)
	if err != nil {
		return err
	}
	loc.Timeline, loc.Created = l.id, old.Created
	swapped := false
	err = l.exclusive(func() error {
		if !l.names(info) || *info.loc.Load() != old {
			return nil
		}
		b := t.engine.Rows.NewBatch()
		b.Set(t.key(record.IDKey(record.TableSegment, info.id)), loc.Append(nil))
		b.Frees()
		if err := t.place.Rows.Commit(b, true); err != nil {
			return err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if swapped = !info.gone; swapped {
			info.loc.Store(&loc)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !swapped {
		return t.engine.Segments.Remove(info.id, loc.Generation)
	}
	t.engine.Crash.At(crashpoint.RepackApplied)
	return t.engine.Segments.Remove(info.id, old.Generation)
}
