package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"tine.dev/tine/api"
)

// forkCases are about what only tine has.
func forkCases() []benchCase {
	on := []string{onTine}
	small, large := forkedDisk(100), func(ctx context.Context, t *turn) error { return forkedDisk(t.size.forked)(ctx, t) }
	return []benchCase{
		{name: "fork-small", what: "fork of a mounted disk of 100 files, runnable", unit: millis, on: on, prepare: small, run: forks(api.WaitRunnable)},
		{name: "fork-large", what: "the same of a disk of many files", unit: millis, on: on, prepare: large, run: forks(api.WaitRunnable)},
		{name: "fork-durable", what: "the same, durable", unit: millis, on: on, prepare: large, run: forks(api.WaitDurable)},
		{name: "fork-mount", what: "fork, mount the child, make a file in it, read it", unit: millis, on: on, prepare: large, run: forkToFile},
		{name: "checkpoint", what: "checkpoint of a mounted disk of many files, durable", unit: millis, on: on, prepare: large, run: checkpoints},
		{name: "rollback", what: "rollback of it, until the mount shows the old state", unit: millis, on: on, prepare: large, run: rollbacks},
		{name: "depth-1", what: "stat by name in a fresh mount of a fork", unit: perSecond, on: on, prepare: chain(1), run: statDeep},
		{name: "depth-100", what: "the same, 100 forks on top of each other, each written to", unit: perSecond, on: on,
			prepare: func(ctx context.Context, t *turn) error { return chain(t.size.chain)(ctx, t) }, run: statDeep},
	}
}

// diskName names the turn's disks apart from those of every other.
func (t *turn) diskName(of string, i int) string { return fmt.Sprintf("turn-%d-%s-%d", t.round, of, i) }

// attach mounts a disk of the turn on a new directory.
func (t *turn) attach(ctx context.Context, name string) (dir string, err error) {
	if dir, err = os.MkdirTemp(t.bench.at("forks"), "mnt-"); err != nil {
		return "", err
	}
	_, err = t.client.Mount(ctx, api.NewMount{Ref: name, Dir: dir})
	return dir, err
}

func (t *turn) unattach(ctx context.Context, dir string) error {
	if err := t.client.Unmount(ctx, dir, false); err != nil {
		return err
	}
	return os.Remove(dir)
}

// newDisk makes a disk that goes at the end of the turn, and mounts it for as
// long.
func (t *turn) newDisk(ctx context.Context) (name, dir string, err error) {
	name = t.diskName("disk", 0)
	if _, err := t.client.CreateDisk(ctx, name); err != nil {
		return "", "", err
	}
	t.dropLater(ctx, name)
	if dir, err = t.attach(ctx, name); err == nil {
		t.after(func() error { return t.unattach(context.WithoutCancel(ctx), dir) })
	}
	return name, dir, err
}

func (t *turn) dropLater(ctx context.Context, name string) {
	t.after(func() error { return t.drop(context.WithoutCancel(ctx), name) })
}

func (t *turn) drop(ctx context.Context, name string) error {
	_, err := t.client.RemoveDisk(ctx, name, true)
	return err
}

// forkedDisk prepares a mounted disk of n files; the turn's directory becomes
// the mount.
func forkedDisk(n int) func(context.Context, *turn) error {
	return func(ctx context.Context, t *turn) error {
		name, dir, err := t.newDisk(ctx)
		if err != nil {
			return err
		}
		if err := os.Mkdir(dir+"/files", 0o755); err != nil {
			return err
		}
		if err := makeFiles(dir+"/files", n, 100); err != nil {
			return err
		}
		if err := os.Remove(t.dir); err != nil {
			return err
		}
		if err := os.Symlink(dir, t.dir); err != nil {
			return err
		}
		return t.client.SyncDisk(ctx, name)
	}
}

// write changes the disk a little, so that what follows has something to
// freeze.
func (t *turn) write(i int) error { return makeFile(t.path(fmt.Sprintf("new-%d", i)), []byte("new")) }

