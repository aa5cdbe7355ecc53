package httpapi

import (
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/keeper"
	"tine.dev/tine/internal/fs/volume"
)

func schemaOf(r huma.Registry, v any) *huma.Schema { return r.Schema(reflect.TypeOf(v), true, "") }

// body is an answer of one JSON document.
type body[T any] struct{ Body T }

func answer[T any](v T, err error) (*body[T], error) {
	if err != nil {
		return nil, err
	}
	return &body[T]{v}, nil
}

func (c *calls) disk(d volume.DiskInfo) api.Disk {
	out := api.Disk{
		ID: d.ID.String(), Name: d.Name, Tree: d.Tree.String(), Timeline: d.Timeline.String(), Created: d.Created,
		Origin: d.Origin, Sessions: d.Sessions, Mounts: c.Keeper.On(d.Name), Epoch: uint64(d.Epoch), Depth: d.Depth,
		Store: diskStore(d), Error: wireOf(d.Failed),
	}
	if d.Quota != (volume.Quota{}) {
		out.Quota = &api.Quota{Bytes: d.Quota.Bytes, Inodes: d.Quota.Inodes}
	}
	if s := c.Policies.Of(d.ID); s.Policy != (volume.Policy{}) {
		p := policyState(d.Name, s)
		out.Policy = &p
	}
	if out.Sessions == nil {
		out.Sessions = []string{}
	}
	if !d.Deleted.IsZero() {
		at := d.Deleted
		out.Deleted = &at
		out.Mounts = []string{}
	}
	return out
}

func (c *calls) disks(ds []volume.DiskInfo) api.DiskList {
	out := api.DiskList{Disks: make([]api.Disk, 0, len(ds))}
	for _, d := range ds {
		out.Disks = append(out.Disks, c.disk(d))
	}
	return out
}

func checkpoint(cp volume.CheckpointInfo) api.Checkpoint {
	return api.Checkpoint{
		ID: cp.ID.String(), Disk: cp.Disk, Name: cp.Name, Epoch: uint64(cp.Epoch), Author: cp.Author, Caller: cp.Caller,
		Message: cp.Message, Created: cp.Created, Auto: cp.Auto,
	}
}

func (c *calls) rollback(r volume.RollbackInfo) api.Rollback {
	return api.Rollback{Disk: c.disk(r.Disk), Undo: r.Undo}
}

func logEntry(l volume.LogEntry) api.LogEntry {
	return api.LogEntry{Time: time.Unix(0, l.Time), Op: l.Op, Detail: l.Detail, Author: l.Author, Caller: l.Caller}
}

func change(c volume.Change) api.Change {
	out := api.Change{Path: string(c.Path), Type: typeName(c.Type), Content: c.Content, Metadata: c.Metadata}
	if !utf8.Valid(c.Path) {
		out.Path, out.PathBytes = strconv.Quote(string(c.Path)), c.Path
	}
	switch c.Kind {
	case volume.Added:
		out.Kind = "added"
	case volume.Removed:
		out.Kind = "removed"
	case volume.Changed:
		out.Kind = "changed"
	}
	return out
}

// typeName names a dirent's d_type.
func typeName(t uint8) string {
	switch t {
	case syscall.DT_REG:
		return "file"
	case syscall.DT_DIR:
		return "directory"
	case syscall.DT_LNK:
		return "symlink"
	case syscall.DT_FIFO:
		return "fifo"
	case syscall.DT_SOCK:
		return "socket"
	case syscall.DT_BLK:
		return "block"
	case syscall.DT_CHR:
		return "char"
	}
	return "unknown"
}

func mount(s keeper.Status) api.Mount {
	o := api.MountOptions{Writeback: s.Writeback, AllowOther: s.AllowOther, AllowSUID: s.AllowSUID, AllowDev: s.AllowDev, NoExec: s.NoExec}
	if s.CacheNone {
		o.Cache = api.CacheNone
	}
	if s.Disable != "" {
		o.Disable = strings.Split(s.Disable, ",")
	}
	return api.Mount{Ref: s.Ref().String(), Dir: s.Dir, ReadOnly: s.ReadOnly || s.Checkpoint != "", MountOptions: o, State: string(s.State), Error: s.Error}
}

func wait(s string) volume.Wait {
	if s == api.WaitRunnable {
		return volume.WaitRunnable
	}
	return volume.WaitDurable
}
