package main

import (
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// blockBytes is the unit in which data is kept; a block that was never
// written is a hole.
const blockBytes = 64 << 10

// memFS answers the kernel. One lock guards the names and attributes of all
// nodes; the data of each file has a lock of its own.
type memFS struct {
	fuse.RawFileSystem

	mu    sync.RWMutex
	nodes map[uint64]*node
	next  uint64
}

type node struct {
	attr    fuse.Attr
	lookups uint64
	target  string

	// of a directory: entries in the order of making, removed ones with an
	// empty name, so that a position in a listing stays good
	entries []entry
	index   map[string]int
	parent  *node

	data   sync.RWMutex // guards blocks and attr.Size of a regular file
	blocks [][]byte
}

type entry struct {
	name string
	n    *node
}

func newMemFS() *memFS {
	fs := &memFS{RawFileSystem: fuse.NewDefaultRawFileSystem(), nodes: make(map[uint64]*node), next: fuse.FUSE_ROOT_ID}
	root := fs.newNode(&fuse.InHeader{}, syscall.S_IFDIR|0o755, 0)
	root.parent = root
	return fs
}

func (fs *memFS) String() string { return "memfs" }

func now(a *fuse.Attr, mtime bool) {
	t := time.Now()
	a.Ctime, a.Ctimensec = uint64(t.Unix()), uint32(t.Nanosecond())
	if mtime {
		a.Mtime, a.Mtimensec = a.Ctime, a.Ctimensec
	}
}

func (fs *memFS) newNode(in *fuse.InHeader, mode, rdev uint32) *node {
	n := &node{attr: fuse.Attr{Ino: fs.next, Mode: mode, Nlink: 1, Owner: in.Owner, Rdev: rdev, Blksize: blockBytes}}
	now(&n.attr, true)
	n.attr.Atime, n.attr.Atimensec = n.attr.Mtime, n.attr.Mtimensec
	if mode&syscall.S_IFMT == syscall.S_IFDIR {
		n.attr.Nlink, n.index = 2, make(map[string]int)
	}
	fs.nodes[fs.next] = n
	fs.next++
	return n
}

func (n *node) isDir() bool { return n.index != nil }

func (n *node) find(name string) *node {
	if i, ok := n.index[name]; ok {
		return n.entries[i].n
	}
	return nil
}

func (n *node) add(name string, child *node) {
	n.index[name] = len(n.entries)
	n.entries = append(n.entries, entry{name, child})
	if child.isDir() {
		child.parent = n
		n.attr.Nlink++
	}
	now(&n.attr, true)
}

func (n *node) remove(name string) {
	i := n.index[name]
	if n.entries[i].n.isDir() {
		n.attr.Nlink--
	}
	n.entries[i] = entry{}
	delete(n.index, name)
	if len(n.index) == 0 {
		n.entries = nil
	}
	now(&n.attr, true)
}

// drop takes a name away from a node.
func (fs *memFS) drop(n *node) {
	n.attr.Nlink--
	if n.isDir() {
		n.attr.Nlink = 0
	}
	now(&n.attr, false)
	fs.reap(n)
}

func (fs *memFS) reap(n *node) {
	if n.attr.Nlink == 0 && n.lookups == 0 {
		delete(fs.nodes, n.attr.Ino)
	}
}

// give hands a node to the kernel. The lock is held for writing.
func (fs *memFS) give(n *node, out *fuse.EntryOut) {
	n.lookups++
	out.NodeId, out.Generation = n.attr.Ino, 1
	out.SetEntryTimeout(time.Hour)
	out.SetAttrTimeout(time.Hour)
	out.Attr = n.shown()
}

func (n *node) shown() fuse.Attr {
	n.data.RLock()
	defer n.data.RUnlock()
	a := n.attr
	a.Blocks = uint64(len(n.blocks)) * (blockBytes / 512)
	return a
}

func (fs *memFS) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if n := fs.nodes[in.NodeId].find(name); n != nil {
		fs.give(n, out)
	} else {
		out.SetEntryTimeout(time.Hour)
	}
	return fuse.OK
}

func (fs *memFS) Forget(id, count uint64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if n := fs.nodes[id]; n != nil && id != fuse.FUSE_ROOT_ID {
		n.lookups -= min(count, n.lookups)
		fs.reap(n)
	}
}

func (fs *memFS) get(id uint64) *node {
	fs.mu.RLock()
	defer fs.mu.RUnlock()
	return fs.nodes[id]
}

func (fs *memFS) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	fs.mu.RLock()
	defer fs.mu.RUnlock()
	out.SetTimeout(time.Hour)
	out.Attr = fs.nodes[in.NodeId].shown()
	return fuse.OK
}

