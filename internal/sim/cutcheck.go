package sim

import (
	"context"
	"errors"
	"fmt"

	"tine.dev/tine/internal/fs/volume"
)

// One in so many cuts is looked at more closely.
const (
	auditEvery  = 4 // counts anew what the rows count
	tidyEvery   = 8 // does all background work, and reads everything again
	reopenEvery = 8 // closes and opens again
	deepEvery   = 6 // is cut again while it recovers
)

// maxDepth is how often a recovery may be cut in a row.
const maxDepth = 3

// checkCuts checks the cuts that were taken since the last time.
func (w *World) checkCuts() error {
	for _, c := range w.cuts.drain() {
		fl := c.floors
		if fl == nil {
			fl = w.floors()
		}
		if err := w.openCut(c, func(f findings) error { return w.allowed(f, fl) }); err != nil {
			return fmt.Errorf("%w\nfound after a cut %s", err, c)
		}
	}
	return nil
}

// allowed tells whether findings are a state that the history allows.
func (w *World) allowed(found findings, fl *floors) error {
	for id, g := range w.groves {
		if _, _, err := g.find(found[id], fl.tree(id), fl); err != nil {
			return err
		}
	}
	for id, disks := range found {
		for _, d := range disks {
			if w.groves[id] == nil {
				return fmt.Errorf("disk %s was never made", d.name)
			}
		}
	}
	return nil
}

// openCut recovers a cut and checks what it shows; and, for some, that it goes
// on to show the same: after background work, after closing and opening again,
// and after being cut while it recovers.
func (w *World) openCut(c *cut, right func(findings) error) error {
	once := func(every int) bool { return c.rnd.IntN(every) == 0 }
	w.cuts.stats.Cuts[c.place]++
	if c.depth > 0 {
		w.cuts.stats.Deep++
	}
	var deeper *cutter
	if c.depth < maxDepth && once(deepEvery) {
		deeper = newCutter()
		deeper.depth = c.depth + 1
		deeper.begin(c.rnd.Uint64(), c.step)
	}
	audit, tidy, reopen := once(auditEvery), once(tidyEvery), once(reopenEvery)
	h, err := w.openClone(c, deeper, audit)
	if err != nil {
		return err
	}
	found, err := lookAround(h)
	if err == nil {
		err = right(found)
	}
	if err == nil && tidy {
		w.cuts.stats.Tidied++
		if err = w.lookAgain(h, found); err != nil {
			err = fmt.Errorf("after background work: %w", err)
		}
	}
	err = errors.Join(err, h.Close(context.Background()))
	if err == nil && reopen {
		w.cuts.stats.Reopened++
		if err = w.reopenClone(c, found); err != nil {
			err = fmt.Errorf("opened once more: %w", err)
		}
	}
	if err != nil {
		return err
	}
	return w.checkDeeper(deeper, found)
}

// checkDeeper checks the cuts of a recovery that came to show found.
func (w *World) checkDeeper(k *cutter, found findings) error {
	if k == nil {
		return nil
	}
	w.cuts.took(k)
	for _, c := range k.drain() {
		if err := w.openCut(c, func(f findings) error { return sameFindings(found, f) }); err != nil {
			return fmt.Errorf("%w\nfound after a cut %s", err, c)
		}
	}
	return nil
}

// openClone opens a Host on a cut; with audit, what the rows count is counted
// before. There is no background work but what is asked for: it would not end
// sooner than the look around, and cost more.
func (w *World) openClone(c *cut, deeper *cutter, audit bool) (*volume.Host, error) {
	if audit {
		w.cuts.stats.Audited++
		if err := (&World{mem: c.fs}).auditClone(); err != nil {
			return nil, err
		}
	}
	hook := newCrash(c.fs, deeper)
	o := volume.Options{Dir: "/data", FS: c.fs, Clock: w.clock.Now, CacheBytes: 1 << 20, CommitInterval: -1, UndoKeep: undoKeep, TrashKeep: -1,
		Manual: true, Mutation: w.cfg.Mutation}
	if deeper != nil {
		o.FS, o.Crash = hook.fs(), hook.at
	}
	h, err := volume.Open(context.Background(), o)
	if err != nil {
		return nil, fmt.Errorf("opening the data directory: %w", err)
	}
	return h, nil
}

// lookAgain does all background work; nothing that can be seen may change.
func (w *World) lookAgain(h *volume.Host, found findings) error {
	if err := h.ReclaimIdle(context.Background()); err != nil {
		return err
	}
	again, err := lookAround(h)
	if err != nil {
		return err
	}
	return sameFindings(found, again)
}

// reopenClone opens a cut again that has been recovered and closed.
func (w *World) reopenClone(c *cut, found findings) error {
	h, err := w.openClone(c, nil, true)
	if err != nil {
		return err
	}
	again, err := lookAround(h)
	if err == nil {
		err = sameFindings(found, again)
	}
	return errors.Join(err, h.Close(context.Background()))
}

// sameFindings compares what is found now with what was found before.
func sameFindings(before, now findings) error {
	for id, disks := range before {
		for d, x := range disks {
			y, ok := now[id][d]
			if !ok || x.name != y.name || x.deleted != y.deleted || len(x.checkpoints) != len(y.checkpoints) {
				return fmt.Errorf("disk %s (deleted: %v) with %d checkpoints was there; there is %s (%v) with %d",
					x.name, x.deleted, len(x.checkpoints), y.name, y.deleted, len(y.checkpoints))
			}
			if err := difference(x.tree, y.tree); err != nil {
				return fmt.Errorf("disk %s has changed: %w", x.name, err)
			}
			for name, t := range x.checkpoints {
				if err := difference(t, y.checkpoints[name]); err != nil {
					return fmt.Errorf("checkpoint %s of %s has changed: %w", name, x.name, err)
				}
			}
		}
	}
	for id, disks := range now {
		if len(disks) > len(before[id]) {
			return fmt.Errorf("there are %d disks in a tree that had %d", len(disks), len(before[id]))
		}
	}
	return nil
}
