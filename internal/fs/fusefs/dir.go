package fusefs

import (
	"context"

	"github.com/hanwen/go-fuse/v2/fuse"

	"tine.dev/tine/internal/fs/volume"
)

// Offsets in a listing, as telldir(3) shows them: 0 is before ".", 1 before
// "..", and an entry's is the volume's cookie plus this. They stay what they
// are while names come and go, so a program may remove what it reads.
const firstCookie = 2

// entryOutBytes and direntBytes are the sizes in a reply of what precedes
// each name.
const (
	entryOutBytes = 128
	direntBytes   = 24
)

// OpenDir opens a directory for reading.
func (fs *fileSystem) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if fs.stale(in.NodeId) {
		return statusStale
	}
	n := fs.ids.node(in.NodeId)
	gen := n.Gen
	if gen == 0 {
		gen = fs.s.Generation()
	}
	d, err := fs.s.OpenDir(n)
	if err != nil {
		return fs.status("opendir", in.NodeId, err)
	}
	out.Fh = fs.dirs.add(&openDir{d: d, node: in.NodeId, gen: gen})
	// A listing that was kept before the disk became shared is dropped by
	// an open without these flags.
	if !fs.cacheNone && !fs.disabled.Has(DirectoryCache) && !fs.shared() {
		out.OpenFlags = fuse.FOPEN_CACHE_DIR | fuse.FOPEN_KEEP_CACHE
	}
	return fuse.OK
}

// ReadDir lists names.
func (fs *fileSystem) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	h := fs.dirs.get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	off, status := fs.readDots(h, in.Offset, func(e fuse.DirEntry) bool { return out.AddDirEntry(e) })
	if off < firstCookie || status != fuse.OK {
		return status
	}
	err := h.d.Read(off-firstCookie, func(e volume.DirEntry) bool { return out.AddDirEntry(dirEntry(e)) })
	return fs.status("readdir", in.NodeId, err)
}

// ReadDirPlus lists names and gives their nodes to the kernel. The entries
// are gathered first: asking for attributes while the volume lists would
// call it from inside itself.
func (fs *fileSystem) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	h := fs.dirs.get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	room := int(in.Size)
	off, status := fs.readDots(h, in.Offset, func(e fuse.DirEntry) bool {
		room -= plusBytes(e.Name)
		return out.AddDirLookupEntry(e) != nil
	})
	if off < firstCookie || status != fuse.OK {
		return status
	}
	entries := make([]volume.DirEntry, 0, max(room, 0)/plusBytes("12345678"))
	err := h.d.Read(off-firstCookie, func(e volume.DirEntry) bool {
		if room -= plusBytes(e.Name); room < 0 {
			return false
		}
		entries = append(entries, e)
		return true
	})
	if err != nil {
		return fs.status("readdir", in.NodeId, err)
	}
	t := fs.timeouts()
	for _, e := range entries {
		entry := out.AddDirLookupEntry(dirEntry(e))
		if entry == nil {
			break
		}
		n := volume.Node{Gen: h.gen, Ino: e.Ino}
		err := fs.giveOut(entry, t, func() (volume.Attr, volume.Node, error) {
			a, err := fs.s.GetAttr(n)
			return a, n, err
		})
		if err == nil { // else it is gone by now, or unreadable: a name without its node
			fs.remember(in.NodeId, e.Name)
		}
	}
	return fuse.OK
}

// readDots lists "." and ".." and returns the offset after what it has added.
func (fs *fileSystem) readDots(h *openDir, off uint64, add func(fuse.DirEntry) bool) (uint64, fuse.Status) {
	const directory = 4 << 12 // DT_DIR, where the mode has it
	if off == 0 {
		if !add(fuse.DirEntry{Name: ".", Ino: inoOf(h.node), Mode: directory, Off: 1}) {
			return 0, fuse.OK
		}
		off = 1
	}
	if off == 1 {
		parent, err := h.d.Parent()
		if err != nil {
			return off, fs.status("readdir", h.node, err)
		}
		if !add(fuse.DirEntry{Name: "..", Ino: uint64(parent.Ino), Mode: directory, Off: firstCookie}) {
			return off, fuse.OK
		}
		off = firstCookie
	}
	return off, fuse.OK
}

func dirEntry(e volume.DirEntry) fuse.DirEntry {
	return fuse.DirEntry{Name: e.Name, Ino: uint64(e.Ino), Mode: uint32(e.Type) << 12, Off: e.Cookie + firstCookie}
}

func plusBytes(name string) int {
	return entryOutBytes + direntBytes + (len(name)+7)&^7
}

// FsyncDir makes the names in a directory durable.
func (fs *fileSystem) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	h := fs.dirs.get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	return fs.status("fsync", in.NodeId, h.d.Fsync(context.Background()))
}

// ReleaseDir closes a directory.
func (fs *fileSystem) ReleaseDir(in *fuse.ReleaseIn) {
	if h := fs.dirs.remove(in.Fh); h != nil {
		fs.status("close", in.NodeId, h.d.Close())
	}
}
