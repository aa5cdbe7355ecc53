package depot

import (
	"bytes"
	"cmp"
	"context"
	"strconv"
	"strings"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/journal"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/outbox"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/run"
	"tine.dev/tine/internal/tine"
)

// Create gives a new tree its place in the store: the first term. rows must hold
// nothing of the tree yet.
// Errors: those of blob.Store; KindExists if there is such a tree.
func (d *Depot) Create(ctx context.Context, rows kv.Store, id tine.TreeID, segs Segments) (*Tree, error) {
	s, err := d.term(ctx, id, journal.Header{})
	if err != nil {
		return nil, err
	}
	return d.start(rows, id, s, segs, false)
}

// term begins the term after that of the last object (J2).
func (d *Depot) term(ctx context.Context, id tine.TreeID, last journal.Header) (record.Shipped, error) {
	h := journal.Header{
		Tree: id, Server: d.o.Server, Number: last.Number + 1, Term: last.Term + 1,
		Created: d.o.Clock().UnixNano(), Previous: last.Previous,
	}
	b := d.o.Codec.Encode(h, &journal.List{})
	if _, err := d.o.Blob.Put(ctx, journalKey(id, h.Number), bytes.NewReader(b), blob.Condition{Absent: true}); err != nil {
		return record.Shipped{}, err
	}
	return record.Shipped{Number: h.Number, Term: h.Term, Checksum: journal.Checksum(b)}, nil
}

// start notes what the store has, and begins to ship; doubtful: after a look
// whether the tree is still this server's.
func (d *Depot) start(rows kv.Store, id tine.TreeID, s record.Shipped, segs Segments, doubtful bool) (*Tree, error) {
	box, err := outbox.Open(rows, id, s.Sequence, d.o.Codec)
	if err != nil {
		return nil, err
	}
	t := &Tree{d: d, id: id, box: box, segs: segs, doubtful: doubtful}
	if err := box.Remove(s); err != nil {
		return nil, err
	}
	t.begin(s)
	return t, nil
}

// Resume goes on with a tree whose rows are here: ok is false if they do not
// say that the store has any of it. It makes no request itself, so that it works
// while the store does not; that another server has taken the tree over is
// found soon after, and what this server sent and did not hear of when it next ships.
// Errors: those of rows.
func (d *Depot) Resume(rows kv.Store, id tine.TreeID, segs Segments) (t *Tree, ok bool, err error) {
	s, ok, err := outbox.Shipped(rows, id)
	if !ok || err != nil {
		return nil, false, err
	}
	t, err = d.start(rows, id, s, segs, true)
	return t, true, err
}

// Trees lists the trees that the store has, in the order of their making.
// Errors: those of blob.Store.
func (d *Depot) Trees(ctx context.Context) ([]tine.TreeID, error) {
	var ids []tine.TreeID
	opt := blob.ListOptions{Prefix: "trees/", Delimiter: "/"}
	for {
		page, err := d.o.Blob.List(ctx, opt)
		if err != nil {
			return nil, err
		}
		for _, p := range page.Prefixes {
			var id tine.TreeID
			if id.Parse(strings.TrimSuffix(strings.TrimPrefix(p, opt.Prefix), "/")) == nil {
				ids = append(ids, id)
			}
		}
		if opt.Token = page.Next; opt.Token == "" {
			return ids, nil
		}
	}
}

