package fusefs

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// Create makes a file, or finds it, and opens it.
func (fs *fileSystem) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	fs.remember(in.NodeId, name)
	c := credFor(&in.InHeader, in.Mode, in.Umask)
	f, a, n, err := fs.s.Create(c, fs.ids.node(in.NodeId), name, in.Mode&^syscall.S_IFMT, in.Flags&syscall.O_EXCL != 0)
	if fs.roomAgain(err) {
		f, a, n, err = fs.s.Create(c, fs.ids.node(in.NodeId), name, in.Mode&^syscall.S_IFMT, in.Flags&syscall.O_EXCL != 0)
	}
	if err != nil {
		return fs.statusIn("create", in.NodeId, err)
	}
	if in.Flags&syscall.O_TRUNC != 0 && a.Size > 0 {
		// Another session was quicker to make it; the kernel thinks it new.
		if err = f.Truncate(killingFor(in.OpenFlags&fuse.OPEN_KILL_SUIDGID != 0, &in.InHeader), 0); err == nil {
			a, err = fs.s.GetAttr(n)
		}
		if err != nil {
			f.Close()
			return fs.status("create", in.NodeId, err)
		}
	}
	return fs.created(f, &a, n, in.Flags, out)
}

// Tmpfile makes a file without a name and opens it.
func (fs *fileSystem) Tmpfile(_ <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	f, a, n, err := fs.s.Tmpfile(credFor(&in.InHeader, in.Mode, in.Umask), fs.ids.node(in.NodeId), in.Mode&^syscall.S_IFMT)
	if err != nil {
		return fs.statusIn("tmpfile", in.NodeId, err)
	}
	return fs.created(f, &a, n, in.Flags, out)
}

func (fs *fileSystem) created(f *volume.File, a *volume.Attr, n volume.Node, flags uint32, out *fuse.CreateOut) fuse.Status {
	status := fs.made("create", 0, a, n, nil, &out.EntryOut)
	fs.opened(f, out.NodeId, flags, &out.OpenOut)
	return status
}

func (fs *fileSystem) opened(f *volume.File, id uint64, flags uint32, out *fuse.OpenOut) {
	h := &openFile{f: f, node: id, direct: fs.bypassesCache(flags), writes: flags&syscall.O_ACCMODE != syscall.O_RDONLY}
	if h.direct {
		out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES
	} else {
		out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	}
	out.Fh = fs.files.add(h)
}

// bypassesCache reports whether a handle opened with these flags must not go
// through the page cache. An append on a shared disk must not: the kernel
// would put the bytes where it believes the end to be.
func (fs *fileSystem) bypassesCache(flags uint32) bool {
	return fs.cacheNone || flags&syscall.O_APPEND != 0 && fs.shared()
}

// Open opens a regular file.
func (fs *fileSystem) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if fs.stale(in.NodeId) {
		return statusStale
	}
	f, err := fs.s.Open(fs.ids.node(in.NodeId))
	if err != nil {
		return fs.status("open", in.NodeId, err)
	}
	if in.Flags&syscall.O_TRUNC != 0 {
		if err := f.Truncate(killingFor(in.Mode&fuse.OPEN_KILL_SUIDGID != 0, &in.InHeader), 0); err != nil {
			f.Close()
			return fs.status("open", in.NodeId, err)
		}
	}
	fs.opened(f, in.NodeId, in.Flags, out)
	return fuse.OK
}

// Read reads. It is short at the end of the file only.
func (fs *fileSystem) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	h := fs.files.get(in.Fh)
	if h == nil {
		return nil, fuse.EBADF
	}
	n, err := h.f.ReadAt(buf, int64(in.Offset))
	if err != nil {
		return nil, fs.status("read", in.NodeId, err)
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

// Writev makes the library call Write: data arrives in one piece from a
// kernel on the same machine.
func (fs *fileSystem) Writev(<-chan struct{}, *fuse.WriteIn, [][]byte) (uint32, fuse.Status) {
	return 0, fuse.ENOSYS
}

// Write writes, or appends.
func (fs *fileSystem) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	h := fs.files.get(in.Fh)
	if h == nil {
		return 0, fuse.EBADF
	}
	if in.Offset < tine.MaxFileBytes && uint64(len(data)) > tine.MaxFileBytes-in.Offset {
		data = data[:tine.MaxFileBytes-in.Offset] // a short write; the next one is refused
	}
	n, err := fs.write(h, in, data)
	if fs.roomAgain(err) {
		n, err = fs.write(h, in, data)
	}
	if err == nil && h.direct && in.WriteFlags&fuse.WRITE_CACHE == 0 && in.Flags&syscall.O_DSYNC != 0 {
		// The kernel follows a cached write on an O_SYNC or O_DSYNC
		// descriptor with an FSYNC, but not one that bypasses its cache.
		err = h.f.Fsync(context.Background(), in.Flags&syscall.O_SYNC != syscall.O_SYNC)
	}
	if err != nil && n == 0 {
		return 0, fs.status("write", in.NodeId, err)
	}
	return uint32(n), fuse.OK
}

