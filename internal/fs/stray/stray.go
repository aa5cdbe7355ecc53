// Package stray removes the segment files that no row names: what a crash left
// between making a file and committing its row, and generations that a repack
// has replaced (I18).
//
// To find them takes a look into every tree, which a start cannot wait for. So
// the files and the rows are noted as they were at open, and looked at when the
// engine serves already: a file that no row named then is never named again,
// because new files never take the name of one that is there.
package stray

import (
	"log/slog"
	"sync"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/fs/stratum"
	"tine.dev/tine/internal/tine"
)

// File is one generation of a segment.
type File struct {
	ID         tine.SegmentID
	Generation uint64
}

// Named calls note for every file that the rows of a snapshot name.
type Named func(snap kv.Snapshot, note func(File)) error

// NamedBy returns what finds the files that the rows of some trees name. It ends
// with KindInterrupted when quit is closed.
func NamedBy(trees []tine.TreeID, quit <-chan struct{}) Named {
	return func(rows kv.Snapshot, note func(File)) error {
		for _, id := range trees {
			err := stratum.ScanTable(rows, id, record.TableSegment, func(l record.Logical, v []byte) error {
				seg, err := record.DecodeSegment(v)
				sid, _ := l.ID()
				note(File{ID: sid, Generation: seg.Generation})
				return err
			})
			if err != nil {
				return err
			}
			select {
			case <-quit:
				return tine.Errorf(tine.KindInterrupted, "the engine closes")
			default:
			}
		}
		return nil
	}
}

// Files are the files that were there at open, until they have been looked
// at. Its methods may be called concurrently; mu is held while they work, and is
// taken first.
type Files struct {
	mu    sync.Mutex
	segs  *segment.Store
	named Named
	files []File
	rows  kv.Snapshot // nil: nothing is left to be done
}

// Note notes what is there, before any file or row is made.
// Errors: those of segment.Store.Files.
func Note(segs *segment.Store, rows kv.Store, named Named) (*Files, error) {
	f := &Files{segs: segs, named: named}
	err := segs.Files(func(id tine.SegmentID, gen uint64, _ int64) error {
		f.files = append(f.files, File{id, gen})
		return nil
	})
	if err == nil && len(f.files) > 0 {
		f.rows = rows.Snapshot()
	}
	return f, err
}

// Remove removes those that no row named at open, once; a later call waits for
// the first. If it fails they are left to the next start.
// Errors: those of reading rows and of segment.Store.Remove.
func (f *Files) Remove(log *slog.Logger) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rows == nil {
		return nil
	}
	defer f.done()
	named := map[File]bool{}
	if err := f.named(f.rows, func(n File) { named[n] = true }); err != nil {
		return err
	}
	for _, n := range f.files {
		if named[n] {
			continue
		}
		if err := f.segs.Remove(n.ID, n.Generation); err != nil {
			return err
		}
		log.Info("removed a segment file that no row names", "segment", n.ID.String(), "generation", n.Generation)
	}
	return nil
}

// Forget lets go of what was noted; nothing is removed any more.
func (f *Files) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done()
}

func (f *Files) done() {
	if f.rows != nil {
		f.rows.Close()
	}
	f.files, f.rows = nil, nil
}
