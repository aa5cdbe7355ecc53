package crash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"tine.dev/tine/api"
	"tine.dev/tine/test/crash/recorder"
	"tine.dev/tine/test/rig"
)

// client is one thread that works on a disk and its forks, through mounts and
// the API, and keeps their histories.
type client struct {
	ctx context.Context
	rig *rig.Rig
	api *api.Client
	log string
	rnd *rand.Rand

	main        *disk
	disks       []*disk // all that ever were
	forks       []*disk // that are mounted now
	checkpoints []*checkpoint
	serial      int
}

// newClient makes a disk, mounts it and has it durable.
func newClient(ctx context.Context, r *rig.Rig, a *api.Client, log, name string, rnd *rand.Rand) (*client, error) {
	c := &client{ctx: ctx, rig: r, api: a, log: log, rnd: rnd}
	from := c.pos()
	if _, err := a.CreateDisk(ctx, name); err != nil {
		return nil, err
	}
	c.main = newDisk(name, tree{}, from, "create the disk")
	c.main.acknowledge(c.pos())
	c.disks = append(c.disks, c.main)
	_, err := r.Mount(ctx, name)
	return c, err
}

// pos is how long the recording is now.
func (c *client) pos() int64 {
	p, err := recorder.Position(c.log)
	if err != nil {
		panic(err) // the file is the test's own
	}
	return p
}

