package httpapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

const tagDisks = "disks"

type (
	OnDisk struct {
		By
		Disk string `path:"disk"`
	}
	createDisk struct {
		By
		Body api.NewDisk
	}
	setQuota struct {
		OnDisk
		Body api.NewQuota
	}
	listDisks struct {
		By
		Deleted bool `query:"deleted" doc:"List the disks in the trash instead"`
	}
	renameDisk struct {
		OnDisk
		Body api.Name
	}
	removeDisk struct {
		OnDisk
		Purge bool `query:"purge" doc:"Free the disk at once and for good; else it can be undeleted for a while"`
	}
	syncDisk struct {
		OnDisk
		ToStore bool `query:"to_store" doc:"Return only when the disk's store has it as well"`
	}
	nothing struct{}
)

func (c *calls) registerDisks(h huma.API) {
	handle(h, c, call{id: "createDisk", method: http.MethodPost, path: "/disks", tag: tagDisks, summary: "Create an empty disk", status: http.StatusCreated}, c.createDisk)
	handle(h, c, call{id: "listDisks", method: http.MethodGet, path: "/disks", tag: tagDisks, summary: "List the disks"}, c.listDisks)
	handle(h, c, call{id: "getDisk", method: http.MethodGet, path: "/disks/{disk}", tag: tagDisks, summary: "Show a disk"}, c.getDisk)
	handle(h, c, call{id: "removeDisk", method: http.MethodDelete, path: "/disks/{disk}", tag: tagDisks, summary: "Remove a disk",
		description: "A disk that is mounted or otherwise in use is not removed. Disks that were forked from it stay."}, c.removeDisk)
	handle(h, c, call{id: "renameDisk", method: http.MethodPost, path: "/disks/{disk}/rename", tag: tagDisks, summary: "Rename a disk"}, c.renameDisk)
	handle(h, c, call{id: "undeleteDisk", method: http.MethodPost, path: "/disks/{disk}/undelete", tag: tagDisks, summary: "Take a disk out of the trash"}, c.undeleteDisk)
	handle(h, c, call{id: "syncDisk", method: http.MethodPost, path: "/disks/{disk}/sync", tag: tagDisks, summary: "Make durable all that has reached the server",
		status: http.StatusNoContent}, c.syncDisk)
	handle(h, c, call{id: "getQuota", method: http.MethodGet, path: "/disks/{disk}/quota", tag: tagDisks, summary: "What bounds a disk, and what counts against it"}, c.getQuota)
	handle(h, c, call{id: "setQuota", method: http.MethodPut, path: "/disks/{disk}/quota", tag: tagDisks, summary: "Change what bounds a disk",
		description: "A bound below what the disk holds refuses what makes it larger; removing and overwriting go on."}, c.setQuota)
	handle(h, c, call{id: "getUsage", method: http.MethodGet, path: "/disks/{disk}/usage", tag: tagDisks, summary: "The space that a disk takes"}, c.usage)
}

func (c *calls) createDisk(ctx context.Context, in *createDisk) (*body[api.Disk], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	var q volume.Quota
	if in.Body.Quota != nil {
		q = volume.Quota{Bytes: in.Body.Quota.Bytes, Inodes: in.Body.Quota.Inodes}
	}
	n := volume.NewDisk{Quota: q, Store: in.Body.Store}
	detail := ""
	if in.Body.Durability == api.DurabilityBucket {
		n.Durable = volume.DurableBucket
	}
	if n.Store != "" {
		detail = "in store " + n.Store
	}
	d, err := c.Host.CreateDiskIn(ctx, who, in.Body.Name, n)
	if err != nil {
		return nil, err
	}
	c.note(who, "disk-create", d.Name, detail)
	return answer(c.disk(d), nil)
}

func (c *calls) setQuota(ctx context.Context, in *setQuota) (*body[api.QuotaUse], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	u, err := c.Host.SetQuota(ctx, who, in.Disk, in.Body.Bytes, in.Body.Inodes)
	if err == nil {
		c.note(who, "disk-change", in.Disk, "quota")
	}
	return answer(quotaUse(in.Disk, u), err)
}

func (c *calls) getQuota(ctx context.Context, in *OnDisk) (*body[api.QuotaUse], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	u, err := c.Host.QuotaUse(ctx, who, in.Disk)
	return answer(quotaUse(in.Disk, u), err)
}

