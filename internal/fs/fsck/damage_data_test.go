package fsck

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// extents changes the extents of a file's chunk.
func (r *rowsOf) extents(v view, path string, index uint64, fn func([]record.Extent) []record.Extent) {
	r.t.Helper()
	key := r.key(v, record.ChunkKey(r.ino(v, path), index))
	c, err := record.DecodeChunk(r.get(key))
	must(r.t, err)
	c.Extents = fn(c.Extents)
	r.set(key, c.Append(nil))
}

// segment returns the segment that a file's first chunk lies in.
func (r *rowsOf) segment(v view, path string, index uint64) *seg {
	r.t.Helper()
	c, err := record.DecodeChunk(r.get(r.key(v, record.ChunkKey(r.ino(v, path), index))))
	must(r.t, err)
	return r.w.segs[c.Extents[0].Segment]
}

func (r *rowsOf) path(fs *vfs.MemFS, g *seg) string {
	w := &world{Options: Options{FS: fs, SegmentDir: segmentDir}}
	return w.segmentPath(g.id, g.rec.Generation)
}

func (r *rowsOf) setSegment(g *seg, fn func(*record.Segment)) {
	rec := g.rec
	fn(&rec)
	r.set(key0(g.tree.id, record.IDKey(record.TableSegment, g.id)), rec.Append(nil))
}

func dataDamage() []damage {
	return []damage{
		{name: "data past the end", codes: []string{"D001"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			r.inode(r.head("work"), "/dir/head", func(n *record.Inode) { n.Size = 100 })
		}},
		{name: "wrong bytes", codes: []string{"D002", "N017"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			r.inode(r.head("work"), "/dir/head", func(n *record.Inode) { n.Bytes = 77 })
		}},
		{name: "data of a directory", codes: []string{"D003"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			v := r.head("work")
			c := record.Chunk{Inline: []byte("x"), Birth: v.line.rec.Epoch}
			r.set(record.Key(v.line.rec.Strata[0], record.ChunkKey(r.ino(v, "/dir"), 0), v.line.rec.Epoch), c.Append(nil))
		}},
		{name: "unmarked inline data", codes: []string{"D004"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			r.inode(r.head("work"), "/tiny", func(n *record.Inode) { n.Flags &^= record.FlagInline })
		}},
		{name: "extent of no segment", codes: []string{"D005"}, lost: true, do: func(r *rowsOf, _ *vfs.MemFS) {
			r.extents(r.head("work"), "/dir/head", 0, func(xs []record.Extent) []record.Extent {
				xs[0].Segment = tine.SegmentID{1, 1, 1}
				return xs
			})
		}},
		{name: "extent past its segment", codes: []string{"D006"}, lost: true, do: func(r *rowsOf, _ *vfs.MemFS) {
			r.extents(r.head("work"), "/dir/head", 0, func(xs []record.Extent) []record.Extent {
				xs[0].Off += 1 << 30
				return xs
			})
		}},
		{name: "damaged block", codes: []string{"D007"}, lost: true, do: func(r *rowsOf, fs *vfs.MemFS) {
			flip(r.t, fs, r.path(fs, r.segment(r.head("work"), "/big", 1)), 1000000)
		}},
		{name: "wrong live count", codes: []string{"S006"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			g := r.segment(r.head("work"), "/big", 0)
			r.set(g.liveKey, record.Live{Bytes: 12}.Append(nil))
		}},
		{name: "wrong runs", codes: []string{"S007"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			g := r.segment(r.head("work"), "/after", 0)
			r.set(g.pieceKeys[0], record.Piece{Len: g.pieces[0].len(), Runs: 9}.Append(nil))
		}},
		{name: "missing piece", codes: []string{"S010"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			r.del(r.segment(r.head("work"), "/after", 0).pieceKeys[0])
		}},
		{name: "piece that does not decode", codes: []string{"T012", "S010"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			r.set(r.segment(r.head("work"), "/after", 0).pieceKeys[0], []byte{1})
		}},
		{name: "overlapping pieces", codes: []string{"S011"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			g := r.segment(r.head("work"), "/after", 0)
			p := g.pieces[0]
			r.set(key0(g.tree.id, record.OffsetKey(record.TablePiece, g.id, p.from+100)), record.Piece{Len: p.len(), Runs: 1}.Append(nil))
		}},
		{name: "counts of no segment", codes: []string{"S008"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			r.set(key0(r.disk("work").tree.id, record.IDKey(record.TableLive, tine.SegmentID{5, 5})), record.Live{Bytes: 1}.Append(nil))
		}},
		{name: "segment of two trees", codes: []string{"S015"}, remain: []string{"S015"}, broken: true, do: func(r *rowsOf, _ *vfs.MemFS) {
			g, l := r.segment(r.head("work"), "/big", 0), r.disk("other").line
			rec := g.rec
			rec.Timeline = l.id
			r.set(key0(l.tree.id, record.IDKey(record.TableSegment, g.id)), rec.Append(nil))
		}},
		{name: "counts of another tree's segment", codes: []string{"S008"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			g := r.segment(r.head("work"), "/big", 0)
			r.set(key0(r.disk("other").tree.id, record.IDKey(record.TableLive, g.id)), record.Live{Bytes: 1}.Append(nil))
		}},
		{name: "live count that does not decode", codes: []string{"T012", "S006"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			r.set(r.segment(r.head("work"), "/big", 0).liveKey, []byte{1})
		}},
	}
}

