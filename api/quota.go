package api

import (
	"context"
	"net/http"
)

// Quota bounds what a disk may hold; 0 is no bound. A program that meets it
// sees ENOSPC, and df shows it as the size of the disk. It belongs to the disk,
// whatever state that shows; a fork starts with its parent's.
type Quota struct {
	Bytes  int64 `json:"bytes,omitempty" minimum:"0" doc:"Of data in files; absent or 0: no bound"`
	Inodes int64 `json:"inodes,omitempty" minimum:"0" doc:"Files, directories and other inodes, the root directory included; absent or 0: no bound"`
}

// NewQuota changes a quota: what is absent stays as it is.
type NewQuota struct {
	Bytes  *int64 `json:"bytes,omitempty" minimum:"0" doc:"0: no bound"`
	Inodes *int64 `json:"inodes,omitempty" minimum:"0" doc:"0: no bound"`
}

// QuotaUse is a disk's quota and what counts against it.
type QuotaUse struct {
	Disk       string `json:"disk"`
	Quota      Quota  `json:"quota"`
	UsedBytes  int64  `json:"used_bytes" doc:"Of data in files, holes not counted"`
	UsedInodes int64  `json:"used_inodes" doc:"Files, directories and other inodes; open files without a name too"`
}

// NewDisk asks for an empty disk.
type NewDisk struct {
	Name  string `json:"name" doc:"1 to 128 letters, digits, '.', '_' and '-', starting with a letter, a digit or '_'"`
	Quota *Quota `json:"quota,omitempty"`
	Store string `json:"store,omitempty" doc:"The name of the store that the disk lives in; absent: on the server's machine alone. Forks of it live there too"`

	Durability string `json:"durability,omitempty" enum:"local,bucket" doc:"Where data is when fsync returns: on the server's device, or in the store as well. It is the disk's for good, and its forks'. Default: local"`
}

// CreateDiskWithin makes an empty disk with a quota. It is durable when the
// call returns.
func (c *Client) CreateDiskWithin(ctx context.Context, name string, q Quota) (Disk, error) {
	n := NewDisk{Name: name}
	if q != (Quota{}) {
		n.Quota = &q
	}
	return call[Disk](ctx, c, http.MethodPost, nil, n, "disks")
}

// Quota returns a disk's quota and what counts against it.
func (c *Client) Quota(ctx context.Context, disk string) (QuotaUse, error) {
	return call[QuotaUse](ctx, c, http.MethodGet, nil, nil, "disks", disk, "quota")
}

// SetQuota changes a disk's quota. It holds at once, and durably when the call
// returns. A bound below what the disk holds refuses what makes it larger;
// removing and overwriting go on.
func (c *Client) SetQuota(ctx context.Context, disk string, q NewQuota) (QuotaUse, error) {
	return call[QuotaUse](ctx, c, http.MethodPut, nil, q, "disks", disk, "quota")
}
