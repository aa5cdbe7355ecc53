package fusefs

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// fileSystem answers the kernel's requests. Its methods are called from many
// goroutines at once; the request and reply that they are given are used
// again once they return.
type fileSystem struct {
	fuse.RawFileSystem // answers ENOSYS to what is not served: access(2)

	s      *volume.Session
	log    *slog.Logger
	server atomic.Pointer[fuse.Server] // nil until the kernel has said hello

	disabled  Features
	cacheNone bool
	writeback bool
	frozen    bool // a checkpoint: nothing ever changes

	ids      *nodeIDs
	removals atomic.Uint64 // of inodes of the disk, see giveOut
	files    handles[openFile]
	dirs     handles[openDir]
	plain    *plainInodes
	names    rootNames
	locked   atomic.Bool // whether any fcntl lock was ever asked for
}

func newFileSystem(s *volume.Session, o Options, log *slog.Logger) *fileSystem {
	return &fileSystem{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		s:             s,
		log:           log,
		disabled:      o.Disable,
		cacheNone:     o.CacheNone,
		writeback:     o.Writeback,
		frozen:        s.Ref().Checkpoint != "",
		ids:           newNodeIDs(s.Generation()),
		plain:         new(plainInodes),
	}
}

func (fs *fileSystem) String() string { return "tine" }

// Init is called once the kernel and the library have agreed on the protocol,
// before the first request.
func (fs *fileSystem) Init(server *fuse.Server) { fs.server.Store(server) }

// panicHandler turns a bug into EIO for one request and a log entry.
func panicHandler(log *slog.Logger) func(any) fuse.Status {
	return func(reason any) fuse.Status {
		log.Error("a file operation panicked; this is a bug in tine", "panic", fmt.Sprint(reason), "stack", string(debug.Stack()))
		return fuse.EIO
	}
}

// Lookup finds a name.
func (fs *fileSystem) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if name == "." || name == ".." {
		return fs.reopen(in.NodeId, name, out)
	}
	if in.NodeId == fuse.FUSE_ROOT_ID {
		fs.names.add(name)
	}
	parent := fs.ids.node(in.NodeId)
	err := fs.giveOut(out, fs.timeouts(), func() (volume.Attr, volume.Node, error) { return fs.s.Lookup(parent, name) })
	if err == nil {
		return fuse.OK
	}
	if status := fs.statusIn("lookup", in.NodeId, err); status != fuse.ENOENT {
		return status
	}
	absent := fs.timeouts().absent
	if absent == 0 {
		return fuse.ENOENT
	}
	out.SetEntryTimeout(absent) // node id 0: the kernel remembers that there is none
	return fuse.OK
}

// giveOut answers with what find finds, and counts that the kernel knows it. An
// inode that loses its last name after it was found and before it was counted
// is not kept for the kernel, so then it is looked for again.
func (fs *fileSystem) giveOut(out *fuse.EntryOut, t timeouts, find func() (volume.Attr, volume.Node, error)) error {
	for {
		removals, changes := fs.removals.Load(), fs.plain.before()
		a, n, err := find()
		if err != nil {
			return err
		}
		fs.fillEntry(out, &a, n, t)
		if fs.removals.Load() == removals || !fs.gone(n) {
			fs.plain.note(out.NodeId, &a, changes)
			return nil
		}
		fs.Forget(out.NodeId, 1)
		*out = fuse.EntryOut{}
	}
}

func (fs *fileSystem) gone(n volume.Node) bool {
	_, err := fs.s.GetAttr(n)
	return Errno(err) == syscall.ESTALE
}

// knows answers the engine that asks who knows an inode that is about to lose
// its last name. It counts that before it looks, see giveOut.
func (m *Mount) knows(n volume.Node) bool {
	fs := m.fs.Load()
	if fs == nil {
		return false
	}
	fs.removals.Add(1)
	return fs.ids.holds(n)
}

// Forget is told of nodes that the kernel no longer holds. What has no name is
// then used by nobody.
func (fs *fileSystem) Forget(id, count uint64) {
	n := fs.ids.node(id)
	if fs.ids.forget(id, count) {
		fs.s.Forget(n)
	}
}

