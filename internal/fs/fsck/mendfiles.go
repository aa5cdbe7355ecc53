package fsck

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// writeCategory tells the file system who writes.
const writeCategory = vfs.DiskWriteCategory("tine-fsck")

// removeFile removes a segment file that nothing needs.
func (r *repairer) removeFile(f *file) {
	r.plan(stageRows, "removed it", func(kv.Batch) error {
		if err := r.w.FS.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return tine.Errorf(tine.KindIO, "remove %s: %w", f.path, err)
		}
		return nil
	})
}

// dropSegment removes the records of a segment whose bytes are gone, or that
// has none.
func (r *repairer) dropSegment(g *seg) {
	r.plan(stageRows, "removed the segment's records", func(b kv.Batch) error {
		for _, t := range []record.Table{record.TableSegment, record.TableLive} {
			b.Delete(key0(g.tree.id, record.IDKey(t, g.id)))
		}
		for _, t := range []record.Table{record.TableTail, record.TablePiece} {
			p := record.AppendKey(nil, g.tree.id, record.IDKey(t, g.id))
			b.DeleteRange(p, record.PrefixEnd(p))
		}
		return nil
	})
}

// adoptFile writes a lost segment's record anew, from its file. It belongs to
// the line on the way to the root in whose time the extent was born.
func (r *repairer) adoptFile(l *line, x record.Extent) {
	f, layout := r.w.soundFile(x.Segment)
	if f == nil || r.adopted[x.Segment] {
		return
	}
	for l.parent != nil && x.Birth <= l.rec.Branch {
		l = l.parent
	}
	if r.adopted == nil {
		r.adopted = map[tine.SegmentID]bool{}
	}
	r.adopted[x.Segment] = true
	rec := record.Segment{Timeline: l.id, State: record.SegmentSealed, Generation: f.generation, End: layout.end,
		Synced: layout.end, Physical: f.size, Created: r.now.UnixNano()}
	r.plan(stageFiles, "wrote its record anew, from the file", set(key0(l.tree.id, record.IDKey(record.TableSegment, x.Segment)), rec.Append(nil)))
}

// rebuildFile writes a damaged segment file anew, as a repack would: with the
// blocks whose checksums hold, and those that the tail rows have. The damaged
// file is kept.
func (r *repairer) rebuildFile(g *seg) {
	r.w.last = Finding{Code: "S004", What: "segment " + g.id.String()}
	r.plan(stageFiles, "wrote the file anew from the blocks that hold; the old one is in the folder \"damaged\"", func(b kv.Batch) error {
		s := &salvage{w: r.w, g: g, blocks: map[int64]int64{}, built: map[int64][]byte{}}
		if err := s.collect(); err != nil {
			return err
		}
		rec, err := s.write()
		if err != nil {
			return err
		}
		key := key0(g.tree.id, record.IDKey(record.TableSegment, g.id))
		b.Set(key, rec.Append(nil))
		for _, t := range g.tails {
			b.Delete(t.key)
		}
		return r.setAside(r.w.segmentPath(g.id, g.rec.Generation))
	})
}

// setAside moves a damaged file out of the way.
func (r *repairer) setAside(path string) error {
	fsys := r.w.FS
	dir := fsys.PathJoin(fsys.PathDir(r.w.SegmentDir), "damaged")
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return tine.Errorf(tine.KindIO, "make %s: %w", dir, err)
	}
	if err := fsys.Rename(path, fsys.PathJoin(dir, fsys.PathBase(path))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return tine.Errorf(tine.KindIO, "move %s: %w", path, err)
	}
	return nil
}

// salvage gathers what is left of a segment file.
type salvage struct {
	w      *world
	g      *seg
	src    vfs.File
	blocks map[int64]int64  // where a good block lies in the old file
	built  map[int64][]byte // blocks put together from tail rows, with their checksums
}

// collect finds the good blocks.
func (s *salvage) collect() error {
	path := s.w.segmentPath(s.g.id, s.g.rec.Generation)
	src, err := s.w.FS.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s.fromTails()
	}
	if err != nil {
		return tine.Errorf(tine.KindIO, "open %s: %w", path, err)
	}
	s.src = src
	st, err := src.Stat()
	if err != nil {
		return tine.Errorf(tine.KindIO, "stat %s: %w", path, err)
	}
	end := s.g.rec.End
	layout := wholeRuns(end)
	if s.g.rec.State == record.SegmentSealed {
		for _, size := range []int64{s.g.rec.Physical, st.Size()} {
			if r, err := readFoot(src, s.g.id, s.g.rec.Generation, size); err == nil && r.end == end {
				layout = r
				break
			}
		}
	}
	s.scan(layout, st.Size())
	if s.g.rec.Generation > 0 && len(s.blocks) == 0 {
		s.search(st.Size())
	}
	return s.fromTails()
}

// scan takes the good blocks of a layout.
func (s *salvage) scan(layout *runs, size int64) {
	buf := make([]byte, blockStride)
	for _, x := range layout.list {
		for b := x.first; b < x.first+x.count; b++ {
			off := headBytes + (x.before+b-x.first)*blockStride
			if off >= size {
				break
			}
			if s.good(b, off, buf) {
				s.blocks[b] = off
			}
		}
	}
}

// good reports whether block b lies at off.
func (s *salvage) good(b, off int64, buf []byte) bool {
	raw := buf[:wholeRuns(s.g.rec.End).payload(b)+sumBytes]
	return readAll(s.src, raw, off) == nil && goodBlock(s.g.id, b, raw)
}

