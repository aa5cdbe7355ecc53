package volume

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/tine"
)

// Format is the version of the layout of a data directory: the file "format"
// holds it as text. Rows and segments carry versions of their own.
const Format = 1

const formatFile = "format"

// checkFormat makes a new data directory or checks an existing one. A
// directory that holds something else is refused, not filled.
func checkFormat(fs vfs.FS, dir string) error {
	path := filepath.Join(dir, formatFile)
	f, err := fs.Open(path)
	if err == nil {
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, 64))
		if err != nil {
			return tine.Errorf(tine.KindIO, "%s cannot be read: %w", path, err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		switch {
		case err != nil || n < 1:
			return tine.Errorf(tine.KindCorrupt, "%s does not hold a format number", path).
				WithHint("is %s a data directory of tine?", dir)
		case n > Format:
			return tine.Errorf(tine.KindVersion, "data directory %s has format %d; this program knows up to %d", dir, n, Format).
				WithHint("run a newer tine on it")
		}
		return checkRows(fs, dir)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return tine.Errorf(tine.KindIO, "data directory %s cannot be used: %w", dir, err)
	}
	return makeDir(fs, dir)
}

// checkRows refuses a data directory that has file data and no rows: opened, it
// would be one without disks, and the file data nobody's, to be removed.
func checkRows(fs vfs.FS, dir string) error {
	has := func(name string) (bool, error) {
		names, err := fs.List(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, tine.Errorf(tine.KindIO, "data directory %s cannot be used: %w", dir, err)
		}
		return len(names) > 0, nil
	}
	if rows, err := has("rows"); rows || err != nil {
		return err
	}
	if data, err := has("segments"); !data || err != nil {
		return err
	}
	if names, err := fs.List(filepath.Join(dir, "rows"+pebble.SalvagedEnd)); err == nil && len(names) > 0 {
		return nil // a repair was cut off, as the row store says
	}
	return tine.Errorf(tine.KindCorrupt, "data directory %s holds file data, and its folder rows, which says what is in it, is missing or empty", dir).
		WithHint("bring the folder back from where it was moved, or from a backup; nothing was changed")
}

func makeDir(fs vfs.FS, dir string) error {
	fail := func(err error) error {
		return tine.Errorf(tine.KindIO, "data directory %s cannot be made: %w", dir, err).
			WithHint("choose a directory that can be written, with --data")
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	names, err := fs.List(dir)
	if err != nil {
		return fail(err)
	}
	for _, n := range names {
		if !strings.HasPrefix(n, ".") && n != "lost+found" && n != formatFile+".new" && n != "lock" && n != "LOCK" && !strings.HasPrefix(n, "tine") {
			return tine.Errorf(tine.KindInvalid, "directory %s is not empty and not a data directory of tine: it holds %q", dir, n).
				WithHint("choose an empty directory with --data")
		}
	}
	if err := writeFile(fs, dir, formatFile, strconv.Itoa(Format)+"\n"); err != nil {
		return fail(err)
	}
	return nil
}

// writeFile makes a small file of the data directory, whole and durable.
func writeFile(fs vfs.FS, dir, name, text string) error {
	path := filepath.Join(dir, name)
	f, err := fs.Create(path+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(text))
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = fs.Rename(path+".new", path)
	}
	if err == nil {
		err = syncDirs(fs, dir)
	}
	return err
}

func syncDirs(fs vfs.FS, dir string) error {
	for _, p := range []string{dir, filepath.Dir(dir)} {
		d, err := fs.OpenDir(p)
		if err != nil {
			return err
		}
		err = d.Sync()
		if e := d.Close(); err == nil {
			err = e
		}
		if err != nil {
			return err
		}
	}
	return nil
}