// run does n steps.
func (c *client) run(n int) error {
	for range n {
		d := c.main
		if len(c.forks) > 0 && c.rnd.IntN(3) == 0 {
			d = c.forks[c.rnd.IntN(len(c.forks))]
		}
		var err error
		switch k := c.rnd.IntN(100); {
		case k < 80:
			err = c.work(d)
		case k < 87:
			err = c.checkpoint(c.main)
		case k < 92:
			err = c.rollback()
		case k < 97:
			err = c.fork()
		default:
			err = c.dropCheckpoint()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// change makes one system call on a disk and notes the state after it.
func (c *client) change(d *disk, what string, call func() error, after func(tree)) error {
	from := c.pos()
	if err := call(); err != nil {
		return fmt.Errorf("%s on %s: %w", what, d.name, err)
	}
	after(d.now)
	d.step(what, from)
	return nil
}

// paths returns the disk's directories, the root as "", or its files.
func (d *disk) paths(dirs bool) []string {
	var ps []string
	if dirs {
		ps = append(ps, "")
	}
	for _, p := range sortedKeys(d.now) {
		if d.now[p].dir == dirs {
			ps = append(ps, p)
		}
	}
	return ps
}

func pick[T any](r *rand.Rand, s []T) T { return s[r.IntN(len(s))] }

// fresh is a path that is not there yet.
func (c *client) fresh(d *disk) string {
	c.serial++
	return path.Join(pick(c.rnd, d.paths(true)), fmt.Sprintf("n%d", c.serial))
}

const maxFiles = 30

// work does one thing to the files of a disk.
func (c *client) work(d *disk) error {
	at := c.rig.At(d.name)
	files := d.paths(false)
	kind := c.rnd.IntN(22)
	if len(files) < 3 {
		kind = 0
	}
	if len(files) > maxFiles && kind < 5 {
		kind = 14
	}
	switch {
	case kind < 5:
		return c.create(d)
	case kind < 9:
		return c.write(d, pick(c.rnd, files))
	case kind < 10:
		p := c.fresh(d)
		return c.change(d, "mkdir "+p, func() error { return os.Mkdir(filepath.Join(at, p), 0o755) },
			func(t tree) { t[p] = &file{dir: true} })
	case kind < 13:
		from, to := pick(c.rnd, files), c.fresh(d)
		if c.rnd.IntN(2) == 0 {
			to = pick(c.rnd, files)
		}
		if d.now[from] == d.now[to] {
			return nil // two names of one file: rename(2) does nothing
		}
		return c.change(d, fmt.Sprintf("rename %s to %s", from, to), func() error {
			return os.Rename(filepath.Join(at, from), filepath.Join(at, to))
		}, func(t tree) {
			t[to] = t[from]
			delete(t, from)
		})
	case kind < 14:
		a, b := pick(c.rnd, files), pick(c.rnd, files)
		return c.change(d, fmt.Sprintf("exchange %s and %s", a, b), func() error {
			return unix.Renameat2(unix.AT_FDCWD, filepath.Join(at, a), unix.AT_FDCWD, filepath.Join(at, b), unix.RENAME_EXCHANGE)
		}, func(t tree) { t[a], t[b] = t[b], t[a] })
	case kind < 16:
		p := pick(c.rnd, files)
		return c.change(d, "unlink "+p, func() error { return unix.Unlink(filepath.Join(at, p)) }, func(t tree) { delete(t, p) })
	case kind < 17:
		p, to := pick(c.rnd, files), c.fresh(d)
		return c.change(d, fmt.Sprintf("link %s to %s", p, to), func() error {
			return os.Link(filepath.Join(at, p), filepath.Join(at, to))
		}, func(t tree) { t[to] = t[p] })
	case kind < 18:
		return c.rmdir(d)
	case kind < 19:
		if c.rnd.IntN(2) == 0 {
			return c.copyFile(d, pick(c.rnd, files))
		}
		return c.punch(d, pick(c.rnd, files))
	default:
		return c.sync(d, pick(c.rnd, append(files, d.paths(true)...)))
	}
}

// create makes a file and writes to it.
func (c *client) create(d *disk) error {
	p := c.fresh(d)
	err := c.change(d, "create "+p, func() error {
		f, err := os.OpenFile(filepath.Join(c.rig.At(d.name), p), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err == nil {
			err = f.Close()
		}
		return err
	}, func(t tree) { t[p] = &file{} })
	if err != nil || c.rnd.IntN(8) == 0 {
		return err
	}
	return c.write(d, p)
}

// write changes a file: at its end, in it, or its length. Some descriptors are
// O_DSYNC, some are synced after.
func (c *client) write(d *disk, p string) error {
	flags, dsync := os.O_WRONLY, c.rnd.IntN(6) == 0
	if dsync {
		flags |= unix.O_DSYNC
	}
	f, err := os.OpenFile(filepath.Join(c.rig.At(d.name), p), flags, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	size := len(d.now[p].data)
	if c.rnd.IntN(6) == 0 {
		length := c.rnd.IntN(size + 5000)
		err = c.change(d, fmt.Sprintf("truncate %s from %d to %d", p, size, length), func() error { return f.Truncate(int64(length)) },
			func(t tree) {
				data := append([]byte(nil), t[p].data[:min(size, length)]...)
				t[p].set(append(data, make([]byte, length-len(data))...))
			})
		dsync = false // a truncation is no write
	} else {
		err = c.writeAt(d, f, p, pick(c.rnd, []int{0, size, c.rnd.IntN(size + 1), size + c.rnd.IntN(9000)}), c.data())
	}
	if err == nil && !dsync && c.rnd.IntN(4) == 0 {
		if c.rnd.IntN(2) == 0 {
			err = f.Sync()
		} else {
			err = unix.Fdatasync(int(f.Fd()))
		}
		dsync = true
	}
	if err == nil && dsync {
		d.acknowledge(c.pos())
	}
	return err
}

// writeAt writes in one call. The kernel may pass on what lies in the first
// page as a request of its own if the write does not start at a page: then the
// disk has one more state in between.
func (c *client) writeAt(d *disk, f *os.File, p string, off int, data []byte) error {
	const page = 4096
	what := fmt.Sprintf("write %d bytes at %d of %s", len(data), off, p)
	from := c.pos()
	if _, err := f.WriteAt(data, int64(off)); err != nil {
		return fmt.Errorf("%s on %s: %w", what, d.name, err)
	}
	if first := page - off%page; first < page && first < len(data) {
		d.now[p].put(data[:first], off)
		d.step("the first page of "+what, from)
	}
	d.now[p].put(data, off)
	d.step(what, from)
	return nil
}

// copyFile copies a file into a new one by copy_file_range(2), after which the
// disk keeps their bytes once.
func (c *client) copyFile(d *disk, p string) error {
	to := c.fresh(d)
	src, err := os.Open(filepath.Join(c.rig.At(d.name), p))
	if err != nil {
		return err
	}
	defer src.Close()
	var dst *os.File
	if err := c.change(d, "create "+to, func() (err error) {
		dst, err = os.OpenFile(filepath.Join(c.rig.At(d.name), to), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		return err
	}, func(t tree) { t[to] = &file{} }); err != nil {
		return err
	}
	defer dst.Close()
	size := len(d.now[p].data)
	return c.change(d, fmt.Sprintf("copy %s to %s", p, to), func() error {
		n, err := unix.CopyFileRange(int(src.Fd()), nil, int(dst.Fd()), nil, size, 0)
		if err == nil && n != size {
			err = fmt.Errorf("%d of %d bytes are copied", n, size)
		}
		return err
	}, func(t tree) { t[to].put(t[p].data, 0) })
}

// punch makes a hole.
func (c *client) punch(d *disk, p string) error {
	size := len(d.now[p].data)
	if size < 2 {
		return nil
	}
	off := c.rnd.IntN(size - 1)
	length := 1 + c.rnd.IntN(size-off)
	f, err := os.OpenFile(filepath.Join(c.rig.At(d.name), p), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return c.change(d, fmt.Sprintf("punch %d bytes at %d of %s", length, off, p), func() error {
		return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(length))
	}, func(t tree) { t[p].put(make([]byte, length), off) })
}

// data is some bytes, mostly few.
func (c *client) data() []byte {
	p := make([]byte, 1+c.rnd.IntN(pick(c.rnd, []int{100, 4096, 4096, 20_000, 150_000})))
	for i := range p {
		p[i] = byte(c.rnd.Uint32())
	}
	return p
}

// rmdir removes a directory, with what is in it.
func (c *client) rmdir(d *disk) error {
	dirs := d.paths(true)[1:]
	if len(dirs) == 0 {
		return nil
	}
	dir := pick(c.rnd, dirs)
	at := c.rig.At(d.name)
	below := sortedKeys(d.now)
	for i := len(below) - 1; i >= 0; i-- { // what is deepest comes last
		p := below[i]
		if p != dir && !strings.HasPrefix(p, dir+"/") {
			continue
		}
		if err := c.change(d, "remove "+p, func() error { return os.Remove(filepath.Join(at, p)) }, func(t tree) { delete(t, p) }); err != nil {
			return err
		}
	}
	return nil
}

// sync makes a disk durable by fsync of one of its files or directories.
func (c *client) sync(d *disk, p string) error {
	f, err := os.Open(filepath.Join(c.rig.At(d.name), p))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("fsync of %q on %s: %w", p, d.name, err)
	}
	d.acknowledge(c.pos())
	return nil
}

// wait throws how long a fork or checkpoint waits.
func (c *client) wait() (string, bool) {
	if c.rnd.IntN(2) == 0 {
		return api.WaitDurable, true
	}
	return api.WaitRunnable, false
}
