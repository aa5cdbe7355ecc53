package fusefs

import (
	"encoding/binary"
	"os"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"tine.dev/tine/internal/fs/volume"
)

// invalidate tells the kernel what it must no longer believe. The session
// calls it from one goroutine with no lock held: the kernel may make it wait
// for pages that are being read or for a directory that is in use, whose
// requests other goroutines answer meanwhile.
//
// A reply that was under way cannot bring back what was invalidated: names
// are looked up, and pages filled, under locks that the notification takes
// too, and attributes carry a version in the kernel.
func (m *Mount) invalidate(v volume.Invalidation) {
	fs := m.fs.Load()
	if fs == nil {
		return // the kernel knows nothing yet
	}
	if v.Kind == volume.InvalidAll {
		m.invalidateAll(fs)
		return
	}
	if fs.writeback {
		m.sharedOnce.Do(func() {
			m.log.Warn("another session changes the disk; a mount with a write-back cache sees that only in part")
		})
	}
	id := fs.ids.id(v.Node)
	switch v.Kind {
	case volume.InvalidAttr:
		fs.plain.changed(id)
		fs.inodeNotify(id, -1, 0)
	case volume.InvalidData:
		fs.plain.changed(id)
		fs.inodeNotify(id, v.Off, v.Len)
	case volume.InvalidEntry:
		fs.entryNotify(id, v.Name)
	case volume.InvalidNewEntry:
		fs.notified("new entry", id, fuse.ToStatus(notifyNewEntry(m.notify, id, v.Name)))
	}
}

// invalidateAll is for a disk that has become another: rolled back, promoted
// onto, re-opened after a loss. Names are doubted as a whole; the nodes that
// paths then lead to are new to the kernel. What open handles still hold of
// the old state goes too, so that they meet ESTALE and not old pages.
func (m *Mount) invalidateAll(fs *fileSystem) {
	if m.epochs {
		if err := notifyEpoch(m.notify); err != nil {
			m.log.Error("cannot tell the kernel that the disk was rolled back; names may be out of date for an hour", "error", err)
		}
	}
	for _, name := range fs.names.take() {
		fs.entryNotify(fuse.FUSE_ROOT_ID, name)
	}
	fs.inodeNotify(fuse.FUSE_ROOT_ID, 0, 0)
	for _, h := range fs.files.all() {
		fs.inodeNotify(h.node, 0, 0)
	}
	for _, h := range fs.dirs.all() {
		fs.inodeNotify(h.node, 0, 0)
	}
}

// inodeNotify drops attributes and, where off is not negative, the pages of a
// range; length 0 is to the end.
func (fs *fileSystem) inodeNotify(id uint64, off, length int64) {
	fs.notified("inode", id, fs.server.Load().InodeNotify(id, off, length))
}

func (fs *fileSystem) entryNotify(parent uint64, name string) {
	fs.notified("entry", parent, fs.server.Load().EntryNotify(parent, name))
}

func (fs *fileSystem) dropPages(id uint64, off, length int64) {
	if length > 0 {
		fs.inodeNotify(id, off, length)
	}
}

// settleWrites waits for the pages that the kernel is writing back. syncfs(2)
// starts those writes, but since Linux 6.16 does not wait for a file system
// in user space to answer them; dropping a file's pages waits. A file that is
// not open for writing has none: close(2) has written them.
func (fs *fileSystem) settleWrites() {
	seen := make(map[uint64]bool)
	for _, h := range fs.files.all() {
		if h.writes && !h.direct && !seen[h.node] {
			seen[h.node] = true
			fs.inodeNotify(h.node, 0, 0)
		}
	}
}

// notified logs what went wrong. That the kernel does not hold the thing, or
// that the mount is going away, is not wrong.
func (fs *fileSystem) notified(what string, id uint64, status fuse.Status) {
	switch syscall.Errno(status) {
	case 0, syscall.ENOENT, syscall.ENODEV, syscall.EBADF, syscall.ENOTCONN, syscall.ENOTDIR:
	default:
		fs.log.Warn("the kernel refused an invalidation", "what", what, "inode", inoOf(id), "error", syscall.Errno(status))
	}
}

// notifyNewEntry sends FUSE_NOTIFY_INVAL_ENTRY with FUSE_EXPIRE_ONLY, which
// the library does not offer: the kernel asks again when it next looks the
// name up. A dropped entry would be worse than that. Who has looked the name
// up since it was made, and works in that directory, would be told by
// getcwd(2) that it is deleted. Kernels before 6.2 drop it all the same.
func notifyNewEntry(dev *os.File, parent uint64, name string) error {
	const headerBytes, invalEntry, expireOnly = 16, 3, 1
	msg := make([]byte, headerBytes, headerBytes+16+len(name)+1)
	msg = binary.NativeEndian.AppendUint64(msg, parent)
	msg = binary.NativeEndian.AppendUint32(msg, uint32(len(name)))
	msg = binary.NativeEndian.AppendUint32(msg, expireOnly)
	msg = append(append(msg, name...), 0)
	binary.NativeEndian.PutUint32(msg[0:], uint32(len(msg)))
	binary.NativeEndian.PutUint32(msg[4:], invalEntry)
	_, err := dev.Write(msg)
	return err
}

// notifyEpoch sends FUSE_NOTIFY_INC_EPOCH, which the library does not offer:
// an out header with the code in place of an error and no request number.
// Kernels before 6.16 refuse it with EINVAL.
func notifyEpoch(dev *os.File) error {
	const headerBytes, incEpoch = 16, 8
	var msg [headerBytes]byte
	binary.NativeEndian.PutUint32(msg[0:], headerBytes)
	binary.NativeEndian.PutUint32(msg[4:], incEpoch)
	_, err := dev.Write(msg[:])
	return err
}

// rootNames remembers the names in the root directory that the kernel may
// hold, where the kernel cannot be told to doubt all names at once. Dropping
// those drops what lies below them too. Off until start is called.
type rootNames struct {
	mu    sync.Mutex
	names map[string]struct{} // nil: off
}

func (r *rootNames) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = make(map[string]struct{})
}

func (r *rootNames) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names != nil {
		r.names[name] = struct{}{}
	}
}

// take returns the names and forgets them.
func (r *rootNames) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names == nil {
		return nil
	}
	names := make([]string, 0, len(r.names))
	for name := range r.names {
		names = append(names, name)
	}
	clear(r.names)
	return names
}
