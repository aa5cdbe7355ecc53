package salvage

import (
	"encoding/json"
	"errors"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
)

// noteName is a file in the directory of a store that was written anew: what was lost
// then, as JSON. A repair of what the rows say that is cut off still knows it when it
// is run again.
const noteName = "SALVAGED"

// note writes the file into the new store, before that takes its place.
func (o Options) note(damage []kv.Damage) error {
	fsys, dir := o.Store.FS, o.Store.Dir+partialEnd
	b, err := json.Marshal(damage)
	if err != nil {
		return ioError("note what was lost", err)
	}
	name := fsys.PathJoin(dir, noteName)
	f, err := fsys.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return ioError("create "+name, err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return ioError("write "+name, err)
	}
	return syncDir(fsys, dir)
}

// noted returns what was lost with a store that was written anew. A note that cannot be
// read says that something was.
func (o Options) noted() []kv.Damage {
	fsys := o.Store.FS
	s := surveyed{fs: fsys, dir: o.Store.Dir}
	b, err := s.read(noteName)
	if err != nil || b == nil {
		return nil
	}
	var all []kv.Damage
	if err := json.Unmarshal(b, &all); err != nil {
		return []kv.Damage{{File: noteName, What: "an earlier repair has lost rows, and its note of which is damaged", Lost: true}}
	}
	return all
}

// Forget removes the note of what was lost, when the repair of the rest is done.
// Errors: KindIO.
func Forget(o Options) error {
	fsys := o.Store.FS
	if fsys == nil {
		fsys = vfs.Default
	}
	name := fsys.PathJoin(o.Store.Dir, noteName)
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ioError("remove "+name, err)
	}
	return nil
}
