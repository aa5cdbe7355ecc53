package mixed

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// What the job of lines checks after a crash, and at the end.

// recover checks that all is there that must be, and nothing else, and mounts
// all of it.
func (j *linesJob) recover(ctx context.Context) error {
	if err := j.unmountOthers(ctx); err != nil {
		return err
	}
	cps, err := j.w.api.Checkpoints(ctx, linesDisk)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, c := range cps {
		if !c.Auto {
			there[c.Name] = true
		}
	}
	if err := reconcile("checkpoint", j.cps, there); err != nil {
		return err
	}
	disks, err := j.w.api.Disks(ctx, false)
	if err != nil {
		return err
	}
	clear(there)
	for _, d := range disks {
		if strings.HasPrefix(d.Origin, linesDisk) {
			there[d.Name] = true
		}
	}
	delete(there, linesDisk)
	if err := reconcile("fork", j.forks, there); err != nil {
		return err
	}
	sum, err := j.sum(ctx, j.at)
	if err != nil {
		return err
	}
	if j.head != nil && !slices.Contains(j.head, sum) {
		return fmt.Errorf("after a crash the disk has the hash %s; it must be one of %q", sum, j.head)
	}
	j.head = []string{sum}
	for name, f := range j.forks {
		if f.leaving {
			if _, err := j.w.api.RemoveDisk(ctx, name, true); err != nil {
				return err
			}
			delete(j.forks, name)
		}
	}
	return j.verify(ctx)
}

// reconcile compares what is known with what is there: what is not sure may be
// gone, what is about to go may be there.
func reconcile(what string, known map[string]*held, there map[string]bool) error {
	for name, h := range known {
		switch {
		case there[name]:
			h.sure = true
		case h.sure && !h.leaving:
			return fmt.Errorf("%s %s is lost", what, name)
		default:
			delete(known, name)
		}
		delete(there, name)
	}
	for name := range there {
		return fmt.Errorf("%s %s is there, and was removed or never made", what, name)
	}
	return nil
}

// unmountOthers takes away the mounts that a step has left which a crash cut
// off.
func (j *linesJob) unmountOthers(ctx context.Context) error {
	mounts, err := j.w.api.Mounts(ctx)
	if err != nil {
		return err
	}
	for _, m := range mounts {
		_, known := j.forks[m.Ref]
		if known || strings.HasPrefix(m.Ref, linesDisk+"@") {
			if err := j.w.api.Unmount(ctx, m.Dir, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// verify mounts every state there is.
func (j *linesJob) verify(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(j.cps)) {
		if err := j.mountedShows(ctx, linesDisk+"@"+name, j.cps[name].sum); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(j.forks)) {
		if err := j.mountedShows(ctx, name, j.forks[name].sum); err != nil {
			return err
		}
	}
	return nil
}

func (j *linesJob) finish(ctx context.Context) error {
	if err := j.verify(ctx); err != nil {
		return err
	}
	sum, err := j.sum(ctx, j.at)
	if err != nil {
		return err
	}
	if err := j.w.api.SyncDisk(ctx, linesDisk); err != nil {
		return err
	}
	return j.w.throughFork(ctx, linesDisk, func(at string) error { return j.shows(ctx, "a fork of the disk", at, sum) })
}
