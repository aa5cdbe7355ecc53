package segment

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"

	"tine.dev/tine/internal/fs/crashpoint"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Range is a part of a segment's payload, in bytes.
type Range struct{ Off, Len int64 }

// Packed returns how long the file would be that Repack makes of a segment with
// a payload of end bytes, and how many bytes the live ranges have, each counted
// once. Errors: KindInvalid for a range outside the payload.
func Packed(id tine.SegmentID, live []Range, end int64) (physical, used int64, err error) {
	runs, err := liveRuns(id, live, end)
	if err != nil {
		return 0, 0, err
	}
	live = slices.Clone(live)
	slices.SortFunc(live, func(a, b Range) int { return cmp.Compare(a.Off, b.Off) })
	at := int64(0) // all before is counted
	for _, r := range live {
		used += max(0, r.Off+r.Len-max(at, r.Off))
		at = max(at, r.Off+r.Len)
	}
	return newLayout(runs, end).physical, used, nil
}

// Repack writes the blocks that live ranges touch to a new file, of the next
// generation that has none, verifies them on the way, and flushes it. It
// returns the row that is to take the place of loc, by compare-and-swap; the
// old file stays until Remove. live may be in any order and overlap; it must
// have every range that any row names, for what it leaves out is gone with the
// old file.
//
// Errors: KindBusy while another repack of the segment runs; KindInvalid for
// a row that is not sealed or a range outside it; KindCorrupt, KindNoSpace and
// KindIO, after which nothing is left behind.
func (s *Store) Repack(id tine.SegmentID, loc record.Segment, live []Range) (record.Segment, error) {
	return s.RepackFrom(id, loc, live, nil, 0)
}

// RepackFrom is Repack for a segment that may not be on this device, as
// AcquireFrom opens it. The new generation is a file in any case. Only files show
// which generations there are, so loc must be the present row of a segment
// whose files may have been evicted; and the new generation is above the given
// one, for another machine may have made some that are not known here.
// Errors: besides those of Repack, those of Handle.ReadAt.
func (s *Store) RepackFrom(id tine.SegmentID, loc record.Segment, live []Range, remote Remote, above uint64) (record.Segment, error) {
	if loc.State != record.SegmentSealed {
		return loc, tine.Errorf(tine.KindInvalid, "segment %s is not sealed", id)
	}
	runs, err := liveRuns(id, live, loc.End)
	if err != nil {
		return loc, err
	}
	if !s.beginRepack(id) {
		return loc, tine.Errorf(tine.KindBusy, "segment %s is being repacked", id)
	}
	defer s.endRepack(id)
	src, err := s.AcquireFrom(id, loc, remote)
	if err != nil {
		return loc, err
	}
	defer src.Release()
	k, err := s.nextGeneration(id, max(loc.Generation, above))
	if err != nil {
		return loc, err
	}
	dst := s.newFile(k)
	l := newLayout(runs, loc.End)
	if err := dst.copyLive(src.f, l, loc.Created); err != nil {
		if rerr := s.o.FS.Remove(dst.path); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			s.o.Logger.Warn("a repack that failed could not be removed; it is tried again at the next start", "path", dst.path, "error", rerr)
		}
		return loc, err
	}
	s.bytes.Add(l.physical)
	s.o.Crash.At(crashpoint.RepackWritten)
	loc.Generation, loc.Physical = k.generation, l.physical
	return loc, nil
}

func (s *Store) beginRepack(id tine.SegmentID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.repacking[id]; ok {
		return false
	}
	s.repacking[id] = struct{}{}
	return true
}

func (s *Store) endRepack(id tine.SegmentID) {
	s.mu.Lock()
	delete(s.repacking, id)
	s.mu.Unlock()
}

// liveRuns turns ranges into runs of blocks.
func liveRuns(id tine.SegmentID, live []Range, end int64) ([]run, error) {
	live = slices.Clone(live)
	slices.SortFunc(live, func(a, b Range) int { return cmp.Compare(a.Off, b.Off) })
	var runs []run
	for _, r := range live {
		if r.Off < 0 || r.Len < 0 || r.Off > end || r.Len > end-r.Off {
			return nil, tine.Errorf(tine.KindInvalid, "segment %s: %d bytes at %d are outside its %d bytes", id, r.Len, r.Off, end)
		}
		if r.Len == 0 {
			continue
		}
		first, next := r.Off/BlockBytes, (r.Off+r.Len-1)/BlockBytes+1
		if n := len(runs); n > 0 && first <= runs[n-1].start+runs[n-1].count {
			runs[n-1].count = max(runs[n-1].count, next-runs[n-1].start)
			continue
		}
		runs = append(runs, run{start: first, count: next - first})
	}
	return runs, nil
}

