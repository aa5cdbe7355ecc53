package volume

import (
	"context"
	"errors"
	"slices"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// TakenUp is what has become of a tree in a store that was not served here.
type TakenUp struct {
	Tree  tine.TreeID
	Disks []string // the names of its living disks, if they are here now
	Err   error    // why they are not
}

// TakeUp claims the trees of a store that are not served here, so that their
// disks are. Each goes by itself, and the answer tells of each. With again it
// claims also those that this server had and lost: what it had not shipped of
// them is then gone.
//
// Of a tree: KindBusy while another server lives that has it, with how long that is;
// KindConflict if one took it at the same time; KindExists if a disk has a name
// that is taken here. Errors: KindNotFound for a store that is not known,
// KindUnavailable for one that has not answered yet; those of listing it.
func (h *Host) TakeUp(ctx context.Context, name string, again bool) ([]TakenUp, error) {
	s := h.away
	x, err := s.usable(name)
	if err != nil {
		return nil, err
	}
	s.taking.Lock()
	defer s.taking.Unlock()
	ids, err := x.depot.Trees(ctx)
	if err != nil {
		return nil, err
	}
	var out []TakenUp
	for _, id := range ids {
		if s.engine.Knows(id) && !(again && s.isLost(id)) {
			continue
		}
		switch names, err := s.claim(ctx, x, id); {
		case err == nil:
			out = append(out, TakenUp{Tree: id, Disks: names})
		case tine.KindOf(err) != tine.KindNotFound: // else nothing was shipped of it
			out = append(out, TakenUp{Tree: id, Err: err})
		}
	}
	return out, nil
}

// claim takes one tree up, and returns the names of its disks.
func (s *stores) claim(ctx context.Context, x *store, id tine.TreeID) ([]string, error) {
	if err := s.unused(id); err != nil {
		return nil, err
	}
	t, err := x.depot.Claim(ctx, s.rows, id, s.files(x, id))
	s.mu.Lock()
	release := s.fitting[id]
	delete(s.fitting, id)
	s.mu.Unlock()
	if release != nil {
		defer release()
	}
	if err != nil {
		return nil, err
	}
	s.keep(id, t)
	if err := s.engine.Admit(id); err != nil {
		return nil, err
	}
	var names []string
	for _, d := range s.disksOf(id, false) {
		rec, _ := d.Record()
		names = append(names, rec.Name)
	}
	slices.Sort(names)
	return names, nil
}

// disksOf returns the disks of a tree, living or also those in the trash.
func (s *stores) disksOf(id tine.TreeID, all bool) []*timeline.Disk {
	ds := s.running().Disks(tine.DefaultTenant, false)
	if all {
		ds = append(ds, s.engine.Disks(tine.DefaultTenant, true)...)
	}
	return slices.DeleteFunc(ds, func(d *timeline.Disk) bool { return d.Tree() != id })
}

// unused refuses a tree of which a disk is attached.
func (s *stores) unused(id tine.TreeID) error {
	for _, d := range s.disksOf(id, true) {
		if i, err := d.Info(); err == nil && i.InUse > 0 {
			rec, _ := d.Record()
			return tine.Errorf(tine.KindBusy, "disk %q is in use here, in the state in which another server took it over", rec.Name).
				WithHint("unmount it first; `tine mounts` shows where")
		}
	}
	return nil
}

// fits reserves the names of a tree that is about to be claimed, after what was
// here of it, lost to another server, is out of the way (depot.Options.Fits).
func (s *stores) fits(id tine.TreeID, rows []kv.Change) error {
	if err := s.drop(id); err != nil {
		return err
	}
	living := map[string]string{} // names by key
	for _, c := range rows {
		_, l, _, err := record.SplitKey(c.Key)
		if err != nil || l.Table() != record.TableDisk {
			continue
		}
		delete(living, string(c.Key))
		if rec, err := record.DecodeDisk(c.Value); err == nil && c.Kind == kv.ChangeSet && rec.Deleted == 0 {
			living[string(c.Key)] = rec.Name
		}
	}
	s.mu.Lock()
	before := s.fitting[id]
	delete(s.fitting, id)
	s.mu.Unlock()
	if before != nil {
		before() // it is asked again when the tree was written meanwhile
	}
	var names []string
	for _, n := range living {
		names = append(names, n)
	}
	release, err := s.engine.Reserve(tine.DefaultTenant, names...)
	if err != nil {
		var e *tine.Error
		if errors.As(err, &e) && e.Kind == tine.KindExists {
			return e.WithHint("rename the one that is here with `tine disk rename`, then: tine store take-up STORE")
		}
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fitting[id] = release
	return nil
}

// drop takes a lost tree out of the engine, and what makes it be seen out of the
// rows. Of a tree that is not here it does nothing.
func (s *stores) drop(id tine.TreeID) error {
	if !s.engine.Knows(id) {
		return nil
	}
	disks, err := s.engine.Forget(id)
	if err != nil {
		return err
	}
	b := s.rows.NewBatch()
	b.Frees()
	for _, d := range disks {
		b.Delete(record.Key(tine.DefaultTenant, record.IDKey(record.TableDisk, d), 0))
	}
	b.Delete(record.Key(tine.DefaultTenant, record.IDKey(record.TableTree, id), 0))
	s.mu.Lock()
	t := s.trees[id]
	delete(s.trees, id)
	s.mu.Unlock()
	if t != nil {
		t.Close()
	}
	return s.rows.Commit(b, true)
}

// discard gives up what is here of a lost tree.
func (s *stores) discard(id tine.TreeID) error {
	s.taking.Lock()
	defer s.taking.Unlock()
	return s.drop(id)
}

// isLost reports whether the tree is another server's now.
func (s *stores) isLost(id tine.TreeID) bool {
	t := s.tree(id)
	return t != nil && t.Status().Lost != nil
}

// LostTree is a tree that another server has taken over.
type LostTree struct {
	Tree  tine.TreeID
	Disks []LostDisk // the living ones
	Why   error
}

// LostDisk is a disk of it.
type LostDisk struct {
	ID   tine.DiskID
	Name string
}

// lost tells the engine, and who wants to know, that a tree is another server's.
func (s *stores) lost(id tine.TreeID, why error) {
	s.running().Lose(id, why)
	if s.o.StoreLost == nil {
		return
	}
	l := LostTree{Tree: id, Why: why}
	for _, d := range s.disksOf(id, false) {
		rec, _ := d.Record()
		l.Disks = append(l.Disks, LostDisk{d.ID(), rec.Name})
	}
	s.o.StoreLost(l)
}
