package timeline

import (
	"context"
	"fmt"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// This file bounds what a disk's head may hold. The bound is compared with
// what Totals shows: the data of files and the inodes, those of open files
// without a name included, but not names, attributes or older states. All of
// it is known in memory under line.mu, so a disk without a quota pays one
// comparison for each operation that grows it, and one with a quota is exact:
// an operation that would pass the bound is refused whole, whoever else writes.
//
// A refusal is KindQuota, so that nobody takes it for a full device, but a
// program sees ENOSPC, as it does where a directory tree is bounded by a project
// quota on XFS. The quota is the size that df shows of the disk, it binds root
// too, and programs that keep their disk in order look for ENOSPC; EDQUOT would
// speak of a user who has been given less than the disk has.

// Quota bounds what a disk's head may hold; 0 is no bound.
type Quota = record.Quota

// orphans is what open files without a name hold beside the counters.
type orphans struct{ inodes, bytes int64 }

// totals returns the inodes and bytes of the head; line.mu is held.
func (c *lineCounters) totals() (inodes, bytes int64) {
	return c.Inodes + c.orphans.inodes, c.Bytes + c.orphans.bytes
}

// SetOrphan notes whether an open inode is without a name, and how many bytes
// of data it then has: the counters have given it up, the totals have not.
func (t *Txn) SetOrphan(h *Handles, orphan bool, bytes int64) {
	o := &t.line.counters.orphans
	if h.Orphan {
		o.inodes, o.bytes = o.inodes-1, o.bytes-h.Bytes
	}
	h.Orphan, h.Bytes = orphan, bytes
	if orphan {
		o.inodes, o.bytes = o.inodes+1, o.bytes+bytes
	}
}

// setQuota takes the quota over; t.mu is held, or nobody else knows the disk.
func (d *Disk) setQuota(q Quota) {
	d.rec.Quota = q
	if q == (Quota{}) {
		d.quota.Store(nil)
	} else {
		d.quota.Store(&q)
	}
}

// SetQuota bounds the disk's head from now on, and durably when it returns. A
// quota below what the head holds refuses what grows it, and nothing else.
// change is given the quota as it is.
func (d *Disk) SetQuota(ctx context.Context, change func(Quota) Quota, a Actor) error {
	t := d.tree
	if err := d.ensureLiving(); err != nil {
		return err
	}
	q := change(d.rec.Quota)
	if err := q.Check(); err != nil {
		t.mu.Unlock()
		return err
	}
	d.setQuota(q)
	s := t.change(d, "quota", q.String(), a)
	t.mu.Unlock()
	return s.Wait(ctx, d.engine.Room)
}

// QuotaUse returns what bounds the disk's head and what counts against it, as
// df shows it; it reads no more than one row.
func (d *Disk) QuotaUse() (q Quota, inodes, bytes int64, err error) {
	if err := d.tree.ensure(); err != nil {
		return Quota{}, 0, 0, err
	}
	q = d.rec.Quota
	v := &d.line.view
	d.tree.mu.Unlock()
	err = v.Read(func(r *Reader) error {
		inodes, bytes, err = r.Totals()
		return err
	})
	return q, inodes, bytes, err
}

// quota returns the quota that binds the line's head, nil if none does.
func (l *line) quota() *Quota {
	if d := l.state.disk.Load(); d != nil {
		return d.quota.Load()
	}
	return nil
}

// Bounded reports whether the disk has a quota.
func (t *Txn) Bounded() bool { return t.line.quota() != nil }

// AdmitInodes refuses n more inodes where the quota has no room for them.
func (t *Txn) AdmitInodes(n int64) error {
	q := t.line.quota()
	if q == nil || q.Inodes == 0 || n <= 0 {
		return nil
	}
	if have, _ := t.line.counters.totals(); have+n > q.Inodes {
		return t.line.overQuota(fmt.Sprintf("%d inodes", q.Inodes))
	}
	return nil
}

// AdmitBytes refuses an operation that would add more bytes of data than the
// quota has room for. It adds at most the given number; how many exactly is
// asked only where that decides.
func (t *Txn) AdmitBytes(atMost int64, exactly func() (int64, error)) error {
	q := t.line.quota()
	if q == nil || q.Bytes == 0 {
		return nil
	}
	_, have := t.line.counters.totals()
	if have+atMost <= q.Bytes {
		return nil
	}
	n, err := exactly()
	if err != nil || n <= 0 || have+n <= q.Bytes {
		return err
	}
	return t.line.overQuota(fmt.Sprintf("%d bytes", q.Bytes))
}

func (l *line) overQuota(limit string) error {
	return tine.Errorf(tine.KindQuota, "the disk is at its quota of %s", limit).
		WithHint("remove something, or raise the quota with `tine quota`")
}

// Tight reports that n more bytes may not fit into the quota, so that data
// should be staged only once an operation has admitted it: what was staged for
// an operation that is refused lies in the segment for nothing.
func (v *View) Tight(n int64) bool {
	if v.epoch != tine.Head {
		return false
	}
	l := v.line
	q := l.quota()
	if q == nil || q.Bytes == 0 {
		return false
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, have := l.counters.totals()
	return !l.counters.loaded || have+n > q.Bytes
}

// Quota returns what bounds the view; that of a frozen one is none.
func (r *Reader) Quota() Quota {
	l := r.view.line.root()
	if q := l.quota(); r.view.epoch == tine.Head && q != nil {
		return *q
	}
	return Quota{}
}
