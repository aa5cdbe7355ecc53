package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// Checkpoint freezes a disk's state under a name.
func (c *Client) Checkpoint(ctx context.Context, disk string, n NewCheckpoint) (Checkpoint, error) {
	return call[Checkpoint](ctx, c, http.MethodPost, nil, n, "disks", disk, "checkpoints")
}

// Checkpoints lists a disk's checkpoints, oldest first.
func (c *Client) Checkpoints(ctx context.Context, disk string) ([]Checkpoint, error) {
	out, err := call[CheckpointList](ctx, c, http.MethodGet, nil, nil, "disks", disk, "checkpoints")
	return out.Checkpoints, err
}

// RemoveCheckpoint removes a checkpoint; what only it held is freed in the
// background.
func (c *Client) RemoveCheckpoint(ctx context.Context, disk, name string) error {
	return c.do(ctx, http.MethodDelete, nil, "disks", disk, "checkpoints", name)
}

// Fork makes disks that start as the disk or its checkpoint: all or none.
func (c *Client) Fork(ctx context.Context, disk string, n NewForks) ([]Disk, error) {
	out, err := call[DiskList](ctx, c, http.MethodPost, nil, n, "disks", disk, "forks")
	return out.Disks, err
}

// Rollback takes a disk back to a checkpoint of it.
func (c *Client) Rollback(ctx context.Context, disk, checkpoint string) (Rollback, error) {
	return call[Rollback](ctx, c, http.MethodPost, nil, RollbackTo{checkpoint}, "disks", disk, "rollback")
}

// Promote makes the disk named onto become the fork: the fork's name goes, its
// checkpoints become onto's. It is refused when onto has changed since the
// fork, unless forced.
func (c *Client) Promote(ctx context.Context, fork, onto string, force bool) (Rollback, error) {
	return call[Rollback](ctx, c, http.MethodPost, nil, PromoteOnto{onto, force}, "disks", fork, "promote")
}

// Undo takes back a disk's last rollback or promote.
func (c *Client) Undo(ctx context.Context, disk string) (Rollback, error) {
	return call[Rollback](ctx, c, http.MethodPost, nil, nil, "disks", disk, "undo")
}

// Mount shows a disk or a checkpoint in a directory of the server's machine.
func (c *Client) Mount(ctx context.Context, m NewMount) (Mount, error) {
	return call[Mount](ctx, c, http.MethodPost, nil, m, "mounts")
}

// ChangeMount changes the mount on a directory while programs use it, and how it
// comes back at the server's next start.
func (c *Client) ChangeMount(ctx context.Context, dir string, m MountChange) (Mount, error) {
	return call[Mount](ctx, c, http.MethodPatch, url.Values{"dir": {dir}}, m, "mounts")
}

// Unmount takes a mount away and forgets it. With force also one that is in
// use: the programs that use it get ENOTCONN; what they have written is kept.
func (c *Client) Unmount(ctx context.Context, dir string, force bool) error {
	return c.do(ctx, http.MethodDelete, url.Values{"dir": {dir}, "force": {strconv.FormatBool(force)}}, "mounts")
}

// Mounts lists the mounts.
func (c *Client) Mounts(ctx context.Context) ([]Mount, error) {
	out, err := call[MountList](ctx, c, http.MethodGet, nil, nil, "mounts")
	return out.Mounts, err
}
