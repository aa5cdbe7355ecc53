package posix

import (
	"encoding/binary"
	"hash/maphash"

	"tine.dev/tine/internal/tine"
)

// pageBytes is how much of a file one page holds: large enough that a file of
// a few megabytes has few, small enough to copy at every write.
const pageBytes = 4096

type page struct {
	data [pageBytes]byte
	sum  uint64 // of the data and its place
}

// seed makes sums comparable within one process; nothing outlives it.
var seed = maphash.MakeSeed()

func sumOf(kind byte, number uint64, data []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	var head [9]byte
	head[0] = kind
	binary.LittleEndian.PutUint64(head[1:], number)
	_, _ = h.Write(head[:])
	_, _ = h.Write(data)
	return h.Sum64()
}

// span is a run of bytes.
type span struct{ off, end int64 }

// Content is what a regular file holds. Bytes that were never written, or were
// punched out, are holes and read as zeros.
type Content struct {
	Size  int64
	pages trie[page] // a page of zeros is absent
	alloc []span     // what is surely not a hole: sorted, disjoint, never touching
	loose []span     // what may be none: a file system may keep zeros near the start of a small file as data
	sum   uint64     // over the pages
}

// Allocated returns the number of bytes that are surely not holes.
func (c *Content) Allocated() int64 { return total(c.alloc) }

// MayAllocate returns the number of bytes that may be no holes.
func (c *Content) MayAllocate() int64 { return total(c.loose) }

func total(spans []span) int64 {
	var n int64
	for _, s := range spans {
		n += s.end - s.off
	}
	return n
}

// Read returns the bytes of [off, off+length) that lie before the end.
func (c *Content) Read(off, length int64) []byte {
	length = max(0, min(length, c.Size-off))
	out := make([]byte, length)
	c.pages.all(uint64(off)/pageBytes, func(i uint64, p *page) bool {
		start := int64(i) * pageBytes
		if start >= off+length {
			return false
		}
		lo, hi := max(start, off), min(start+pageBytes, off+length)
		copy(out[lo-off:hi-off], p.data[lo-start:hi-start])
		return true
	})
	return out
}

// edit replaces the bytes of [off, end) in every page by what fill puts there.
func (c *Content) edit(off, end int64, fill func(dst []byte, at int64)) {
	for at := off; at < end; {
		i := uint64(at / pageBytes)
		stop := min(end, int64(i+1)*pageBytes)
		old, fresh := c.pages.get(i), &page{}
		if old != nil {
			fresh.data = old.data
			c.sum -= old.sum
		}
		fill(fresh.data[at%pageBytes:at%pageBytes+stop-at], at)
		if fresh.data == ([pageBytes]byte{}) {
			fresh = nil
		} else {
			fresh.sum = sumOf('p', i, fresh.data[:])
			c.sum += fresh.sum
		}
		if old != nil || fresh != nil {
			c.pages = c.pages.set(i, fresh)
		}
		at = stop
	}
}

// Write returns the content with data at off.
func (c Content) Write(off int64, data []byte) Content {
	end := off + int64(len(data))
	c.edit(off, end, func(dst []byte, at int64) { copy(dst, data[at-off:]) })
	c.alloc, c.loose = addSpan(c.alloc, span{off, end}), addSpan(c.loose, span{off, end})
	if end <= tine.InlineBytes {
		c.loose = addSpan(c.loose, span{0, end})
	}
	c.Size = max(c.Size, end)
	return c
}

// Punch returns the content with a hole at [off, end); the size stays.
func (c Content) Punch(off, end int64) Content {
	var pages []uint64
	c.pages.all(uint64(off)/pageBytes, func(i uint64, _ *page) bool {
		pages = append(pages, i)
		return int64(i+1)*pageBytes < end
	})
	for _, i := range pages {
		lo, hi := max(off, int64(i)*pageBytes), min(end, int64(i+1)*pageBytes)
		if lo < hi {
			c.edit(lo, hi, func(dst []byte, _ int64) { clear(dst) })
		}
	}
	c.alloc = cutSpan(c.alloc, span{off, end})
	c.loose = cutSpan(c.loose, span{max(off, tine.InlineBytes), end})
	return c
}

// Resize returns the content with another size; what lies past it is gone.
func (c Content) Resize(size int64) Content {
	if size < c.Size {
		c = c.Punch(size, c.Size)
		c.loose = cutSpan(c.loose, span{size, c.Size})
	}
	c.Size = size
	return c
}

// put returns the content with [off, end) of src at a place, holes as holes.
func (c Content) put(src *Content, off, end, at int64) Content {
	c = c.Punch(at, at+end-off)
	for _, s := range within(src.alloc, off, end) {
		c = c.Write(s.off-off+at, src.Read(s.off, s.end-s.off))
	}
	for _, s := range within(src.loose, off, end) {
		c.loose = addSpan(c.loose, span{s.off - off + at, s.end - off + at})
	}
	c.Size = max(c.Size, at+end-off)
	return c
}

// within returns the parts of the spans that lie in [off, end).
func within(spans []span, off, end int64) []span {
	var out []span
	for _, s := range spans {
		if max(s.off, off) < min(s.end, end) {
			out = append(out, span{max(s.off, off), min(s.end, end)})
		}
	}
	return out
}

// IsData reports whether seeking data from off may find it at got; ok false
// stands for none found.
func (c *Content) IsData(off, got int64, ok bool) bool {
	if !ok {
		return len(within(c.alloc, off, c.Size)) == 0
	}
	return got >= off && got < c.Size && len(within(c.alloc, off, got)) == 0 && len(within(c.loose, got, got+1)) == 1
}

// IsHole reports whether seeking a hole from off may find it at got. The end
// of the file is one.
func (c *Content) IsHole(off, got int64) bool {
	data := within(c.loose, off, got)
	solid := got == off || len(data) == 1 && data[0] == span{off, got}
	return solid && (got == c.Size || got < c.Size && len(within(c.alloc, got, got+1)) == 0)
}

func addSpan(spans []span, add span) []span {
	if add.off >= add.end {
		return spans
	}
	out := make([]span, 0, len(spans)+1)
	placed := false
	for _, s := range spans {
		switch {
		case s.end < add.off:
			out = append(out, s)
		case add.end < s.off:
			if !placed {
				out, placed = append(out, add), true
			}
			out = append(out, s)
		default:
			add = span{min(s.off, add.off), max(s.end, add.end)}
		}
	}
	if !placed {
		out = append(out, add)
	}
	return out
}

func cutSpan(spans []span, cut span) []span {
	if cut.off >= cut.end {
		return spans
	}
	var out []span
	for _, s := range spans {
		if s.off < min(s.end, cut.off) {
			out = append(out, span{s.off, min(s.end, cut.off)})
		}
		if max(s.off, cut.end) < s.end {
			out = append(out, span{max(s.off, cut.end), s.end})
		}
	}
	return out
}
