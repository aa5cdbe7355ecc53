package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/fs/volume"
)

const tagHistory = "history"

type (
	newCheckpoint struct {
		OnDisk
		Body api.NewCheckpoint
	}
	onCheckpoint struct {
		OnDisk
		Checkpoint string `path:"checkpoint"`
	}
	newForks struct {
		OnDisk
		Body api.NewForks
	}
	rollbackTo struct {
		OnDisk
		Body api.RollbackTo
	}
	promoteOnto struct {
		OnDisk
		Body api.PromoteOnto
	}
)

func (c *calls) registerHistory(h huma.API) {
	const disk = "/disks/{disk}"
	handle(h, c, call{id: "createCheckpoint", method: http.MethodPost, path: disk + "/checkpoints", tag: tagHistory, summary: "Freeze a disk's state under a name",
		status: http.StatusCreated}, c.createCheckpoint)
	handle(h, c, call{id: "listCheckpoints", method: http.MethodGet, path: disk + "/checkpoints", tag: tagHistory, summary: "List a disk's checkpoints"}, c.listCheckpoints)
	handle(h, c, call{id: "removeCheckpoint", method: http.MethodDelete, path: disk + "/checkpoints/{checkpoint}", tag: tagHistory, summary: "Remove a checkpoint",
		status: http.StatusNoContent}, c.removeCheckpoint)
	handle(h, c, call{id: "fork", method: http.MethodPost, path: disk + "/forks", tag: tagHistory, summary: "Make disks that start as this one",
		description: "All forks are made, or none.", status: http.StatusCreated}, c.fork)
	handle(h, c, call{id: "rollback", method: http.MethodPost, path: disk + "/rollback", tag: tagHistory, summary: "Go back to a checkpoint",
		description: "Works on a mounted disk. The state before is kept as an automatic checkpoint, which is the undo."}, c.rollbackTo)
	handle(h, c, call{id: "promote", method: http.MethodPost, path: disk + "/promote", tag: tagHistory, summary: "Make another disk become this fork",
		description: "The fork's name goes, and its checkpoints become the target's. Refused with the kind conflict when the target has changed since the fork, unless forced."}, c.promote)
	handle(h, c, call{id: "undo", method: http.MethodPost, path: disk + "/undo", tag: tagHistory, summary: "Take back the last rollback or promote"}, c.undo)
	handle(h, c, call{id: "getLog", method: http.MethodGet, path: disk + "/log", tag: tagHistory, summary: "A disk's history, oldest first"}, c.log)
}

func (c *calls) createCheckpoint(ctx context.Context, in *newCheckpoint) (*body[api.Checkpoint], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	cp, err := c.Host.Checkpoint(ctx, who, in.Disk, in.Body.Name, in.Body.Message, wait(in.Body.Wait))
	if err != nil {
		return nil, err
	}
	c.note(who, "checkpoint", in.Disk, cp.Name)
	return answer(checkpoint(cp), nil)
}

func (c *calls) listCheckpoints(ctx context.Context, in *OnDisk) (*body[api.CheckpointList], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	cps, err := c.Host.Checkpoints(ctx, who, in.Disk)
	if err != nil {
		return nil, err
	}
	out := api.CheckpointList{Checkpoints: make([]api.Checkpoint, 0, len(cps))}
	for _, cp := range cps {
		out.Checkpoints = append(out.Checkpoints, checkpoint(cp))
	}
	return answer(out, nil)
}

func (c *calls) removeCheckpoint(ctx context.Context, in *onCheckpoint) (*nothing, error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.Host.RemoveCheckpoint(ctx, who, in.Disk, in.Checkpoint); err != nil {
		return nil, err
	}
	c.note(who, "checkpoint-remove", in.Disk, in.Checkpoint)
	return nil, nil
}

func (c *calls) fork(ctx context.Context, in *newForks) (*body[api.DiskList], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	ttl, err := span("ttl_seconds", &in.Body.TTLSeconds)
	if err != nil {
		return nil, err
	}
	ds, err := c.Host.Fork(ctx, who, volume.Ref{Disk: in.Disk, Checkpoint: in.Body.Checkpoint}, in.Body.Names, wait(in.Body.Wait))
	if err != nil {
		return nil, err
	}
	for _, d := range ds {
		c.note(who, "fork", d.Name, "from "+d.Origin)
	}
	if *ttl > 0 {
		if err := c.limitForks(ctx, who, in.Body.Names, *ttl); err != nil {
			return nil, err
		}
	}
	return answer(c.disks(ds), nil)
}

func (c *calls) rollbackTo(ctx context.Context, in *rollbackTo) (*body[api.Rollback], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	r, err := c.Host.Rollback(ctx, who, in.Disk, in.Body.Checkpoint)
	if err != nil {
		return nil, err
	}
	c.note(who, "rollback", in.Disk, "to "+in.Body.Checkpoint)
	return answer(c.rollback(r), nil)
}

func (c *calls) promote(ctx context.Context, in *promoteOnto) (*body[api.Rollback], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	if dirs := c.Keeper.On(in.Disk); len(dirs) > 0 {
		return nil, mountedOn(in.Disk, dirs) // its name goes
	}
	r, err := c.Host.Promote(ctx, who, in.Disk, in.Body.Onto, in.Body.Force)
	if err != nil {
		return nil, err
	}
	c.forget(in.Disk)
	c.note(who, "promote", in.Body.Onto, "of "+in.Disk)
	return answer(c.rollback(r), nil)
}

func (c *calls) undo(ctx context.Context, in *OnDisk) (*body[api.Rollback], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	r, err := c.Host.Undo(ctx, who, in.Disk)
	if err != nil {
		return nil, err
	}
	c.note(who, "undo", in.Disk, "")
	return answer(c.rollback(r), nil)
}

func (c *calls) log(ctx context.Context, in *OnDisk) (*body[api.LogList], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	ls, err := c.Host.Log(ctx, who, in.Disk)
	if err != nil {
		return nil, err
	}
	out := api.LogList{Entries: make([]api.LogEntry, 0, len(ls))}
	for _, l := range ls {
		out.Entries = append(out.Entries, logEntry(l))
	}
	return answer(out, nil)
}
