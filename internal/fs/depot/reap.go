package depot

import (
	"context"
	"strconv"
	"strings"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/journal"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/object"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/run"
	"tine.dev/tine/internal/tine"
)

// What may go from the store, and when (J5):
//
//   - journal objects before the newest, which the manifest does not have replayed, but for
//     those of terms: such a one stands at the number that the server before wants next,
//     and is what tells it, however long it slept (J3);
//   - runs that the manifest does not name and the row store does not read;
//   - the objects of segments whose rows are gone, and older generations of others.
//
// All of it not before it has been so for the horizon, which must be longer than
// anybody takes to take a tree up, and than a run takes from its first table to the manifest. Only the
// owner deletes, after looking at the manifest once more: under another's term it has
// lost the tree. It deletes of segments only generations that were made in its own
// term or before, so that one that was wrong about being the owner still takes
// nothing from the new one. Any error of reading or listing ends the attempt.

// bury notes the segments of a journal object whose data is not needed any more, as rows that
// travel with it: so whoever takes the tree up goes on with them.
func (c *cargo) bury(now time.Time) {
	for f := range c.t.there {
		c.stays[f.id] = true // sent for this object or an attempt at it
	}
	for id, loc := range c.segs {
		g := record.Grave{Since: now.UnixNano()}
		switch {
		case loc == nil && !c.stays[id]:
			continue // the store never had any of it
		case loc == nil:
			g.Below = (c.t.shipped.Term) << 32
		case loc.Generation == 0:
			continue
		default:
			g.Below = loc.Generation
		}
		delete(c.t.buried, id) // there is more to remove
		c.own = append(c.own, kv.Change{Kind: kv.ChangeSet, Key: graveKey(c.t.id, id), Value: g.Append(nil)})
	}
	for id := range c.t.buried {
		c.own = append(c.own, kv.Change{Kind: kv.ChangeDelete, Key: graveKey(c.t.id, id)})
	}
}

// isGrave reports whether a key is that of a grave of the tree.
func (t *Tree) isGrave(key []byte) bool {
	return len(key) > tine.IDSize && tine.TreeID(key[:tine.IDSize]) == t.id && record.Table(key[tine.IDSize]) == record.TableGrave
}

func graveKey(tree tine.TreeID, id tine.SegmentID) []byte {
	return record.Key(tree, record.IDKey(record.TableGrave, id), 0)
}

// reap removes what has been of no use for the horizon.
// Errors: KindConflict if another server has the tree; those of blob.Store and of rows.
func (t *Tree) reap(ctx context.Context) error {
	m, err := t.d.manifest(ctx, t.id)
	if err != nil {
		return err
	}
	if m.term > t.shipped.Term {
		return tine.Errorf(tine.KindConflict, "the manifest is of term %d, this server of %d", m.term, t.shipped.Term)
	}
	before := t.d.now().Add(-t.d.o.Horizon)
	var dead []blob.Key
	for e, err := range t.d.o.Blob.All(ctx, blob.ListOptions{Prefix: journalPrefix(t.id)}) {
		if err != nil {
			return err
		}
		n, err := strconv.ParseUint(strings.TrimPrefix(string(e.Key), journalPrefix(t.id)), 10, 64)
		if err == nil && n+1 < m.start && e.Size > journal.EmptyBytes && e.Modified.Before(before) {
			dead = append(dead, e.Key)
		}
	}
	runs, err := t.deadRuns(ctx, m, before)
	if err != nil {
		return err
	}
	if err := t.d.o.Blob.Delete(ctx, append(dead, runs...)...); err != nil {
		return err
	}
	return t.reapSegments(ctx, before)
}

// deadRuns lists the tables that nothing reads.
func (t *Tree) deadRuns(ctx context.Context, m *manifest, before time.Time) (dead []blob.Key, err error) {
	used := map[blob.Key]bool{}
	for _, r := range m.runs {
		for _, x := range r.tables {
			used[x.Key] = true
		}
	}
	if a, ok := t.box.Store.(kv.Adopter); ok {
		adopted, err := a.Adopted()
		if err != nil {
			return nil, err
		}
		for _, x := range adopted {
			if key, _, err := run.ParseName(strings.TrimPrefix(x.Name, t.d.o.Place)); err == nil {
				used[key] = true
			}
		}
	}
	for e, err := range t.d.o.Blob.All(ctx, blob.ListOptions{Prefix: runsPrefix(t.id)}) {
		if err != nil {
			return nil, err
		}
		if !used[e.Key] && e.Modified.Before(before) {
			dead = append(dead, e.Key)
		}
	}
	return dead, nil
}

// reapSegments removes the objects of segments that are buried. Their graves go with
// the next journal object.
func (t *Tree) reapSegments(ctx context.Context, before time.Time) error {
	graves := map[tine.SegmentID]record.Grave{}
	snap := t.box.Snapshot()
	defer snap.Close()
	lower := record.AppendKey(nil, t.id, record.TableKey(record.TableGrave))
	scan, err := snap.Scan(lower, record.PrefixEnd(lower), nil)
	if err != nil {
		return err
	}
	defer scan.Close()
	for scan.Next() {
		_, l, _, err := record.SplitKey(scan.Key())
		if err != nil {
			return err
		}
		g, err := record.DecodeGrave(scan.Value())
		if err != nil {
			return err
		}
		id, _ := l.ID()
		if time.Unix(0, g.Since).Before(before) && !t.buried[id] {
			graves[id] = g
		}
	}
	if err := scan.Err(); err != nil {
		return err
	}
	for id, g := range graves {
		var dead []blob.Key
		var generations []uint64
		for e, err := range t.d.o.Blob.All(ctx, blob.ListOptions{Prefix: object.Prefix(id)}) {
			if err != nil {
				return err
			}
			n, err := strconv.ParseUint(strings.TrimPrefix(string(e.Key), object.Prefix(id)), 10, 64)
			if err == nil && n < g.Below {
				dead, generations = append(dead, e.Key), append(generations, n)
			}
		}
		if err := t.d.o.Blob.Delete(ctx, dead...); err != nil {
			return err
		}
		for _, n := range generations {
			t.segs.Forget(id, n)
		}
		t.buried[id] = true
	}
	return nil
}
