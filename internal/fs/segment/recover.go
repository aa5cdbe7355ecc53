package segment

import (
	"errors"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/crashpoint"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// truncater is what files of a real file system can do besides vfs.File.
type truncater interface{ Truncate(size int64) error }

// truncate cuts a file that is longer than size, where it can be cut. Nothing
// depends on it but the space it gives back.
func truncate(f vfs.File, path string, size int64) error {
	t, ok := f.(truncater)
	if !ok {
		return nil
	}
	st, err := f.Stat()
	if err == nil && st.Size() > size {
		err = t.Truncate(size)
	}
	if err != nil {
		return ioError("truncate", path, err)
	}
	return nil
}

// Recover seals an open segment that was found at start. The file is kept up
// to loc.Synced; from there to loc.End it is written anew from the tails,
// which are in order of Off and may overlap what is kept and each other. What
// the file held beyond loc.Synced was never promised and is not looked at. It
// returns the sealed row, flushed; the caller commits it and drops the tails.
//
// The segment takes no more bytes from then on (I5).
//
// It may be cut off by a crash at any point and run again: it changes no byte
// below loc.Synced, and loc.Synced is a block boundary. A row that is sealed
// already is returned as it is. Of the bytes that are kept only the header,
// the length and the last block are looked at, so that a start does not read
// all data; damage further down is found by ReadAt and Check.
//
// Errors: KindCorrupt if tails are missing or the file is not what the row
// says; KindBusy while a Writer has the segment; KindNoSpace, KindIO.
func (s *Store) Recover(id tine.SegmentID, loc record.Segment, tails []record.Tail) (record.Segment, error) {
	if loc.State == record.SegmentSealed {
		return loc, nil
	}
	if loc.Synced < 0 || loc.Synced%BlockBytes != 0 || loc.End < loc.Synced || loc.End > maxEnd {
		return loc, tine.Errorf(tine.KindCorrupt, "segment %s: its row says synced %d of %d", id, loc.Synced, loc.End)
	}
	rest, err := joinTails(id, loc, tails)
	if err != nil {
		return loc, err
	}
	if err := s.detach(fileKey{id, loc.Generation}); err != nil {
		return loc, err
	}
	f := s.newFile(fileKey{id, loc.Generation})
	if err := f.openForRecovery(loc); err != nil {
		return loc, err
	}
	defer f.close()
	l := wholeLayout(loc.End)
	if err := f.rebuild(loc, l, rest); err != nil {
		return loc, err
	}
	loc.State, loc.Synced, loc.Physical = record.SegmentSealed, loc.End, l.physical
	return loc, nil
}

// joinTails puts the tails together to the payload from loc.Synced to loc.End.
func joinTails(id tine.SegmentID, loc record.Segment, tails []record.Tail) ([]byte, error) {
	var out []byte
	at := loc.Synced
	for _, t := range tails {
		end := min(t.Off+int64(len(t.Bytes)), loc.End)
		if t.Segment != id {
			return nil, tine.Errorf(tine.KindCorrupt, "a tail of segment %s is among those of %s", t.Segment, id)
		}
		if end <= at {
			continue
		}
		if t.Off > at {
			break
		}
		out = append(out, t.Bytes[at-t.Off:end-t.Off]...)
		at = end
	}
	if at != loc.End {
		return nil, tine.Errorf(tine.KindCorrupt, "segment %s: no tail has the bytes from %d, its row ends at %d", id, at, loc.End).
			WithHint("the rows of this disk are damaged: restore them from a backup, or fork the last checkpoint")
	}
	return out, nil
}

// detach takes a file that is open from before out of the map, so that its
// name can be opened anew. Handles on it stay safe.
func (s *Store) detach(k fileKey) error {
	s.mu.Lock()
	f := s.files[k]
	if f == nil {
		s.mu.Unlock()
		return nil
	}
	if f.w != nil && f.layout.Load() == nil && f.w.readable() == nil {
		s.mu.Unlock()
		return tine.Errorf(tine.KindBusy, "segment %s is being written", k.id)
	}
	s.forget(f)
	f.detached = true
	idle := f.pins == 0
	s.mu.Unlock()
	if idle {
		f.close()
	}
	return nil
}

// openForRecovery opens the file and checks what the row promises of it. A
// file from which nothing was promised may be missing, or hold anything.
func (f *file) openForRecovery(loc record.Segment) error {
	if err := f.s.makeShard(f.key.id); err != nil {
		return err
	}
	size := int64(0)
	switch st, err := f.s.o.FS.Stat(f.path); {
	case err == nil:
		size = st.Size()
	case !errors.Is(err, fs.ErrNotExist):
		return ioError("stat", f.path, err)
	case loc.Synced > 0:
		return tine.Errorf(tine.KindCorrupt, "segment file %s does not exist; its row says that %d bytes of it are durable", f.path, loc.Synced).
			WithHint("restore the file from a backup of the data directory")
	}
	var err error
	if f.rd, err = f.s.o.FS.OpenReadWrite(f.path, writeCategory); err != nil {
		return ioError("open", f.path, err)
	}
	if loc.Synced > 0 {
		if err = f.checkHeader(f.rd); err == nil {
			kept := [1]run{{count: loc.Synced / BlockBytes}}
			var last [1]byte // reading any byte of a block verifies all of it
			err = f.readSpan(kept[:], loc.Synced, last[:], loc.Synced-1)
		}
		if err != nil {
			f.close()
			return err
		}
	}
	f.s.bytes.Add(-size)
	return nil
}

// rebuild writes what follows the kept blocks, and flushes.
func (f *file) rebuild(loc record.Segment, l *layout, rest []byte) error {
	defer func() {
		if st, err := f.rd.Stat(); err == nil {
			f.s.bytes.Add(st.Size())
		}
	}()
	if loc.Synced == 0 {
		h := header{id: f.key.id, generation: f.key.generation, created: loc.Created}
		if _, err := f.rd.WriteAt(h.encode(), 0); err != nil {
			return ioError("write", f.path, err)
		}
	}
	pooled, pool := f.s.buffer(1)
	defer pool.Put(pooled)
	for b := loc.Synced / BlockBytes; len(rest) > 0; b++ {
		n := copy((*pooled)[:BlockBytes], rest)
		rest = rest[n:]
		buf := (*pooled)[:n+sumBytes]
		putSum(f.seed, b, buf)
		if _, err := f.rd.WriteAt(buf, headerBytes+b*blockPhysical); err != nil {
			return ioError("write", f.path, err)
		}
	}
	f.s.o.Crash.At(crashpoint.SegmentSealing)
	if err := f.finish(l); err != nil {
		return err
	}
	f.s.o.Crash.At(crashpoint.SegmentSealed)
	return nil
}

// finish writes the footer and flushes the file and its name.
func (f *file) finish(l *layout) error {
	if _, err := f.rd.WriteAt(l.encodeFooter(f.key.id, f.key.generation), l.footerOff()); err != nil {
		return ioError("write", f.path, err)
	}
	if err := truncate(f.rd, f.path, l.physical); err != nil {
		return err
	}
	if err := f.rd.SyncData(); err != nil {
		return ioError("flush", f.path, err)
	}
	return f.s.flushEntry(f.key.id)
}
