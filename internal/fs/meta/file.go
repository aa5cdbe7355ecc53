package meta

import (
	"slices"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// span is a part of a read: bytes of a segment that go to dst.
type span struct {
	h   int // index into the plan's handles
	off int64
	dst []byte
}

// ReadAt reads file data; n is less than len(p) only at the end of the file.
// Holes read as zeros. The rows are looked up with the line's lock held, the
// data is read after it is given back: the handles keep the segments in place.
func (v View) ReadAt(ino tine.Ino, p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, tine.ErrInvalid
	}
	var spans []span
	var handles []*segment.Handle
	defer func() {
		for _, h := range handles {
			h.Release()
		}
	}()
	err = v.read(func(r *reader) error {
		nd, err := r.inode(ino)
		if err != nil {
			return err
		}
		if nd.isDir() {
			return tine.ErrIsDir
		}
		if off >= nd.Size {
			return nil
		}
		n = int(min(int64(len(p)), nd.Size-off))
		clear(p[:n])
		spans, handles, err = r.plan(nd, p[:n], off)
		return err
	})
	for _, s := range spans {
		if err == nil {
			err = handles[s.h].ReadAt(s.dst, s.off)
		}
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

// plan finds where the bytes of a read lie, and copies those that are inline.
func (r *reader) plan(n *node, p []byte, off int64) ([]span, []*segment.Handle, error) {
	var spans []span
	var handles []*segment.Handle
	var segs []tine.SegmentID
	for done := int64(0); done < int64(len(p)); {
		in := (off + done) % tine.ChunkBytes
		part := min(int64(len(p))-done, tine.ChunkBytes-in)
		c, err := r.chunk(n.ino, uint64((off+done)/tine.ChunkBytes))
		if err != nil {
			return nil, handles, err
		}
		if in < int64(len(c.Inline)) {
			copy(p[done:done+part], c.Inline[in:])
		}
		i, _ := slices.BinarySearchFunc(c.Extents, in, func(x record.Extent, at int64) int {
			if x.End() <= at {
				return -1
			}
			return 1
		})
		for ; i < len(c.Extents) && c.Extents[i].Pos < in+part; i++ {
			x := &c.Extents[i]
			from, to := max(x.Pos, in), min(x.End(), in+part)
			k := slices.Index(segs, x.Segment)
			if k < 0 {
				h, err := r.Pin(x.Segment)
				if err != nil {
					return nil, handles, err
				}
				k = len(segs)
				segs, handles = append(segs, x.Segment), append(handles, h)
			}
			spans = append(spans, span{k, x.Off + from - x.Pos, p[done+from-in : done+to-in]})
		}
		done += part
	}
	return spans, handles, nil
}

func (v View) checkSize(size int64) error {
	switch {
	case size < 0:
		return tine.ErrInvalid
	case size > tine.MaxFileBytes:
		return tine.ErrTooBig
	case v.Frozen():
		return tine.ErrReadOnly
	}
	return nil
}

// WriteAt writes p at off, or, with atEnd, at the end of the file as O_APPEND
// asks, and returns where. A write is one step of the disk's history.
func (v View) WriteAt(c Cred, ino tine.Ino, p []byte, off int64, atEnd bool) (at int64, err error) {
	if err := v.checkSize(off); err != nil {
		return 0, err
	}
	if off+int64(len(p)) > tine.MaxFileBytes {
		return 0, tine.ErrTooBig
	}
	if v.Full() {
		return 0, tine.ErrNoSpace
	}
	if len(p) == 0 {
		a, err := v.Attr(ino)
		return a.Size, err
	}
	small := len(p) <= tine.InlineBytes && (atEnd || off+int64(len(p)) <= tine.InlineBytes)
	var data timeline.Staged
	early := !small && !v.Tight(int64(len(p)))
	if early {
		if data, err = v.Stage(p); err != nil {
			return 0, err
		}
		defer data.Release()
	}
	err = v.change(func(t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		if n.isDir() {
			return tine.ErrIsDir
		}
		at = off
		if atEnd {
			at = n.Size
		}
		end := at + int64(len(p))
		if end > tine.MaxFileBytes {
			return tine.ErrTooBig
		}
		inline := small && end <= tine.InlineBytes && (n.Flags&record.FlagInline != 0 || n.Bytes == 0)
		if err := t.admitWrite(n, at, end, inline); err != nil {
			return err
		}
		if inline {
			err = t.writeInline(n, p, at)
		} else {
			if !early {
				if data, err = t.Stage(p); err != nil {
					return err
				}
			}
			if err = t.uninline(n); err == nil {
				err = t.place(n, at, data)
			}
		}
		if err != nil {
			return err
		}
		n.Size = max(n.Size, end)
		return t.wrote(c, n)
	})
	return at, err
}

// wrote sets what every write changes of the inode.
func (t *txn) wrote(c Cred, n *node) error {
	n.Mtime, n.Ctime = t.Now(), t.Now()
	if c.UID != 0 && n.Mode&(modeSetUID|modeSetGID) != 0 {
		n.killPriv(c)
	}
	t.putInode(n)
	return t.dropCapability(n)
}

// writeInline changes the content of a small file in its chunk row.
func (t *txn) writeInline(n *node, p []byte, at int64) error {
	if len(p) == 0 {
		return nil
	}
	c, err := t.chunk(n.ino, 0)
	if err != nil {
		return err
	}
	if len(c.Extents) > 0 {
		return tine.Errorf(tine.KindCorrupt, "inode %d is marked as inline and has extents", n.ino)
	}
	size := max(int64(len(c.Inline)), at+int64(len(p)))
	fresh := make([]byte, size)
	copy(fresh, c.Inline)
	copy(fresh[at:], p)
	c.Inline, c.Birth = fresh, t.Epoch()
	n.Flags |= record.FlagInline
	return t.setChunk(n, c)
}

// uninline moves the content of a small file to the segment, because the file
// grows beyond what a row should hold.
func (t *txn) uninline(n *node) error {
	if n.Flags&record.FlagInline == 0 {
		return nil
	}
	n.Flags &^= record.FlagInline
	c, err := t.chunk(n.ino, 0)
	if err != nil || len(c.Inline) == 0 {
		return err
	}
	d, err := t.Stage(c.Inline)
	if err != nil {
		return err
	}
	t.Name(d, d.Len)
	c.Extents = []record.Extent{{Len: d.Len, Segment: d.Segment(), Off: d.Off, Birth: t.Epoch()}}
	c.Inline = nil
	return t.setChunk(n, c)
}

// resize sets the file's size: what lies beyond goes, what is gained is a hole.
func (t *txn) resize(n *node, size int64) error {
	if n.Mode&modeType != modeRegular {
		return tine.ErrInvalid
	}
	if size < n.Size {
		if err := t.discard(n, size, n.Size); err != nil {
			return err
		}
	}
	n.Size = size
	return nil
}

// discard makes [from, to) a hole. Only chunks that exist are looked at, so its
// cost follows the data, not the range.
func (t *txn) discard(n *node, from, to int64) error {
	if n.Bytes == 0 || from >= to {
		return nil
	}
	if n.Flags&record.FlagInline != 0 {
		return t.discardInline(n, from, to)
	}
	var indexes []uint64
	first, end := uint64(from/tine.ChunkBytes), uint64((to-1)/tine.ChunkBytes)
	err := t.Scan(record.ChunkKey(n.ino, first), record.ChunkKey(n.ino, end+1), func(k record.Logical, _ timeline.Found) (bool, error) {
		indexes = append(indexes, k.Number())
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, i := range indexes {
		c, err := t.chunk(n.ino, i)
		if err != nil {
			return err
		}
		base := int64(i) * tine.ChunkBytes
		c.Extents = cut(c.Extents, from-base, to-base)
		if err := t.setChunk(n, c); err != nil {
			return err
		}
	}
	return nil
}

func (t *txn) discardInline(n *node, from, to int64) error {
	c, err := t.chunk(n.ino, 0)
	if err != nil || from >= int64(len(c.Inline)) {
		return err
	}
	fresh := slices.Clone(c.Inline)
	if to >= int64(len(fresh)) {
		fresh = fresh[:from]
	} else {
		clear(fresh[from:to])
	}
	c.Inline, c.Birth = fresh, t.Epoch()
	if len(fresh) == 0 {
		n.Flags &^= record.FlagInline
	}
	return t.setChunk(n, c)
}

// Allocate is fallocate(2) for the modes that a kernel forwards. Space is
// elastic, so allocating reserves nothing and only sets the size; but what is
// beyond the free bytes that the device has now is refused.
func (v View) Allocate(c Cred, ino tine.Ino, mode uint32, off, length, free int64) error {
	if off < 0 || length <= 0 {
		return tine.ErrInvalid
	}
	if err := v.checkSize(off + length); err != nil {
		return err
	}
	if mode&^(FallocKeepSize|FallocPunchHole|FallocZeroRange) != 0 ||
		mode&FallocPunchHole != 0 && mode&FallocKeepSize == 0 {
		return tine.ErrUnsupported
	}
	return v.change(func(t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		if n.Mode&modeType != modeRegular {
			return tine.ErrInvalid
		}
		if mode&FallocPunchHole == 0 && length-n.Bytes > free {
			return tine.ErrNoSpace
		}
		if err := t.admitAllocate(n, mode, off, off+length); err != nil {
			return err
		}
		if mode&(FallocPunchHole|FallocZeroRange) != 0 {
			if err := t.discard(n, off, off+length); err != nil {
				return err
			}
		}
		if mode&FallocKeepSize == 0 {
			n.Size = max(n.Size, off+length)
		}
		return t.wrote(c, n)
	})
}

// Whence values of lseek(2) that ask for data and holes.
const (
	SeekData = 3
	SeekHole = 4
)

// Seek finds the next data or hole at or after off.
func (v View) Seek(ino tine.Ino, off int64, whence uint32) (at int64, err error) {
	err = v.read(func(r *reader) error {
		n, err := r.inode(ino)
		if err != nil {
			return err
		}
		if off < 0 || off >= n.Size {
			return tine.ErrNoSeek
		}
		at, err = r.seek(n, off, whence == SeekData)
		return err
	})
	return at, err
}

// seek walks the chunks from off on. A hole ends every file.
func (r *reader) seek(n *node, off int64, data bool) (int64, error) {
	at := off // nothing is known to be data in [off, at) when data is sought, all of it is when a hole is
	result := int64(-1)
	first := uint64(off / tine.ChunkBytes)
	err := r.Scan(record.ChunkKey(n.ino, first), prefixEnd(record.InoPrefix(record.TableChunk, n.ino)), func(k record.Logical, f timeline.Found) (bool, error) {
		c, err := record.DecodeChunk(f.Val)
		if err != nil {
			return false, err
		}
		xs := c.Extents
		if len(c.Inline) > 0 {
			xs = []record.Extent{{Len: int64(len(c.Inline))}}
		}
		base := int64(k.Number()) * tine.ChunkBytes
		for _, x := range xs {
			from, to := base+x.Pos, min(base+x.End(), n.Size)
			switch {
			case to <= at:
			case data:
				result = max(from, at)
				return false, nil
			case from > at:
				result = at
				return false, nil
			default:
				at = to
			}
		}
		return true, nil
	})
	switch {
	case err != nil:
		return 0, err
	case result >= 0 && result < n.Size:
		return result, nil
	case data:
		return 0, tine.ErrNoSeek
	}
	return min(at, n.Size), nil
}
