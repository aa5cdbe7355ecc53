package crash_test

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

var me = volume.Caller{Tenant: tine.DefaultTenant, Author: "crash"}

// view is what a crash has left, as somebody sees it.
type view interface {
	// disks returns the names of the disks.
	disks() (map[string]bool, error)
	// checkpoints returns the names of a disk's own checkpoints.
	checkpoints(disk string) (map[string]bool, error)
	// text returns the lines of a disk's or checkpoint's tree.
	text(ref string) (string, error)
}

// check holds what is left against the histories of the clients.
func check(v view, clients []*client, pos int64) error {
	names, err := v.disks()
	if err != nil {
		return fmt.Errorf("list the disks: %w", err)
	}
	var errs []error
	for _, c := range clients {
		errs = append(errs, c.check(v, names, pos))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for name := range names {
		return fmt.Errorf("there is a disk %q that nobody made", name)
	}
	return nil
}

// check checks the disks of one client; it takes them out of names.
func (c *client) check(v view, names map[string]bool, pos int64) error {
	first, last := map[*disk]int{}, map[*disk]int{}
	for _, d := range c.disks {
		there := names[d.name]
		delete(names, d.name)
		if err := present("disk "+d.name, there, pos, d.began, d.sure, d.leaving, d.gone); err != nil {
			return err
		}
		if !there {
			continue
		}
		text, err := v.text(d.name)
		if err != nil {
			return fmt.Errorf("disk %s cannot be read: %w", d.name, err)
		}
		if first[d], last[d], err = d.match(text, pos); err != nil {
			return err
		}
	}
	for _, d := range c.disks[1:] {
		if _, there := last[d]; there {
			if last[d.parent] < d.parentAt {
				return fmt.Errorf("fork %s is there, but its parent shows version %d; it was forked at %d", d.name, last[d.parent], d.parentAt)
			}
			if d.promoted > 0 && first[d.parent] >= d.promoted {
				return fmt.Errorf("fork %s is promoted and still there", d.name)
			}
		} else if d.promoted > 0 && pos >= d.leaving && pos < d.gone && last[c.main] < d.promoted {
			return fmt.Errorf("fork %s is gone, but not promoted", d.name)
		}
	}
	if _, there := last[c.main]; !there {
		return nil
	}
	return c.checkCheckpoints(v, last[c.main], pos)
}

func (c *client) checkCheckpoints(v view, last int, pos int64) error {
	names, err := v.checkpoints(c.main.name)
	if err != nil {
		return err
	}
	for _, k := range c.checkpoints {
		ref := k.disk.name + "@" + k.name
		there := names[k.name]
		if err := present("checkpoint "+ref, there, pos, k.began, k.sure, k.leaving, k.gone); err != nil {
			return err
		}
		if !there {
			continue
		}
		if last < k.at {
			return fmt.Errorf("checkpoint %s of version %d is there, but the disk shows version %d", ref, k.at, last)
		}
		text, err := v.text(ref)
		if err != nil {
			return fmt.Errorf("checkpoint %s cannot be read: %w", ref, err)
		}
		if text != k.text {
			return fmt.Errorf("checkpoint %s has changed:\n%s", ref, difference(k.text, text))
		}
	}
	return nil
}

// present checks that something is there when it must be, and not when it
// cannot.
func present(what string, there bool, pos, began, sure, leaving, gone int64) error {
	switch {
	case there && pos < began:
		return fmt.Errorf("%s is there before it was made", what)
	case there && pos >= gone:
		return fmt.Errorf("%s is there after it was removed", what)
	case !there && pos >= sure && pos < leaving:
		return fmt.Errorf("%s is lost", what)
	}
	return nil
}

// opened is a data directory opened in this process.
type opened struct {
	ctx  context.Context
	host *volume.Host
}

func openMem(ctx context.Context, fs vfs.FS) (opened, error) {
	h, err := volume.Open(ctx, volume.Options{Dir: dataDir, FS: fs, Manual: true, CommitInterval: -1, CacheBytes: 1 << 20})
	return opened{ctx, h}, err
}

func (o opened) disks() (map[string]bool, error) {
	ds, err := o.host.Disks(o.ctx, me, false)
	names := map[string]bool{}
	for _, d := range ds {
		names[d.Name] = true
	}
	return names, err
}

func (o opened) checkpoints(disk string) (map[string]bool, error) {
	cs, err := o.host.Checkpoints(o.ctx, me, disk)
	names := map[string]bool{}
	for _, c := range cs {
		if !c.Auto {
			names[c.Name] = true
		}
	}
	return names, err
}

func (o opened) text(ref string) (string, error) {
	r, err := volume.ParseRef(ref)
	if err != nil {
		return "", err
	}
	s, err := o.host.Attach(o.ctx, me, r, volume.AttachOptions{ReadOnly: true})
	if err != nil {
		return "", err
	}
	t := tree{}
	err = readTree(s, t, map[tine.Ino]*file{}, volume.Root, "")
	return t.lines(), errors.Join(err, s.Detach(o.ctx))
}

// readTree reads all that is below a directory.
func readTree(s *volume.Session, t tree, seen map[tine.Ino]*file, at volume.Node, prefix string) error {
	d, err := s.OpenDir(at)
	if err != nil {
		return err
	}
	var names []string
	err = errors.Join(d.Read(0, func(e volume.DirEntry) bool {
		names = append(names, e.Name)
		return true
	}), d.Close())
	if err != nil {
		return err
	}
	for _, name := range names {
		p := path.Join(prefix, name)
		a, n, err := s.Lookup(at, name)
		if err != nil {
			return fmt.Errorf("%s is listed: %w", p, err)
		}
		if a.Mode&0o170000 == 0o040000 {
			t[p] = &file{dir: true}
			if err := readTree(s, t, seen, n, p); err != nil {
				return err
			}
			continue
		}
		if seen[a.Ino] == nil {
			data, err := readFile(s, n, a.Size)
			if err != nil {
				return fmt.Errorf("read %s: %w", p, err)
			}
			seen[a.Ino] = &file{data: data}
		}
		t[p] = seen[a.Ino]
	}
	return nil
}

func readFile(s *volume.Session, n volume.Node, size int64) ([]byte, error) {
	f, err := s.Open(n)
	if err != nil {
		return nil, err
	}
	p := make([]byte, size)
	got, err := f.ReadAt(p, 0)
	if err == nil && int64(got) != size {
		err = fmt.Errorf("it has %d bytes, not %d", got, size)
	}
	return p, errors.Join(err, f.Close())
}
