package timeline

import (
	"context"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/stratum"
	"tine.dev/tine/internal/tine"
)

// Absorbing a line leaves an alias: rows that name its id mean the line that
// went on. An alias is a row of its own so that absorbing costs the same
// whatever names the old line. It can go when nothing names it any more.

// aliasSlack is how many aliases a tree may gather, besides as many again as the
// last time were left, before it is looked through for those that nothing names:
// looking reads the records of all checkpoints and segments.
const aliasSlack = 64

// pruneAliases removes the aliases that no record names any more, and points
// the rows of the others straight at the line that they mean.
func (t *tree) pruneAliases(ctx context.Context) error {
	t.mu.Lock()
	due := len(t.aliases) > 2*t.aliasesKept+aliasSlack
	t.mu.Unlock()
	// Records under way name lines by the ids of the moment they were made at,
	// so a moment is waited for at which none is.
	for tries := 0; due && tries < pruneTries; tries++ {
		t.mu.Lock()
		last := t.last
		if last == nil || last.IsDone() {
			defer t.mu.Unlock()
			return t.pruneNow()
		}
		t.mu.Unlock()
		if err := last.Wait(ctx, t.engine.Room); err != nil {
			return err
		}
	}
	return nil
}

// pruneTries bounds how often a quiet moment is waited for.
const pruneTries = 20

// pruneNow prunes while no record is under way; t.mu is held.
func (t *tree) pruneNow() error {
	snap := t.engine.Rows.Snapshot()
	defer snap.Close()
	named := map[tine.TimelineID]bool{}
	for _, d := range t.disks {
		named[d.rec.Timeline] = true
	}
	if err := stratum.EachNamedTimeline(snap, t.id, func(id tine.TimelineID) { named[id] = true }); err != nil {
		return err
	}
	r := newRows()
	kept := map[tine.TimelineID]*line{}
	for _, l := range t.lines {
		l.aka = l.aka[:0]
	}
	for id, l := range t.aliases {
		l = l.root()
		key := t.key(record.IDKey(record.TableAlias, id))
		if !named[id] {
			r.list.Delete(key)
			continue
		}
		r.list.Set(key, record.Alias{Into: l.id}.Append(nil))
		kept[id], l.aka = l, append(l.aka, id)
	}
	t.aliases, t.aliasesKept = kept, len(kept)
	t.commit(r)
	return nil
}
