package timeline

import (
	"context"
	"time"

	"tine.dev/tine/internal/fs/stratum"
	"tine.dev/tine/internal/tine"
)

// filterDepth is from how many strata on a path's are given filters.
const filterDepth = 3

// filterOne makes the filter of one stratum that deserves one and has none. A
// promotion writes the first row of a line by a record, past the committer; so
// the last record is waited for, or the filter could lack that row (I12).
func (t *tree) filterOne(ctx context.Context) (bool, error) {
	l, s := t.unfiltered()
	if l == nil {
		return false, nil
	}
	l.mu.RLock()
	after := l.after
	l.mu.RUnlock()
	if err := after.Wait(ctx, t.engine.Room); err != nil {
		return false, err
	}
	return true, l.exclusive(func() error { return l.makeFilter(s) })
}

// unfiltered finds a stratum on a long path that has no filter and is not
// known to be too large.
func (t *tree) unfiltered() (*line, *stratum.Stratum) {
	var owner *line
	var found *stratum.Stratum
	t.findLine(choreFilter, func(l *line) bool {
		if l.head != nil && found == nil {
			owner, found = l.unfiltered()
		}
		return owner != nil
	})
	return owner, found
}

// unfiltered finds such a stratum on the path of this line's head.
func (l *line) unfiltered() (*line, *stratum.Stratum) {
	n := 0
	hops := l.view.hops()
	for i := range hops {
		if !hops[i].bare() {
			n += len(hops[i].strata)
		}
	}
	if n < filterDepth {
		return nil, nil
	}
	for i := range hops {
		if hops[i].bare() {
			continue
		}
		for _, s := range hops[i].strata {
			if !s.Filtered() && !l.tree.large[s.ID] {
				return hops[i].line.root(), s
			}
		}
	}
	return nil, nil
}

// makeFilter makes the filter of a stratum. It runs in the line's committer, so
// that no row is written meanwhile.
func (l *line) makeFilter(s *stratum.Stratum) error {
	t := l.tree
	snap := t.engine.Rows.Snapshot()
	defer snap.Close()
	made, err := s.MakeFilter(snap, t.engine.seed)
	if err == nil && !made {
		t.mu.Lock()
		t.large[s.ID] = true
		t.mu.Unlock()
	}
	return err
}

// newStrata returns the strata of a line that is made empty. Their filters are
// there from the start: most look-ups of a young line are of what it has not
// touched.
func (t *tree) newStrata(now time.Time) []*stratum.Stratum {
	return []*stratum.Stratum{stratum.Empty(tine.NewID[tine.StratumID](now), t.engine.seed)}
}
