package record

import "tine.dev/tine/internal/tine"

// Extent is a run of a file's bytes that lies in a segment. Its address never
// changes: where a segment's bytes lie physically is the segment's concern.
type Extent struct {
	Pos     int64 // offset within the chunk
	Len     int64
	Segment tine.SegmentID
	Off     int64      // logical offset in the segment
	Birth   tine.Epoch // epoch of the commit that wrote the bytes
}

// End is the first offset in the chunk after the extent.
func (x Extent) End() int64 { return x.Pos + x.Len }

// Chunk is the row of tine.ChunkBytes of a file: the whole content of a small
// file, or the extents of the part, by position, not overlapping; what no
// extent covers is a hole.
type Chunk struct {
	Inline  []byte     // only in chunk 0 of a file with FlagInline
	Birth   tine.Epoch // epoch of the inline bytes
	Extents []Extent
}

// Bytes returns how many bytes of data the row stands for.
func (c *Chunk) Bytes() int64 {
	n := int64(len(c.Inline))
	for i := range c.Extents {
		n += c.Extents[i].Len
	}
	return n
}

const (
	chunkInline  = 1
	chunkExtents = 2
)

// Append encodes the row: the segments once, then the extents by number.
func (c *Chunk) Append(dst []byte) []byte {
	if dst == nil {
		dst = make([]byte, 0, 16+len(c.Inline)+24*len(c.Extents))
	}
	e := encoder{dst}
	if len(c.Extents) == 0 {
		e.u8(chunkInline)
		e.uint(uint64(c.Birth))
		e.b = append(e.b, c.Inline...)
		return e.b
	}
	e.u8(chunkExtents)
	var segs []tine.SegmentID
	number := make(map[tine.SegmentID]uint64, 4)
	for i := range c.Extents {
		s := c.Extents[i].Segment
		if _, ok := number[s]; !ok {
			number[s] = uint64(len(segs))
			segs = append(segs, s)
		}
	}
	e.uint(uint64(len(segs)))
	for _, s := range segs {
		e.id(s)
	}
	e.uint(uint64(len(c.Extents)))
	var pos int64
	for i := range c.Extents {
		x := &c.Extents[i]
		e.uint(uint64(x.Pos - pos))
		e.uint(uint64(x.Len))
		e.uint(number[x.Segment])
		e.uint(uint64(x.Off))
		e.uint(uint64(x.Birth))
		pos = x.End()
	}
	return e.b
}

// DecodeChunk reads the row. Inline is a part of b, not a copy.
func DecodeChunk(b []byte) (Chunk, error) {
	d := decoder{b: b}
	if err := d.format("chunk", chunkExtents); err != nil {
		return Chunk{}, err
	}
	if b[0] == chunkInline {
		c := Chunk{Birth: tine.Epoch(d.uint()), Inline: d.b}
		if d.failed || len(c.Inline) > tine.InlineBytes {
			return Chunk{}, tine.Errorf(tine.KindCorrupt, "chunk row is damaged")
		}
		return c, nil
	}
	segs := make([]tine.SegmentID, d.count(tine.IDSize))
	for i := range segs {
		segs[i] = d.id()
	}
	c := Chunk{Extents: make([]Extent, d.count(5))}
	var pos int64
	for i := range c.Extents {
		x := &c.Extents[i]
		gap, length, n := d.uint(), d.uint(), d.uint()
		off, birth := d.uint(), d.uint()
		if n >= uint64(len(segs)) || gap > tine.ChunkBytes || length == 0 || length > tine.ChunkBytes || off > 1<<62 {
			d.fail()
			break
		}
		*x = Extent{Pos: pos + int64(gap), Len: int64(length), Segment: segs[n], Off: int64(off), Birth: tine.Epoch(birth)}
		pos = x.End()
	}
	if pos > tine.ChunkBytes || (!d.failed && len(c.Extents) == 0) {
		d.fail()
	}
	return c, d.finish("chunk")
}
