package fsck

import (
	"fmt"
	"slices"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// loseExtents changes a chunk's row in place: what it names and what cannot be
// read becomes a name of nothing, at which reading is an error. It has to be in
// place, also where a checkpoint shows it: what is freed is worked out from a
// row's neighbours, and rows that name what does not exist would hold that up.
func (r *repairer) loseExtents(row *row, o *one) {
	var out []record.Extent
	for _, x := range o.xs {
		out = append(out, r.w.split(x)...)
	}
	n := int64(0)
	for _, x := range out {
		if isLost(x) {
			n += x.Len
		}
	}
	c := record.Chunk{Extents: out}
	r.plan(stageRows, fmt.Sprintf("marked %d bytes as lost", n), set(row.full(o), c.Append(nil)))
}

// split cuts an extent into what can be read and what cannot.
func (w *world) split(x record.Extent) []record.Extent {
	g := w.segs[x.Segment]
	s := span{x.Off, x.Off + x.Len}
	var lost []span
	switch {
	case isLost(x):
		return []record.Extent{x}
	case g == nil || !g.has || g.lost:
		lost = []span{s}
	default:
		if !g.damaged {
			lost = append(slices.Clone(g.bad), g.gone...)
		}
		lost = normal(append(lost, span{g.rec.End, max(g.rec.End+1, s.to)}))
	}
	var out []record.Extent
	cut := func(p span, segment tine.SegmentID) {
		y := x
		y.Pos, y.Off, y.Len, y.Segment = x.Pos+p.from-x.Off, p.from, p.len(), segment
		out = append(out, y)
	}
	good := without([]span{s}, lost)
	for _, p := range good {
		cut(p, x.Segment)
	}
	for _, p := range without([]span{s}, good) {
		cut(p, lostSegment)
	}
	slices.SortFunc(out, func(a, b record.Extent) int { return int(min(1, max(-1, a.Pos-b.Pos))) })
	return out
}

// loseChunk replaces a chunk's row that does not decode by one that names
// nothing: reading is an error as before, and the file can be written again and
// removed.
func (r *repairer) loseChunk(row *row, o *one) {
	length := int64(tine.ChunkBytes)
	v, _, ok, err := r.w.lookup(view{row.line, o.birth}, record.InodeKey(row.key.Ino()))
	if err == nil && ok {
		if n, err := record.DecodeInode(v); err == nil {
			length = min(length, n.Size-int64(row.key.Number())*tine.ChunkBytes)
		}
	}
	if length <= 0 {
		r.plan(stageRows, "removed it: it is past the end of its file", set(row.full(o), tombstone))
		return
	}
	c := record.Chunk{Extents: []record.Extent{{Len: length, Segment: lostSegment, Birth: o.birth}}}
	r.plan(stageRows, fmt.Sprintf("marked %d bytes as lost", length), set(row.full(o), c.Append(nil)))
}

// setLive writes a segment's count of live bytes.
func (r *repairer) setLive(g *seg, n int64) {
	if r.pieces[g] {
		return // that counts them too
	}
	r.plan(stageCounts, fmt.Sprintf("set it to %d", n), set(key0(g.tree.id, record.IDKey(record.TableLive, g.id)), record.Live{Bytes: n}.Append(nil)))
}

// setPiece writes a shared piece's count, or removes it when nothing names it.
func (r *repairer) setPiece(g *seg, i int) {
	p := g.pieces[i]
	if p.counted == 0 {
		r.plan(stageCounts, "removed the piece", del(g.pieceKeys[i]))
		return
	}
	r.plan(stageCounts, fmt.Sprintf("set it to %d", p.counted), set(g.pieceKeys[i], record.Piece{Len: p.len(), Runs: p.counted}.Append(nil)))
}

// recountPieces writes all shared pieces of a segment anew: the old ones made
// one where they overlap, and one for each run of bytes that several chunks
// name. Their runs are counted by the next round.
func (r *repairer) recountPieces(g *seg) {
	if r.pieces[g] {
		return
	}
	if r.pieces == nil {
		r.pieces = map[*seg]bool{}
	}
	r.pieces[g] = true
	r.plan(stageCounts, "counted them anew", func(b kv.Batch) error {
		var shared []span
		for i, p := range g.pieces {
			b.Delete(g.pieceKeys[i])
			shared = append(shared, span{p.from, min(p.to, g.rec.End)})
		}
		shared = normal(append(shared, g.own.twice...))
		for _, s := range shared {
			if s.len() > 0 {
				b.Set(key0(g.tree.id, record.OffsetKey(record.TablePiece, g.id, s.from)), record.Piece{Len: s.len(), Runs: 1}.Append(nil))
			}
		}
		return nil
	})
}

// putRow writes a row as the view shows it from now on: at the view's epoch, in the
// newest stratum that a later view leaves it, in place of the versions that only the view showed. Newer ones, which
// a later view shows, stay. A nil value removes the row.
func (h *head) putRow(b kv.Batch, k record.Logical, val []byte) error {
	l, w := h.l, h.r.w
	older, floor := false, h.floor()
	into := len(l.rec.Strata) - 1
	for i, s := range l.rec.Strata {
		p := record.AppendKey(nil, s, k)
		scan, err := w.snap.Scan(p, record.PrefixEnd(p), nil)
		if err != nil {
			return err
		}
		for scan.Next() {
			prefix, birth, ok := record.SplitEpoch(scan.Key())
			switch {
			case !ok || len(prefix) != len(p):
			case h.v.at != tine.Head && birth > h.v.at:
				into = min(into, i)
			case birth > floor:
				b.Delete(slices.Clone(scan.Key()))
			default:
				older = true
			}
		}
		err = scan.Err()
		_ = scan.Close()
		if err != nil {
			return err
		}
	}
	key := record.Key(l.rec.Strata[into], k, h.epoch())
	if val != nil {
		b.Set(key, val)
		return nil
	}
	if !older && l.parent != nil {
		var err error
		if _, _, older, err = w.raw(view{l.parent, l.rec.Branch}, k); err != nil {
			return err
		}
	}
	if older {
		b.Set(key, tombstone)
	}
	return nil
}

// floor is the newest epoch before the view's that another view shows.
func (h *head) floor() tine.Epoch {
	f := h.l.rec.Branch
	for _, p := range h.l.pins {
		if p != tine.Head && p < h.v.at {
			f = max(f, p)
		}
	}
	return f
}
