package timeline

import (
	"cmp"
	"slices"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/reclaim"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/stratum"
	"tine.dev/tine/internal/tine"
)

// load reads the tree's records and recovers its open segments; t.mu is held.
// It touches no file system row: its cost is that of the lines, checkpoints
// and segments, not of the files.
func (t *tree) load() error {
	snap := t.engine.Rows.Snapshot()
	defer snap.Close()
	for _, step := range []func(kv.Snapshot) error{
		t.loadTimelines, t.loadCheckpoints, t.loadDisks, t.loadSegments, t.loadTasks, t.loadTouched,
	} {
		if err := step(snap); err != nil {
			return err
		}
	}
	if err := t.recoverSegments(snap); err != nil {
		return err
	}
	t.touchDead()
	t.todo.Add(allChores)
	return nil
}

// touchDead has segments that nothing names dropped with their line's next
// commit: a stop can come between a segment's last death and its removal.
func (t *tree) touchDead() {
	for _, info := range t.segs {
		if info.live == 0 {
			info.line.root().open.touch(info.id)
		}
	}
}

func (t *tree) loadTimelines(snap kv.Snapshot) error {
	into := map[tine.TimelineID]tine.TimelineID{}
	err := stratum.ScanTable(snap, t.id, record.TableAlias, func(l record.Logical, v []byte) error {
		a, err := record.DecodeAlias(v)
		id, _ := l.ID()
		into[id] = a.Into
		return err
	})
	if err != nil {
		return err
	}
	parents := map[*line]tine.TimelineID{}
	err = stratum.ScanTable(snap, t.id, record.TableTimeline, func(l record.Logical, v []byte) error {
		rec, err := record.DecodeTimeline(v)
		if err != nil {
			return err
		}
		id, _ := l.ID()
		n := t.newLine(id, nil, rec.Branch)
		n.first, n.epoch = rec.First, rec.Epoch
		for _, id := range rec.Strata {
			n.strata = append(n.strata, stratum.New(id))
		}
		n.open.epoch = rec.Epoch
		parents[n] = rec.Parent
		return nil
	})
	if err != nil {
		return err
	}
	if err := t.loadAliases(into); err != nil {
		return err
	}
	for l, id := range parents {
		if id.IsZero() {
			continue
		}
		p := t.resolve(id)
		if p == nil {
			return tine.Errorf(tine.KindCorrupt, "timeline %s names its parent %s, which does not exist", l.id, id)
		}
		l.parent = p
		p.adopt(l)
		p.pins.Add(l.branch)
	}
	t.version.Add(1)
	return nil
}

// loadAliases follows each alias, through others, to the line that it means.
func (t *tree) loadAliases(into map[tine.TimelineID]tine.TimelineID) error {
	for id := range into {
		end, hops := id, 0
		for next, ok := into[end]; ok; next, ok = into[end] {
			if end, hops = next, hops+1; hops > len(into) {
				return tine.Errorf(tine.KindCorrupt, "the alias of timeline %s leads in a circle", id)
			}
		}
		l := t.lines[end]
		if l == nil {
			return tine.Errorf(tine.KindCorrupt, "the alias of timeline %s leads to %s, which does not exist", id, end)
		}
		t.aliases[id] = l
		l.aka = append(l.aka, id)
	}
	return nil
}

func (t *tree) loadCheckpoints(snap kv.Snapshot) error {
	return stratum.ScanTable(snap, t.id, record.TableCheckpoint, func(l record.Logical, v []byte) error {
		rec, err := record.DecodeCheckpoint(v)
		if err != nil {
			return err
		}
		id, _ := l.ID()
		n := t.resolve(rec.Timeline)
		if n == nil {
			return tine.Errorf(tine.KindCorrupt, "checkpoint %q names timeline %s, which does not exist", rec.Name, rec.Timeline)
		}
		i := slices.IndexFunc(t.disks, func(d *Disk) bool { return d.id == rec.Disk })
		if i < 0 {
			return tine.Errorf(tine.KindCorrupt, "checkpoint %q names disk %s, which does not exist", rec.Name, rec.Disk)
		}
		t.disks[i].own(&checkpoint{id: id, rec: rec, line: n})
		n.pins.Add(rec.Epoch)
		return nil
	})
}

func (t *tree) loadDisks(snap kv.Snapshot) error {
	for _, l := range t.lines {
		l.setHead(nil)
	}
	for _, d := range t.disks {
		d.line = t.resolve(d.rec.Timeline)
		if d.line == nil {
			return tine.Errorf(tine.KindCorrupt, "disk %q names timeline %s, which does not exist", d.rec.Name, d.rec.Timeline)
		}
		d.line.setHead(d)
		slices.SortFunc(d.autos, func(a, b *checkpoint) int { return cmp.Compare(a.rec.Created, b.rec.Created) })
	}
	return stratum.ScanTable(snap, t.id, record.TableLog, func(l record.Logical, _ []byte) error {
		_, n := l.ID()
		t.nextLog = max(t.nextLog, n)
		return nil
	})
}