func (fs *memFS) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n := fs.nodes[in.NodeId]
	a := &n.attr
	if mode, ok := in.GetMode(); ok {
		a.Mode = a.Mode&syscall.S_IFMT | mode
	}
	if uid, ok := in.GetUID(); ok {
		a.Uid = uid
	}
	if gid, ok := in.GetGID(); ok {
		a.Gid = gid
	}
	if size, ok := in.GetSize(); ok {
		n.truncate(size)
	}
	now(a, in.Valid&fuse.FATTR_SIZE != 0)
	if t, ok := in.GetMTime(); ok {
		a.SetTimes(nil, &t, nil)
	}
	if t, ok := in.GetATime(); ok {
		a.SetTimes(&t, nil, nil)
	}
	out.SetTimeout(time.Hour)
	out.Attr = n.shown()
	return fuse.OK
}

// make adds a new node under a name and gives it to the kernel.
func (fs *memFS) make(in *fuse.InHeader, name string, mode, rdev uint32, out *fuse.EntryOut) (*node, fuse.Status) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	dir := fs.nodes[in.NodeId]
	switch {
	case len(name) > 255:
		return nil, fuse.Status(syscall.ENAMETOOLONG)
	case dir.find(name) != nil:
		return nil, fuse.Status(syscall.EEXIST)
	}
	n := fs.newNode(in, mode, rdev)
	dir.add(name, n)
	fs.give(n, out)
	return n, fuse.OK
}

func (fs *memFS) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	_, status := fs.make(&in.InHeader, name, in.Mode, in.Rdev, out)
	return status
}

func (fs *memFS) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	_, status := fs.make(&in.InHeader, name, in.Mode|syscall.S_IFDIR, 0, out)
	return status
}

func (fs *memFS) Symlink(_ <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	n, status := fs.make(in, name, syscall.S_IFLNK|0o777, 0, out)
	if n != nil {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		n.target, n.attr.Size = target, uint64(len(target))
		out.Attr.Size = n.attr.Size
	}
	return status
}

func (fs *memFS) Readlink(_ <-chan struct{}, in *fuse.InHeader) ([]byte, fuse.Status) {
	return []byte(fs.get(in.NodeId).target), fuse.OK
}

func (fs *memFS) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	dir, n := fs.nodes[in.NodeId], fs.nodes[in.Oldnodeid]
	if dir.find(name) != nil {
		return fuse.Status(syscall.EEXIST)
	}
	dir.add(name, n)
	n.attr.Nlink++
	now(&n.attr, false)
	fs.give(n, out)
	return fuse.OK
}

func (fs *memFS) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return fs.unlink(in.NodeId, name, false)
}

func (fs *memFS) Rmdir(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return fs.unlink(in.NodeId, name, true)
}

func (fs *memFS) unlink(parent uint64, name string, wantDir bool) fuse.Status {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	dir := fs.nodes[parent]
	n := dir.find(name)
	switch {
	case n == nil:
		return fuse.ENOENT
	case n.isDir() && !wantDir:
		return fuse.EISDIR
	case !n.isDir() && wantDir:
		return fuse.ENOTDIR
	case len(n.index) > 0:
		return fuse.Status(syscall.ENOTEMPTY)
	}
	dir.remove(name)
	fs.drop(n)
	return fuse.OK
}

func (fs *memFS) Rename(_ <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	const noReplace = 1
	fs.mu.Lock()
	defer fs.mu.Unlock()
	from, to := fs.nodes[in.NodeId], fs.nodes[in.Newdir]
	n, over := from.find(oldName), to.find(newName)
	switch {
	case n == nil:
		return fuse.ENOENT
	case in.Flags&^noReplace != 0:
		return fuse.EINVAL
	case over != nil && in.Flags == noReplace:
		return fuse.Status(syscall.EEXIST)
	case n == over:
		return fuse.OK
	case over != nil && over.isDir() && !n.isDir():
		return fuse.EISDIR
	case over != nil && !over.isDir() && n.isDir():
		return fuse.ENOTDIR
	case over != nil && len(over.index) > 0:
		return fuse.Status(syscall.ENOTEMPTY)
	}
	if over != nil {
		to.remove(newName)
		fs.drop(over)
	}
	from.remove(oldName)
	to.add(newName, n)
	now(&n.attr, false)
	return fuse.OK
}

func (fs *memFS) GetXAttr(<-chan struct{}, *fuse.InHeader, string, []byte) (uint32, fuse.Status) {
	return 0, fuse.ENODATA
}

func (fs *memFS) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	*out = fuse.StatfsOut{Blocks: 1 << 24, Bfree: 1 << 23, Bavail: 1 << 23, Files: 1 << 24, Ffree: 1 << 23, Bsize: 4096, Frsize: 4096, NameLen: 255}
	return fuse.OK
}
