package keeper

import (
	"context"
	"log/slog"

	"tine.dev/tine/internal/fs/fusefs"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// Fuse makes mounts in the kernel of the disks of the host.
func Fuse(host *volume.Host, log *slog.Logger) Mounter { return fuseMounter{host, log} }

type fuseMounter struct {
	host *volume.Host
	log  *slog.Logger
}

// Mount mounts on behalf of whom the record names.
func (f fuseMounter) Mount(ctx context.Context, r Record) (Mounted, error) {
	who := volume.Caller{Tenant: tine.DefaultTenant, Author: r.Author, Principal: r.Principal}
	m, err := fusefs.New(ctx, fusefs.Options{
		Dir: r.Dir,
		Attach: func(ctx context.Context, o volume.AttachOptions) (*volume.Session, error) {
			return f.host.Attach(ctx, who, r.Ref(), o)
		},
		ReadOnly: r.ReadOnly,
		Source:   "tine:" + r.Ref().String(),
		Logger:   f.log,
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// CleanStale takes away a dead mount.
func (fuseMounter) CleanStale(dir string) error { return CleanStale(dir) }

// CleanStale takes away the mounts of dead servers on the directory, and
// touches nothing else.
func CleanStale(dir string) error { return fusefs.CleanStale(dir) }
