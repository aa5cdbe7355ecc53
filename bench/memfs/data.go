package main

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Files and directories are opened without a handle: the node id says all.

func (fs *memFS) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	_, status := fs.make(&in.InHeader, name, in.Mode, 0, &out.EntryOut)
	return status
}

func (fs *memFS) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	if in.Flags&syscall.O_TRUNC != 0 {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		n := fs.nodes[in.NodeId]
		n.truncate(0)
		now(&n.attr, true)
	}
	return fuse.OK
}

func (n *node) truncate(size uint64) {
	n.data.Lock()
	defer n.data.Unlock()
	if size < n.attr.Size {
		keep := int((size + blockBytes - 1) / blockBytes)
		n.blocks = n.blocks[:min(keep, len(n.blocks))]
		if used := size % blockBytes; used != 0 && keep == len(n.blocks) && n.blocks[keep-1] != nil {
			clear(n.blocks[keep-1][min(used, uint64(len(n.blocks[keep-1]))):])
		}
	}
	n.attr.Size = size
}

func (fs *memFS) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n := fs.get(in.NodeId)
	n.data.RLock()
	defer n.data.RUnlock()
	if in.Offset >= n.attr.Size {
		return fuse.ReadResultData(nil), fuse.OK
	}
	buf = buf[:min(uint64(len(buf)), n.attr.Size-in.Offset)]
	for done := 0; done < len(buf); {
		off := in.Offset + uint64(done)
		index, at := int(off/blockBytes), int(off%blockBytes)
		part := buf[done:min(len(buf), done+blockBytes-at)]
		copied := 0
		if index < len(n.blocks) && at < len(n.blocks[index]) {
			copied = copy(part, n.blocks[index][at:])
		}
		clear(part[copied:])
		done += len(part)
	}
	return fuse.ReadResultData(buf), fuse.OK
}

func (fs *memFS) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	n := fs.get(in.NodeId)
	n.data.Lock()
	for done := 0; done < len(data); {
		off := in.Offset + uint64(done)
		index, at := int(off/blockBytes), int(off%blockBytes)
		part := data[done:min(len(data), done+blockBytes-at)]
		for index >= len(n.blocks) {
			n.blocks = append(n.blocks, nil)
		}
		if end := at + len(part); end > len(n.blocks[index]) {
			n.blocks[index] = append(n.blocks[index], make([]byte, end-len(n.blocks[index]))...)
		}
		copy(n.blocks[index][at:], part)
		done += len(part)
	}
	n.attr.Size = max(n.attr.Size, in.Offset+uint64(len(data)))
	n.data.Unlock()
	fs.mu.Lock()
	now(&n.attr, true)
	fs.mu.Unlock()
	return uint32(len(data)), fuse.OK
}

func (fs *memFS) Writev(<-chan struct{}, *fuse.WriteIn, [][]byte) (uint32, fuse.Status) {
	return 0, fuse.ENOSYS
}

func (fs *memFS) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status    { return fuse.OK }
func (fs *memFS) Release(<-chan struct{}, *fuse.ReleaseIn)            {}
func (fs *memFS) Fsync(<-chan struct{}, *fuse.FsyncIn) fuse.Status    { return fuse.OK }
func (fs *memFS) ReleaseDir(*fuse.ReleaseIn)                          {}
func (fs *memFS) FsyncDir(<-chan struct{}, *fuse.FsyncIn) fuse.Status { return fuse.OK }

func (fs *memFS) OpenDir(_ <-chan struct{}, _ *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	out.OpenFlags = fuse.FOPEN_CACHE_DIR | fuse.FOPEN_KEEP_CACHE
	return fuse.OK
}

func (fs *memFS) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	fs.mu.RLock()
	defer fs.mu.RUnlock()
	fs.list(in, func(e fuse.DirEntry, _ *node) bool { return out.AddDirEntry(e) })
	return fuse.OK
}

func (fs *memFS) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.list(in, func(e fuse.DirEntry, n *node) bool {
		slot := out.AddDirLookupEntry(e)
		if slot != nil && n != nil {
			fs.give(n, slot)
		}
		return slot != nil
	})
	return fuse.OK
}

// list adds what comes after the offset until add has no room: ".", "..",
// then the entries. The nodes of the first two are not given to the kernel.
func (fs *memFS) list(in *fuse.ReadIn, add func(fuse.DirEntry, *node) bool) {
	dir := fs.nodes[in.NodeId]
	for off := in.Offset; off < uint64(len(dir.entries))+2; off++ {
		e := fuse.DirEntry{Name: ".", Ino: dir.attr.Ino, Mode: syscall.S_IFDIR, Off: off + 1}
		var n *node
		switch {
		case off == 1:
			e.Name, e.Ino = "..", dir.parent.attr.Ino
		case off > 1:
			if n = dir.entries[off-2].n; n == nil {
				continue
			}
			e.Name, e.Ino, e.Mode = dir.entries[off-2].name, n.attr.Ino, n.attr.Mode
		}
		if !add(e, n) {
			return
		}
	}
}
