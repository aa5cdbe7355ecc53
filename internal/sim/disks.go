package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/sim/posix"
	"tine.dev/tine/internal/tine"
)

// maxDisks returns how many disks there may be at once.
func (c *Config) maxDisks() int {
	if c.Small {
		return 4
	}
	return 6
}

// maxCheckpoints returns how many checkpoints one disk may have.
func (c *Config) maxCheckpoints() int {
	if c.Small {
		return 3
	}
	return 8
}

func (t *turn) newDisk() error {
	if len(t.disks) >= t.cfg.maxDisks() {
		return nil
	}
	return t.World.createDisk(t.r)
}

// createDisk makes an empty disk, or finds its name taken.
func (w *World) createDisk(r *rand.Rand) error {
	name, taken := w.freeName(r)
	w.note("create disk %s", name)
	info, err := w.host.CreateDisk(context.Background(), caller, name)
	if bad := same(err, taken); bad != nil || err != nil {
		return bad
	}
	s, err := w.host.Attach(context.Background(), caller, volume.Ref{Disk: name}, volume.AttachOptions{Label: "first"})
	if err != nil {
		return fmt.Errorf("attaching to the new disk: %w", err)
	}
	a, err := s.GetAttr(volume.Root)
	if err != nil {
		return fmt.Errorf("stat of the new root: %w", err)
	}
	now := w.clock.Now().UnixNano()
	root := posix.Node{Attr: posix.Attr{Ino: tine.RootIno, Mode: posix.TypeDir | 0o755, Nlink: 2,
		Mtime: now, Ctime: now, Atime: now, Btime: now}, Parent: tine.RootIno}
	root.UID, root.GID = a.UID, a.GID
	d := &disk{id: info.ID, tree: info.Tree, name: name, fs: posix.NewFS(root), line: &line{}, sessions: []*session{{s}}}
	d.fs.Now = now
	w.disks = append(w.disks, d)
	w.recorded(d.tree, true, d)
	t := &turn{World: w, d: d, s: d.sessions[0], r: r}
	return t.sameAttr("the new root", a, tine.RootIno)
}

// freeName returns a name for a disk; now and then one that is taken, and the
// error that this gives.
func (w *World) freeName(r *rand.Rand) (string, error) {
	if len(w.disks) > 0 && r.IntN(12) == 0 {
		return pick(r, w.disks).name, &tine.Error{Kind: tine.KindExists}
	}
	w.named++
	return fmt.Sprintf("disk%d", w.named), nil
}

func (d *disk) pickCheckpoint(r *rand.Rand) *checkpoint {
	if len(d.checkpoints) == 0 {
		return nil
	}
	return pick(r, d.checkpoints)
}

