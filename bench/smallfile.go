package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// smallFileCases are about names and small contents.
func smallFileCases() []benchCase {
	return []benchCase{
		{name: "create-100b", what: "create, write 100 bytes, close", unit: perSecond, run: creates(100)},
		{name: "create-4k", what: "create, write 4 KiB, close", unit: perSecond, run: creates(4096)},
		{name: "create-par", what: "the same by 4 at once, each in its directory", unit: perSecond, run: parallelCreates(4)},
		{name: "stat-cold", what: "stat by name, cold names", unit: perSecond, missing: needsRoot, prepare: files(100), run: statCold},
		{name: "stat-warm", what: "stat by name, warm", unit: perSecond, prepare: files(100), run: statWarm},
		{name: "stat-absent", what: "stat of names that do not exist, each once", unit: perSecond, prepare: files(100), run: statAbsent},
		{name: "list-cold", what: "list a directory and stat each entry, cold names", unit: perSecond, missing: needsRoot, prepare: files(100), run: listCold},
		{name: "read-4k-cold", what: "open, read 4 KiB, close; cold names and pages", unit: perSecond, missing: needsRoot, prepare: files(4096), run: readSmall},
		{name: "rename", what: "rename in a directory", unit: perSecond, prepare: files(100), run: rename},
		{name: "unlink", what: "unlink files of 4 KiB", unit: perSecond, prepare: files(4096), run: unlink},
	}
}

// fileName is the i-th file's. Cases are about the calls, not about making
// paths, which costs the same everywhere.
func fileName(dir string, i int) string { return fmt.Sprintf("%s/file-%06d", dir, i) }

// makeFile is what a program does that saves a small file: three calls.
func makeFile(name string, content []byte) error {
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	if err := writeAll(fd, content, -1); err != nil {
		unix.Close(fd)
		return fmt.Errorf("write %s: %w", name, err)
	}
	return unix.Close(fd)
}

// writeAll writes p at off, or where the descriptor stands if off is negative.
func writeAll(fd int, p []byte, off int64) error {
	for len(p) > 0 {
		var n int
		var err error
		if off < 0 {
			n, err = unix.Write(fd, p)
		} else {
			n, err = unix.Pwrite(fd, p, off)
			off += int64(n)
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func makeFiles(dir string, n, size int) error {
	content := bytes.Repeat([]byte("tine "), size/5+1)[:size]
	for i := range n {
		if err := makeFile(fileName(dir, i), content); err != nil {
			return err
		}
	}
	return nil
}

// files prepares the files that a case looks at.
func files(size int) func(context.Context, *turn) error {
	return func(_ context.Context, t *turn) error { return makeFiles(t.dir, t.size.files, size) }
}

func creates(size int) func(context.Context, *turn) (float64, error) {
	return func(_ context.Context, t *turn) (float64, error) {
		return rate(t.size.files, func() error { return makeFiles(t.dir, t.size.files, size) })
	}
}

func parallelCreates(workers int) func(context.Context, *turn) (float64, error) {
	return func(_ context.Context, t *turn) (float64, error) {
		each := t.size.files / workers
		return rate(each*workers, func() error {
			var g errgroup.Group
			for w := range workers {
				g.Go(func() error {
					dir := t.path(fmt.Sprint(w))
					if err := os.Mkdir(dir, 0o755); err != nil {
						return err
					}
					return makeFiles(dir, each, 4096)
				})
			}
			return g.Wait()
		})
	}
}

// byName calls f for each prepared file and returns the rate.
func (t *turn) byName(f func(name string) error) (float64, error) {
	return rate(t.size.files, func() error {
		for i := range t.size.files {
			if err := f(fileName(t.dir, i)); err != nil {
				return err
			}
		}
		return nil
	})
}

func stat(name string) error {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return fmt.Errorf("stat %s: %w", name, err)
	}
	return nil
}

func statCold(_ context.Context, t *turn) (float64, error) {
	if err := dropNames(); err != nil {
		return 0, err
	}
	return t.byName(stat)
}

func statWarm(_ context.Context, t *turn) (float64, error) {
	if _, err := t.byName(stat); err != nil {
		return 0, err
	}
	return t.byName(stat)
}

func statAbsent(_ context.Context, t *turn) (float64, error) {
	return t.byName(func(name string) error {
		if err := stat(name + "-no"); err == nil {
			return fmt.Errorf("%s-no exists", name)
		}
		return nil
	})
}

func listCold(_ context.Context, t *turn) (float64, error) {
	if err := dropNames(); err != nil {
		return 0, err
	}
	return rate(t.size.files, func() error {
		entries, err := os.ReadDir(t.dir)
		if err == nil && len(entries) != t.size.files {
			err = fmt.Errorf("%d entries are listed, there are %d", len(entries), t.size.files)
		}
		for _, e := range entries {
			if err == nil {
				err = stat(filepath.Join(t.dir, e.Name()))
			}
		}
		return err
	})
}

func readSmall(_ context.Context, t *turn) (float64, error) {
	if _, err := t.byName(adviseGone); err != nil {
		return 0, err
	}
	if err := dropNames(); err != nil {
		return 0, err
	}
	p := make([]byte, 8192)
	return t.byName(func(name string) error {
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		n, err := unix.Read(fd, p)
		if err == nil && n != 4096 {
			err = fmt.Errorf("%s has %d bytes", name, n)
		}
		return err
	})
}

func rename(_ context.Context, t *turn) (float64, error) {
	return t.byName(func(name string) error { return unix.Rename(name, name+"-new") })
}

func unlink(_ context.Context, t *turn) (float64, error) { return t.byName(unix.Unlink) }
