package meta

import (
	"slices"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// cut removes [from, to) from the extents of a chunk.
func cut(xs []record.Extent, from, to int64) []record.Extent {
	i := 0
	for i < len(xs) && xs[i].End() <= from {
		i++
	}
	out := slices.Clone(xs[:i])
	for ; i < len(xs) && xs[i].Pos < to; i++ {
		x := xs[i]
		if x.Pos < from {
			head := x
			head.Len = from - x.Pos
			out = append(out, head)
		}
		if x.End() > to {
			tail := x
			tail.Pos, tail.Off, tail.Len = to, x.Off+to-x.Pos, x.End()-to
			out = append(out, tail)
		}
	}
	return append(out, xs[i:]...)
}

// overlay puts an extent over what is there, joining it with its neighbour
// when the two are one run of the segment.
func overlay(xs []record.Extent, x record.Extent) []record.Extent {
	xs = cut(xs, x.Pos, x.End())
	i := 0
	for i < len(xs) && xs[i].Pos < x.Pos {
		i++
	}
	if i > 0 {
		if p := &xs[i-1]; p.End() == x.Pos && p.Segment == x.Segment && p.Off+p.Len == x.Off && p.Birth == x.Birth {
			p.Len += x.Len
			return xs
		}
	}
	return slices.Insert(xs, i, x)
}

// chunkAt is a chunk row as an operation has found it.
type chunkAt struct {
	key record.Logical
	at  timeline.Found
	record.Chunk
	had int64 // bytes of data it had
}

func (r *reader) chunk(ino tine.Ino, index uint64) (*chunkAt, error) {
	c := &chunkAt{key: record.ChunkKey(ino, index)}
	var err error
	if c.at, err = r.Get(c.key); err != nil {
		return c, err
	}
	return c, c.decode()
}

func (c *chunkAt) decode() (err error) {
	if !c.at.Exists() {
		return nil
	}
	if c.Chunk, err = record.DecodeChunk(c.at.Val); err != nil {
		return tine.Errorf(tine.KindOf(err), "chunk %d of inode %d, born %s: %w", c.key.Number(), c.key.Ino(), c.at.Birth, err)
	}
	c.had = c.Bytes()
	return nil
}

// chunk finds a chunk as reader.chunk does, sparing the store for inodes that
// are new.
func (t *txn) chunk(ino tine.Ino, index uint64) (*chunkAt, error) {
	if !t.Fresh(ino) {
		return t.reader.chunk(ino, index)
	}
	c := &chunkAt{key: record.ChunkKey(ino, index)}
	c.at = t.GetFresh(c.key)
	return c, c.decode()
}

// setChunk writes the chunk back, or removes it when nothing is left, and
// counts the change in the inode and the disk.
func (t *txn) setChunk(n *node, c *chunkAt) error {
	now := c.Bytes()
	n.Bytes += now - c.had
	if n.Nlink > 0 {
		t.Count(0, now-c.had)
	} else if h := t.Handles(n.ino); h != nil {
		t.SetOrphan(h, h.Orphan, n.Bytes)
	}
	if now > 0 {
		return t.PutChunk(c.key, c.at, &c.Chunk)
	}
	if c.at.Kind == timeline.Value {
		return t.DelChunk(c.key, c.at)
	}
	return nil
}

// place names staged data at a position of the file.
func (t *txn) place(n *node, pos int64, d timeline.Staged) error {
	for done := int64(0); done < d.Len; {
		c, err := t.chunk(n.ino, uint64((pos+done)/tine.ChunkBytes))
		if err != nil {
			return err
		}
		in := (pos + done) % tine.ChunkBytes
		part := min(d.Len-done, tine.ChunkBytes-in)
		c.Extents = overlay(c.Extents, record.Extent{Pos: in, Len: part, Segment: d.Segment(), Off: d.Off + done, Birth: t.Epoch()})
		if len(c.Extents) > maxExtents && t.compact(c) == nil {
			t.Name(d, 0)
		} else {
			t.Name(d, part)
		}
		if err := t.setChunk(n, c); err != nil {
			return err
		}
		done += part
	}
	return nil
}

// maxExtents bounds a chunk row: past it the chunk's data is written anew in
// one piece, and the run just staged is left unnamed. A row is rewritten whole with every write to its chunk, so without
// the bound small random writes would grow dearer without end.
const maxExtents = 256

// compact writes the chunk's data anew, each run between holes as one extent.
// When it fails, for want of room say, nothing has changed.
func (t *txn) compact(c *chunkAt) error {
	old := c.Extents
	var fresh []record.Extent
	var staged []timeline.Staged
	for i := 0; i < len(old); {
		j, end := i, old[i].Pos
		for j < len(old) && old[j].Pos == end {
			end = old[j].End()
			j++
		}
		buf := make([]byte, end-old[i].Pos)
		for _, x := range old[i:j] {
			if err := t.readExtent(x, buf[x.Pos-old[i].Pos:][:x.Len]); err != nil {
				return err
			}
		}
		d, err := t.Stage(buf)
		if err != nil {
			return err
		}
		staged = append(staged, d)
		fresh = append(fresh, record.Extent{Pos: old[i].Pos, Len: d.Len, Segment: d.Segment(), Off: d.Off, Birth: t.Epoch()})
		i = j
	}
	for _, d := range staged {
		t.Name(d, d.Len)
	}
	c.Extents = fresh
	return nil
}

// readExtent reads an extent's bytes within an operation.
func (r *reader) readExtent(x record.Extent, p []byte) error {
	h, err := r.Pin(x.Segment)
	if err != nil {
		return err
	}
	defer h.Release()
	return h.ReadAt(p, x.Off)
}
