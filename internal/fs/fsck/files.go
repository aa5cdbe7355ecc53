package fsck

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// file is a segment file as it lies on the device.
type file struct {
	id         tine.SegmentID
	generation uint64
	path       string
	size       int64
	used       bool
}

// checkFiles lists the segment files and compares them with the rows.
func (w *world) checkFiles() {
	if w.FS == nil {
		return
	}
	w.rep.phase("segments", "bytes")
	if err := w.listFiles(); err != nil {
		w.fail(place{}, err)
		return
	}
	for _, t := range w.order {
		slices.SortFunc(t.segs, func(a, b *seg) int { return slices.Compare(a.id[:], b.id[:]) })
		for _, g := range t.segs {
			if !g.has {
				continue
			}
			w.rep.Stats.Segments++
			w.checkFile(g)
			if w.ended() != nil {
				return
			}
		}
	}
}

func (w *world) listFiles() error {
	shards, err := w.FS.List(w.SegmentDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return tine.Errorf(tine.KindIO, "list %s: %w", w.SegmentDir, err)
	}
	for _, sh := range shards {
		dir := w.FS.PathJoin(w.SegmentDir, sh)
		names, err := w.FS.List(dir)
		if err != nil {
			w.strayName(dir)
			continue
		}
		for _, name := range names {
			path := w.FS.PathJoin(dir, name)
			f, ok := parseFile(name)
			if !ok || !strings.HasSuffix(f.id.String(), sh) || len(sh) != 2 {
				w.strayName(path)
				continue
			}
			st, err := w.FS.Stat(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return tine.Errorf(tine.KindIO, "stat %s: %w", path, err)
			}
			f.path, f.size = path, st.Size()
			w.files[f.id] = append(w.files[f.id], &f)
		}
	}
	for _, fs := range w.files {
		slices.SortFunc(fs, func(a, b *file) int { return cmp.Compare(b.generation, a.generation) })
	}
	return nil
}

func (w *world) strayName(path string) {
	if w.whole() && !w.Live {
		w.add("S013", place{}, "%s", path)
	}
}

func parseFile(name string) (f file, ok bool) {
	id, gen, ok := strings.Cut(name, ".")
	if !ok || f.id.Parse(id) != nil {
		return f, false
	}
	n, err := strconv.ParseUint(gen, 10, 64)
	f.generation = n
	return f, err == nil && strconv.FormatUint(n, 10) == gen
}

// segmentPath is where a file of a segment belongs.
func (w *world) segmentPath(id tine.SegmentID, generation uint64) string {
	t := id.String()
	return w.FS.PathJoin(w.SegmentDir, t[len(t)-2:], t+"."+strconv.FormatUint(generation, 10))
}

// fileOf returns the file that the segment's row names; nil if it is not there.
func (w *world) fileOf(g *seg) *file {
	for _, f := range w.files[g.id] {
		if f.generation == g.rec.Generation {
			return f
		}
	}
	return nil
}

// checkFile checks the file that a segment's row names.
func (w *world) checkFile(g *seg) {
	open, err := w.openFile(g)
	switch {
	case err != nil:
		w.fail(place{tree: g.tree}, err)
		return
	case open == nil && g.vanished:
		return
	case open == nil && g.tree.shipped && g.rec.State == record.SegmentSealed:
		return // the store has it
	case open == nil:
		w.missingFile(g)
		return
	}
	defer open.Close()
	st, err := open.Stat()
	if err != nil {
		w.fail(place{tree: g.tree}, tine.Errorf(tine.KindIO, "segment %s: %w", g.id, err))
		return
	}
	w.rep.Stats.SegmentBytes += st.Size()
	layout := w.checkEnds(g, open, st.Size())
	if layout == nil {
		g.damaged = true
		g.bad = []span{{0, max(g.rec.End, 1)}}
		return
	}
	if g.rec.State == record.SegmentSealed {
		g.gone = layout.missing()
	}
	if w.Data {
		w.rep.phase("data", "bytes")
		bad, err := verify(open, g.id, layout, func(n int64) bool {
			w.rep.Stats.DataBytes += n
			w.rep.tick("data", "bytes", n)
			return w.ended() == nil
		})
		if err != nil {
			w.fail(place{tree: g.tree}, tine.Errorf(tine.KindIO, "segment %s: %w", g.id, err))
		}
		g.bad = bad
	}
}

// openFile opens the file that the row names; nil without an error if it is not
// there. Below a running server a repack or removal may have come in between:
// then the newest row says where the bytes are now.
func (w *world) openFile(g *seg) (vfs.File, error) {
	for {
		if f := w.fileOf(g); f != nil {
			f.used = true
		}
		f, err := w.FS.Open(w.segmentPath(g.id, g.rec.Generation))
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, tine.Errorf(tine.KindIO, "segment %s: %w", g.id, err)
		}
		if !w.Live {
			return nil, nil
		}
		now := w.Rows.Snapshot()
		v, _, ok, err := now.Newest(record.AppendKey(nil, g.tree.id, record.IDKey(record.TableSegment, g.id)), 0)
		var rec record.Segment
		if err == nil && ok {
			rec, err = record.DecodeSegment(v)
		}
		now.Close()
		switch {
		case err != nil:
			return nil, err
		case !ok:
			g.vanished = true
			return nil, nil
		case rec.Generation == g.rec.Generation:
			return nil, nil
		}
		g.rec = rec
	}
}

