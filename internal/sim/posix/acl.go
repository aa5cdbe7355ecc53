package posix

import (
	"encoding/binary"
	"strings"

	"tine.dev/tine/internal/tine"
)

// Names of the attributes that hold access control lists.
const (
	AccessACL  = "system.posix_acl_access"
	DefaultACL = "system.posix_acl_default"
)

// Tags of the entries of a list.
const (
	TagOwner      = 0x01
	TagUser       = 0x02
	TagOwnerGroup = 0x04
	TagGroup      = 0x08
	TagMask       = 0x10
	TagOther      = 0x20
)

// ACE is an entry of a list: what one class of users may do.
type ACE struct {
	Tag, Perm uint16
	ID        uint32 // of a user or group that is named
}

const maxACL = 4096

// EncodeACL writes a list as Linux passes it. It checks nothing.
func EncodeACL(entries ...ACE) string {
	b := []byte{2, 0, 0, 0}
	for _, e := range entries {
		b = binary.LittleEndian.AppendUint16(b, e.Tag)
		b = binary.LittleEndian.AppendUint16(b, e.Perm)
		b = binary.LittleEndian.AppendUint32(b, e.ID)
	}
	return string(b)
}

// readACL returns the entries of a list, which need not make sense.
func readACL(s string) ([]ACE, error) {
	if s == "" {
		return nil, nil
	}
	if len(s) < 4 {
		return nil, tine.ErrInvalid
	}
	if s[:4] != "\x02\x00\x00\x00" {
		return nil, tine.ErrUnsupported
	}
	if len(s)%8 != 4 {
		return nil, tine.ErrInvalid
	}
	var as []ACE
	for b := []byte(s[4:]); len(b) > 0; b = b[8:] {
		a := ACE{binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:])}
		if a.Tag != TagUser && a.Tag != TagGroup {
			a.ID = 0xffffffff
		}
		as = append(as, a)
	}
	return as, nil
}

// shape is a list with a letter for each entry, a capital for the owner's. The
// shapes that Linux takes are Uu*Gg*mo and UGo; ? cannot even be read, ! makes no
// sense.
func shape(as []ACE) string {
	letters := map[uint16]string{TagOwner: "U", TagUser: "u", TagOwnerGroup: "G", TagGroup: "g", TagMask: "m", TagOther: "o"}
	var b strings.Builder
	for _, a := range as {
		l, ok := letters[a.Tag]
		switch {
		case !ok, a.ID == 0xffffffff && (l == "u" || l == "g"):
			l = "?"
		case a.Perm > 7:
			l = "!"
		}
		b.WriteString(l)
	}
	return b.String()
}

func wellFormed(as []ACE) bool {
	s, ok := strings.CutPrefix(shape(as), "U")
	named := strings.Contains(s, "u") || strings.Contains(s, "g")
	s, hasGroup := strings.CutPrefix(strings.TrimLeft(s, "u"), "G")
	s, hasMask := strings.CutPrefix(strings.TrimLeft(s, "g"), "m")
	return ok && hasGroup && s == "o" && (hasMask || !named)
}

// find returns the entry that stands for a class of the mode.
func find(as []ACE, tags ...uint16) *ACE {
	for _, tag := range tags {
		for i := range as {
			if as[i].Tag == tag {
				return &as[i]
			}
		}
	}
	return nil
}

func rights(as []ACE) uint32 {
	return uint32(find(as, TagOwner).Perm)<<6 | uint32(find(as, TagMask, TagOwnerGroup).Perm)<<3 | uint32(find(as, TagOther).Perm)
}

func setRights(as []ACE, mode uint32) {
	find(as, TagOwner).Perm = uint16(mode >> 6 & 7)
	find(as, TagMask, TagOwnerGroup).Perm = uint16(mode >> 3 & 7)
	find(as, TagOther).Perm = uint16(mode & 7)
}

// setACL is setxattr and, with no value, removexattr of a list.
func (fs *FS) setACL(n *Node, name, value string) error {
	as, err := readACL(value)
	i, exists := n.xattr(name)
	unknown := strings.Contains(shape(as), "?")
	switch {
	case len(value) > maxACL:
		return tine.ErrTooLarge
	case err != nil:
		return err
	case unknown:
		return tine.ErrInvalid
	case n.Type() == TypeSymlink:
		return tine.ErrUnsupported
	case len(as) == 0 && !exists:
		return nil
	case len(as) > 0 && name == DefaultACL && !n.IsDir():
		return tine.ErrAccess
	case len(as) > 0 && !wellFormed(as):
		return tine.ErrInvalid
	}
	fs.touch(n.Ino, false, func(n *Node) {
		keep := len(as) > 0
		if keep && name == AccessACL {
			n.Mode = n.Mode&^0o777 | rights(as)
			keep = len(as) > 3
		}
		n.setXattr(i, exists, name, EncodeACL(as...), keep)
	})
	return nil
}

// inheritACL gives a new node what the default list of its directory says, or
// takes off the umask.
func (n *Node) inheritACL(dir *Node, umask uint32) {
	if n.Type() == TypeSymlink {
		return
	}
	i, ok := dir.xattr(DefaultACL)
	if !ok {
		n.Mode &^= umask & 0o777
		return
	}
	value := dir.Xattrs[i].Value
	as, _ := readACL(value)
	setRights(as, rights(as)&n.Mode)
	n.Mode = n.Mode&^0o777 | rights(as)
	if len(as) > 3 {
		n.Xattrs = append(n.Xattrs, Xattr{AccessACL, EncodeACL(as...)})
	}
	if n.IsDir() {
		n.Xattrs = append(n.Xattrs, Xattr{DefaultACL, value})
	}
}

// chmodACL follows a change of mode.
func (n *Node) chmodACL() {
	i, ok := n.xattr(AccessACL)
	if !ok {
		return
	}
	as, _ := readACL(n.Xattrs[i].Value)
	setRights(as, n.Mode)
	n.setXattr(i, true, AccessACL, EncodeACL(as...), true)
}