func fileDamage() []damage {
	return []damage{
		{name: "missing segment file", codes: []string{"S001", "D005"}, lost: true, after: noBig, do: func(r *rowsOf, fs *vfs.MemFS) {
			must(r.t, fs.Remove(r.path(fs, r.segment(r.head("work"), "/big", 1))))
		}},
		{name: "segment file of no row", codes: []string{"S002"}, do: func(r *rowsOf, fs *vfs.MemFS) {
			g := &seg{id: tine.SegmentID{1, 2, 3, 4}}
			path := r.path(fs, g)
			must(r.t, fs.MkdirAll(fs.PathDir(path), 0o700))
			spill(r.t, fs, path, []byte("nothing"))
		}},
		{name: "file of an older generation", codes: []string{"S003"}, do: func(r *rowsOf, fs *vfs.MemFS) {
			g := r.segment(r.head("work"), "/big", 1)
			p := slurp(r.t, fs, r.path(fs, g))
			next := *g
			next.rec.Generation += 4
			spill(r.t, fs, r.path(fs, &next), p)
		}},
		{name: "damaged header", codes: []string{"S004", "D007"}, do: func(r *rowsOf, fs *vfs.MemFS) {
			flip(r.t, fs, r.path(fs, r.segment(r.head("work"), "/big", 1)), 20)
		}},
		{name: "damaged footer", codes: []string{"S004"}, do: func(r *rowsOf, fs *vfs.MemFS) {
			flip(r.t, fs, r.path(fs, r.segment(r.head("work"), "/big", 1)), -20)
		}},
		{name: "footer of another length", codes: []string{"S004"}, do: func(r *rowsOf, fs *vfs.MemFS) {
			r.setSegment(r.segment(r.head("work"), "/big", 1), func(s *record.Segment) { s.End -= 5000 })
		}, lost: true},
		{name: "short file", codes: []string{"S005"}, lost: true, after: noBig, do: func(r *rowsOf, fs *vfs.MemFS) {
			path := r.path(fs, r.segment(r.head("work"), "/big", 1))
			p := slurp(r.t, fs, path)
			spill(r.t, fs, path, p[:len(p)/2])
		}},
		{name: "missing segment row", codes: []string{"S014"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			g := r.segment(r.head("work"), "/big", 1)
			r.del(key0(g.tree.id, record.IDKey(record.TableSegment, g.id)))
		}},
		{name: "segment row that does not decode", codes: []string{"T012", "S014"}, do: func(r *rowsOf, _ *vfs.MemFS) {
			g := r.segment(r.head("work"), "/big", 1)
			r.set(key0(g.tree.id, record.IDKey(record.TableSegment, g.id)), []byte{1})
		}},
		{name: "segment row and file gone", codes: []string{"D005"}, lost: true, do: func(r *rowsOf, fs *vfs.MemFS) {
			g := r.segment(r.head("work"), "/big", 1)
			r.del(key0(g.tree.id, record.IDKey(record.TableSegment, g.id)))
			must(r.t, fs.Remove(r.path(fs, g)))
		}},
		{name: "repacked file without its middle", codes: []string{"D008"}, lost: true, do: leaveOut},
		{name: "open segment without its tail", codes: []string{"S009"}, lost: true, do: reopen},
		{name: "open segment with a damaged last block", codes: []string{"S004"}, lost: true, do: func(r *rowsOf, fs *vfs.MemFS) {
			g := r.segment(r.head("work"), "/big", 1)
			synced := g.rec.End / blockBytes * blockBytes
			raw := slurp(r.t, fs, r.path(fs, g))[headBytes+synced/blockBytes*blockStride:]
			r.setSegment(g, func(s *record.Segment) { s.State, s.Synced, s.Physical = record.SegmentOpen, synced, 0 })
			r.set(key0(g.tree.id, record.OffsetKey(record.TableTail, g.id, synced)), raw[:g.rec.End-synced])
			flip(r.t, fs, r.path(fs, g), headBytes+synced/blockBytes*blockStride-100)
		}},
	}
}

