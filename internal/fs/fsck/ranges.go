package fsck

import (
	"slices"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// seg is what is known of one segment.
type seg struct {
	id        tine.SegmentID
	tree      *tree
	line      *line
	rec       record.Segment
	has       bool // it has a location row
	live      int64
	liveKey   []byte
	pieces    []piece
	pieceKeys [][]byte
	tails     []tail

	own      ranges // what rows of its own line name
	foreign  ranges // what rows of other lines name
	vanished bool   // it has gone since the snapshot, below a running server
	lost     bool   // its file is not there
	damaged  bool   // its file cannot be used as it is
	bad      []span // blocks whose checksum does not hold, or all of a damaged file; normal
	gone     []span // blocks that the file leaves out; normal
}

type tail struct {
	off, len int64
	key      []byte
}

// piece is a shared piece as its row has it, and as it is counted.
type piece struct {
	span
	runs    int64
	counted int64
}

// ranges gathers the bytes that rows name. Neighbours are joined now and then,
// so that it takes room for what is apart, not for what is named.
type ranges struct {
	all   []span
	twice []span // named by more than one chunk
	limit int
}

// add notes that one chunk names the spans, which are normal.
func (r *ranges) add(ss []span) {
	r.all = append(r.all, ss...)
	if r.limit == 0 {
		r.limit = 4096
	}
	if len(r.all) > r.limit {
		r.settle()
		r.limit = max(4096, 2*len(r.all))
	}
}

// settle sorts and joins, and moves to twice what is there more than once.
func (r *ranges) settle() {
	slices.SortFunc(r.all, bySpan)
	out := r.all[:0]
	for _, s := range r.all {
		if n := len(out); n > 0 && s.from <= out[n-1].to {
			if s.from < out[n-1].to {
				r.twice = append(r.twice, span{s.from, min(s.to, out[n-1].to)})
			}
			out[n-1].to = max(out[n-1].to, s.to)
			continue
		}
		out = append(out, s)
	}
	r.all, r.twice = out, normal(r.twice)
}

// named is what one row's versions name of one segment.
type named struct {
	g     *seg
	spans []span
	twice []span // within one version
}

// nameChunk adds what the versions of one chunk row name, oldest first, to the
// segments' ranges, and counts the runs of shared pieces.
func (w *world) nameChunk(l *line, xs [][]record.Extent) {
	var ns []named
	find := func(id tine.SegmentID) *named {
		for i := range ns {
			if ns[i].g.id == id {
				return &ns[i]
			}
		}
		g := w.segs[id]
		if g == nil {
			return nil
		}
		ns = append(ns, named{g: g})
		return &ns[len(ns)-1]
	}
	for _, version := range xs {
		marks := make([]int, len(ns), len(ns)+4)
		for i := range ns {
			marks[i] = len(ns[i].spans)
		}
		for _, x := range version {
			if n := find(x.Segment); n != nil {
				n.spans = append(n.spans, span{x.Off, x.Off + x.Len})
			}
		}
		for i := range ns {
			from := 0
			if i < len(marks) {
				from = marks[i]
			}
			ns[i].twice = append(ns[i].twice, overlaps(ns[i].spans[from:])...)
		}
	}
	for _, n := range ns {
		if n.g.line == l && len(n.g.pieces) > 0 {
			countRuns(n.g, xs, n.spans)
		}
		n.spans = normal(n.spans)
		to := &n.g.own
		if n.g.line != l {
			to = &n.g.foreign
		}
		to.twice = append(to.twice, n.twice...)
		to.add(n.spans)
	}
}

// overlaps returns what of the spans is there twice.
func overlaps(ss []span) []span {
	if len(ss) < 2 {
		return nil
	}
	r := ranges{all: slices.Clone(ss)}
	r.settle()
	return r.twice
}

// countRuns adds, to each piece that the spans touch, the runs of neighbouring
// versions that name any byte of it.
func countRuns(g *seg, xs [][]record.Extent, spans []span) {
	for i := range g.pieces {
		p := &g.pieces[i]
		if !slices.ContainsFunc(spans, func(s span) bool { return s.from < p.to && p.from < s.to }) {
			continue
		}
		last := false
		for _, version := range xs {
			now := slices.ContainsFunc(version, func(x record.Extent) bool {
				return x.Segment == g.id && x.Off < p.to && p.from < x.Off+x.Len
			})
			if now && !last {
				p.counted++
			}
			last = now
		}
	}
}

// checkSegments compares what was counted with what the tree keeps of its
// segments.
func (w *world) checkSegments(t *tree) {
	here := place{tree: t}
	for _, g := range t.segs {
		if !g.has {
			if (len(g.tails) > 0 || len(g.pieces) > 0 || g.liveKey != nil) && !(w.segs[g.id] == g && w.salvageable(g.id)) {
				w.add("S008", here, "segment %s: %d tails, %d pieces", g.id, len(g.tails), len(g.pieces))
				w.mendIn(g.tree, func(r *repairer) { r.dropSegment(g) })
			}
			continue
		}
		if t.broken {
			continue // not all that names them can be counted
		}
		g.own.settle()
		g.foreign.settle()
		w.checkPieces(g)
		var shared []span
		for _, p := range g.pieces {
			shared = append(shared, p.span)
		}
		shared = normal(shared)
		if lone := without(g.own.twice, shared); len(lone) > 0 {
			w.add("S010", here, "segment %s: %d bytes, the first at %d", g.id, total(lone), lone[0].from)
			w.mendIn(g.tree, func(r *repairer) { r.recountPieces(g) })
		}
		if lone := without(g.foreign.all, g.own.all); len(lone) > 0 {
			w.add("D010", here, "segment %s: %d bytes, the first at %d", g.id, total(lone), lone[0].from)
		}
		want := total(without(g.own.all, shared)) + total(shared)
		w.checkUnnamedBlocks(g)
		if g.damaged {
			w.mendIn(g.tree, func(r *repairer) { r.rebuildFile(g) })
		}
		if want != g.live {
			w.add("S006", here, "segment %s is counted with %d live bytes; rows name %d", g.id, g.live, want)
			w.mendIn(g.tree, func(r *repairer) { r.setLive(g, want) })
		}
	}
}

// checkUnnamedBlocks tells of damaged blocks that matter to nobody.
func (w *world) checkUnnamedBlocks(g *seg) {
	if g.damaged {
		return
	}
	for _, s := range g.bad {
		for b := s.from / blockBytes; b*blockBytes < s.to; b++ {
			block := span{b * blockBytes, min((b+1)*blockBytes, s.to)}
			if !meets(g.own.all, block) && !meets(g.foreign.all, block) {
				w.add("S012", place{tree: g.tree}, "block %d of segment %s", b, g.id)
			}
		}
	}
}

// checkPieces checks the shared pieces of a segment.
func (w *world) checkPieces(g *seg) {
	here := place{tree: g.tree}
	at := int64(0)
	for i, p := range g.pieces {
		if p.from < at || p.to > g.rec.End {
			w.add("S011", here, "segment %s: the piece from %d to %d; the segment ends at %d", g.id, p.from, p.to, g.rec.End)
			w.mendIn(g.tree, func(r *repairer) { r.recountPieces(g) })
		}
		at = max(at, p.to)
		if p.counted != p.runs {
			w.add("S007", place{tree: g.tree, key: g.pieceKeys[i]}, "segment %s: the piece at %d is counted with %d runs and has %d", g.id, p.from, p.runs, p.counted)
			w.mendIn(g.tree, func(r *repairer) { r.setPiece(g, i) })
		}
	}
}