// nextGeneration finds a generation that has no file. It is not simply the
// next: a caller with a row that is behind must not write over the file that
// the present row names.
func (s *Store) nextGeneration(id tine.SegmentID, after uint64) (fileKey, error) {
	for k := (fileKey{id, after + 1}); ; k.generation++ {
		path := s.path(k)
		_, err := s.o.FS.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return k, nil
		}
		if err != nil {
			return k, ioError("stat", path, err)
		}
	}
}

// copyLive writes the file: header, the blocks of the layout out of src as
// they are, footer; and flushes it.
func (f *file) copyLive(src *file, l *layout, created int64) error {
	out, err := f.s.o.FS.Create(f.path, writeCategory)
	if err != nil {
		return ioError("create", f.path, err)
	}
	f.rd = out
	defer f.close()
	h := header{id: f.key.id, generation: f.key.generation, created: created}
	if _, err := out.WriteAt(h.encode(), 0); err != nil {
		return ioError("write", f.path, err)
	}
	for _, r := range l.runs {
		err := src.scan(r.start, r.count, func(first int64, raw []byte) error {
			if _, err := out.WriteAt(raw, blockOff(r, first)); err != nil {
				return ioError("write", f.path, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return f.finish(l)
}

// scan reads consecutive blocks of a sealed file, verifies them, and hands
// them to fn as they lie in the file, with their checksums, in batches. raw is
// fn's only during the call. Of a segment that is not on this device it makes
// the blocks as the file would have them.
func (f *file) scan(start, count int64, fn func(first int64, raw []byte) error) error {
	l, remote, err := f.sealed()
	if err != nil {
		return err
	}
	pooled, pool := f.s.buffer(count)
	defer pool.Put(pooled)
	for b, stop := start, start+count; b < stop; {
		r, ok := find(l.runs, b)
		if !ok {
			return tine.Errorf(tine.KindCorrupt, "segment %s: block %d is not in %s", f.key.id, b, f.path)
		}
		last := min(stop-1, r.start+r.count-1, b+maxBatchBlocks-1)
		raw := (*pooled)[:spanBytes(b, last, l.end)]
		if remote != nil {
			err = f.fetchBlocks(remote, b, last, l.end, raw)
		} else {
			_, err = f.readBlocks(r, b, last, l.end, raw, nil, b*BlockBytes)
		}
		if err != nil {
			return err
		}
		if err := fn(b, raw); err != nil {
			return err
		}
		b = last + 1
	}
	return nil
}

// Check reads and verifies all that the row promises of the segment's file:
// of a sealed one header, footer and every block; of an open one the blocks
// below Synced. It returns the first error.
// Errors: as of Acquire and ReadAt.
func (s *Store) Check(id tine.SegmentID, loc record.Segment) error {
	if loc.State == record.SegmentOpen {
		return s.checkOpen(id, loc)
	}
	h, err := s.Acquire(id, loc)
	if err != nil {
		return err
	}
	defer h.Release()
	f := h.f
	if f.away.Load() != nil {
		return tine.Errorf(tine.KindNotFound, "segment file %s does not exist; the segment is read from its store", f.path)
	}
	// The cached layout may be older than the damage that is looked for.
	l, err := f.readLayout(f.rd, loc)
	if err != nil {
		return err
	}
	for _, r := range l.runs {
		if err := f.scan(r.start, r.count, func(int64, []byte) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// checkOpen opens the file anew, so that it works on a store that is not
// recovered.
func (s *Store) checkOpen(id tine.SegmentID, loc record.Segment) error {
	if loc.Synced == 0 {
		return nil
	}
	f := s.newFile(fileKey{id, loc.Generation})
	rd, err := s.o.FS.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return tine.Errorf(tine.KindNotFound, "segment file %s does not exist", f.path)
	}
	if err != nil {
		return ioError("open", f.path, err)
	}
	f.rd = rd
	defer f.close()
	if err := f.checkHeader(rd); err != nil {
		return err
	}
	l := newLayout([]run{{count: blocksFor(loc.Synced)}}, loc.Synced)
	f.layout.Store(l)
	return f.scan(0, l.runs[0].count, func(int64, []byte) error { return nil })
}
