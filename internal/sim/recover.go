package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/sim/posix"
	"tine.dev/tine/internal/tine"
)

// torn notes the states that a crash in the middle of a write may leave: one
// large write may be several.
func (t *turn) torn(ino tine.Ino, off int64, data []byte) {
	if !t.cfg.Crashes || t.d.fs.Tree.Get(ino) == nil {
		return
	}
	now := *t.d.fs
	for at := off; ; {
		at = (at/tine.ChunkBytes + 1) * tine.ChunkBytes
		if at >= off+int64(len(data)) {
			return
		}
		part := now
		if part.Write(ino, off, data[:at-off]) != nil {
			return
		}
		t.d.past = append(t.d.past, moment{t.seq, t.d.moves, part.Tree, now.NextIno, *t.d.line, t.d.line})
	}
}

// foundDisk is what is there of a disk after a crash.
type foundDisk struct {
	name        string
	deleted     bool
	tree        posix.Tree
	checkpoints map[string]posix.Tree
}

// recover opens what the crash left, checks it against the history, and makes
// the model continue from it.
func (w *World) recover() error {
	clone, where := w.crash.happened()
	w.note("crash %s", where)
	w.crashes[strings.SplitN(where, ",", 2)[0]]++
	w.abandon()
	if err := w.checkCuts(); err != nil {
		return err
	}
	w.host, w.mem = nil, clone
	w.cuts.know(nil)
	err := w.auditClone()
	if err == nil {
		err = w.open()
	}
	if err == nil {
		var found findings
		if found, err = lookAround(w.host); err == nil {
			err = w.judge(found)
		}
	}
	if err != nil {
		return fmt.Errorf("after the crash %s: %w", where, err)
	}
	return w.checkCuts()
}

// findings is all that is there after a crash.
type findings map[tine.TreeID]map[tine.DiskID]foundDisk

// lookAround reads all disks and checkpoints.
func lookAround(h *volume.Host) (findings, error) {
	ctx := context.Background()
	found := findings{}
	for _, deleted := range []bool{false, true} {
		infos, err := h.Disks(ctx, caller, deleted)
		if err != nil {
			return nil, fmt.Errorf("listing the disks: %w", err)
		}
		for _, info := range infos {
			if found[info.Tree] == nil {
				found[info.Tree] = map[tine.DiskID]foundDisk{}
			}
			f := foundDisk{name: info.Name, deleted: !info.Deleted.IsZero(), checkpoints: map[string]posix.Tree{}}
			if !f.deleted {
				if err := f.look(h); err != nil {
					return nil, err
				}
			}
			found[info.Tree][info.ID] = f
		}
	}
	return found, nil
}

func (f *foundDisk) look(h *volume.Host) error {
	var err error
	if f.tree, err = readAllOf(h, volume.Ref{Disk: f.name}); err != nil {
		return err
	}
	cps, err := h.Checkpoints(context.Background(), caller, f.name)
	if err != nil {
		return fmt.Errorf("listing the checkpoints of %s: %w", f.name, err)
	}
	for _, c := range cps {
		if f.checkpoints[c.Name], err = readAllOf(h, volume.Ref{Disk: f.name, Checkpoint: c.Name}); err != nil {
			return err
		}
	}
	return nil
}

// read attaches to a disk or checkpoint and reads all of it.
func (w *World) read(ref volume.Ref) (posix.Tree, error) { return readAllOf(w.host, ref) }

func readAllOf(h *volume.Host, ref volume.Ref) (posix.Tree, error) {
	ctx := context.Background()
	s, err := h.Attach(ctx, caller, ref, volume.AttachOptions{Label: "reader", ReadOnly: true})
	if err != nil {
		return posix.Tree{}, fmt.Errorf("attaching to %s: %w", ref, err)
	}
	t, err := observe(s)
	if e := s.Detach(ctx); err == nil {
		err = e
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", ref, err)
	}
	return t, err
}

// judge finds, for each tree, the record up to which it was recovered and the
// moment of each disk, and goes back to them.
func (w *World) judge(found findings) error {
	fl := w.floors()
	w.disks, w.trash = nil, nil
	for id, g := range w.groves {
		if err := w.goBack(g, found[id], fl); err != nil {
			return err
		}
		delete(found, id)
	}
	for _, disks := range found {
		for _, d := range disks {
			return fmt.Errorf("disk %s was never made", d.name)
		}
	}
	byAge := func(a, b *disk) int { return strings.Compare(a.id.String(), b.id.String()) }
	slices.SortFunc(w.disks, byAge)
	slices.SortFunc(w.trash, byAge)
	w.settle()
	return nil
}

func (w *World) goBack(g *grove, found map[tine.DiskID]foundDisk, fl *floors) error {
	k, moments, err := g.find(found, g.floor, fl)
	if err != nil || k < 0 {
		return err
	}
	for id, r := range g.records[k].disks {
		r.restore(moments[id])
		if r.deleted {
			w.trash = append(w.trash, r.d)
		} else {
			w.disks = append(w.disks, r.d)
		}
	}
	return nil
}

// restore makes the disk what it was at a moment.
func (r diskRecord) restore(m moment) {
	d := r.d
	d.name, d.moves, d.checkpoints = r.name, r.moves, r.checkpoints
	d.line = m.of
	*d.line = m.line
	d.fs = posix.FromTree(m.tree)
	d.fs.NextIno = max(d.fs.NextIno, m.next)
	d.sessions, d.handles = nil, nil
}
