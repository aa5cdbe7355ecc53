package volume

import (
	"cmp"
	"context"
	"slices"
	"time"

	"tine.dev/tine/internal/fs/meta"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// DiskInfo describes a disk.
type DiskInfo struct {
	ID      tine.DiskID
	Name    string
	Tree    tine.TreeID
	Created time.Time
	Deleted time.Time // zero while it lives
	Origin  string    // what it was made from
	Forked  tine.DiskID
	Quota   Quota
	Durable Durability
	timeline.HeadInfo
	Sessions []string   // who is attached, for people
	Store    *DiskStore // nil for a disk of this machine alone
	Failed   error      // why nothing is known of its head
}

// CheckpointInfo describes a checkpoint.
type CheckpointInfo struct {
	ID                      tine.CheckpointID
	Disk, Name              string
	Epoch                   tine.Epoch
	Author, Caller, Message string
	Created                 time.Time
	Auto                    bool // taken by rollback, promote or undo
}

// RollbackInfo says what a rollback, promote or undo has done.
type RollbackInfo struct {
	Disk DiskInfo
	Undo string // the automatic checkpoint of what was there before
}

// LogEntry is one line of a disk's history.
type LogEntry = record.LogEntry

// info describes a disk. With an error it has what is known without its tree.
func (h *Host) info(d *timeline.Disk) (DiskInfo, error) {
	head, err := d.Info()
	rec, tree := d.Record()
	i := DiskInfo{ID: d.ID(), Name: rec.Name, Tree: d.Tree(), Created: time.Unix(0, rec.Created), Origin: rec.Origin, Forked: rec.Forked,
		Quota: rec.Quota, Durable: rec.Durable, HeadInfo: head, Sessions: h.hubOf(d.ID()).labels(), Failed: err}
	if rec.Deleted != 0 {
		i.Deleted = time.Unix(0, rec.Deleted)
	}
	if !tree.Store.IsZero() {
		i.Store = h.away.disk(d.Tree(), tree.Store)
	}
	return i, err
}

// Quota bounds what a disk may hold: the data of its files and its inodes, as
// df shows them; 0 is no bound. A program that meets it sees ENOSPC. It belongs
// to the disk, whatever state that shows, and forks start with their parent's.
type Quota = timeline.Quota

// CreateDisk makes an empty disk without a quota.
func (h *Host) CreateDisk(ctx context.Context, c Caller, name string) (DiskInfo, error) {
	return h.CreateDiskWithin(ctx, c, name, Quota{})
}

// CreateDiskWithin makes an empty disk with a quota.
func (h *Host) CreateDiskWithin(ctx context.Context, c Caller, name string, q Quota) (DiskInfo, error) {
	return h.CreateDiskIn(ctx, c, name, NewDisk{Quota: q})
}

// NewDisk says what a new disk is to be.
type NewDisk struct {
	Quota   Quota
	Store   string // the name of the store that it lives in; "": this machine alone
	Durable Durability
}

// CreateDiskIn makes an empty disk. When it returns, its store has it too.
func (h *Host) CreateDiskIn(ctx context.Context, c Caller, name string, n NewDisk) (DiskInfo, error) {
	rows, counters := meta.Empty(h.owner, h.clock().UnixNano())
	o := timeline.Origin{Quota: n.Quota, Durable: n.Durable, Rows: rows, Counters: counters}
	switch {
	case n.Store != "":
		x, err := h.away.usable(n.Store)
		if err != nil {
			return DiskInfo{}, err
		}
		o.Store = x.ID
	case n.Durable == DurableBucket:
		return DiskInfo{}, tine.Errorf(tine.KindInvalid, "a disk whose data is to be durable in a bucket needs a store").
			WithHint("name one with --store; `tine store ls` lists them")
	}
	d, err := h.engine.Create(ctx, c.Tenant, name, actor(c), o)
	if err != nil {
		return DiskInfo{}, err
	}
	if n.Store != "" {
		if err := h.SyncStore(ctx, c, name); err != nil {
			return DiskInfo{}, err
		}
	}
	return h.info(d)
}

// find returns a disk and has its clients hand over what they hold dirty, so
// that what follows freezes all that was written before it was asked for (F3).
func (h *Host) find(ctx context.Context, c Caller, name string, flush bool) (*timeline.Disk, error) {
	d, err := h.engine.Find(c.Tenant, name)
	if err != nil || !flush {
		return d, err
	}
	if err := d.Failed(); err != nil {
		return nil, err // clients cannot hand anything over either, and this says why
	}
	return d, h.hubOf(d.ID()).flush(ctx)
}

// Fork makes disks that branch off another, or off a checkpoint of it. With
// WaitRunnable it returns when they can be used, with WaitDurable when they
// also survive a crash.
func (h *Host) Fork(ctx context.Context, c Caller, from Ref, names []string, wait Wait) ([]DiskInfo, error) {
	if len(names) == 0 {
		return nil, tine.Errorf(tine.KindInvalid, "no name for the fork is given")
	}
	d, err := h.find(ctx, c, from.Disk, from.Checkpoint == "")
	if err != nil {
		return nil, err
	}
	ds, step, err := d.Fork(from.Checkpoint, names, actor(c))
	if err != nil {
		return nil, err
	}
	if wait == WaitDurable {
		if err := h.harden(ctx, d, step.Wait(ctx)); err != nil {
			return nil, err
		}
	}
	var is []DiskInfo
	for _, k := range ds {
		i, err := h.info(k)
		if err != nil {
			return nil, err
		}
		is = append(is, i)
	}
	return is, nil
}

// Checkpoint names the disk's present state.
func (h *Host) Checkpoint(ctx context.Context, c Caller, disk, name, message string, wait Wait) (CheckpointInfo, error) {
	d, err := h.find(ctx, c, disk, true)
	if err != nil {
		return CheckpointInfo{}, err
	}
	i, step, err := d.Checkpoint(name, message, actor(c))
	if err != nil {
		return CheckpointInfo{}, err
	}
	if wait == WaitDurable {
		if err := h.harden(ctx, d, step.Wait(ctx)); err != nil {
			return CheckpointInfo{}, err
		}
	}
	return checkpointInfo(disk, i), nil
}

func checkpointInfo(disk string, i timeline.CheckpointInfo) CheckpointInfo {
	return CheckpointInfo{ID: i.ID, Disk: disk, Name: i.Name, Epoch: i.Epoch, Author: i.Author, Caller: i.Caller,
		Message: i.Message, Created: time.Unix(0, i.Created), Auto: i.Auto}
}

// Checkpoints returns the disk's checkpoints, oldest first.
func (h *Host) Checkpoints(ctx context.Context, c Caller, disk string) ([]CheckpointInfo, error) {
	d, err := h.find(ctx, c, disk, false)
	if err != nil {
		return nil, err
	}
	is, err := d.Checkpoints()
	if err != nil {
		return nil, err
	}
	cs := make([]CheckpointInfo, len(is))
	for k, i := range is {
		cs[k] = checkpointInfo(disk, i)
	}
	return cs, nil
}

// RemoveCheckpoint gives up a checkpoint.
func (h *Host) RemoveCheckpoint(ctx context.Context, c Caller, disk, name string) error {
	d, err := h.find(ctx, c, disk, false)
	if err != nil {
		return err
	}
	return h.harden(ctx, d, d.RemoveCheckpoint(ctx, name, actor(c)))
}

// Rollback sets the disk to what a checkpoint shows.
func (h *Host) Rollback(ctx context.Context, c Caller, disk, checkpoint string) (RollbackInfo, error) {
	return h.exchange(ctx, c, disk, func(d *timeline.Disk) (string, error) { return d.Rollback(ctx, checkpoint, actor(c)) })
}

// Undo takes back the last rollback, promote or undo.
func (h *Host) Undo(ctx context.Context, c Caller, disk string) (RollbackInfo, error) {
	return h.exchange(ctx, c, disk, func(d *timeline.Disk) (string, error) { return d.Undo(ctx, actor(c)) })
}

// Promote makes a fork's state the disk's; the fork's name goes.
func (h *Host) Promote(ctx context.Context, c Caller, fork, onto string, force bool) (RollbackInfo, error) {
	f, err := h.find(ctx, c, fork, true)
	if err != nil {
		return RollbackInfo{}, err
	}
	return h.exchange(ctx, c, onto, func(d *timeline.Disk) (string, error) { return d.Promote(ctx, f, force, actor(c)) })
}

// exchange runs what gives the disk another head, and tells every session to
// forget what it knows.
func (h *Host) exchange(ctx context.Context, c Caller, disk string, fn func(*timeline.Disk) (string, error)) (RollbackInfo, error) {
	d, err := h.find(ctx, c, disk, true)
	if err != nil {
		return RollbackInfo{}, err
	}
	undo, err := fn(d)
	if err = h.harden(ctx, d, err); err != nil {
		return RollbackInfo{}, err
	}
	b := h.hubOf(d.ID())
	b.locks.drop(func(lockKey, lockOwner) bool { return true })
	b.tell(nil, Invalidation{Kind: InvalidAll})
	b.drain(ctx)
	i, err := h.info(d)
	return RollbackInfo{i, undo}, err
}

// SetQuota changes the disk's quota: nil leaves a bound as it is, 0 takes it
// away. It holds at once and is durable when SetQuota returns. A bound below
// what the disk holds refuses what makes the disk larger until enough is
// removed; removing and overwriting go on.
func (h *Host) SetQuota(ctx context.Context, c Caller, name string, bytes, inodes *int64) (QuotaUse, error) {
	d, err := h.find(ctx, c, name, false)
	if err != nil {
		return QuotaUse{}, err
	}
	err = d.SetQuota(ctx, func(q Quota) Quota {
		if bytes != nil {
			q.Bytes = *bytes
		}
		if inodes != nil {
			q.Inodes = *inodes
		}
		return q
	}, actor(c))
	if err = h.harden(ctx, d, err); err != nil {
		return QuotaUse{}, err
	}
	return quotaUse(d)
}

// QuotaUse is a disk's quota and what counts against it.
type QuotaUse struct {
	Quota
	UsedBytes, UsedInodes int64
}

// QuotaUse returns a disk's quota and what counts against it, at no cost that
// grows with the disk.
func (h *Host) QuotaUse(ctx context.Context, c Caller, name string) (QuotaUse, error) {
	d, err := h.find(ctx, c, name, false)
	if err != nil {
		return QuotaUse{}, err
	}
	return quotaUse(d)
}

func quotaUse(d *timeline.Disk) (u QuotaUse, err error) {
	u.Quota, u.UsedInodes, u.UsedBytes, err = d.QuotaUse()
	return u, err
}

// RenameDisk gives a disk another name; sessions go on.
func (h *Host) RenameDisk(ctx context.Context, c Caller, old, name string) (DiskInfo, error) {
	d, err := h.find(ctx, c, old, false)
	if err != nil {
		return DiskInfo{}, err
	}
	if err := h.harden(ctx, d, d.Rename(ctx, name, actor(c))); err != nil {
		return DiskInfo{}, err
	}
	return h.info(d)
}

// RemoveDisk puts a disk into the trash, or with purge gives it up for good;
// purge also takes one from the trash.
func (h *Host) RemoveDisk(ctx context.Context, c Caller, name string, purge bool) (DiskInfo, error) {
	d, err := h.find(ctx, c, name, false)
	if purge && tine.KindOf(err) == tine.KindNotFound {
		d, err = h.engine.Trashed(c.Tenant, name)
	}
	if err != nil {
		return DiskInfo{}, err
	}
	i, err := h.info(d)
	if err != nil {
		return DiskInfo{}, err
	}
	if purge && i.Store != nil && i.Store.Lost != nil {
		return i, h.away.discard(i.Tree)
	}
	if err := h.harden(ctx, d, d.Remove(ctx, purge, actor(c))); err != nil {
		if tine.KindOf(err) == tine.KindBusy && len(i.Sessions) > 0 {
			return DiskInfo{}, tine.Errorf(tine.KindBusy, "disk %q is in use: %s", name, i.Sessions[0]).
				WithHint("unmount it first: `tine umount DIR`")
		}
		return DiskInfo{}, err
	}
	if purge {
		h.mu.Lock()
		delete(h.hubs, i.ID)
		h.mu.Unlock()
		return i, nil
	}
	return h.info(d)
}

// UndeleteDisk brings back the newest removed disk of the name.
func (h *Host) UndeleteDisk(ctx context.Context, c Caller, name string) (DiskInfo, error) {
	d, err := h.engine.Undelete(ctx, c.Tenant, name, actor(c))
	if err = h.harden(ctx, d, err); err != nil {
		return DiskInfo{}, err
	}
	return h.info(d)
}

// Disks returns the living disks by name, or those in the trash.
func (h *Host) Disks(_ context.Context, c Caller, deleted bool) ([]DiskInfo, error) {
	is := []DiskInfo{}
	for _, d := range h.engine.Disks(c.Tenant, deleted) {
		i, err := h.info(d)
		if err != nil && i.Store == nil {
			return nil, err
		}
		is = append(is, i)
	}
	slices.SortFunc(is, func(a, b DiskInfo) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.Deleted.Compare(b.Deleted))
	})
	return is, nil
}

// Disk returns one disk.
func (h *Host) Disk(ctx context.Context, c Caller, name string) (DiskInfo, error) {
	d, err := h.find(ctx, c, name, false)
	if err != nil {
		return DiskInfo{}, err
	}
	return h.info(d)
}

// Log returns the disk's history, oldest first.
func (h *Host) Log(ctx context.Context, c Caller, disk string) ([]LogEntry, error) {
	d, err := h.find(ctx, c, disk, false)
	if err != nil {
		return nil, err
	}
	return d.Log()
}

// SyncDisk makes durable all that has reached the disk, after its clients have
// handed over what they hold dirty.
func (h *Host) SyncDisk(ctx context.Context, c Caller, name string) error {
	d, err := h.find(ctx, c, name, true)
	if err != nil {
		return err
	}
	return h.harden(ctx, d, d.Sync(ctx))
}