// Claim takes a tree up: it wins the next term, and writes the tree's rows, of
// which there must be none yet, into the row store. Nothing of the tree is seen by
// its tenant before all of it is there. A Claim that was cut off is begun anew.
// Errors: KindBusy while another server has it; KindConflict if one took it at the same time; KindNotFound;
// KindCorrupt, KindVersion; those of Options.Fits, of blob.Store and of rows.
func (d *Depot) Claim(ctx context.Context, rows kv.Store, id tine.TreeID, segs Segments) (*Tree, error) {
	newest, err := d.newest(ctx, id)
	if err != nil {
		return nil, err
	}
	if newest == 0 {
		return nil, tine.Errorf(tine.KindNotFound, "store %s has no tree %s", d.o.Blob.Name(), id)
	}
	head, _, err := d.read(ctx, id, newest)
	if err != nil {
		return nil, err
	}
	if err := d.free(ctx, head.Server); err != nil {
		return nil, tine.Errorf(tine.KindOf(err), "tree %s in store %s cannot be taken up: %w", id, d.o.Blob.Name(), err)
	}
	m, err := d.manifest(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := wipe(ctx, rows, id); err != nil {
		return nil, err
	}
	r := &replay{d: d, rows: rows, id: id, seen: m.catalog, last: journal.Header{Number: m.start - 1, Term: m.term, Previous: m.previous}}
	if err := r.adopt(ctx, m); err != nil {
		return nil, err
	}
	// What the server before still ships, late as it is, is taken in: its number
	// is not free, and it may be quick. But not for ever.
	for range maxMeetings {
		for n := r.last.Number + 1; n <= newest; n++ {
			if err := r.object(ctx, n); err != nil {
				return nil, err
			}
		}
		if len(r.seen) == 0 {
			return nil, tine.Errorf(tine.KindNotFound, "of tree %s store %s has no disk: none was shipped before its server ended", id, d.o.Blob.Name())
		}
		if err := d.o.Fits(id, r.seen.changes()); err != nil {
			return nil, cmp.Or(wipe(ctx, rows, id), err)
		}
		s, err := d.term(ctx, id, r.last)
		switch {
		case err == nil:
			if err := r.finish(s); err != nil {
				return nil, err
			}
			return d.start(rows, id, s, segs, false)
		case tine.KindOf(err) != tine.KindExists:
			return nil, err
		}
		if newest, err = d.newest(ctx, id); err != nil {
			return nil, err
		}
	}
	return nil, tine.Errorf(tine.KindConflict, "tree %s is written while it is taken up: its server lives, or another one takes it up too", id).
		WithHint("stop the server that has it, or have it moved with: tine disk move")
}

// maxMeetings is how often a Claim meets another server at the number that it
// wants before it gives up.
const maxMeetings = 100

// newest returns the number of the newest journal object, 0 if there is none.
func (d *Depot) newest(ctx context.Context, id tine.TreeID) (n uint64, err error) {
	for e, err := range d.o.Blob.All(ctx, blob.ListOptions{Prefix: journalPrefix(id)}) {
		if err != nil {
			return 0, err
		}
		v, err := strconv.ParseUint(strings.TrimPrefix(string(e.Key), journalPrefix(id)), 10, 64)
		if err == nil {
			n = max(n, v)
		}
	}
	return n, nil
}

// replay writes the rows of a tree from its journal.
type replay struct {
	d    *Depot
	rows kv.Store
	id   tine.TreeID
	last journal.Header // with Previous: the checksum of that object itself
	seen catalog
}

// adopt has the row store read the manifest's runs where they lie.
func (r *replay) adopt(ctx context.Context, m *manifest) error {
	if len(m.runs) == 0 {
		return nil
	}
	a, ok := r.rows.(kv.Adopter)
	if !ok {
		return tine.Errorf(tine.KindInternal, "the row store cannot adopt runs")
	}
	var groups [][]kv.Table
	for _, x := range m.runs {
		group := run.Adoptables(x.tables)
		for i := range group {
			group[i].Name = r.d.o.Place + group[i].Name
		}
		groups = append(groups, group)
	}
	return a.Adopt(ctx, groups)
}

// object replays one journal object.
func (r *replay) object(ctx context.Context, n uint64) error {
	h, b, err := r.d.read(ctx, r.id, n)
	if err != nil {
		return err
	}
	if h.Previous != r.last.Previous || h.Term < r.last.Term {
		return r.d.chainError(r.id, n)
	}
	_, packed, err := journal.Decode(b)
	if err != nil {
		return err
	}
	batch := r.rows.NewBatch()
	err = r.d.o.Codec.Each(packed, func(c kv.Change) error {
		if !r.seen.note(c) {
			c.Apply(batch)
		}
		return nil
	})
	if err != nil {
		batch.Discard()
		return err
	}
	r.last = h
	r.last.Previous = journal.Checksum(b)
	return r.rows.Commit(batch, false)
}

// seen reports whether the row makes a tree or a disk be seen.
func seen(key []byte) bool {
	if len(key) <= tine.IDSize {
		return false
	}
	t := record.Table(key[tine.IDSize])
	return t == record.TableTree || t == record.TableDisk
}

// finish makes the tree be seen, and all of its rows durable.
func (r *replay) finish(s record.Shipped) error {
	batch := r.rows.NewBatch()
	for _, c := range r.seen.changes() {
		c.Apply(batch)
	}
	batch.Set(record.Key(r.id, record.TableKey(record.TableShipped), 0), s.Append(nil))
	return r.rows.Commit(batch, true)
}

// wipe removes the rows of a Claim that was cut off.
func wipe(ctx context.Context, rows kv.Store, id tine.TreeID) error {
	snap := rows.Snapshot()
	defer snap.Close()
	lines := record.AppendKey(nil, id, record.TableKey(record.TableTimeline))
	scan, err := snap.Scan(lines, record.PrefixEnd(lines), nil)
	if err != nil {
		return err
	}
	defer scan.Close()
	spans := []kv.Span{{Lower: id[:], Upper: record.PrefixEnd(id[:])}}
	for scan.Next() {
		rec, err := record.DecodeTimeline(scan.Value())
		if err != nil {
			continue // it goes; its strata are not known
		}
		for _, s := range rec.Strata {
			spans = append(spans, kv.Span{Lower: s[:], Upper: record.PrefixEnd(s[:])})
		}
	}
	if err := scan.Err(); err != nil {
		return err
	}
	if len(spans) == 1 {
		return nil // nothing was there
	}
	if a, ok := rows.(kv.Adopter); ok {
		return a.Clear(ctx, spans)
	}
	b := rows.NewBatch()
	for _, s := range spans {
		b.DeleteRange(s.Lower, s.Upper)
	}
	return rows.Commit(b, true)
}