// fork makes one or two forks of a disk or of one of its checkpoints.
func (t *turn) fork() error {
	n := 1 + t.r.IntN(2)
	if len(t.disks)+n > t.cfg.maxDisks() {
		return nil
	}
	ref, state, next, at := volume.Ref{Disk: t.d.name}, t.d.fs.Tree, t.d.fs.NextIno, t.d.line.standing()
	if c := t.d.pickCheckpoint(t.r); c != nil && t.chance(40) {
		ref.Checkpoint, state, next, at = c.name, c.tree, c.next, c.at
	}
	var names []string
	var taken error
	for range n {
		name, err := t.freeName(t.r)
		if slices.Contains(names, name) {
			err = &tine.Error{Kind: tine.KindExists}
		}
		if names = append(names, name); err != nil {
			taken = err
		}
	}
	wait := pick(t.r, []volume.Wait{volume.WaitRunnable, volume.WaitDurable})
	t.note("fork %s to %v, wait %d", ref, names, wait)
	infos, err := t.host.Fork(context.Background(), caller, ref, names, wait)
	if bad := same(err, taken); bad != nil || err != nil {
		return bad
	}
	frozen := []*disk{}
	if ref.Checkpoint == "" {
		frozen = append(frozen, t.d)
	}
	for i, info := range infos {
		if info.Name != names[i] || info.Tree != t.d.tree {
			return fmt.Errorf("the fork is %+v", info)
		}
		d := &disk{id: info.ID, tree: info.Tree, name: info.Name, fs: posix.FromTree(state), line: &line{from: at}}
		d.fs.NextIno, d.fs.Now = max(d.fs.NextIno, next), t.d.fs.Now
		t.disks = append(t.disks, d)
		frozen = append(frozen, d)
	}
	t.recorded(t.d.tree, wait == volume.WaitDurable, frozen...)
	for _, name := range names {
		if t.chance(30) {
			if err := t.compareRef(volume.Ref{Disk: name}, state); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *turn) checkpoint() error {
	t.named++
	name := fmt.Sprintf("cp%d", t.named)
	var want error
	if len(t.d.checkpoints) >= t.cfg.maxCheckpoints() {
		return t.removeCheckpoint()
	}
	if c := t.d.pickCheckpoint(t.r); c != nil && t.chance(8) {
		name, want = c.name, &tine.Error{Kind: tine.KindExists}
	}
	wait := pick(t.r, []volume.Wait{volume.WaitRunnable, volume.WaitDurable})
	t.note("checkpoint %s, wait %d", name, wait)
	info, err := t.host.Checkpoint(context.Background(), caller, t.d.name, name, "message of "+name, wait)
	if bad := same(err, want); bad != nil || err != nil {
		return bad
	}
	if info.Name != name || info.Disk != t.d.name || info.Auto || info.Message != "message of "+name || info.Author != caller.Author {
		return fmt.Errorf("the checkpoint is %+v", info)
	}
	t.d.freeze(name, false)
	t.recorded(t.d.tree, wait == volume.WaitDurable, t.d)
	return nil
}

func (t *turn) removeCheckpoint() error {
	c := t.d.pickCheckpoint(t.r)
	name, want := "none", error(tine.ErrNotFound)
	if c != nil {
		name, want = c.name, nil
	}
	t.note("remove checkpoint %s", name)
	err := t.host.RemoveCheckpoint(context.Background(), caller, t.d.name, name)
	if bad := same(err, want); bad != nil || c == nil {
		return bad
	}
	t.d.checkpoints = slices.DeleteFunc(t.d.checkpoints, func(x *checkpoint) bool { return x == c })
	t.recorded(t.d.tree, true)
	return nil
}

func (t *turn) rollback() error {
	c := t.d.pickCheckpoint(t.r)
	name, want := "none", error(tine.ErrNotFound)
	if c != nil {
		name, want = c.name, nil
	}
	t.note("rollback to %s", name)
	info, err := t.host.Rollback(context.Background(), caller, t.d.name, name)
	if bad := same(err, want); bad != nil || c == nil {
		return bad
	}
	return t.exchanged(info, c.tree, c.next, &line{from: c.at, blur: 1})
}

func (t *turn) undo() error {
	c := t.d.lastAuto()
	t.note("undo")
	info, err := t.host.Undo(context.Background(), caller, t.d.name)
	if c == nil {
		return same(err, tine.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	return t.exchanged(info, c.tree, c.next, &line{from: c.at, blur: 1})
}

func (t *turn) promote() error {
	fork := pick(t.r, t.disks)
	force := t.chance(30)
	clean, sure := t.d.line.unchangedSince(fork.line)
	var want error
	switch {
	case fork == t.d:
		want = tine.ErrInvalid
	case fork.tree != t.d.tree:
		want = &tine.Error{Kind: tine.KindCrossDevice}
	default:
		if len(fork.sessions) > 0 && t.chance(80) {
			if err := t.letGo(fork); err != nil {
				return err
			}
		}
		if len(fork.sessions) > 0 {
			want = &tine.Error{Kind: tine.KindBusy}
		} else if !force && !clean {
			want = &tine.Error{Kind: tine.KindConflict}
		}
	}
	t.note("promote %s, force %v", fork.name, force)
	info, err := t.host.Promote(context.Background(), caller, fork.name, t.d.name, force)
	if !sure && (err == nil || tine.KindOf(err) == tine.KindConflict) {
		want = err
	}
	if bad := same(err, want); bad != nil || err != nil {
		return bad
	}
	t.disks = slices.DeleteFunc(t.disks, func(d *disk) bool { return d == fork })
	for _, c := range fork.checkpoints {
		if !c.auto {
			t.d.checkpoints = append(t.d.checkpoints, t.d.renamed(c, fork.name))
		}
	}
	return t.exchanged(info, fork.fs.Tree, fork.fs.NextIno, fork.line)
}

// exchanged makes the model's disk show another state, as rollback, promote
// and undo do. What was open on it is stale from then on.
func (t *turn) exchanged(info volume.RollbackInfo, state posix.Tree, next tine.Ino, l *line) error {
	stale := volume.Node{Gen: t.s.Generation() - 1, Ino: tine.RootIno}
	if info.Disk.ID != t.d.id || info.Disk.Name != t.d.name {
		return fmt.Errorf("the disk is %+v", info.Disk)
	}
	t.saw(t.d)
	t.d.freeze(info.Undo, true)
	t.d.line = l
	t.d.keepAutos(undoKeep)
	handles := t.d.handles
	t.d.handles = nil
	t.d.head(state, next)
	t.recorded(t.d.tree, true, t.d)
	if t.crashed() {
		return nil
	}
	if _, err := t.s.GetAttr(stale); tine.KindOf(err) != tine.KindStale || err == nil {
		return fmt.Errorf("stat of the old generation's root: %s", sayError(err))
	}
	for _, h := range handles {
		if err := stillborn(h); err != nil {
			return err
		}
	}
	if t.chance(50) {
		return t.compare()
	}
	return nil
}

// stillborn checks that a handle of an old generation refuses everything, and
// closes it.
func stillborn(h *handle) error {
	var err error
	if h.file != nil {
		if _, err = h.file.WriteAt(volume.Cred{}, []byte("x"), 0); tine.KindOf(err) == tine.KindStale {
			_, err = h.file.ReadAt(make([]byte, 1), 0)
		}
	} else {
		err = h.dir.Read(0, func(volume.DirEntry) bool { return false })
	}
	if err == nil || tine.KindOf(err) != tine.KindStale {
		return fmt.Errorf("a handle on inode %d of the old generation: %s", h.ino, sayError(err))
	}
	_ = h.close()
	return nil
}

func (t *turn) renameDisk() error {
	name, taken := t.freeName(t.r)
	t.note("rename disk to %s", name)
	info, err := t.host.RenameDisk(context.Background(), caller, t.d.name, name)
	if bad := same(err, taken); bad != nil || err != nil {
		return bad
	}
	if info.Name != name || info.ID != t.d.id {
		return fmt.Errorf("the disk is %+v", info)
	}
	t.d.name = name
	t.recorded(t.d.tree, true)
	return nil
}

func (t *turn) removeDisk() error {
	if len(t.disks) < 2 {
		return nil
	}
	if t.chance(85) {
		if err := t.letGo(t.d); err != nil {
			return err
		}
	}
	purge := t.chance(60)
	t.note("remove disk, purge %v", purge)
	var want error
	if len(t.d.sessions) > 0 {
		want = &tine.Error{Kind: tine.KindBusy}
	}
	_, err := t.host.RemoveDisk(context.Background(), caller, t.d.name, purge)
	if bad := same(err, want); bad != nil || err != nil {
		return bad
	}
	t.disks = slices.DeleteFunc(t.disks, func(d *disk) bool { return d == t.d })
	if !purge {
		t.trash = append(t.trash, t.d)
	}
	t.recorded(t.d.tree, true)
	return nil
}

func (t *turn) undelete() error {
	if len(t.trash) == 0 || len(t.disks) >= t.cfg.maxDisks() {
		return nil
	}
	name := pick(t.r, t.trash).name
	i := len(t.trash) - 1
	for t.trash[i].name != name {
		i--
	}
	var want error
	if slices.ContainsFunc(t.disks, func(d *disk) bool { return d.name == name }) {
		want = &tine.Error{Kind: tine.KindExists}
	}
	t.note("undelete %s", name)
	info, err := t.host.UndeleteDisk(context.Background(), caller, name)
	if bad := same(err, want); bad != nil || err != nil {
		return bad
	}
	d := t.trash[i]
	if info.ID != d.id {
		return fmt.Errorf("disk %s came back, want %s", info.ID, d.id)
	}
	t.trash = slices.Delete(t.trash, i, i+1)
	t.disks = append(t.disks, d)
	t.recorded(d.tree, true)
	return t.compareRef(volume.Ref{Disk: name}, d.fs.Tree)
}

func (t *turn) compareCheckpoint() error {
	c := t.d.pickCheckpoint(t.r)
	if c == nil {
		return nil
	}
	t.note("compare checkpoint %s", c.name)
	return t.compareRef(volume.Ref{Disk: t.d.name, Checkpoint: c.name}, c.tree)
}

func (t *turn) attach() error {
	if len(t.d.sessions) >= 3 {
		return nil
	}
	t.note("attach")
	s, err := t.host.Attach(context.Background(), caller, volume.Ref{Disk: t.d.name}, volume.AttachOptions{Label: "driver"})
	if err != nil {
		return fmt.Errorf("attaching to %s: %w", t.d.name, err)
	}
	t.d.sessions = append(t.d.sessions, &session{s})
	return nil
}

// detach ends one session; its open files go with it.
func (t *turn) detach() error {
	t.note("detach")
	t.d.handles = slices.DeleteFunc(t.d.handles, func(h *handle) bool {
		if h.s == t.s {
			t.d.closed(h.ino)
		}
		return h.s == t.s
	})
	t.d.sessions = slices.DeleteFunc(t.d.sessions, func(s *session) bool { return s == t.s })
	if err := t.s.Detach(context.Background()); err != nil {
		return fmt.Errorf("detaching: %w", err)
	}
	t.durable(t.d)
	return nil
}

func (t *turn) reclaim() error {
	t.note("reclaim")
	if err := t.host.ReclaimIdle(context.Background()); err != nil {
		return fmt.Errorf("reclaim: %w", err)
	}
	return nil
}

// listDisks compares the disks and checkpoints that the host lists.
func (t *turn) listDisks() error {
	t.note("list the disks")
	infos, err := t.host.Disks(context.Background(), caller, false)
	if err != nil {
		return fmt.Errorf("listing the disks: %w", err)
	}
	if len(infos) != len(t.disks) {
		return fmt.Errorf("%d disks are listed, want %d", len(infos), len(t.disks))
	}
	for _, info := range infos {
		i := slices.IndexFunc(t.disks, func(d *disk) bool { return d.id == info.ID })
		if i < 0 || t.disks[i].name != info.Name || len(t.disks[i].sessions) != len(info.Sessions) {
			return fmt.Errorf("the disk %+v is listed", info)
		}
		if err := t.sameCheckpoints(t.disks[i]); err != nil {
			return err
		}
	}
	return nil
}

func (t *turn) sameCheckpoints(d *disk) error {
	cps, err := t.host.Checkpoints(context.Background(), caller, d.name)
	if err != nil {
		return fmt.Errorf("listing the checkpoints of %s: %w", d.name, err)
	}
	var got, want []string
	for _, c := range cps {
		got = append(got, fmt.Sprintf("%s %v", c.Name, c.Auto))
	}
	for _, c := range d.checkpoints {
		want = append(want, fmt.Sprintf("%s %v", c.name, c.auto))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("the checkpoints of %s are %v, want %v", d.name, got, want)
	}
	return nil
}
