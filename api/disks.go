package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
)

// Server returns what the server says about itself.
func (c *Client) Server(ctx context.Context) (Server, error) {
	return call[Server](ctx, c, http.MethodGet, nil, nil, "server")
}

// Stats returns the engine's counters, by name.
func (c *Client) Stats(ctx context.Context) (map[string]any, error) {
	return call[map[string]any](ctx, c, http.MethodGet, nil, nil, "stats")
}

// CreateDisk makes an empty disk. It is durable when the call returns.
func (c *Client) CreateDisk(ctx context.Context, name string) (Disk, error) {
	return call[Disk](ctx, c, http.MethodPost, nil, Name{name}, "disks")
}

// ImportDisk makes a disk from a directory on the server's machine and tells
// fn of its progress, in order. A failed or cancelled import leaves no disk
// behind. The disk is durable when the call returns without an error.
func (c *Client) ImportDisk(ctx context.Context, name, dir string, fn func(ImportLine)) (ImportDone, error) {
	var out ImportDone
	resp, err := c.send(ctx, http.MethodPost, nil, ImportFrom{dir}, "disks", name, "import-dir")
	if err != nil {
		return out, err
	}
	err = c.importLines(ctx, resp, &out, fn)
	return out, err
}

// importLines reads the answer of an import.
func (c *Client) importLines(ctx context.Context, resp *http.Response, out *ImportDone, fn func(ImportLine)) error {
	return c.lines(ctx, resp, func(b []byte) (bool, error) {
		var l ImportLine
		if err := json.Unmarshal(b, &l); err != nil {
			return false, c.cutOff(ctx, err)
		}
		switch {
		case l.Error != nil:
			return true, l.Error
		case l.Done != nil:
			*out = *l.Done
			return true, nil
		}
		fn(l)
		return false, nil
	})
}

// Disks lists the disks, or those in the trash.
func (c *Client) Disks(ctx context.Context, deleted bool) ([]Disk, error) {
	out, err := call[DiskList](ctx, c, http.MethodGet, url.Values{"deleted": {strconv.FormatBool(deleted)}}, nil, "disks")
	return out.Disks, err
}

// Disk returns one disk.
func (c *Client) Disk(ctx context.Context, name string) (Disk, error) {
	return call[Disk](ctx, c, http.MethodGet, nil, nil, "disks", name)
}

// RenameDisk gives a disk another name.
func (c *Client) RenameDisk(ctx context.Context, old, name string) (Disk, error) {
	return call[Disk](ctx, c, http.MethodPost, nil, Name{name}, "disks", old, "rename")
}

// RemoveDisk moves a disk to the trash; purge frees it at once, for good, and
// works on a disk in the trash too.
func (c *Client) RemoveDisk(ctx context.Context, name string, purge bool) (Disk, error) {
	return call[Disk](ctx, c, http.MethodDelete, url.Values{"purge": {strconv.FormatBool(purge)}}, nil, "disks", name)
}

// UndeleteDisk takes a disk out of the trash.
func (c *Client) UndeleteDisk(ctx context.Context, name string) (Disk, error) {
	return call[Disk](ctx, c, http.MethodPost, nil, nil, "disks", name, "undelete")
}

// SyncDisk commits all that has reached the server for the disk.
func (c *Client) SyncDisk(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, nil, "disks", name, "sync")
}

// Usage returns the space that a disk takes.
func (c *Client) Usage(ctx context.Context, name string) (Usage, error) {
	return call[Usage](ctx, c, http.MethodGet, nil, nil, "disks", name, "usage")
}

// Log returns a disk's history, oldest first.
func (c *Client) Log(ctx context.Context, name string) ([]LogEntry, error) {
	out, err := call[LogList](ctx, c, http.MethodGet, nil, nil, "disks", name, "log")
	return out.Entries, err
}

// Forest returns every disk and checkpoint with what it hangs on.
func (c *Client) Forest(ctx context.Context) ([]ForestNode, error) {
	out, err := call[ForestList](ctx, c, http.MethodGet, nil, nil, "forest")
	return out.Nodes, err
}

// Diff tells fn of every path in which two disks or checkpoints
// (DISK[@CHECKPOINT]) differ, in no promised order. An error of fn ends
// the diff and is returned as it is.
func (c *Client) Diff(ctx context.Context, a, b string, fn func(Change) error) (DiffDone, error) {
	var out DiffDone
	resp, err := c.send(ctx, http.MethodGet, url.Values{"a": {a}, "b": {b}}, nil, "diff")
	if err != nil {
		return out, err
	}
	err = c.lines(ctx, resp, func(raw []byte) (bool, error) {
		var l DiffLine
		if err := json.Unmarshal(raw, &l); err != nil {
			return false, c.cutOff(ctx, err)
		}
		switch {
		case l.Error != nil:
			return true, l.Error
		case l.Done != nil:
			out = *l.Done
			return true, nil
		case l.Change != nil:
			return false, fn(*l.Change)
		}
		return false, nil
	})
	return out, err
}
