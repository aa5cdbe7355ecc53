package timeline

import (
	"cmp"
	"slices"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/stratum"
	"tine.dev/tine/internal/tine"
)

// loadCatalog reads the trees and disks of the tenants; of Engine.mu nothing is
// needed, for nobody else has the engine yet.
func (e *Engine) loadCatalog() error {
	snap := e.Rows.Snapshot()
	defer snap.Close()
	return e.catalogue(snap, func(tine.TreeID) bool { return true })
}

// Admit makes the disks of a tree be seen whose rows have come from a store.
// Errors: KindExists if a name is taken; those of reading rows.
func (e *Engine) Admit(id tine.TreeID) error {
	snap := e.Rows.Snapshot()
	defer snap.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.catalogue(snap, func(t tine.TreeID) bool { return t == id })
}

// Forget takes a tree out of the engine that was lost to another server, so that
// it can be taken up anew, and returns the ids of its disks. Its rows stay.
// Errors: KindBusy while one of its disks is attached.
func (e *Engine) Forget(id tine.TreeID) (disks []tine.DiskID, err error) {
	t := e.tree(id)
	if t == nil {
		return nil, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range t.disks {
		if err := d.idle(); err != nil {
			return nil, err
		}
		disks = append(disks, d.id)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.trees, id)
	for _, d := range t.disks {
		d.gone = true
		k := diskName{t.rec.Tenant, d.rec.Name}
		delete(e.disks, d.id)
		if e.names[k] == d {
			delete(e.names, k)
		}
		e.trash[k] = slices.DeleteFunc(e.trash[k], func(x *Disk) bool { return x == d })
	}
	return disks, nil
}

// Knows reports whether the engine has the tree.
func (e *Engine) Knows(id tine.TreeID) bool { return e.tree(id) != nil }

func (e *Engine) tree(id tine.TreeID) *tree {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.trees[id]
}

// catalogue reads the records of the trees that are wanted, and of their disks.
func (e *Engine) catalogue(snap kv.Snapshot, wanted func(tine.TreeID) bool) error {
	owner := tine.DefaultTenant
	err := stratum.ScanTable(snap, owner, record.TableTree, func(l record.Logical, v []byte) error {
		id, _ := l.ID()
		if !wanted(id) {
			return nil
		}
		rec, err := record.DecodeTree(v)
		if err != nil {
			return err
		}
		e.trees[id] = newTree(e, id, rec)
		return nil
	})
	if err != nil {
		return err
	}
	return stratum.ScanTable(snap, owner, record.TableDisk, func(l record.Logical, v []byte) error {
		id, _ := l.ID()
		rec, err := record.DecodeDisk(v)
		if err == nil && !wanted(rec.Tree) {
			return nil
		}
		t := e.trees[rec.Tree]
		if err == nil && t == nil {
			err = tine.Errorf(tine.KindCorrupt, "it names tree %s, which does not exist", rec.Tree)
		}
		if err != nil {
			// One bad row must not keep the other disks from being served.
			e.Logger.Error("a disk's record is damaged; the disk is left out", "disk", tine.DiskID(id).String(), "name", rec.Name, "error", err)
			return nil
		}
		d := &Disk{engine: e, id: id, tree: t, rec: rec, gen: 1}
		d.setQuota(rec.Quota)
		e.disks[d.id] = d
		t.disks = append(t.disks, d)
		if k := (diskName{owner, rec.Name}); rec.Deleted == 0 {
			e.names[k] = d
		} else {
			e.trash[k] = append(e.trash[k], d)
			slices.SortFunc(e.trash[k], func(a, b *Disk) int { return cmp.Compare(a.rec.Deleted, b.rec.Deleted) })
		}
		return nil
	})
}
