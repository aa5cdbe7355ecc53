package sim

import (
	"context"
	"fmt"
	"slices"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/sim/posix"
)

// side is a disk or checkpoint and what it shows.
type side struct {
	ref  volume.Ref
	tree posix.Tree
}

// diff compares two disks or checkpoints of one tree.
func (t *turn) diff() error {
	var sides []side
	for _, d := range t.disks {
		if d.tree != t.d.tree {
			continue
		}
		sides = append(sides, side{volume.Ref{Disk: d.name}, d.fs.Tree})
		for _, c := range d.checkpoints {
			sides = append(sides, side{volume.Ref{Disk: d.name, Checkpoint: c.name}, c.tree})
		}
	}
	a, b := pick(t.r, sides), pick(t.r, sides)
	t.note("diff %s %s", a.ref, b.ref)
	want := posix.Changes(a.tree, b.tree)
	got := map[string][]posix.ChangeKind{}
	err := t.host.Diff(context.Background(), caller, a.ref, b.ref, func(c volume.Change) error {
		got[string(c.Path)] = append(got[string(c.Path)], posix.ChangeKind(c.Kind))
		return nil
	})
	if err != nil {
		return fmt.Errorf("diff: %w", err)
	}
	for path, kinds := range want {
		if !sameKinds(got[path], kinds) {
			return fmt.Errorf("diff of %s and %s says %v of %q, want %v", a.ref, b.ref, got[path], path, kinds)
		}
	}
	for path, kinds := range got {
		if want[path] == nil {
			return fmt.Errorf("diff of %s and %s says %v of %q, want nothing", a.ref, b.ref, kinds, path)
		}
	}
	return nil
}

func sameKinds(a, b []posix.ChangeKind) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