func forks(wait string) func(context.Context, *turn) (float64, error) {
	return func(ctx context.Context, t *turn) (float64, error) {
		if err := t.write(0); err != nil {
			return 0, err
		}
		return each(t.size.forks, func(i int) error {
			_, err := t.client.Fork(ctx, t.diskName("disk", 0), api.NewForks{Names: []string{t.diskName("fork", i)}, Wait: wait})
			return err
		}, func(i int) error {
			if err := t.drop(ctx, t.diskName("fork", i)); err != nil {
				return err
			}
			return t.write(i + 1)
		})
	}
}

func forkToFile(ctx context.Context, t *turn) (float64, error) {
	if err := t.write(0); err != nil {
		return 0, err
	}
	var dir string
	return each(t.size.forks, func(i int) (err error) {
		child := t.diskName("fork", i)
		if _, err := t.client.Fork(ctx, t.diskName("disk", 0), api.NewForks{Names: []string{child}, Wait: api.WaitRunnable}); err != nil {
			return err
		}
		if dir, err = t.attach(ctx, child); err != nil {
			return err
		}
		if err := makeFile(dir+"/child", []byte("child")); err != nil {
			return err
		}
		for _, name := range []string{"/child", fmt.Sprintf("/new-%d", i)} {
			if _, err := os.ReadFile(dir + name); err != nil {
				return err
			}
		}
		return nil
	}, func(i int) error {
		if err := t.unattach(ctx, dir); err != nil {
			return err
		}
		if err := t.drop(ctx, t.diskName("fork", i)); err != nil {
			return err
		}
		return t.write(i + 1)
	})
}

func checkpoints(ctx context.Context, t *turn) (float64, error) {
	if err := t.write(0); err != nil {
		return 0, err
	}
	return each(t.size.forks, func(i int) error {
		_, err := t.client.Checkpoint(ctx, t.diskName("disk", 0), api.NewCheckpoint{Name: fmt.Sprintf("c%d", i), Wait: api.WaitDurable})
		return err
	}, func(i int) error { return t.write(i + 1) })
}

func rollbacks(ctx context.Context, t *turn) (float64, error) {
	if _, err := t.client.Checkpoint(ctx, t.diskName("disk", 0), api.NewCheckpoint{Name: "before"}); err != nil {
		return 0, err
	}
	if err := t.write(0); err != nil {
		return 0, err
	}
	return each(t.size.forks, func(i int) error {
		if _, err := t.client.Rollback(ctx, t.diskName("disk", 0), "before"); err != nil {
			return err
		}
		if _, err := os.Lstat(t.path(fmt.Sprintf("new-%d", i))); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("after the rollback a newer file is there: %v", err)
		}
		return stat(fileName(t.path("files"), 0))
	}, func(i int) error { return t.write(i + 1) })
}

// chain prepares a disk and n forks, each of the one before, and each with a
// file of its own; only the last is looked at.
func chain(n int) func(context.Context, *turn) error {
	return func(ctx context.Context, t *turn) error {
		if err := forkedDisk(t.size.files)(ctx, t); err != nil {
			return err
		}
		parent := t.diskName("disk", 0)
		for i := range n {
			child := t.diskName("link", i)
			if _, err := t.client.Fork(ctx, parent, api.NewForks{Names: []string{child}, Wait: api.WaitRunnable}); err != nil {
				return err
			}
			t.dropLater(ctx, child)
			dir, err := t.attach(ctx, child)
			if err != nil {
				return err
			}
			if err := makeFile(fmt.Sprintf("%s/link-%d", dir, i), []byte("link")); err != nil {
				return err
			}
			if err := t.unattach(ctx, dir); err != nil {
				return err
			}
			parent = child
		}
		// The mount that is measured: the last, new, of which the kernel
		// knows nothing.
		dir, err := t.attach(ctx, parent)
		if err != nil {
			return err
		}
		t.after(func() error { return t.unattach(context.WithoutCancel(ctx), dir) })
		t.dir = dir
		return nil
	}
}

func statDeep(_ context.Context, t *turn) (float64, error) {
	dir := t.path("files")
	return rate(t.size.files, func() error {
		for i := range t.size.files {
			if err := stat(fileName(dir, i)); err != nil {
				return err
			}
		}
		return nil
	})
}
