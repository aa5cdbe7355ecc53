package fusefs

import (
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"tine.dev/tine/internal/fs/volume"
)

// statusIn answers a request about a name in a directory. A kernel asks about
// one that was removed only if another session has done that: it knows what it
// has removed itself. If it came there by a path, the path may lead elsewhere by
// now, and ESTALE makes it walk that again; with an open directory it cannot.
func (fs *fileSystem) statusIn(op string, parent uint64, err error) fuse.Status {
	status := fs.status(op, parent, err)
	if status == fuse.ENOENT {
		if _, ok := fs.s.RemovedByOthers(fs.ids.node(parent)); ok && !fs.isOpen(parent) {
			return statusStale
		}
	}
	return status
}

// stale reports whether the kernel refers to an inode by a name that another
// session has taken from it, of which the kernel has not yet heard. Answered
// with ESTALE it looks again where the path leads. If it had looked right
// before, it may have what it has found.
func (fs *fileSystem) stale(id uint64) bool {
	const right = 20 * time.Millisecond
	at, ok := fs.s.RemovedByOthers(fs.ids.node(id))
	return ok && !fs.ids.given(id, at, right) && !fs.isOpen(id)
}

func (fs *fileSystem) isOpen(id uint64) bool {
	return fs.files.some(func(h *openFile) bool { return h.node == id }) || fs.dirs.some(func(d *openDir) bool { return d.node == id })
}

// made answers a request that has made something with a name.
func (fs *fileSystem) made(op string, parent uint64, a *volume.Attr, n volume.Node, err error, out *fuse.EntryOut) fuse.Status {
	if err != nil {
		return fs.statusIn(op, parent, err)
	}
	before := fs.plain.before()
	fs.fillEntry(out, a, n, fs.timeouts())
	fs.plain.note(out.NodeId, a, before)
	return fuse.OK
}

// make answers a request to make something.
func (fs *fileSystem) make(op string, parent uint64, out *fuse.EntryOut, do func(volume.Node) (volume.Attr, volume.Node, error)) fuse.Status {
	a, n, err := do(fs.ids.node(parent))
	if fs.roomAgain(err) {
		a, n, err = do(fs.ids.node(parent))
	}
	return fs.made(op, parent, &a, n, err, out)
}

// remember notes names in the root directory, see rootNames.
func (fs *fileSystem) remember(parent uint64, name string) {
	if parent == fuse.FUSE_ROOT_ID {
		fs.names.add(name)
	}
}

// Mknod makes a file, fifo, socket or device node.
func (fs *fileSystem) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	fs.remember(in.NodeId, name)
	return fs.make("mknod", in.NodeId, out, func(parent volume.Node) (volume.Attr, volume.Node, error) {
		return fs.s.Mknod(credFor(&in.InHeader, in.Mode, in.Umask), parent, name, in.Mode, in.Rdev)
	})
}

// Mkdir makes a directory.
func (fs *fileSystem) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	fs.remember(in.NodeId, name)
	return fs.make("mkdir", in.NodeId, out, func(parent volume.Node) (volume.Attr, volume.Node, error) {
		return fs.s.Mkdir(credFor(&in.InHeader, in.Mode, in.Umask), parent, name, in.Mode&^syscall.S_IFMT)
	})
}

// Symlink makes a symbolic link.
func (fs *fileSystem) Symlink(_ <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	fs.remember(in.NodeId, name)
	return fs.make("symlink", in.NodeId, out, func(parent volume.Node) (volume.Attr, volume.Node, error) {
		return fs.s.Symlink(cred(in), parent, name, target)
	})
}

// Readlink returns the target of a symbolic link.
func (fs *fileSystem) Readlink(_ <-chan struct{}, in *fuse.InHeader) ([]byte, fuse.Status) {
	if fs.stale(in.NodeId) {
		return nil, statusStale
	}
	target, err := fs.s.Readlink(fs.ids.node(in.NodeId))
	if err != nil {
		return nil, fs.status("readlink", in.NodeId, err)
	}
	return []byte(target), fuse.OK
}

// Link gives a node another name.
func (fs *fileSystem) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	fs.remember(in.NodeId, name)
	n := fs.ids.node(in.Oldnodeid)
	a, err := fs.s.Link(cred(&in.InHeader), n, fs.ids.node(in.NodeId), name)
	return fs.made("link", in.NodeId, &a, n, err, out)
}

// Unlink removes a name of anything but a directory.
func (fs *fileSystem) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return fs.statusIn("unlink", in.NodeId, fs.s.Unlink(cred(in), fs.ids.node(in.NodeId), name))
}

// Rmdir removes an empty directory.
func (fs *fileSystem) Rmdir(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return fs.statusIn("rmdir", in.NodeId, fs.s.Rmdir(cred(in), fs.ids.node(in.NodeId), name))
}

// Rename moves or exchanges names, as renameat2(2).
func (fs *fileSystem) Rename(_ <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	fs.remember(in.Newdir, newName)
	err := fs.s.Rename(cred(&in.InHeader), fs.ids.node(in.NodeId), oldName, fs.ids.node(in.Newdir), newName, in.Flags)
	if status := fs.statusIn("rename", in.NodeId, err); status != fuse.ENOENT {
		return status
	}
	return fs.statusIn("rename", in.Newdir, err)
}