// withRoom does something that needs room, and does it again if there may be
// more of it by now.
func (fs *fileSystem) withRoom(do func() error) error {
	err := do()
	if fs.roomAgain(err) {
		err = do()
	}
	return err
}

// roomAgain reports whether an operation that was refused for want of room is
// worth another try: what was removed just now frees its room only when the
// kernel has forgotten it.
func (fs *fileSystem) roomAgain(err error) bool {
	if err == nil {
		return false
	}
	errno := Errno(err)
	return (errno == syscall.ENOSPC || errno == syscall.EDQUOT) && fs.s.AwaitForgotten()
}

// GetAttr is stat(2). The node is asked for even when a handle is given: the
// volume answers for an inode as long as a handle is open.
func (fs *fileSystem) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	if fs.stale(in.NodeId) {
		return statusStale
	}
	before := fs.plain.before()
	a, err := fs.s.GetAttr(fs.ids.node(in.NodeId))
	if err != nil {
		return fs.status("getattr", in.NodeId, err)
	}
	fs.fillAttrOut(out, &a)
	fs.plain.note(in.NodeId, &a, before)
	return fuse.OK
}

// Statx is statx(2) when more is asked for than GetAttr can say.
func (fs *fileSystem) Statx(_ <-chan struct{}, in *fuse.StatxIn, out *fuse.StatxOut) fuse.Status {
	if fs.disabled.Has(CreationTime) {
		return fuse.ENOSYS
	}
	a, err := fs.s.GetAttr(fs.ids.node(in.NodeId))
	if err != nil {
		return fs.status("statx", in.NodeId, err)
	}
	out.SetTimeout(fs.timeouts().attr)
	fillStatx(&a, &out.Statx)
	return fuse.OK
}

func fillStatx(a *volume.Attr, out *fuse.Statx) {
	const basicStats, birthTime = 0x7ff, 0x800 // STATX_BASIC_STATS, STATX_BTIME
	out.Mask = basicStats | birthTime
	out.Blksize = blockBytes
	out.Nlink = a.Nlink
	out.Uid = a.UID
	out.Gid = a.GID
	out.Mode = uint16(a.Mode)
	out.Ino = uint64(a.Ino)
	out.Size = uint64(a.Size)
	out.Blocks = blocks(a.Bytes)
	out.Atime.Sec, out.Atime.Nsec = splitTime(a.Atime)
	out.Btime.Sec, out.Btime.Nsec = splitTime(a.Btime)
	out.Ctime.Sec, out.Ctime.Nsec = splitTime(a.Ctime)
	out.Mtime.Sec, out.Mtime.Nsec = splitTime(a.Mtime)
	out.RdevMajor = a.Rdev >> 8 & 0xfff
	out.RdevMinor = a.Rdev&0xff | a.Rdev>>12&0xfff00
}

// SetAttr is chmod, chown, utimensat, truncate and ftruncate, or several of
// them in one request. Who may do what has been decided by the kernel.
func (fs *fileSystem) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	if fs.stale(in.NodeId) {
		return statusStale
	}
	n := fs.ids.node(in.NodeId)
	change := attrChange(in)
	if in.Valid&^uint32(fuse.FATTR_FH|fuse.FATTR_LOCKOWNER|fuse.FATTR_CTIME) == 0 {
		// chown(2) that names no user or group, or the step before a write
		// by somebody who may not keep set-user-ID: what is asked for is
		// what the kernel leaves out, as it leaves that to us.
		change.KillPriv = true
	}
	c := killingFor(change.KillPriv, &in.InHeader)
	if fh, ok := in.GetFh(); ok && change.Size != nil {
		h := fs.files.get(fh)
		if h == nil {
			return fuse.EBADF
		}
		if err := h.f.Truncate(c, *change.Size); err != nil {
			return fs.status("truncate", in.NodeId, err)
		}
		change.Size = nil
	}
	var a volume.Attr
	var err error
	if change == (volume.SetAttr{}) {
		a, err = fs.s.GetAttr(n) // all that was asked for was the size
	} else {
		a, err = fs.s.SetAttr(c, n, change)
	}
	if Errno(err) == syscall.ESTALE && fs.flushesTimes(in) {
		// A program asks for nothing here, and an error would be shown to
		// the next that calls syncfs(2).
		out.Attr = fuse.Attr{Ino: inoOf(in.NodeId), Mode: syscall.S_IFREG}
		return fuse.OK
	}
	if err != nil {
		return fs.status("setattr", in.NodeId, err)
	}
	fs.fillAttrOut(out, &a)
	return fuse.OK
}