func quotaUse(disk string, u volume.QuotaUse) api.QuotaUse {
	return api.QuotaUse{Disk: disk, Quota: api.Quota{Bytes: u.Bytes, Inodes: u.Inodes}, UsedBytes: u.UsedBytes, UsedInodes: u.UsedInodes}
}

func (c *calls) listDisks(ctx context.Context, in *listDisks) (*body[api.DiskList], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	ds, err := c.Host.Disks(ctx, who, in.Deleted)
	if err != nil {
		return nil, err
	}
	return answer(c.disks(ds), nil)
}

func (c *calls) getDisk(ctx context.Context, in *OnDisk) (*body[api.Disk], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	d, err := c.Host.Disk(ctx, who, in.Disk)
	if err != nil {
		return nil, err
	}
	return answer(c.disk(d), nil)
}

func (c *calls) renameDisk(ctx context.Context, in *renameDisk) (*body[api.Disk], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	d, err := c.Host.RenameDisk(ctx, who, in.Disk, in.Body.Name)
	if err != nil {
		return nil, err
	}
	c.note(who, "disk-rename", d.Name, "from "+in.Disk)
	if err := c.Keeper.Renamed(in.Disk, d.Name); err != nil {
		return nil, err
	}
	return answer(c.disk(d), nil)
}

func (c *calls) removeDisk(ctx context.Context, in *removeDisk) (*body[api.Disk], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	// The engine asks who is attached to the head; a mounted checkpoint is in
	// use too.
	if dirs := c.Keeper.On(in.Disk); len(dirs) > 0 {
		return nil, mountedOn(in.Disk, dirs)
	}
	d, err := c.Host.RemoveDisk(ctx, who, in.Disk, in.Purge)
	if err != nil {
		return nil, err
	}
	c.forget(in.Disk)
	kind := "disk-remove"
	if in.Purge {
		kind = "disk-purge"
	}
	c.note(who, kind, in.Disk, "")
	return answer(c.disk(d), nil)
}

// forget drops the records of mounts of a name that is gone. They are not
// mounted; a record that stays fails at the next start and says why.
func (c *calls) forget(disk string) {
	if err := c.Keeper.Removed(disk); err != nil {
		c.Log.Warn("could not forget the mounts of a disk that is gone", "disk", disk, "error", err)
	}
}

// mountedOn says where the disk is mounted, and the commands that change it.
func mountedOn(disk string, dirs []string) error {
	commands := make([]string, len(dirs))
	for i, d := range dirs {
		commands[i] = "tine umount " + d
	}
	return tine.Errorf(tine.KindBusy, "the disk %q is mounted on %s", disk, strings.Join(dirs, " and ")).
		WithHint("unmount it first: %s", strings.Join(commands, "; "))
}

func (c *calls) undeleteDisk(ctx context.Context, in *OnDisk) (*body[api.Disk], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	d, err := c.Host.UndeleteDisk(ctx, who, in.Disk)
	if err != nil {
		return nil, err
	}
	c.note(who, "disk-undelete", d.Name, "")
	c.Policies.Wake()
	return answer(c.disk(d), nil)
}

func (c *calls) syncDisk(ctx context.Context, in *syncDisk) (*nothing, error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	if !in.ToStore {
		return nil, c.Host.SyncDisk(ctx, who, in.Disk)
	}
	d, err := c.Host.Disk(ctx, who, in.Disk)
	if err != nil {
		return nil, err
	}
	if d.Store == nil {
		return nil, tine.Errorf(tine.KindInvalid, "the disk %q lives in no store, but on this machine alone", in.Disk).
			WithHint("`tine disk create --store NAME` makes one that does; `tine export` and `tine import --from-tar` carry files over")
	}
	return nil, c.Host.SyncStore(ctx, who, in.Disk)
}

func (c *calls) usage(ctx context.Context, in *OnDisk) (*body[api.Usage], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	u, err := c.Host.Usage(ctx, who, in.Disk)
	if err != nil {
		return nil, err
	}
	return answer(usage(in.Disk, u), nil)
}

func usage(disk string, u volume.Usage) api.Usage {
	return api.Usage{Disk: disk, LogicalBytes: u.LogicalBytes, UniqueBytes: u.UniqueBytes, SharedBytes: u.SharedBytes, Inodes: u.Inodes}
}