func (fs *fileSystem) write(h *openFile, in *fuse.WriteIn, data []byte) (int, error) {
	c := killingFor(in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0, &in.InHeader)
	if in.Flags&syscall.O_APPEND != 0 && in.WriteFlags&fuse.WRITE_CACHE == 0 && fs.shared() {
		return fs.append(h, c, data, int64(in.Offset))
	}
	return h.f.WriteAt(c, data, int64(in.Offset))
}

// append lets the owner of the disk place the bytes at the end of the file.
// Where that is not where this kernel believed, the pages it has just filled
// are wrong; they are locked until this request is answered, so another
// goroutine drops them.
func (fs *fileSystem) append(h *openFile, c volume.Cred, data []byte, believed int64) (int, error) {
	off, n, err := h.f.Append(c, data)
	if err == nil && off != believed {
		go func(length int64) {
			fs.dropPages(h.node, believed, length)
			fs.dropPages(h.node, off, length)
		}(int64(len(data)))
	}
	return n, err
}

// CopyFileRange is copy_file_range(2) between two files of the mount.
func (fs *fileSystem) CopyFileRange(_ <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	src, dst := fs.files.get(in.FhIn), fs.files.get(in.FhOut)
	if src == nil || dst == nil {
		return 0, fuse.EBADF
	}
	const most = 1 << 30 // the reply has 32 bits for the length
	var n int64
	err := fs.withRoom(func() (err error) {
		n, err = src.f.CopyTo(dst.f, int64(in.OffIn), int64(in.OffOut), int64(min(in.Len, most)))
		return err
	})
	if err == nil && n > 0 {
		err = fs.killPrivileges(&in.InHeader, in.NodeIdOut)
	}
	if err != nil && n == 0 {
		return 0, fs.status("copy_file_range", in.NodeId, err)
	}
	return uint32(n), fuse.OK
}

// Fallocate is fallocate(2), in the modes that the kernel forwards.
func (fs *fileSystem) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	h := fs.files.get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	err := fs.withRoom(func() error { return h.f.Allocate(in.Mode, int64(in.Offset), int64(in.Length)) })
	if err == nil {
		err = fs.killPrivileges(&in.InHeader, in.NodeId)
	}
	return fs.status("fallocate", in.NodeId, err)
}

// Lseek is lseek(2) with SEEK_DATA or SEEK_HOLE. With a write-back cache only
// the kernel knows where data is, and it does not flush before it asks; told
// that this is not served it calls all of a file data.
func (fs *fileSystem) Lseek(_ <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	if fs.writeback {
		return fuse.ENOSYS
	}
	h := fs.files.get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	off, err := h.f.SeekTo(int64(in.Offset), in.Whence)
	if err != nil {
		return fs.status("lseek", in.NodeId, err)
	}
	out.Offset = uint64(off)
	return fuse.OK
}

// Fsync makes the file durable (promise P1).
func (fs *fileSystem) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	h := fs.files.get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	return fs.status("fsync", in.NodeId, h.f.Fsync(context.Background(), in.FsyncFlags&1 != 0))
}

// Flush is one close(2) of a descriptor; others of the same handle may stay.
// Every write has been answered by now, so all it does is to release the
// fcntl locks of the process.
func (fs *fileSystem) Flush(_ <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	if fs.locked.Load() {
		fs.s.ReleaseOwner(fs.ids.node(in.NodeId), in.LockOwner)
		if h := fs.files.get(in.Fh); h != nil {
			h.unlocks(in.LockOwner)
		}
	}
	return fuse.OK
}

// Release is the last close of a handle. Nobody waits for it.
func (fs *fileSystem) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	if in.ReleaseFlags&fuse.FUSE_RELEASE_FLOCK_UNLOCK != 0 {
		err := fs.s.Flock(context.Background(), fs.ids.node(in.NodeId), in.LockOwner, volume.Unlock, false)
		fs.status("flock", in.NodeId, err)
	}
	if h := fs.files.remove(in.Fh); h != nil {
		for _, owner := range h.owners { // nobody else has the handle any more
			fs.s.ReleaseOwner(fs.ids.node(in.NodeId), owner)
		}
		fs.status("close", in.NodeId, h.f.Close())
	}
}
