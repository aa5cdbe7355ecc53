package keeper

import (
	"context"

	"tine.dev/tine/internal/tine"
)

// Access says what is to become of a mount; what is nil stays as it is.
type Access struct{ ReadOnly, AllowSUID, AllowDev, NoExec *bool }

func (a Access) of(r Record) Record {
	for _, c := range []struct{ to, from *bool }{
		{&r.ReadOnly, a.ReadOnly}, {&r.AllowSUID, a.AllowSUID}, {&r.AllowDev, a.AllowDev}, {&r.NoExec, a.NoExec},
	} {
		if c.from != nil {
			*c.to = *c.from
		}
	}
	return r
}

// Remount changes a mount while it is there, and its record, so that it comes
// back so. It returns the record as it is now. The record is written last: until
// then the call has promised nothing, and the mount of a server that dies is gone
// anyway.
//
// Errors: tine.KindNotFound when nothing is mounted there, KindReadOnly when a
// checkpoint is to become writable, and what Mounted.Remount returns.
func (k *Keeper) Remount(ctx context.Context, dir string, a Access) (Status, error) {
	e, dir, err := k.seize(dir)
	if err != nil {
		return Status{}, err
	}
	if e == nil {
		return Status{}, tine.Errorf(tine.KindNotFound, "no disk of this server is mounted on %s", dir).WithHint("`tine mounts` lists the mounts")
	}
	s, err := k.remount(ctx, e, a)
	k.mu.Lock()
	e.moving = false
	live := e.live
	k.mu.Unlock()
	if live != nil && isClosed(live.Done()) { // meanwhile, which nobody has told yet
		k.ended(e, live)
	}
	if err == nil {
		k.tell(Remounting, s.Record)
	}
	return s, err
}

// remount changes the mount of an entry that is seized.
func (k *Keeper) remount(ctx context.Context, e *entry, a Access) (Status, error) {
	k.mu.Lock()
	r, closing := a.of(e.record), k.closing
	k.mu.Unlock()
	switch {
	case closing:
		return Status{}, tine.Errorf(tine.KindUnavailable, "the server is stopping")
	case e.live == nil || e.leaving:
		return Status{}, tine.Errorf(tine.KindNotFound, "%s is not mounted on %s now", r.Ref(), r.Dir).WithHint("`tine mounts` says why")
	case r.Checkpoint != "" && a.ReadOnly != nil && !*a.ReadOnly:
		return Status{}, tine.Errorf(tine.KindReadOnly, "%s is a checkpoint, which never changes", r.Ref()).
			WithHint("to write, mount a fork of it: tine fork %s NAME", r.Ref())
	}
	ctx, cancel := context.WithTimeout(ctx, unmountTime)
	defer cancel()
	if err := e.live.Remount(ctx, r); err != nil {
		return Status{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	e.record = a.of(e.record)
	if err := k.saveLocked(); err != nil {
		return Status{}, tine.Errorf(tine.KindOf(err), "the mount on %s is changed, but comes back as it was before: %w", r.Dir, err)
	}
	return Status{Record: e.record, State: StateMounted}, nil
}
