package fusefs

import (
	"bytes"
	"strings"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"

	"tine.dev/tine/internal/fs/volume"
)

// plainInodes remembers inodes that certainly have no extended attributes.
// The kernel asks for security.capability before the first write to every
// file and at every exec, and for the ACL before somebody other than the owner
// gets in (it keeps that answer as long as the attributes); the answer is
// nearly always here.
//
// It is a small table in which a newer inode takes the place of an older one.
// A reader of attributes takes the count of changes before it asks the volume
// and notes its answer after; a change is made, then counted, then taken out
// of the table. So either the reader sees that the count has moved and takes
// its note back, or the change finds the note and removes it.
type plainInodes struct {
	changes atomic.Uint64
	slots   [1 << 12]atomic.Uint64
}

func (p *plainInodes) slot(id uint64) *atomic.Uint64 {
	const golden = 0x9e3779b97f4a7c15
	return &p.slots[id*golden>>52]
}

func (p *plainInodes) before() uint64 { return p.changes.Load() }

func (p *plainInodes) note(id uint64, a *volume.Attr, before uint64) {
	if a.Xattrs {
		return
	}
	p.slot(id).Store(id)
	if p.changes.Load() != before {
		p.slot(id).CompareAndSwap(id, 0)
	}
}

func (p *plainInodes) has(id uint64) bool { return p.slot(id).Load() == id }

// changed is told of an inode that may have attributes from now on.
func (p *plainInodes) changed(id uint64) {
	p.changes.Add(1)
	p.slot(id).CompareAndSwap(id, 0)
}

// trusted starts the names that only root sees.
const trusted = "trusted."

// checkXattr says whether a name is of a kind that is served. Of those of the
// system only ACLs are; a program that asks where they are off is told so, and
// uses modes.
func (fs *fileSystem) checkXattr(name string) fuse.Status {
	switch {
	case !fs.disabled.Has(ACLs) && (name == volume.XattrACLAccess || name == volume.XattrACLDefault):
		return fuse.OK
	case name == "user." || name == trusted || name == "security.":
		return fuse.EINVAL
	case strings.HasPrefix(name, "user.") || strings.HasPrefix(name, trusted) || strings.HasPrefix(name, "security."):
		return fuse.OK
	}
	return fuse.ENOTSUP
}

// GetXAttr reads an extended attribute, or its size when there is no room.
func (fs *fileSystem) GetXAttr(_ <-chan struct{}, in *fuse.InHeader, name string, dest []byte) (uint32, fuse.Status) {
	if status := fs.checkXattr(name); status != fuse.OK {
		return 0, status
	}
	if fs.plain.has(in.NodeId) {
		return 0, fuse.ENODATA
	}
	value, err := fs.s.GetXattr(fs.ids.node(in.NodeId), name)
	if err != nil {
		return 0, fs.status("getxattr", in.NodeId, err)
	}
	return fit(dest, value)
}

// ListXAttr lists the names of the extended attributes, each ended by a NUL.
func (fs *fileSystem) ListXAttr(_ <-chan struct{}, in *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	if fs.plain.has(in.NodeId) {
		return 0, fuse.OK
	}
	names, err := fs.s.ListXattr(fs.ids.node(in.NodeId))
	if err != nil {
		return 0, fs.status("listxattr", in.NodeId, err)
	}
	var list bytes.Buffer
	for _, name := range names {
		if fs.checkXattr(name) != fuse.OK || strings.HasPrefix(name, trusted) && callerUID(in) != 0 {
			continue
		}
		list.WriteString(name)
		list.WriteByte(0)
	}
	return fit(dest, list.Bytes())
}

// fit copies into the reply. Too little room is ERANGE, which the library
// turns into the size where the caller asked for the size.
func fit(dest, value []byte) (uint32, fuse.Status) {
	if len(dest) < len(value) {
		return uint32(len(value)), fuse.ERANGE
	}
	return uint32(copy(dest, value)), fuse.OK
}

// SetXAttr sets an extended attribute.
func (fs *fileSystem) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) fuse.Status {
	if status := fs.checkXattr(name); status != fuse.OK {
		return status
	}
	c := credKilling(in.SetXAttrFlags&fuse.SETXATTR_ACL_KILL_SGID != 0)
	err := fs.s.SetXattr(c, fs.ids.node(in.NodeId), name, bytes.Clone(value), in.Flags)
	fs.plain.changed(in.NodeId)
	return fs.status("setxattr", in.NodeId, err)
}

// RemoveXAttr removes an extended attribute.
func (fs *fileSystem) RemoveXAttr(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	if status := fs.checkXattr(name); status != fuse.OK {
		return status
	}
	return fs.status("removexattr", in.NodeId, fs.s.RemoveXattr(cred(in), fs.ids.node(in.NodeId), name))
}
