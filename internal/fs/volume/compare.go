package volume

import (
	"cmp"
	"context"
	"slices"
	"time"

	"tine.dev/tine/internal/fs/meta"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/fs/usage"
	"tine.dev/tine/internal/tine"
)

// Usage says what a disk takes up.
type Usage = usage.Usage

// Change is one path that differs between two views.
type Change = meta.Change

// The kinds of change.
const (
	Added   = meta.Added
	Removed = meta.Removed
	Changed = meta.Changed
)

// Usage returns what a disk takes up: what its head shows, what removing it
// would free, and what it shares with others.
func (h *Host) Usage(ctx context.Context, c Caller, name string) (Usage, error) {
	d, err := h.find(ctx, c, name, false)
	if err != nil {
		return Usage{}, err
	}
	return usage.Of(d)
}

// Diff calls fn for every path that differs between two views. Of one tree, the
// cost follows what has changed since they parted; else everything is compared.
func (h *Host) Diff(ctx context.Context, c Caller, a, b Ref, fn func(Change) error) error {
	var at [2]*timeline.Attachment
	for i, r := range []Ref{a, b} {
		d, err := h.find(ctx, c, r.Disk, r.Checkpoint == "")
		if err != nil {
			return err
		}
		if at[i], err = d.Attach(r.Checkpoint); err != nil {
			return err
		}
		defer at[i].Detach()
	}
	return meta.DiffAttached(at[0], at[1], fn)
}

// ForestNode is one disk or checkpoint of the forest.
type ForestNode struct {
	Kind    string // "disk" or "checkpoint"
	Name    string // DISK or DISK@CHECKPOINT
	Parent  string // what it branches off; "" for a root
	Created time.Time
	Auto    bool // checkpoints: taken by rollback, promote or undo
	InUse   bool
}

// Forest returns all disks and their checkpoints, parents before children.
func (h *Host) Forest(ctx context.Context, c Caller) ([]ForestNode, error) {
	ds, err := h.Disks(ctx, c, false)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(ds, func(a, b DiskInfo) int { return a.Created.Compare(b.Created) })
	names := map[tine.DiskID]string{}
	for _, d := range ds {
		names[d.ID] = d.Name
	}
	nodes := []ForestNode{}
	for _, d := range ds {
		n := ForestNode{Kind: "disk", Name: d.Name, Created: d.Created, InUse: d.InUse > 0}
		cps, err := h.Checkpoints(ctx, c, d.Name)
		if tine.KindOf(err) == tine.KindNotFound {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		n.Parent = parentOf(d, names)
		nodes = append(nodes, n)
		slices.SortFunc(cps, func(a, b CheckpointInfo) int {
			return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
		})
		for _, p := range cps {
			nodes = append(nodes, ForestNode{Kind: "checkpoint", Name: d.Name + "@" + p.Name, Parent: d.Name, Created: p.Created, Auto: p.Auto})
		}
	}
	return nodes, nil
}

// parentOf names what a disk was forked from, under its present name, if that
// still exists; the checkpoint is kept where the fork was of one.
func parentOf(d DiskInfo, names map[tine.DiskID]string) string {
	name := names[d.Forked]
	if name == "" {
		return ""
	}
	if r, err := ParseRef(d.Origin); err == nil && r.Checkpoint != "" {
		return name + "@" + r.Checkpoint
	}
	return name
}
