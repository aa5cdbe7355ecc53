package posix

import (
	"slices"
	"strings"

	"tine.dev/tine/internal/tine"
)

// Xattr flags, as setxattr(2).
const (
	XattrCreate  = 1
	XattrReplace = 2
)

// Change is what SetAttr changes; nil stays.
type Change struct {
	Mode, UID, GID *uint32
	Size           *int64
	Mtime, Atime   *int64
}

// SetAttr changes attributes.
func (fs *FS) SetAttr(ino tine.Ino, c Change) error {
	n, err := fs.node(ino)
	if err != nil {
		return err
	}
	if c.Size != nil {
		switch {
		case *c.Size > tine.MaxFileBytes:
			return tine.ErrTooBig
		case n.IsDir():
			return tine.ErrIsDir
		case n.Type() != TypeRegular, *c.Size < 0:
			return tine.ErrInvalid
		}
	}
	fs.touch(ino, c.Size != nil, func(n *Node) {
		if c.Size != nil {
			n.Content = n.Content.Resize(*c.Size)
		}
		if c.Mode != nil {
			n.Mode = n.Type() | *c.Mode&0o7777
			n.chmodACL()
		}
		if c.UID != nil || c.GID != nil {
			n.dropCapability()
		}
		set(&n.UID, c.UID)
		set(&n.GID, c.GID)
		set(&n.Mtime, c.Mtime)
		set(&n.Atime, c.Atime)
	})
	return nil
}

func set[T any](field *T, v *T) {
	if v != nil {
		*field = *v
	}
}

func (n *Node) xattr(name string) (int, bool) {
	return slices.BinarySearchFunc(n.Xattrs, name, func(x Xattr, s string) int { return strings.Compare(x.Name, s) })
}

// GetXattr returns the value of an extended attribute.
func (fs *FS) GetXattr(ino tine.Ino, name string) (string, error) {
	n, err := fs.node(ino)
	if err != nil {
		return "", err
	}
	if i, ok := n.xattr(name); ok {
		return n.Xattrs[i].Value, nil
	}
	return "", tine.ErrNoAttr
}

// SetXattr sets an extended attribute.
func (fs *FS) SetXattr(ino tine.Ino, name, value string, flags uint32) error {
	n, err := fs.node(ino)
	if err != nil {
		return err
	}
	i, ok := n.xattr(name)
	switch {
	case name == "" || len(name) > tine.MaxXattrNameBytes:
		return tine.ErrRange
	case len(value) > tine.MaxXattrValueBytes:
		return tine.ErrTooLarge
	case name == AccessACL || name == DefaultACL:
		return fs.setACL(n, name, value)
	case flags&XattrCreate != 0 && ok:
		return tine.ErrExists
	case flags&XattrReplace != 0 && !ok:
		return tine.ErrNoAttr
	}
	fs.touch(ino, false, func(n *Node) { n.setXattr(i, ok, name, value, true) })
	return nil
}

// setXattr puts an attribute in its place i, where it may exist already, or
// takes it away.
func (n *Node) setXattr(i int, exists bool, name, value string, keep bool) {
	n.Xattrs = slices.Clone(n.Xattrs)
	switch {
	case exists && keep:
		n.Xattrs[i].Value = value
	case exists:
		n.Xattrs = slices.Delete(n.Xattrs, i, i+1)
	case keep:
		n.Xattrs = slices.Insert(n.Xattrs, i, Xattr{name, value})
	}
}

// RemoveXattr removes an extended attribute.
func (fs *FS) RemoveXattr(ino tine.Ino, name string) error {
	n, err := fs.node(ino)
	if err != nil {
		return err
	}
	if name == AccessACL || name == DefaultACL {
		return fs.setACL(n, name, "")
	}
	i, ok := n.xattr(name)
	if !ok {
		return tine.ErrNoAttr
	}
	fs.touch(ino, false, func(n *Node) { n.setXattr(i, true, name, "", false) })
	return nil
}

// dropCapability follows a change that a program's rights do not survive.
func (n *Node) dropCapability() {
	if i, ok := n.xattr("security.capability"); ok && !n.IsDir() {
		n.setXattr(i, true, "security.capability", "", false)
	}
}