// leaveOut writes the file of the large file's segment anew without a block
// that is in use, as a wrong repack would.
func leaveOut(r *rowsOf, fs *vfs.MemFS) {
	g := r.segment(r.head("work"), "/big", 1)
	old := slurp(r.t, fs, r.path(fs, g))
	blocks := blocksOf(g.rec.End)
	layout := &runs{end: g.rec.End, list: []run{{first: 0, count: 20}, {first: 21, count: blocks - 21, before: 20}}}
	p := encodeHead(g.id, 1, 0)
	p = append(p, old[headBytes:headBytes+20*blockStride]...)
	p = append(p, old[headBytes+21*blockStride:g.rec.Physical-runBytes-trailerBytes]...)
	p = append(p, encodeFoot(g.id, 1, layout)...)
	next := *g
	next.rec.Generation = 1
	spill(r.t, fs, r.path(fs, &next), p)
	must(r.t, fs.Remove(r.path(fs, g)))
	r.setSegment(g, func(s *record.Segment) { s.Generation, s.Physical = 1, int64(len(p)) })
}

// reopen makes a sealed segment one that was open at a crash, without the tail
// rows that should have its end.
func reopen(r *rowsOf, fs *vfs.MemFS) {
	g := r.segment(r.head("work"), "/big", 1)
	p := slurp(r.t, fs, r.path(fs, g))
	spill(r.t, fs, r.path(fs, g), p[:headBytes+(g.rec.End/blockBytes-4)*blockStride])
	r.change(func(b kv.Batch) {
		rec := g.rec
		rec.State, rec.Physical = record.SegmentOpen, 0
		rec.Synced = rec.End/blockBytes*blockBytes - 4*blockBytes
		b.Set(key0(g.tree.id, record.IDKey(record.TableSegment, g.id)), rec.Append(nil))
		b.Set(key0(g.tree.id, record.OffsetKey(record.TableTail, g.id, rec.Synced+100)), []byte("not enough"))
	})
}

func TestRepairKeepsTheDamagedFile(t *testing.T) {
	fs := sample(t)
	rows := openRows(t, fs)
	r := inspect(t, rows)
	path := r.path(fs, r.segment(r.head("work"), "/big", 1))
	r.close()
	flip(t, fs, path, 20)
	_, err := Repair(optionsOf(rows, fs), testTime())
	must(t, err)
	if _, err := fs.Stat("/data/damaged/" + fs.PathBase(path)); err != nil {
		t.Errorf("the damaged file is gone: %v", err)
	}
	must(t, rows.Close())
}
