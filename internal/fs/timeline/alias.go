package timeline

import (
	"context"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Absorbing a line leaves an alias: rows that name its id mean the line that
// went on. An alias is a row of its own so that absorbing costs the same
// whatever names the old line. It can go when nothing names it any more.

// aliasSlack is how many aliases a tree may gather before it is looked through
// for those that nothing names.
const aliasSlack = 64

// pruneAliases removes aliases that no record names, and points the others
// straight at the line that they mean.
func (t *tree) pruneAliases(ctx context.Context) (bool, error) {
	t.mu.Lock()
	due, last := len(t.aliases) > t.aliasesKept+aliasSlack, t.last
	t.mu.Unlock()
	if !due {
		return false, nil
	}
	// Records under way name lines by the ids of the moment they were made at;
	// after this one all of them are in the snapshot.
	if err := last.wait(ctx, t.engine); err != nil {
		return false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last != last {
		return true, nil // more records have been made: look again
	}
	snap := t.engine.Rows.Snapshot()
	defer snap.Close()
	named, err := t.namedTimelines(snap)
	if err != nil {
		return false, err
	}
	r := newRows()
	for id, into := range t.aliases {
		key := t.key(record.IDKey(record.TableAlias, id))
		l := t.resolve(id)
		switch {
		case !named[id] || l == nil:
			r.del(key)
		case into != l.id:
			r.set(key, record.Alias{Into: l.id}.Append(nil))
		}
	}
	kept := map[tine.TimelineID]tine.TimelineID{}
	for id := range t.aliases {
		if l := t.resolve(id); named[id] && l != nil {
			kept[id] = l.id
		}
	}
	t.aliases, t.aliasesKept = kept, len(kept)
	t.commit(r)
	return true, nil
}

// namedTimelines returns every timeline id that a record of the tree names.
func (t *tree) namedTimelines(snap kv.Snapshot) (map[tine.TimelineID]bool, error) {
	named := map[tine.TimelineID]bool{}
	for _, d := range t.disks {
		named[d.rec.Timeline] = true
	}
	for table, id := range map[record.Table]func(v []byte) (tine.TimelineID, error){
		record.TableTimeline: func(v []byte) (tine.TimelineID, error) {
			rec, err := record.DecodeTimeline(v)
			return rec.Parent, err
		},
		record.TableCheckpoint: func(v []byte) (tine.TimelineID, error) {
			rec, err := record.DecodeCheckpoint(v)
			return rec.Timeline, err
		},
		record.TableSegment: func(v []byte) (tine.TimelineID, error) {
			rec, err := record.DecodeSegment(v)
			return rec.Timeline, err
		},
		record.TableTask: func(v []byte) (tine.TimelineID, error) {
			rec, err := record.DecodeTask(v)
			return rec.Timeline, err
		},
	} {
		err := scanTable(snap, t.id, table, func(_ record.Logical, v []byte) error {
			n, err := id(v)
			named[n] = true
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return named, nil
}
