// Package salvage opens a row store whose files are damaged, by writing what can
// still be read of it into a new one.
//
// # What is saved
//
// Every row of every block of every table whose checksum holds, and the logs up to
// where the first damage begins. A damaged block costs its own rows and no others.
// What cannot be read is told, with the keys between which it lay.
//
// # Which version of a row holds
//
// Without levels, sequence numbers decide: the entry with the largest one holds, and a
// deletion hides what is older. A compaction into the lowest level sets the numbers of
// what lies there to zero, so zero is older than all else; two of them of one key
// are never both in the newest state.
//
// Which tables and logs belong to the newest state only the manifest says, and it is
// used as far as it can be read. Where it cannot be, all tables are read that no
// manifest calls removed, those of older manifests included. A table that was
// replaced is removed within moments, or when the last reader of it ends, so there are
// few of them, and of one that is still there mostly its successor has the same rows. But
// where a row was deleted and that deletion has gone from the successor, the row
// comes back. The rows of this program's lines are versions by epoch, so what
// comes back is an old version of a row, or a row of a line that is gone; the check
// of the structure that follows finds what then does not fit. The caller is told.
//
// With the logs it is similar: Pebble keeps a few old ones to write over, and the
// manifest says from which on they count. Without it: what has a number that the
// tables have passed is in them. What lies beyond is taken from the newest log without
// question. Of an older one, after which a table was written, it gives way to a row
// numbered zero: it is likely that this is its own successor, moved to the lowest level.
//
// A log that is damaged is read up to there, and no log after it: so the rows are those
// of one moment, if no table is damaged, and only what was committed after that is
// lost. If tables are damaged they are not of one moment.
//
// # Why it can be interrupted
//
// The new store is written beside the old one, under a name that ends with ".partial". When
// it is durable it gets a name that ends with ".salvaged"; then the old one is moved
// aside, and the new one takes its name. A store that is there is the old one, or the new
// one whole: with it there, leftovers of the two other names are removed and the work
// begins anew; without it, the one named ".salvaged" is whole and takes its place. A
// server that finds neither does not start (package pebble). What was lost is noted in the
// new store, so that it is told again until Forget is called.
package salvage

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/tine"
)

// Options say what to open.
type Options struct {
	Store pebble.Options // of the store; FS nil is the operating system's
	// Aside is the directory into which damaged files are moved; made if needed. It
	// lies on the device of the store.
	Aside string
	// Progress, if not nil, is called now and then with how many rows were written.
	Progress func(rows int64)
}

// Report says what was damaged and what was done.
type Report struct {
	Damage []kv.Damage // empty: nothing was
	Kept   string      // where the damaged files are now; "" if nothing was changed
	Cut    bool        // only the end of a log was cut off
	Rows   int64       // that were saved into a new store
}

const partialEnd = ".partial"

// Open opens a store that nobody else uses, after it has saved what can be read if it
// is damaged. The caller keeps others from the directory that it lies in. It is
// durable when it returns, and can be interrupted at any moment and run again.
// Errors: KindIO where the device fails, for what cannot be read now may be
// read another time; KindNoSpace, with the damaged store as it was; KindBusy,
// KindAccess and KindVersion as of pebble.Open.
func Open(o Options) (kv.Store, *Report, error) {
	if o.Store.FS == nil {
		o.Store.FS = vfs.Default
	}
	if err := o.finish(); err != nil {
		return nil, nil, err
	}
	rep := &Report{}
	s, err := survey(o.Store.FS, o.Store.Dir)
	if err != nil {
		return nil, nil, err
	}
	if err := s.verify(); err != nil {
		return nil, nil, err
	}
	rep.Damage = s.damage
	if len(s.damage) == 0 || s.onlyLog {
		store, err := o.openOld(rep, s)
		if err == nil {
			rep.Damage = append(rep.Damage, o.noted()...)
			return store, rep, nil
		}
		switch tine.KindOf(err) {
		case tine.KindCorrupt, tine.KindIO:
		default:
			return nil, nil, err
		}
		if len(rep.Damage) == 0 {
			rep.Damage = append(rep.Damage, kv.Damage{What: "the row store does not open: " + err.Error()})
		}
		rep.Cut = false
		if s, err = survey(o.Store.FS, o.Store.Dir); err != nil {
			return nil, nil, err
		}
	}
	store, err := o.rebuild(rep, s)
	return store, rep, err
}

// openOld opens the store as it is; if its log is damaged, and nothing else, at the
// state before that.
func (o Options) openOld(rep *Report, s *surveyed) (kv.Store, error) {
	po := o.Store
	if s.onlyLog {
		kept, err := o.keepLogs(s.files.Logs)
		if err != nil {
			return nil, err
		}
		po.CutLog = true
		rep.Kept, rep.Cut = kept, true
	}
	return pebble.Open(po)
}

// keepLogs copies the logs aside.
func (o Options) keepLogs(logs []uint64) (string, error) {
	fsys := o.Store.FS
	dir, err := o.asideName()
	if err != nil {
		return "", err
	}
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return "", ioError("make "+dir, err)
	}
	for _, n := range logs {
		name := pebble.LogName(n)
		if err := vfs.Copy(fsys, fsys.PathJoin(o.Store.Dir, name), fsys.PathJoin(dir, name)); err != nil {
			return "", ioError("copy the log "+name, err)
		}
	}
	return dir, errors.Join(syncDir(fsys, dir), syncDir(fsys, o.Aside), syncDir(fsys, fsys.PathDir(o.Aside)))
}