func (t *tree) loadSegments(snap kv.Snapshot) error {
	err := stratum.ScanTable(snap, t.id, record.TableSegment, func(l record.Logical, v []byte) error {
		loc, err := record.DecodeSegment(v)
		if err != nil {
			return err
		}
		id, _ := l.ID()
		owner := t.resolve(loc.Timeline)
		if owner == nil {
			return tine.Errorf(tine.KindCorrupt, "segment %s names timeline %s, which does not exist", tine.SegmentID(id), loc.Timeline)
		}
		info := &segInfo{id: id, line: owner}
		info.loc.Store(&loc)
		t.segs[info.id] = info
		if owner.space.segs == nil {
			owner.space.segs = map[tine.SegmentID]*segInfo{}
		}
		owner.space.segs[info.id] = info
		return nil
	})
	if err != nil {
		return err
	}
	err = stratum.ScanTable(snap, t.id, record.TableLive, func(l record.Logical, v []byte) error {
		n, err := record.DecodeLive(v)
		id, _ := l.ID()
		if info := t.segs[id]; info != nil {
			info.live = n.Bytes
		}
		return err
	})
	if err != nil {
		return err
	}
	return stratum.ScanTable(snap, t.id, record.TablePiece, func(l record.Logical, v []byte) error {
		p, err := record.DecodePiece(v)
		id, off := l.ID()
		if info := t.segs[id]; info != nil {
			info.pieces = append(info.pieces, reclaim.Piece{Off: int64(off), Len: p.Len, Runs: p.Runs})
		}
		return err
	})
}

func (t *tree) loadTasks(snap kv.Snapshot) error {
	return stratum.ScanTable(snap, t.id, record.TableTask, func(l record.Logical, v []byte) error {
		rec, err := record.DecodeTask(v)
		if err != nil {
			return err
		}
		t.nextTask = max(t.nextTask, l.Seq())
		if n := t.resolve(rec.Timeline); n != nil {
			n.tasks++
			t.tasks = append(t.tasks, task{rec.Kind, l.Seq(), n, rec.Epoch})
		}
		return nil
	})
}

// loadTouched finds out of each line whether it has rows, and whether any is
// of its newest epoch.
func (t *tree) loadTouched(snap kv.Snapshot) error {
	for _, l := range t.lines {
		l.state.reap = l.head != nil // a stop leaves files that were open without a name
		l.state.touched = len(l.space.segs) > 0
		for _, s := range l.strata {
			any, err := s.Has(snap, nil)
			if err != nil {
				return err
			}
			if !any {
				continue
			}
			l.state.touched = true
			l.state.stored.Store(true)
			fresh, err := s.Has(snap, &kv.Born{After: l.epoch - 1, UpTo: l.epoch})
			if err != nil {
				return err
			}
			l.state.written = l.state.written || fresh
		}
	}
	return nil
}

// recoverSegments finishes the segments that were open when the server last
// stopped: what the last commits promised is there, in the file or in tail
// rows. A recovered segment takes no more bytes, so that no logical offset
// ever names two contents.
func (t *tree) recoverSegments(snap kv.Snapshot) error {
	for _, info := range t.segs {
		loc := *info.loc.Load()
		if loc.State != record.SegmentOpen {
			continue
		}
		var tails []record.Tail
		var keys [][]byte
		err := stratum.ScanPrefix(snap, t.id, record.IDKey(record.TableTail, info.id), func(l record.Logical, v []byte) error {
			_, off := l.ID()
			tails = append(tails, record.Tail{Segment: info.id, Off: int64(off), Bytes: slices.Clone(v)})
			keys = append(keys, t.key(l))
			return nil
		})
		if err != nil {
			return err
		}
		sealed, err := t.engine.Segments.Recover(info.id, loc, tails)
		if err != nil {
			return err
		}
		sealed.Timeline, sealed.Created = loc.Timeline, loc.Created
		b := t.engine.Rows.NewBatch()
		b.Set(t.key(record.IDKey(record.TableSegment, info.id)), sealed.Append(nil))
		for _, k := range keys {
			b.Delete(k)
		}
		b.Frees() // nothing of the tree can be deleted before
		if err := t.place.Rows.Commit(b, true); err != nil {
			return err
		}
		info.loc.Store(&sealed)
	}
	return nil
}