// flushesTimes reports whether a request is the kernel's own: with a
// write-back cache it passes on the times that it has kept of a file when it
// lets go of it, even if the file was removed or rolled back meanwhile.
func (fs *fileSystem) flushesTimes(in *fuse.SetAttrIn) bool {
	const kept = fuse.FATTR_MTIME | fuse.FATTR_CTIME | fuse.FATTR_FH
	return fs.writeback && in.Valid&^kept == 0
}

func attrChange(in *fuse.SetAttrIn) volume.SetAttr {
	var c volume.SetAttr
	if mode, ok := in.GetMode(); ok {
		c.Mode = &mode
	}
	if uid, ok := in.GetUID(); ok {
		c.UID = &uid
	}
	if gid, ok := in.GetGID(); ok {
		c.GID = &gid
	}
	if _, ok := in.GetSize(); ok {
		size := int64(in.Size)
		c.Size = &size
	}
	if in.Valid&(fuse.FATTR_ATIME|fuse.FATTR_ATIME_NOW) != 0 {
		c.Atime = timeOrNow(in.Valid&fuse.FATTR_ATIME_NOW != 0, in.Atime, in.Atimensec)
	}
	if in.Valid&(fuse.FATTR_MTIME|fuse.FATTR_MTIME_NOW) != 0 {
		c.Mtime = timeOrNow(in.Valid&fuse.FATTR_MTIME_NOW != 0, in.Mtime, in.Mtimensec)
	}
	if in.Valid&fuse.FATTR_CTIME != 0 {
		c.Ctime = timeOrNow(false, in.Ctime, in.Ctimensec)
	}
	c.KillPriv = in.Valid&fuse.FATTR_KILL_SUIDGID != 0
	return c
}

func timeOrNow(now bool, sec uint64, nsec uint32) *int64 {
	t := joinTime(sec, nsec)
	if now {
		t = time.Now().UnixNano()
	}
	return &t
}

// StatFs is statfs(2). A disk without a quota has no size of its own: it is as
// large as what it holds and what the device still takes. A quota is the size,
// and what is available is also bounded by the device, so that both what df
// calls used and what it calls available are true.
func (fs *fileSystem) StatFs(_ <-chan struct{}, in *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	fs.s.AwaitForgotten()
	st, err := fs.s.StatFS()
	if err != nil {
		return fs.status("statfs", in.NodeId, err)
	}
	const block = 4096
	free := uint64(max(st.FreeBytes, 0)) / block
	out.Bsize, out.Frsize = block, block
	out.Blocks = uint64(st.Bytes+block-1)/block + free
	out.Bfree, out.Bavail = free, free
	out.Files = uint64(st.Inodes) + free
	out.Ffree = free
	if st.LimitBytes > 0 {
		out.Blocks = uint64(st.LimitBytes) / block
		out.Bfree = uint64(max(st.LimitBytes-st.Bytes, 0)) / block
		out.Bavail = min(out.Bfree, free)
	}
	if st.LimitInodes > 0 {
		out.Files = uint64(st.LimitInodes)
		out.Ffree = uint64(max(st.LimitInodes-st.Inodes, 0))
	}
	out.NameLen = tine.MaxNameBytes
	return fuse.OK
}

// Ioctl serves none.
func (fs *fileSystem) Ioctl(<-chan struct{}, *fuse.IoctlIn, []byte, *fuse.IoctlOut, []byte) fuse.Status {
	return fuse.Status(syscall.ENOTTY)
}
