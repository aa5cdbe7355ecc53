package crash_test

import (
	"fmt"
	"slices"

	"tine.dev/tine/api"
)

// What a client does to whole disks.

func (c *client) checkpoint(d *disk) error {
	c.serial++
	wait, durable := c.wait()
	k := &checkpoint{disk: d, name: fmt.Sprintf("cp-%d", c.serial), at: d.at(), tree: d.now.clone(), text: d.now.lines(), began: c.pos(), sure: never, leaving: never, gone: never}
	if _, err := c.api.Checkpoint(c.ctx, d.name, api.NewCheckpoint{Name: k.name, Wait: wait}); err != nil {
		return err
	}
	if durable {
		k.sure = c.pos()
		d.acknowledge(k.sure)
	}
	c.checkpoints = append(c.checkpoints, k)
	return nil
}

// living returns the checkpoints that can be used.
func (c *client) living() []*checkpoint {
	return slices.DeleteFunc(slices.Clone(c.checkpoints), func(k *checkpoint) bool { return k.leaving != never })
}

func (c *client) dropCheckpoint() error {
	if len(c.living()) < 3 {
		return nil
	}
	k := pick(c.rnd, c.living())
	k.leaving = c.pos()
	if err := c.api.RemoveCheckpoint(c.ctx, k.disk.name, k.name); err != nil {
		return err
	}
	k.gone = c.pos()
	return nil
}

// rollback goes back to a checkpoint, and now and then takes that back.
func (c *client) rollback() error {
	if len(c.living()) == 0 {
		return nil
	}
	d, k := c.main, pick(c.rnd, c.living())
	before := d.now
	if err := c.exchange(d, "rollback to "+k.name, k.tree.clone(), func() error {
		_, err := c.api.Rollback(c.ctx, d.name, k.name)
		return err
	}); err != nil || c.rnd.IntN(3) > 0 {
		return err
	}
	return c.exchange(d, "undo of the rollback to "+k.name, before, func() error {
		_, err := c.api.Undo(c.ctx, d.name)
		return err
	})
}

// exchange gives a disk another state, durably.
func (c *client) exchange(d *disk, what string, state tree, call func() error) error {
	from := c.pos()
	if err := call(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	d.now = state
	d.step(what, from)
	d.acknowledge(c.pos())
	return nil
}

const maxForks = 2

// fork forks the disk or one of its checkpoints; when there are enough forks,
// the oldest is promoted or removed.
func (c *client) fork() error {
	if len(c.forks) >= maxForks {
		return c.end(c.forks[0])
	}
	c.serial++
	wait, durable := c.wait()
	from := c.pos()
	ask := api.NewForks{Names: []string{fmt.Sprintf("%s-%d", c.main.name, c.serial)}, Wait: wait}
	state, at := c.main.now, c.main.at()
	if ks := c.living(); len(ks) > 0 && c.rnd.IntN(3) == 0 {
		k := pick(c.rnd, ks)
		ask.Checkpoint, state, at = k.name, k.tree, k.at
	}
	if _, err := c.api.Fork(c.ctx, c.main.name, ask); err != nil {
		return err
	}
	child := newDisk(ask.Names[0], state.clone(), from, "fork")
	child.parent, child.parentAt = c.main, at
	if durable {
		child.acknowledge(c.pos())
	}
	c.disks, c.forks = append(c.disks, child), append(c.forks, child)
	_, err := c.rig.Mount(c.ctx, child.name)
	return err
}

// end promotes or purges a fork.
func (c *client) end(child *disk) error {
	c.forks = slices.DeleteFunc(c.forks, func(d *disk) bool { return d == child })
	if err := c.rig.Unmount(c.ctx, child.name); err != nil {
		return err
	}
	child.acknowledge(c.pos()) // a clean unmount loses nothing (P3)
	child.leaving = c.pos()
	if c.rnd.IntN(2) == 0 {
		child.promoted = c.main.at() + 1
		err := c.exchange(c.main, "promote of "+child.name, child.now, func() error {
			_, err := c.api.Promote(c.ctx, child.name, c.main.name, true)
			return err
		})
		child.gone = c.pos()
		return err
	}
	_, err := c.api.RemoveDisk(c.ctx, child.name, true)
	child.gone = c.pos()
	return err
}