// missingFile tells of a file that is not there. An open segment of which
// nothing was flushed needs none: all of it is in the rows.
func (w *world) missingFile(g *seg) {
	if g.rec.State == record.SegmentOpen && g.rec.Synced == 0 && w.checkTails(g) {
		return
	}
	g.lost = true
	w.add("S001", place{tree: g.tree}, "%s, with %d bytes that rows name", w.segmentPath(g.id, g.rec.Generation), g.live)
	w.mendIn(g.tree, func(r *repairer) { r.dropSegment(g) })
}

// checkEnds checks header, length and footer, and returns which blocks the file
// has; nil if it cannot be used.
func (w *world) checkEnds(g *seg, f vfs.File, size int64) *runs {
	here := place{tree: g.tree}
	if g.rec.State == record.SegmentOpen && g.rec.Synced == 0 {
		if !w.checkTails(g) {
			return nil
		}
		return wholeRuns(0)
	}
	if err := checkHead(f, g.id, g.rec.Generation); err != nil {
		w.add("S004", here, "segment %s: %v", g.id, err)
		return nil
	}
	if g.rec.State == record.SegmentOpen {
		r := wholeRuns(g.rec.Synced)
		if need := headBytes + blocksOf(g.rec.Synced)*blockStride; g.rec.Synced%blockBytes != 0 || size < need {
			w.add("S005", here, "segment %s has %d bytes; its row promises %d of payload", g.id, size, g.rec.Synced)
			return nil
		}
		// Recovery reads the last block that was flushed, and no other.
		last := &runs{end: g.rec.Synced, list: []run{{first: g.rec.Synced/blockBytes - 1, count: 1, before: g.rec.Synced/blockBytes - 1}}}
		if bad, err := verify(f, g.id, last, func(int64) bool { return true }); err != nil || len(bad) > 0 {
			w.add("S004", here, "segment %s: the last block that was flushed is damaged", g.id)
			return nil
		}
		if !w.checkTails(g) {
			return nil
		}
		return r
	}
	if size < g.rec.Physical {
		w.add("S005", here, "segment %s has %d bytes; its row says %d", g.id, size, g.rec.Physical)
		return nil
	}
	r, err := readFoot(f, g.id, g.rec.Generation, g.rec.Physical)
	if err == nil && r.end != g.rec.End {
		err = tine.Errorf(tine.KindCorrupt, "the footer says %d bytes, the row %d", r.end, g.rec.End)
	}
	if err != nil {
		w.add("S004", here, "segment %s: %v", g.id, err)
		return nil
	}
	return r
}

// checkTails checks that the tail rows of an open segment have all bytes from
// where the file ends to the segment's end.
func (w *world) checkTails(g *seg) bool {
	slices.SortFunc(g.tails, func(a, b tail) int { return cmp.Compare(a.off, b.off) })
	at := g.rec.Synced
	for _, t := range g.tails {
		if t.off <= at {
			at = max(at, t.off+t.len)
		}
	}
	if at >= g.rec.End {
		return true
	}
	w.add("S009", place{tree: g.tree}, "segment %s: bytes %d to %d", g.id, at, g.rec.End)
	return false
}

// salvageable reports that a segment without a row has a sound, sealed file.
func (w *world) salvageable(id tine.SegmentID) bool {
	ok, asked := w.sound[id]
	if !asked {
		f, _ := w.soundFile(id)
		ok = f != nil
		w.sound[id] = ok
	}
	return ok
}

// soundFile finds the newest sound file of a segment that has no row.
func (w *world) soundFile(id tine.SegmentID) (*file, *runs) {
	if w.FS == nil || w.Live {
		return nil, nil
	}
	for _, f := range w.files[id] {
		in, err := w.FS.Open(f.path)
		if err != nil {
			continue
		}
		err = checkHead(in, id, f.generation)
		var r *runs
		if err == nil {
			r, err = readFoot(in, id, f.generation, f.size)
		}
		_ = in.Close()
		if err == nil {
			f.used = true
			return f, r
		}
	}
	return nil, nil
}

// strayFiles finds files that no row names.
func (w *world) strayFiles() {
	if w.FS == nil || w.Live || !w.whole() {
		return
	}
	for id, fs := range w.files {
		g := w.segs[id]
		for _, f := range fs {
			if f.used {
				continue
			}
			code := "S002"
			if g != nil && g.has {
				code = "S003"
			}
			w.add(code, place{}, "%s, %d bytes", f.path, f.size)
			w.mend(func(r *repairer) {
				if w.salvaged() {
					r.keepFile(f)
				} else {
					r.removeFile(f)
				}
			})
		}
	}
}
