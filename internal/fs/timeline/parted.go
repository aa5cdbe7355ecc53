package timeline

import (
	"context"
	"slices"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// EachChanged calls note with the key of every row that may differ between two
// views of one tree: those born on either side after the point that both
// share. Its cost follows what was written since, not what there is.
func EachChanged(a, b *Reader, note func(record.Logical)) error {
	shared, limit := map[*line]tine.Epoch{}, map[*line]tine.Epoch{}
	for _, h := range a.hops {
		limit[h.line] = h.limit
	}
	for _, h := range b.hops {
		if la, ok := limit[h.line]; ok {
			shared[h.line] = min(la, h.limit)
			break
		}
	}
	for _, r := range []*Reader{a, b} {
		for i, h := range r.hops {
			after, common := shared[h.line]
			if common && h.limit == after {
				break
			}
			if err := r.eachBorn(i, after, note); err != nil {
				return err
			}
			if common {
				break
			}
		}
	}
	return nil
}

// eachBorn calls note for the rows of one hop born after an epoch.
func (r *Reader) eachBorn(i int, after tine.Epoch, note func(record.Logical)) error {
	h := &r.hops[i]
	layers := r.layersOf(i)
	if i == 0 && r.open != nil {
		layers = append(slices.Clone(layers), r.open)
	}
	for _, y := range layers {
		if y.epoch > after && y.epoch <= h.limit {
			y.rows.Scan(func(k record.Logical, _ entry) bool {
				note(k)
				return true
			})
		}
	}
	for _, s := range h.strata {
		for k, err := range s.Keys(r.snapshot(), "", kv.Born{After: after, UpTo: h.limit}) {
			if err != nil {
				return err
			}
			note(k)
		}
	}
	return nil
}

// reapOne removes unlinked files that nothing has open: what a stop left, and
// large ones. Those that the line inherits are its parent's; they are masked,
// for no name leads to them.
func (t *tree) reapOne(ctx context.Context) (bool, error) {
	l := t.findLine(choreReap, func(l *line) bool { return l.head != nil && l.needsReap() })
	if l == nil {
		return false, nil
	}
	for {
		more, err := l.reapStep()
		if err != nil {
			return false, err
		}
		if err := l.syncPast(ctx, 1); err != nil || !more {
			return err == nil, err
		}
	}
}

func (l *line) needsReap() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.state.reap
}

// reapStep removes a part of one unlinked file.
func (l *line) reapStep() (more bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, err := l.begin()
	if err != nil {
		return false, err
	}
	defer t.close()
	if more, err = l.tree.engine.Reap(t); err == nil && !more {
		l.state.reap = false
	}
	if !l.open.empty() {
		l.changed()
	}
	return more, err
}
