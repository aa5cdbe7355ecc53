package depot

import (
	"context"

	"tine.dev/tine/internal/fs/journal"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/run"
	"tine.dev/tine/internal/tine"
)

// A cut makes one run of the journal objects since the last one, so that whoever
// takes the tree up reads that run where it needs it, instead of replaying all.
// It reads the journal as the store has it, not the rows: so it needs no
// snapshot, stops no writer, and cannot hold what is not in the journal.
//
// Runs are merged as in any log-structured store: while a run is not at least
// mergeRatio times as large as the one that follows it, the two become one. So a
// tree has a few runs, and a byte is written again a few times.
const mergeRatio = 3

// maxRuns bounds the runs of a tree, however their sizes lie.
const maxRuns = 8

// progress is what the shipping goroutine knows of the journal since the last cut.
type progress struct {
	m       *manifest // nil: not read yet
	objects uint64
	bytes   int64
}

// wrote counts a journal object, and cuts when there are many bytes or objects. A cut that
// fails is tried again with a later object; nothing depends on it but the length of a take-up.
func (t *Tree) wrote(ctx context.Context, bytes int64) {
	p := &t.cuts
	p.objects++
	p.bytes += bytes
	if p.bytes < t.d.o.CutBytes && p.objects < t.d.o.CutObjects {
		return
	}
	if err := t.cut(ctx); err != nil {
		t.d.o.Logger.Warn("the journal of a tree could not be cut; taking it up elsewhere takes longer until it is", "tree", t.id.String(), "store", t.d.o.Blob.Name(), "error", err)
		p.m = nil
		p.bytes /= 2 // so that the next attempt is not at the next object
		p.objects /= 2
	}
}

// cut makes a run of the journal up to the newest object, and has the manifest
// name it.
// Errors: KindConflict if another server has changed the manifest (J4); those of
// run.Writer and blob.Store.
func (t *Tree) cut(ctx context.Context) (err error) {
	p := &t.cuts
	if p.m == nil {
		if p.m, err = t.d.manifest(ctx, t.id); err != nil {
			return err
		}
	}
	s := t.shipped
	if p.m.term > s.Term {
		return tine.Errorf(tine.KindConflict, "the manifest is of term %d, this server of %d", p.m.term, s.Term)
	}
	next := *p.m
	next.catalog = catalog{}
	for k, v := range p.m.catalog {
		next.catalog[k] = v
	}
	fold := run.NewFold()
	last := next.previous
	for n := next.start; n <= s.Number; n++ {
		if last, err = t.d.foldObject(ctx, t.id, n, last, fold, next.catalog); err != nil {
			return err
		}
	}
	next.server, next.term, next.number, next.start, next.previous = t.d.o.Server, s.Term, p.m.number+1, s.Number+1, last
	if fold.Len() > 0 {
		r, err := t.write(ctx, func(cfg run.Config) ([]run.Table, error) {
			w := run.NewWriter(ctx, cfg)
			if err := fold.Write(w); err != nil {
				w.Abort()
				return nil, err
			}
			return w.Finish()
		})
		if err != nil {
			return err
		}
		next.runs = append(next.runs[:len(next.runs):len(next.runs)], r)
	}
	if next.runs, err = t.merge(ctx, next.runs); err != nil {
		return err
	}
	if err := t.d.replaceManifest(ctx, &next); err != nil {
		return err
	}
	t.cuts = progress{m: &next}
	return nil
}

// write makes a run under an id of its own.
func (t *Tree) write(_ context.Context, fn func(run.Config) ([]run.Table, error)) (sortedRun, error) {
	id := tine.NewID[tine.RunID](t.d.o.Clock())
	tables, err := fn(run.Config{Store: t.d.o.Blob, Prefix: runKey(t.id, id), TableBytes: t.d.o.TableBytes})
	return sortedRun{id, tables}, err
}

// merge replaces the newest runs by one for as long as they are of like size.
func (t *Tree) merge(ctx context.Context, runs []sortedRun) ([]sortedRun, error) {
	from := len(runs) - 1
	var size int64
	if from >= 0 {
		size = runs[from].bytes()
	}
	for from > 0 && (runs[from-1].bytes() < mergeRatio*size || from >= maxRuns) {
		from--
		size += runs[from].bytes()
	}
	if from < 0 || from == len(runs)-1 {
		return runs, nil
	}
	var tables [][]run.Table
	for _, r := range runs[from:] {
		tables = append(tables, r.tables)
	}
	r, err := t.write(ctx, func(cfg run.Config) ([]run.Table, error) { return run.Merge(ctx, cfg, tables, from == 0) })
	if err != nil {
		return nil, err
	}
	out := runs[:from:from]
	if len(r.tables) > 0 {
		out = append(out, r)
	}
	return out, nil
}

// foldObject adds a journal object to what is folded, and returns its checksum.
func (d *Depot) foldObject(ctx context.Context, id tine.TreeID, n uint64, previous uint32, fold *run.Fold, cat catalog) (uint32, error) {
	h, b, err := d.read(ctx, id, n)
	if err != nil {
		return 0, err
	}
	if h.Previous != previous {
		return 0, d.chainError(id, n)
	}
	_, packed, err := journal.Decode(b)
	if err != nil {
		return 0, err
	}
	err = d.o.Codec.Each(packed, func(c kv.Change) error {
		if cat.note(c) {
			return nil
		}
		return fold.Add(c)
	})
	return journal.Checksum(b), err
}

func (d *Depot) chainError(id tine.TreeID, n uint64) error {
	return tine.Errorf(tine.KindCorrupt, "journal object %s in store %s does not follow the one before it", journalKey(id, n), d.o.Blob.Name())
}
