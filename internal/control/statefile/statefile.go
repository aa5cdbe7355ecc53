// Package statefile keeps small pieces of state as JSON files that survive a
// crash: written to a temporary file, flushed, renamed over the old one, and
// the directory flushed. A reader sees the old content or the new, never a
// mixture. It is meant for a few kilobytes that change rarely and that a
// person may want to read.
package statefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/tine"
)

// Write replaces the file's content by v. It is durable on return. Callers
// see to it that there is one writer at a time.
func Write(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return tine.Errorf(tine.KindInternal, "encode %s: %w", path, err)
	}
	return oserr.Wrap(write(path, append(b, '\n')), "write %s", path)
}

func write(path string, b []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// Read decodes the file into v. A file that does not exist leaves v as it is.
// Fields that v does not know are an error: they were written by a newer
// program, which this one must not undo.
func Read(path string, v any) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return oserr.Wrap(err, "read %s", path)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err = d.Decode(v)
	if err == nil {
		if _, end := d.Token(); end != io.EOF {
			err = errors.New("something follows the document")
		}
	}
	if err != nil {
		return tine.Errorf(tine.KindCorrupt, "read %s: %w", path, err).
			WithHint("repair the file by hand, or move it away and lose what it lists")
	}
	return nil
}
