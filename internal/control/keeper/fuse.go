package keeper

import (
	"context"
	"log/slog"
	"path/filepath"

	"tine.dev/tine/internal/fs/fusefs"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// Fuse makes mounts in the kernel of the disks of the host. Staging is a
// directory, made when it is needed, for mounts that mount(8) shows elsewhere;
// it is the server's own, and what is left in it is taken away.
func Fuse(host *volume.Host, staging string, log *slog.Logger) Mounter {
	cleanStaging(staging, log)
	return fuseMounter{host, staging, log}
}

type fuseMounter struct {
	host    *volume.Host
	staging string
	log     *slog.Logger
}

// Mount mounts on behalf of whom the record names.
func (f fuseMounter) Mount(ctx context.Context, r Record) (Mounted, error) {
	if r.Staged {
		s, err := stage(f.staging, r.Dir, func(own string) (Mounted, error) {
			r.Dir = own
			return f.mount(ctx, r)
		})
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	return f.mount(ctx, r)
}

func (f fuseMounter) mount(ctx context.Context, r Record) (Mounted, error) {
	who := volume.Caller{Tenant: tine.DefaultTenant, Author: r.Author, Principal: r.Principal}
	o, err := options(r)
	if err != nil {
		return nil, err
	}
	o.Attach = func(ctx context.Context, a volume.AttachOptions) (*volume.Session, error) {
		return f.host.Attach(ctx, who, r.Ref(), a)
	}
	o.Logger = f.log
	m, err := fusefs.New(ctx, o)
	if err != nil {
		return nil, err
	}
	return fuseMount{m}, nil
}

// options are what a record says of how a disk is shown.
func options(r Record) (fusefs.Options, error) {
	without, err := fusefs.ParseFeatures(r.Disable)
	return fusefs.Options{
		Dir: r.Dir, ReadOnly: r.ReadOnly, CacheNone: r.CacheNone, Writeback: r.Writeback, AllowOther: r.AllowOther,
		AllowSUID: r.AllowSUID, AllowDev: r.AllowDev, NoExec: r.NoExec, Disable: without, Source: "tine:" + r.Ref().String(),
	}, err
}

type fuseMount struct{ *fusefs.Mount }

// Remount changes the kernel's flags and the session to what the record says.
func (m fuseMount) Remount(ctx context.Context, r Record) error {
	o, err := options(r)
	if err != nil {
		return err
	}
	return m.Mount.Remount(ctx, o)
}

// CleanStale takes away a dead mount.
func (fuseMounter) CleanStale(dir string) error { return CleanStale(dir) }

// CleanStale takes away the mounts of dead servers on the directory, and
// touches nothing else.
func CleanStale(dir string) error { return fusefs.CleanStale(dir) }

// GiveUp takes the mount on dir away from a server that lives but does not
// answer; see fusefs.GiveUp. The record of the mount stays that server's.
func GiveUp(dir string) error { return fusefs.GiveUp(filepath.Clean(dir)) }
