package volume

import (
	"context"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// Policy is what the server is to do with a disk by itself. The host only
// keeps it; who carries it out is above.
type Policy = record.Policy

// SetPolicy stores the disk's policy; the zero Policy removes it. It is
// durable when SetPolicy returns. Calls for one disk must not be made at once.
func (h *Host) SetPolicy(id tine.DiskID, p Policy) error {
	b := h.rows.NewBatch()
	key := record.Key(tine.DefaultTenant, record.PolicyKey(id), 0)
	if p == (Policy{}) {
		b.Delete(key)
		b.Frees() // it gives space back, if little
	} else {
		b.Set(key, p.Append(nil))
	}
	return h.rows.Commit(b, true)
}

// Policies returns all policies, also those of disks in the trash and of disks
// that are gone for good. A row that cannot be read is logged and left out.
func (h *Host) Policies() (map[tine.DiskID]Policy, error) {
	snap := h.rows.Snapshot()
	defer snap.Close()
	lower := record.AppendKey(nil, tine.DefaultTenant, record.TableKey(record.TablePolicy))
	scan, err := snap.Scan(lower, record.PrefixEnd(lower), nil)
	if err != nil {
		return nil, err
	}
	defer scan.Close()
	ps := map[tine.DiskID]Policy{}
	for scan.Next() {
		_, l, _, err := record.SplitKey(scan.Key())
		if err != nil {
			return nil, err
		}
		id, _ := l.ID()
		p, err := record.DecodePolicy(scan.Value())
		if err != nil {
			h.log.Error("a disk's policy is damaged and not carried out; set it anew", "disk", tine.DiskID(id).String(), "error", err)
			continue
		}
		ps[id] = p
	}
	return ps, scan.Err()
}

// byID returns the disk with the identifier, living or in the trash.
func (h *Host) byID(tenant tine.TenantID, id tine.DiskID) (*timeline.Disk, error) {
	for _, deleted := range []bool{false, true} {
		for _, d := range h.engine.Disks(tenant, deleted) {
			if d.ID() == id {
				return d, nil
			}
		}
	}
	return nil, tine.Errorf(tine.KindNotFound, "there is no disk %s", id)
}

// DiskByID returns a disk, whatever its name is by now, living or in the trash.
func (h *Host) DiskByID(_ context.Context, c Caller, id tine.DiskID) (DiskInfo, error) {
	d, err := h.byID(c.Tenant, id)
	if err != nil {
		return DiskInfo{}, err
	}
	return h.info(d)
}

// RemoveDiskByID puts a disk into the trash, whatever its name is by now: a
// name may be another disk's since the caller looked.
func (h *Host) RemoveDiskByID(ctx context.Context, c Caller, id tine.DiskID) error {
	d, err := h.byID(c.Tenant, id)
	if err != nil {
		return err
	}
	return d.Remove(ctx, false, actor(c))
}
