package fsck

import (
	"bytes"
	"fmt"
	"slices"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// mendDirs sets what directories know of themselves, and the types and paging
// order of their names.
func (h *head) mendDirs() {
	for _, ino := range h.sortedInos() {
		f := h.inodes[ino]
		if !f.exists || !f.isDir() {
			continue
		}
		if len(f.names) > 0 {
			f.Parent = f.names[0].dir
		}
		if len(f.names) > 0 || ino == tine.RootIno {
			f.Nlink = 2
		}
		used := map[uint64]bool{}
		for _, name := range sortedNames(h.entries[ino]) {
			e := h.entries[ino][name]
			t := h.inodes[e.Ino]
			if t.isDir() {
				f.Nlink++
			}
			e.Type = uint8(t.Mode & modeType >> 12)
			if e.Cookie < 3 || used[e.Cookie] {
				e.Cookie = h.nextCookie()
			}
			used[e.Cookie] = true
		}
	}
}

// nextCookie returns a cookie that no name has.
func (h *head) nextCookie() uint64 {
	c := max(h.counts.NextCookie, 3)
	if h.v.at != tine.Head {
		c = max(c, h.l.tree.maxCookie+1)
	}
	for _, es := range h.entries {
		for _, e := range es {
			c = max(c, e.Cookie+1)
		}
	}
	for _, cs := range h.order {
		for cookie := range cs {
			c = max(c, cookie+1)
		}
	}
	h.counts.NextCookie = c + 1
	return c
}

// mendFiles sets what all other inodes know of their names and data.
func (h *head) mendFiles() {
	for _, ino := range h.sortedInos() {
		f := h.inodes[ino]
		if !f.exists {
			continue
		}
		if len(f.xattrs) > 0 {
			f.Flags |= record.FlagXattrs
		}
		if f.isDir() {
			if len(f.names) > 0 {
				f.orphan = false
			}
			continue
		}
		f.Nlink = uint32(len(f.names))
		f.orphan = f.Nlink == 0
		f.mendLinks()
		h.loseMissing(f)
		f.mendData()
	}
}

// mendLinks leaves a file's own record of its names alone where it fits them.
func (f *fix) mendLinks() {
	rest := slices.Clone(f.names)
	fits := true
	for _, n := range f.links {
		i := slices.Index(rest, n)
		if i < 0 {
			fits = false
			break
		}
		rest = slices.Delete(rest, i, i+1)
	}
	fits = fits && (len(f.links) == 0 || f.Flags&record.FlagLinks != 0)
	if fits && (len(rest) == 0 && f.Parent == 0 || len(rest) == 1 && rest[0].dir == f.Parent) {
		return
	}
	f.Parent, f.links = 0, nil
	if len(f.names) > 0 {
		f.Parent = f.names[0].dir
		f.links = f.names[1:]
	}
	if len(f.links) > 0 {
		f.Flags |= record.FlagLinks
	}
}

func (f *fix) mendData() {
	if f.Mode&modeType != modeFile {
		f.Bytes = 0
		if f.Mode&modeType == modeSymlink {
			f.Target = f.Target[:min(len(f.Target), tine.MaxSymlinkBytes)]
			f.Size = int64(len(f.Target))
		}
		return
	}
	f.Size = min(max(f.Size, f.end), tine.MaxFileBytes)
	if !f.blurred {
		f.Bytes = f.bytes
	}
	switch {
	case f.inline && !f.extents:
		f.Flags |= record.FlagInline
	case !f.inline:
		f.Flags &^= record.FlagInline
	}
}

// numbers sets the counters.
func (h *head) numbers() {
	c := &h.counts
	c.Inodes, c.Bytes = 0, 0
	c.NextIno, c.NextCookie = max(c.NextIno, tine.RootIno+1), max(c.NextCookie, 3)
	for ino, f := range h.inodes {
		if !f.exists {
			continue
		}
		c.NextIno = max(c.NextIno, ino+1)
		if f.Nlink > 0 {
			c.Inodes++
			c.Bytes += f.Bytes
		}
	}
	for _, es := range h.entries {
		for _, e := range es {
			c.NextCookie = max(c.NextCookie, e.Cookie+1)
		}
	}
}

// write turns what should be shown into rows.
func (h *head) write() {
	for ino, f := range h.inodes {
		if f.exists {
			h.want[record.InodeKey(ino)] = f.Inode.Append(nil)
		}
		if f.exists && f.orphan {
			h.want[record.OrphanKey(ino)] = []byte{1}
		}
		if f.exists {
			for _, n := range f.links {
				h.want[record.LinkKey(ino, n.dir, n.name)] = []byte{1}
			}
		}
	}
	for dir, es := range h.entries {
		for name, e := range es {
			h.want[record.DentryKey(dir, name)] = e.Append(nil)
			h.want[record.CookieKey(dir, e.Cookie)] = record.Cookie{Ino: e.Ino, Type: e.Type, Name: name}.Append(nil)
		}
	}
	h.want[record.TableKey(record.TableCounters)] = h.counts.Append(nil)
}

// keep says of rows that are not written anew whether they stay: data and
// attributes of inodes that exist.
func (h *head) keep(k record.Logical) bool {
	f := h.inodes[k.Ino()]
	switch k.Table() {
	case record.TableChunk:
		return f.exists && f.Mode&modeType == modeFile
	case record.TableXattr:
		return f.exists
	}
	return false
}

// plan plans the rows that differ, and reports whether any does.
func (h *head) plan() bool {
	type diff struct {
		k   record.Logical
		val []byte
	}
	var diffs []diff
	for k, old := range h.old {
		want, ok := h.want[k]
		switch {
		case ok && bytes.Equal(want, old), !ok && h.keep(k):
		case ok:
			diffs = append(diffs, diff{k, want})
		default:
			diffs = append(diffs, diff{k, nil})
		}
	}
	for k, want := range h.want {
		if _, there := h.old[k]; !there {
			diffs = append(diffs, diff{k, want})
		}
	}
	if len(diffs) == 0 {
		return false
	}
	slices.SortFunc(diffs, func(a, b diff) int { return bytes.Compare([]byte(a.k), []byte(b.k)) })
	if h.lost > 0 {
		h.note("%d inodes are in /lost+found", h.lost)
	}
	slices.Sort(h.notes)
	w := h.r.w
	w.last = Finding{What: fmt.Sprintf("what the head of timeline %s shows", h.l.id), Disk: w.viewName(h.v)}
	if h.v.at != tine.Head {
		w.last.What = fmt.Sprintf("what timeline %s shows at epoch %d", h.l.id, h.v.at)
	}
	h.r.plan(stageHeads, fmt.Sprintf("wrote %d rows of it", len(diffs)), func(b kv.Batch) error {
		for _, d := range diffs {
			if err := h.putRow(b, d.k, d.val); err != nil {
				return err
			}
		}
		return nil
	})
	for _, n := range h.notes {
		h.r.plan(stageHeads, n, func(kv.Batch) error { return nil })
	}
	return true
}
