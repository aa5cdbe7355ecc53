package meta

import (
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// copyStepBytes is how much of a copy is one operation.
const copyStepBytes = 64 << 20

// CopyRange copies a part of one file to another, or to another place of the
// same, as copy_file_range(2). Data that this line wrote is shared and not
// copied; data of an ancestor is copied, because only its own line may count
// who names it. It returns how much was copied: less than asked at the end of
// the source, or when a later step fails.
func (v View) CopyRange(c Cred, src tine.Ino, off int64, dst tine.Ino, to, length int64) (done int64, err error) {
	if off < 0 || to < 0 || length < 0 {
		return 0, tine.ErrInvalid
	}
	a, err := v.Attr(src)
	if err != nil {
		return 0, err
	}
	if length = min(length, a.Size-off); length <= 0 {
		return 0, nil
	}
	if err := v.checkSize(to + length); err != nil {
		return 0, err
	}
	if src == dst && off < to+length && to < off+length {
		return 0, tine.ErrInvalid
	}
	for done < length {
		n, err := v.copyStep(c, src, off+done, dst, to+done, min(length-done, copyStepBytes))
		if err != nil && done == 0 {
			return 0, err
		}
		if err != nil || n == 0 {
			break
		}
		done += n
	}
	return done, nil
}

func (v View) copyStep(c Cred, src tine.Ino, off int64, dst tine.Ino, to, length int64) (n int64, err error) {
	if v.Full() {
		return 0, tine.ErrNoSpace
	}
	err = v.change(func(t *txn) error {
		s, err := t.inode(src)
		if err != nil {
			return err
		}
		d := s
		if src != dst {
			if d, err = t.inode(dst); err != nil {
				return err
			}
		}
		if s.Mode&modeType != modeRegular || d.Mode&modeType != modeRegular {
			return tine.ErrInvalid
		}
		if n = min(length, s.Size-off); n <= 0 {
			n = 0
			return nil
		}
		if err := t.admitCopy(s, off, d, to, n); err != nil {
			return err
		}
		pieces, err := t.planCopy(s, off, to, n)
		if err != nil {
			return err
		}
		if err := t.uninline(d); err != nil {
			return err
		}
		if err := t.discard(d, to, to+n); err != nil {
			return err
		}
		for _, p := range pieces {
			if err := t.putPiece(d, p); err != nil {
				return err
			}
		}
		d.Size = max(d.Size, to+n)
		return t.wrote(c, d)
	})
	return n, err
}

// copied is a part of a copy: data that the destination is to name as well, or
// data that was staged for it.
type copied struct {
	pos    int64 // in the destination
	shared record.Extent
	staged timeline.Staged // used when it has a length
}

// planCopy finds what the destination is to name, and stages what cannot be
// shared: all that can fail for want of room is done before anything changes.
func (t *txn) planCopy(s *node, off, to, length int64) ([]copied, error) {
	var pieces []copied
	for done := int64(0); done < length; {
		in := (off + done) % tine.ChunkBytes
		part := min(length-done, tine.ChunkBytes-in)
		c, err := t.chunk(s.ino, uint64((off+done)/tine.ChunkBytes))
		if err != nil {
			return nil, err
		}
		if in < int64(len(c.Inline)) {
			staged, err := t.Stage(c.Inline[in:min(in+part, int64(len(c.Inline)))])
			if err != nil {
				return nil, err
			}
			pieces = append(pieces, copied{pos: to + done, staged: staged})
		}
		for _, x := range c.Extents {
			from, end := max(x.Pos, in), min(x.End(), in+part)
			if from >= end {
				continue
			}
			x.Off += from - x.Pos
			x.Pos, x.Len = from, end-from
			p, err := t.planExtent(x, to+done+from-in)
			if err != nil {
				return nil, err
			}
			pieces = append(pieces, p)
		}
		done += part
	}
	return pieces, nil
}

func (t *txn) planExtent(x record.Extent, pos int64) (copied, error) {
	if t.Shareable(x.Segment) {
		return copied{pos: pos, shared: x}, nil
	}
	p := make([]byte, x.Len)
	if err := t.readExtent(x, p); err != nil {
		return copied{}, err
	}
	staged, err := t.Stage(p)
	return copied{pos: pos, staged: staged}, err
}

// putPiece has the destination name a part of the copy.
func (t *txn) putPiece(d *node, p copied) error {
	if p.staged.Len > 0 {
		return t.place(d, p.pos, p.staged)
	}
	x, pos := p.shared, p.pos
	t.Share(x)
	for x.Len > 0 {
		c, err := t.chunk(d.ino, uint64(pos/tine.ChunkBytes))
		if err != nil {
			return err
		}
		y := x
		y.Pos = pos % tine.ChunkBytes
		y.Len = min(x.Len, tine.ChunkBytes-y.Pos)
		c.Extents = overlay(c.Extents, y)
		if err := t.setChunk(d, c); err != nil {
			return err
		}
		pos, x.Off, x.Len = pos+y.Len, x.Off+y.Len, x.Len-y.Len
	}
	return nil
}