// search finds blocks in a repacked file without a footer: they lie one after
// the other, and their numbers grow. Only those that rows name are of use.
func (s *salvage) search(size int64) {
	var starts []int64
	for _, ss := range [][]span{s.g.own.all, s.g.foreign.all} {
		for _, n := range ss {
			starts = append(starts, n.from/blockBytes)
		}
	}
	slices.Sort(starts)
	starts = slices.Compact(starts)
	buf := make([]byte, blockStride)
	next := int64(0)
	for off := int64(headBytes); off < size; off += blockStride {
		if next*blockBytes < s.g.rec.End && s.good(next, off, buf) {
			s.blocks[next] = off
			next++
			continue
		}
		i, _ := slices.BinarySearch(starts, next)
		for _, b := range starts[i:] {
			if b*blockBytes < s.g.rec.End && s.good(b, off, buf) {
				s.blocks[b] = off
				next = b + 1
				break
			}
		}
	}
}

// fromTails puts blocks of an open segment together that the file does not
// have.
func (s *salvage) fromTails() error {
	if s.g.rec.State != record.SegmentOpen {
		return nil
	}
	layout := wholeRuns(s.g.rec.End)
	parts := map[int64][]byte{}
	have := map[int64][]span{}
	snap := s.w.Rows.Snapshot()
	defer snap.Close()
	for _, t := range s.g.tails {
		prefix, _, _ := record.SplitEpoch(t.key)
		val, _, ok, err := snap.Newest(prefix, 0)
		if err != nil {
			return err
		}
		for at := t.off; ok && at < min(t.off+t.len, s.g.rec.End); {
			b := at / blockBytes
			if parts[b] == nil {
				parts[b] = make([]byte, layout.payload(b))
			}
			n := int64(copy(parts[b][at-b*blockBytes:], val[at-t.off:]))
			have[b] = append(have[b], span{at, at + n})
			at += n
		}
	}
	for b, p := range parts {
		if _, ok := s.blocks[b]; !ok && total(normal(have[b])) == int64(len(p)) {
			s.built[b] = binary.LittleEndian.AppendUint32(p, blockSum(s.g.id, b, p))
		}
	}
	return nil
}

// write writes the file of the next generation and returns its row.
func (s *salvage) write() (record.Segment, error) {
	rec := s.g.rec
	if s.src != nil {
		defer s.src.Close()
	}
	rec.Generation++
	for _, f := range s.w.files[s.g.id] {
		rec.Generation = max(rec.Generation, f.generation+1)
	}
	layout := &runs{end: rec.End}
	for b := range blocksOf(rec.End) {
		_, old := s.blocks[b]
		if !old && s.built[b] == nil {
			continue
		}
		if n := len(layout.list); n > 0 && layout.list[n-1].first+layout.list[n-1].count == b {
			layout.list[n-1].count++
			continue
		}
		layout.list = append(layout.list, run{first: b, count: 1})
	}
	rec.State, rec.Synced, rec.Physical = record.SegmentSealed, rec.End, layout.physical()
	path := s.w.segmentPath(s.g.id, rec.Generation)
	if err := s.writeTo(path, layout, rec); err != nil {
		return rec, tine.Errorf(tine.KindIO, "write %s: %w", path, err)
	}
	return rec, nil
}

func (s *salvage) writeTo(path string, layout *runs, rec record.Segment) (err error) {
	fsys := s.w.FS
	if err := fsys.MkdirAll(fsys.PathDir(path), 0o700); err != nil {
		return err
	}
	out, err := fsys.Create(path, writeCategory)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := out.Close(); err == nil {
			err = cerr
		}
	}()
	if _, err := out.Write(encodeHead(s.g.id, rec.Generation, rec.Created)); err != nil {
		return err
	}
	buf := make([]byte, blockStride)
	for _, x := range layout.list {
		for b := x.first; b < x.first+x.count; b++ {
			raw := s.built[b]
			if off, ok := s.blocks[b]; ok {
				raw = buf[:layout.payload(b)+sumBytes]
				if err := readAll(s.src, raw, off); err != nil {
					return err
				}
			}
			if _, err := out.Write(raw); err != nil {
				return err
			}
		}
	}
	if _, err := out.Write(encodeFoot(s.g.id, rec.Generation, layout)); err != nil {
		return err
	}
	if err := out.Sync(); err != nil {
		return err
	}
	for _, d := range []string{fsys.PathDir(path), s.w.SegmentDir} {
		dir, err := fsys.OpenDir(d)
		if err != nil {
			return err
		}
		err = dir.Sync()
		_ = dir.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func encodeHead(id tine.SegmentID, generation uint64, created int64) []byte {
	b := make([]byte, headBytes)
	copy(b, "tineseg1")
	binary.LittleEndian.PutUint32(b[8:], 1)
	binary.LittleEndian.PutUint32(b[12:], blockBytes)
	copy(b[16:], id[:])
	binary.LittleEndian.PutUint64(b[32:], generation)
	binary.LittleEndian.PutUint64(b[40:], uint64(created))
	binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
	return b
}

func encodeFoot(id tine.SegmentID, generation uint64, layout *runs) []byte {
	var b []byte
	for _, x := range layout.list {
		b = binary.LittleEndian.AppendUint64(b, uint64(x.first))
		b = binary.LittleEndian.AppendUint64(b, uint64(x.count))
	}
	b = append(b, id[:]...)
	for _, n := range []uint64{generation, uint64(layout.end), uint64(layout.physical()), uint64(len(layout.list))} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return append(b, "tinefoot"...)
}