// rebuild writes a new store and puts it in the place of the old one.
func (o Options) rebuild(rep *Report, s *surveyed) (kv.Store, error) {
	fsys, dir := o.Store.FS, o.Store.Dir
	s.damage = nil
	rows, err := o.write(s)
	if err == nil {
		rep.Rows = rows
		for _, d := range s.damage {
			rep.Damage = appendNew(rep.Damage, d)
		}
		rep.Damage = append(rep.Damage, o.noted()...) // of a repair that was cut off before
		err = o.note(rep.Damage)
	}
	if err != nil {
		_ = fsys.RemoveAll(dir + partialEnd)
		if tine.KindOf(err) == tine.KindNoSpace {
			return nil, tine.Errorf(tine.KindNoSpace, "there is no room to write the rows anew: %w", err).
				WithHint("the damaged rows are as they were; make room for as much again as %s takes, or repair a copy elsewhere", dir)
		}
		return nil, err
	}
	if err := move(fsys, dir+partialEnd, dir+pebble.SalvagedEnd); err != nil {
		return nil, err
	}
	if rep.Kept, err = o.setAside(); err != nil {
		return nil, err
	}
	if err := move(fsys, dir+pebble.SalvagedEnd, dir); err != nil {
		return nil, err
	}
	return pebble.Open(o.Store)
}

// appendNew adds what was not told before.
func appendNew(all []kv.Damage, d kv.Damage) []kv.Damage {
	for _, e := range all {
		if e.What == d.What && string(e.Lower) == string(d.Lower) {
			return all
		}
	}
	return append(all, d)
}

// finish ends or takes back what an interrupted repair has begun.
func (o Options) finish() error {
	fsys, dir := o.Store.FS, o.Store.Dir
	files, err := pebble.List(fsys, dir)
	if err != nil {
		return err
	}
	there := len(files.Tables)+len(files.Logs)+len(files.Manifests) > 0 // not an empty directory that a server has made
	whole, err := exists(fsys, dir+pebble.SalvagedEnd)
	if err != nil {
		return err
	}
	if err := fsys.RemoveAll(dir + partialEnd); err != nil {
		return ioError("remove "+dir+partialEnd, err)
	}
	switch {
	case whole && !there:
		if err := fsys.RemoveAll(dir); err != nil {
			return ioError("remove "+dir, err)
		}
		return move(fsys, dir+pebble.SalvagedEnd, dir)
	case whole:
		if err := fsys.RemoveAll(dir + pebble.SalvagedEnd); err != nil {
			return ioError("remove "+dir+pebble.SalvagedEnd, err)
		}
	}
	return nil
}

// setAside moves the damaged store out of the way.
func (o Options) setAside() (string, error) {
	to, err := o.asideName()
	if err != nil {
		return "", err
	}
	if err := move(o.Store.FS, o.Store.Dir, to); err != nil {
		return "", err
	}
	return to, syncDir(o.Store.FS, o.Store.FS.PathDir(o.Store.Dir))
}

// maxKept bounds the search for a free name.
const maxKept = 10_000

// asideName returns a free name in the directory for damaged files, which it makes.
func (o Options) asideName() (string, error) {
	fsys := o.Store.FS
	if err := fsys.MkdirAll(o.Aside, 0o700); err != nil {
		return "", ioError("make "+o.Aside, err)
	}
	if err := syncDir(fsys, fsys.PathDir(o.Aside)); err != nil {
		return "", err
	}
	for i := 1; i < maxKept; i++ {
		name := fsys.PathJoin(o.Aside, fmt.Sprintf("%s-%d", fsys.PathBase(o.Store.Dir), i))
		if there, err := exists(fsys, name); err != nil || !there {
			return name, err
		}
	}
	return "", tine.Errorf(tine.KindExists, "%s is full of what earlier repairs have kept", o.Aside).WithHint("remove what is not needed any more")
}

// move renames a directory, durably.
func move(fsys vfs.FS, from, to string) error {
	if err := fsys.Rename(from, to); err != nil {
		return ioError("rename "+from+" to "+to, err)
	}
	return syncDir(fsys, fsys.PathDir(to))
}

func syncDir(fsys vfs.FS, dir string) error {
	if dir == "" {
		dir = "."
	}
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return ioError("open "+dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return ioError("flush "+dir, err)
	}
	return nil
}

func exists(fsys vfs.FS, name string) (bool, error) {
	_, err := fsys.Stat(name)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return false, ioError("look for "+name, err)
}

func ioError(what string, err error) error {
	if strings.Contains(err.Error(), "no space") {
		return tine.Errorf(tine.KindNoSpace, "%s: %w", what, err).WithHint("free space on the device")
	}
	return tine.Errorf(tine.KindIO, "%s: %w", what, err).WithHint("look at the device and the system log; repair a copy of the data directory on a sound device")
}
