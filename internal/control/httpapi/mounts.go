package httpapi

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/keeper"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

const tagMounts = "mounts"

type (
	newMount struct {
		By
		Body api.NewMount
	}
	changeMount struct {
		By
		Dir  string `query:"dir" required:"true" doc:"The directory, as an absolute path"`
		Body api.MountChange
	}
	onMount struct {
		By
		Dir   string `query:"dir" required:"true" doc:"The directory, as an absolute path"`
		Force bool   `query:"force" doc:"Take away a mount in use too; the programs that use it get ENOTCONN. What they have written is kept"`
	}
)

func (c *calls) registerMounts(h huma.API) {
	handle(h, c, call{id: "mount", method: http.MethodPost, path: "/mounts", tag: tagMounts, summary: "Show a disk or checkpoint in a directory",
		description: "The mount is recorded and comes back when the server is started again, until it is unmounted by a call. A checkpoint is read-only.",
		status:      http.StatusCreated}, c.mount)
	handle(h, c, call{id: "listMounts", method: http.MethodGet, path: "/mounts", tag: tagMounts, summary: "List the mounts"}, c.listMounts)
	handle(h, c, call{id: "changeMount", method: http.MethodPatch, path: "/mounts", tag: tagMounts, summary: "Change a mount while it is there",
		description: "Programs that use it go on. It comes back so when the server is started again. Only a server that runs as root can."}, c.changeMount)
	handle(h, c, call{id: "unmount", method: http.MethodDelete, path: "/mounts", tag: tagMounts, summary: "Take a mount away and forget it",
		status: http.StatusNoContent}, c.unmount)
}

func (c *calls) mount(ctx context.Context, in *newMount) (*body[api.Mount], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	ref, err := volume.ParseRef(in.Body.Ref)
	if err != nil {
		return nil, err
	}
	// Asked here so that a misspelt name is not recorded first.
	if _, err := c.Host.Disk(ctx, who, ref.Disk); err != nil {
		return nil, err
	}
	o := in.Body.MountOptions
	if err := mayTrust(ctx, o.AllowSUID || o.AllowDev); err != nil {
		return nil, err
	}
	r := keeper.Record{Disk: ref.Disk, Checkpoint: ref.Checkpoint, Dir: in.Body.Dir, ReadOnly: in.Body.ReadOnly, Author: who.Author, Principal: who.Principal,
		Options: keeper.Options{CacheNone: o.Cache == api.CacheNone, Writeback: o.Writeback, AllowOther: o.AllowOther, AllowSUID: o.AllowSUID, AllowDev: o.AllowDev,
			NoExec: o.NoExec, Disable: strings.Join(o.Disable, ",")}}
	switch {
	case in.Body.External:
		r = c.Keeper.External(r, in.Body.Staged)
	case in.Body.Staged:
		return nil, tine.Errorf(tine.KindInvalid, "only an external mount can be staged")
	}
	if r, err = c.Keeper.Mount(ctx, r); err != nil {
		return nil, err
	}
	out := mount(keeper.Status{Record: r, State: keeper.StateMounted})
	out.Own = c.Keeper.Own(r.Dir)
	return answer(out, nil)
}

// mayTrust refuses a mount on which the disk's content brings rights along, for
// any but root on its own server: the disk may hold whatever its users put there.
func mayTrust(ctx context.Context, asked bool) error {
	if p, ok := peerOf(ctx); !asked || ok && p.UID == 0 && os.Geteuid() == 0 {
		return nil
	}
	return tine.Errorf(tine.KindAccess, "only root, on a server that runs as root, may have set-user-ID programs or device nodes of a disk work").
		WithHint("mount it without")
}

func (c *calls) changeMount(ctx context.Context, in *changeMount) (*body[api.Mount], error) {
	if _, err := in.caller(ctx); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(in.Dir) {
		return nil, tine.Errorf(tine.KindInvalid, "the directory %q is not an absolute path", in.Dir)
	}
	a := in.Body
	if err := mayTrust(ctx, a.AllowSUID != nil && *a.AllowSUID || a.AllowDev != nil && *a.AllowDev); err != nil {
		return nil, err
	}
	s, err := c.Keeper.Remount(ctx, in.Dir, keeper.Access{ReadOnly: a.ReadOnly, AllowSUID: a.AllowSUID, AllowDev: a.AllowDev, NoExec: a.NoExec})
	return answer(mount(s), err)
}

func (c *calls) listMounts(context.Context, *By) (*body[api.MountList], error) {
	all := c.Keeper.List()
	out := api.MountList{Mounts: make([]api.Mount, 0, len(all))}
	for _, s := range all {
		out.Mounts = append(out.Mounts, mount(s))
	}
	return answer(out, nil)
}

func (c *calls) unmount(ctx context.Context, in *onMount) (*nothing, error) {
	if !filepath.IsAbs(in.Dir) {
		return nil, tine.Errorf(tine.KindInvalid, "the directory %q is not an absolute path", in.Dir)
	}
	return nil, c.Keeper.Unmount(ctx, in.Dir, in.Force)
}
