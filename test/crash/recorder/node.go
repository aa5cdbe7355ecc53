package recorder

import (
	"context"
	"path"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"tine.dev/tine/test/loopback"
)

// node is a file or directory. What it does not define changes nothing, or
// nothing that a program finds in its files again, and is the loopback's.
type node struct {
	fs.LoopbackNode
	log *log
}

func (n *node) path() string { return n.Path(n.Root()) }

func (n *node) child(name string) string { return path.Join(n.path(), name) }

// record runs an operation and writes it down if it has done something.
func (n *node) record(e Event, do func() syscall.Errno) syscall.Errno {
	n.log.mu.Lock()
	defer n.log.mu.Unlock()
	errno := do()
	if errno == 0 {
		n.log.append(e)
	}
	return errno
}

// Create makes a file, or opens one that came into being meanwhile.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (ch *fs.Inode, fh fs.FileHandle, fuseFlags uint32, errno syscall.Errno) {
	n.log.mu.Lock()
	defer n.log.mu.Unlock()
	ch, fh, fuseFlags, errno = n.LoopbackNode.Create(ctx, name, flags, mode, out)
	if errno != 0 {
		return ch, fh, fuseFlags, errno
	}
	ino := ch.StableAttr().Ino
	if out.Size == 0 {
		n.log.append(Event{Op: Create, Ino: ino, Path: n.child(name)})
	}
	return ch, &file{LoopbackFile: fh.(*fs.LoopbackFile), node: n, ino: ino}, fuseFlags, 0
}

// Mknod refuses: what is recorded has files and directories only.
func (n *node) Mknod(context.Context, string, uint32, uint32, *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return nil, syscall.EPERM
}

// Symlink refuses, as Mknod.
func (n *node) Symlink(context.Context, string, string, *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return nil, syscall.EPERM
}

// Mkdir makes a directory.
func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (ch *fs.Inode, errno syscall.Errno) {
	errno = n.record(Event{Op: Mkdir, Path: n.child(name)}, func() syscall.Errno {
		ch, errno = n.LoopbackNode.Mkdir(ctx, name, mode, out)
		return errno
	})
	return ch, errno
}

// Link gives a file another name.
func (n *node) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (ch *fs.Inode, errno syscall.Errno) {
	ino := target.EmbeddedInode().StableAttr().Ino
	errno = n.record(Event{Op: Link, Ino: ino, To: n.child(name)}, func() syscall.Errno {
		ch, errno = n.LoopbackNode.Link(ctx, target, name, out)
		return errno
	})
	return ch, errno
}

// Rename moves a name. Exchanging two is not recorded and hence refused.
func (n *node) Rename(ctx context.Context, name string, parent fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if flags != 0 {
		return syscall.EINVAL
	}
	to, ok := parent.(*node)
	if !ok {
		return syscall.EXDEV
	}
	return n.record(Event{Op: Rename, Path: n.child(name), To: to.child(newName)}, func() syscall.Errno {
		return n.LoopbackNode.Rename(ctx, name, parent, newName, flags)
	})
}

// Unlink removes a name of a file.
func (n *node) Unlink(ctx context.Context, name string) syscall.Errno {
	return n.record(Event{Op: Unlink, Path: n.child(name)}, func() syscall.Errno { return n.LoopbackNode.Unlink(ctx, name) })
}

// Rmdir removes a directory.
func (n *node) Rmdir(ctx context.Context, name string) syscall.Errno {
	return n.record(Event{Op: Rmdir, Path: n.child(name)}, func() syscall.Errno { return n.LoopbackNode.Rmdir(ctx, name) })
}

// Setattr sets attributes; only a new length is recorded.
func (n *node) Setattr(ctx context.Context, fh fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if f, ok := fh.(*file); ok {
		fh = f.LoopbackFile
	}
	set := func() syscall.Errno { return n.LoopbackNode.Setattr(ctx, fh, in, out) }
	size, ok := in.GetSize()
	if !ok {
		return set()
	}
	return n.record(Event{Op: Truncate, Ino: n.StableAttr().Ino, Off: int64(size)}, set)
}

// Open opens a file.
func (n *node) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	fh, fuseFlags, errno := n.LoopbackNode.Open(ctx, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	return &file{LoopbackFile: fh.(*fs.LoopbackFile), node: n, ino: n.StableAttr().Ino}, fuseFlags, 0
}

// CopyFileRange is left to the kernel, which reads and writes instead.
func (n *node) CopyFileRange(context.Context, fs.FileHandle, uint64, *fs.Inode, fs.FileHandle, uint64, uint64, uint64) (uint32, syscall.Errno) {
	return 0, syscall.ENOSYS
}

// Getattr hands the loopback its own kind of handle.
func (n *node) Getattr(ctx context.Context, fh fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if f, ok := fh.(*file); ok {
		fh = f.LoopbackFile
	}
	return n.LoopbackNode.Getattr(ctx, fh, out)
}

// OpendirHandle opens a directory for reading and for fsync.
func (n *node) OpendirHandle(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	fh, fuseFlags, errno := n.LoopbackNode.OpendirHandle(ctx, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	return loopback.Dir(fh, func() syscall.Errno {
		return n.record(Event{Op: FsyncDir, Path: n.path()}, func() syscall.Errno { return 0 })
	}), fuseFlags, 0
}

// file is an open file.
type file struct {
	*fs.LoopbackFile
	node *node
	ino  uint64
}

// PassthroughFd refuses to let the kernel write past the recorder.
func (f *file) PassthroughFd() (int, bool) { return 0, false }

// Write is recorded with its data.
func (f *file) Write(ctx context.Context, p []byte, off int64) (n uint32, errno syscall.Errno) {
	f.node.log.mu.Lock()
	defer f.node.log.mu.Unlock()
	n, errno = f.LoopbackFile.Write(ctx, p, off)
	if n > 0 {
		f.node.log.append(Event{Op: Write, Ino: f.ino, Off: off, Data: p[:n]})
	}
	return n, errno
}

// Fsync is a flush.
func (f *file) Fsync(context.Context, uint32) syscall.Errno {
	return f.node.record(Event{Op: Fsync, Ino: f.ino}, func() syscall.Errno { return 0 })
}

// Allocate is recorded where it makes the file longer; holes and ranges of
// zeros are refused.
func (f *file) Allocate(ctx context.Context, off, length uint64, mode uint32) syscall.Errno {
	const keepSize = 1
	switch mode {
	case keepSize:
		return f.LoopbackFile.Allocate(ctx, off, length, mode)
	case 0:
	default:
		return syscall.EOPNOTSUPP
	}
	f.node.log.mu.Lock()
	defer f.node.log.mu.Unlock()
	var before fuse.AttrOut
	if errno := f.LoopbackFile.Getattr(ctx, &before); errno != 0 {
		return errno
	}
	errno := f.LoopbackFile.Allocate(ctx, off, length, mode)
	if errno == 0 && off+length > before.Size {
		f.node.log.append(Event{Op: Truncate, Ino: f.ino, Off: int64(off + length)})
	}
	return errno
}

// WrapChild makes what the loopback finds or makes below this node a recorder's
// node as well.
func (n *node) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	if _, ok := ops.(*fs.LoopbackNode); !ok {
		return ops
	}
	return &node{LoopbackNode: fs.LoopbackNode{RootData: n.RootData}, log: n.log}
}
