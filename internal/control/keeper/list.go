package keeper

import "slices"

// List returns every recorded mount, oldest first.
func (k *Keeper) List() []Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]Status, 0, len(k.entries))
	for _, e := range k.entries {
		s := Status{Record: e.record, State: StateMounted}
		switch {
		case e.failed != nil:
			s.State, s.Error = StateFailed, e.failed.Error()
		case e.leaving:
			s.State = StateUnmounting
		case e.live == nil && !e.moving:
			s.State = StateDown
		}
		out = append(out, s)
	}
	return out
}

// On returns the directories at which the disk, or a checkpoint of it, is
// mounted now.
func (k *Keeper) On(disk string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	dirs := []string{}
	for _, e := range k.entries {
		if e.record.Disk == disk && (e.live != nil || e.moving) {
			dirs = append(dirs, e.record.Dir)
		}
	}
	return dirs
}

// Renamed follows a disk to its new name.
func (k *Keeper) Renamed(old, name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	changed := false
	for _, e := range k.entries {
		if e.record.Disk == old {
			e.record.Disk, changed = name, true
		}
	}
	if !changed {
		return nil
	}
	return k.saveLocked()
}

// Removed forgets the mounts of a disk that is gone; they are not mounted, or
// the disk could not have been removed.
func (k *Keeper) Removed(disk string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := len(k.entries)
	k.entries = slices.DeleteFunc(k.entries, func(e *entry) bool {
		return e.record.Disk == disk && e.live == nil && !e.moving
	})
	if len(k.entries) == before {
		return nil
	}
	return k.saveLocked()
}

// ended notes that the kernel has let go of a mount, and tells of it. While the
// entry is seized that is left to whoever has it.
func (k *Keeper) ended(e *entry, live Mounted) {
	k.mu.Lock()
	if e.moving || e.live != live {
		k.mu.Unlock()
		return
	}
	e.live = nil
	kind, r := Lost, e.record
	switch {
	case e.leaving:
		kind = Unmounting
		k.dropLocked(e)
	case k.closing: // this is why, and it comes back
		k.mu.Unlock()
		return
	case e.record.Boot != "":
		k.log.Info("a mount was taken away by umount", "dir", r.Dir)
		k.dropLocked(e)
		if err := k.saveLocked(); err != nil {
			k.log.Warn("could not forget a mount that is gone; it may come back at the next start", "dir", r.Dir, "error", err)
		}
	default:
		k.log.Warn("a mount was taken away from outside; it comes back at the next start, or forget it with `tine umount`", "dir", r.Dir)
	}
	k.mu.Unlock()
	k.tell(kind, r)
}

func (k *Keeper) findLocked(dir string) *entry {
	for _, e := range k.entries {
		if e.record.Dir == dir {
			return e
		}
	}
	return nil
}

func (k *Keeper) dropLocked(e *entry) {
	k.entries = slices.DeleteFunc(k.entries, func(x *entry) bool { return x == e })
}

// saveLocked writes the records. It is done under the lock so that two saves
// cannot overtake each other; it takes a flush or two of the device.
func (k *Keeper) saveLocked() error {
	rs := make([]Record, 0, len(k.entries))
	for _, e := range k.entries {
		if !e.leaving {
			rs = append(rs, e.record)
		}
	}
	return writeRecords(k.data, rs)
}

// watchLocked notes when the kernel lets go of the mount.
func (k *Keeper) watchLocked(e *entry) {
	live := e.live
	go func() {
		<-live.Done()
		k.ended(e, live)
	}()
}
