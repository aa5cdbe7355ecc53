package meta

import (
	"encoding/binary"
	"slices"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// The attributes that hold access control lists, acl(5), in the form in which
// Linux passes them to programs: a version (4 bytes) and entries of 8 bytes,
// little endian. A default list belongs to a directory and is what new files in
// it start from; an access list refines the mode of its file.
const (
	XattrACLAccess  = "system.posix_acl_access"
	XattrACLDefault = "system.posix_acl_default"
)

const (
	aclVersion     = 2
	aclHeaderBytes = 4
	aclEntryBytes  = 8
	aclNoID        = 1<<32 - 1
	// maxACLBytes is the largest list that a kernel reads: a page.
	maxACLBytes = 4096
)

// Tags of entries, in the order in which a list has them.
const (
	aclOwner      = 0x01
	aclUser       = 0x02 // with the user in id
	aclOwnerGroup = 0x04
	aclGroup      = 0x08 // with the group in id
	aclMask       = 0x10 // what all groups and named users have at most
	aclOther      = 0x20
)

// aclEntry gives a class of users some of the rights rwx (4, 2, 1).
type aclEntry struct {
	tag  uint16
	perm uint16
	id   uint32 // aclNoID unless the tag says so
}

type acl []aclEntry

func isACL(name string) bool { return name == XattrACLAccess || name == XattrACLDefault }

// decodeACL reads a list; valid says whether it makes sense. As in Linux, an
// unknown version is tine.ErrUnsupported, anything else that is wrong
// tine.ErrInvalid. No entries are no list: nil.
func decodeACL(b []byte) (acl, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if len(b) < aclHeaderBytes {
		return nil, tine.ErrInvalid
	}
	if binary.LittleEndian.Uint32(b) != aclVersion {
		return nil, tine.ErrUnsupported
	}
	b = b[aclHeaderBytes:]
	if len(b)%aclEntryBytes != 0 {
		return nil, tine.ErrInvalid
	}
	var a acl
	for ; len(b) > 0; b = b[aclEntryBytes:] {
		e := aclEntry{binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:])}
		switch e.tag {
		case aclUser, aclGroup:
			if e.id == aclNoID {
				return nil, tine.ErrInvalid
			}
		case aclOwner, aclOwnerGroup, aclMask, aclOther:
			e.id = aclNoID
		default:
			return nil, tine.ErrInvalid
		}
		a = append(a, e)
	}
	return a, nil
}

// valid reports whether the list has its entries in order, one each for owner,
// group and others, and a mask if it names anybody.
func (a acl) valid() bool {
	var counts [aclOther + 1]int
	last := uint16(0)
	for _, e := range a {
		named := e.tag == aclUser || e.tag == aclGroup
		switch {
		case e.tag < last, e.perm&^7 != 0, !named && counts[e.tag] > 0:
			return false
		}
		last = e.tag
		counts[e.tag]++
	}
	named := counts[aclUser]+counts[aclGroup] > 0
	return counts[aclOwner] == 1 && counts[aclOwnerGroup] == 1 && counts[aclOther] == 1 && (!named || counts[aclMask] == 1)
}

func (a acl) encode() []byte {
	b := make([]byte, 0, aclHeaderBytes+len(a)*aclEntryBytes)
	b = binary.LittleEndian.AppendUint32(b, aclVersion)
	for _, e := range a {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// classes returns the three entries that permission bits stand for. In a list
// with a mask the group's bits are the mask's.
func (a acl) classes() (owner, group, other *aclEntry) {
	for i := range a {
		switch e := &a[i]; e.tag {
		case aclOwner:
			owner = e
		case aclOwnerGroup:
			if group == nil {
				group = e
			}
		case aclMask:
			group = e
		case aclOther:
			other = e
		}
	}
	return owner, group, other
}

// mode returns the permission bits that a list shows as.
func (a acl) mode() uint32 {
	owner, group, other := a.classes()
	return uint32(owner.perm)<<6 | uint32(group.perm)<<3 | uint32(other.perm)
}

// plain reports whether the list says no more than permission bits do.
func (a acl) plain() bool { return len(a) == 3 }

// chmod gives the list new permission bits.
func (a acl) chmod(mode uint32) {
	owner, group, other := a.classes()
	owner.perm, group.perm, other.perm = uint16(mode>>6&7), uint16(mode>>3&7), uint16(mode&7)
}

// acl finds a list of an inode; nil if it has none.
func (r *reader) acl(n *node, name string) (acl, timeline.Found, error) {
	if n.Flags&record.FlagXattrs == 0 {
		return nil, timeline.Found{}, nil
	}
	f, err := r.Get(record.XattrKey(n.ino, name))
	if err != nil || f.Kind != timeline.Value {
		return nil, f, err
	}
	a, err := decodeACL(f.Val[1:])
	if err == nil && !a.valid() {
		err = tine.ErrInvalid
	}
	if err != nil {
		return nil, f, tine.Errorf(tine.KindCorrupt, "attribute %s of inode %d, born %s: %w", name, n.ino, f.Birth, err)
	}
	return a, f, nil
}

func (t *txn) putACL(n *node, name string, at timeline.Found, a acl) {
	t.Put(record.XattrKey(n.ino, name), at, append([]byte{1}, a.encode()...))
	n.Flags |= record.FlagXattrs
}

// setACL gives an inode a list, or with an empty value takes it away. An access
// list changes the mode, and is not kept where the mode alone says the same.
func (t *txn) setACL(c Cred, n *node, name string, value []byte) error {
	if len(value) > maxACLBytes {
		return tine.ErrTooLarge
	}
	a, err := decodeACL(value)
	switch {
	case err != nil:
		return err
	case n.Mode&modeType == modeSymlink:
		return tine.ErrUnsupported
	case a == nil:
		return t.dropACL(n, name)
	case name == XattrACLDefault && !n.isDir():
		return tine.ErrAccess
	case !a.valid():
		return tine.ErrInvalid
	}
	f, err := t.Get(record.XattrKey(n.ino, name))
	if err != nil {
		return err
	}
	if name == XattrACLAccess {
		n.Mode = n.Mode&^0o777 | a.mode()
		if !c.InGroup(n.GID) {
			n.Mode &^= modeSetGID
		}
	}
	if name == XattrACLDefault || !a.plain() {
		t.putACL(n, name, f, a)
	} else if f.Kind == timeline.Value {
		err = t.Del(record.XattrKey(n.ino, name), f)
	}
	n.Ctime = t.Now()
	t.putInode(n)
	return err
}

// dropACL takes a list away. That there is none is no error, as it is with
// other attributes.
func (t *txn) dropACL(n *node, name string) error {
	k := record.XattrKey(n.ino, name)
	f, err := t.Get(k)
	if err != nil || f.Kind != timeline.Value {
		return err
	}
	n.Ctime = t.Now()
	t.putInode(n)
	return t.Del(k, f)
}

// heritage is what something new gets from the directory that it is made in.
type heritage struct {
	mode            uint32
	access, initial acl // initial becomes a new directory's default list
}

// inherit works out the mode and lists of something new in directory p. Where p
// has a default list, that takes the place of the umask.
func (r *reader) inherit(p *node, mode, umask uint32) (heritage, error) {
	if mode&modeType == modeSymlink {
		return heritage{mode: mode}, nil
	}
	initial, _, err := r.acl(p, XattrACLDefault)
	if err != nil || initial == nil {
		return heritage{mode: mode &^ (umask & 0o777)}, err
	}
	access := slices.Clone(initial)
	h := heritage{mode: mode &^ 0o777}
	access.chmod(access.mode() & mode)
	h.mode |= access.mode()
	if !access.plain() {
		h.access = access
	}
	if mode&modeType == modeDir {
		h.initial = initial
	}
	return h, nil
}

// bequeath gives a new inode the lists that it has inherited.
func (t *txn) bequeath(n *node, h heritage) {
	if h.access != nil {
		t.putACL(n, XattrACLAccess, timeline.Found{}, h.access)
	}
	if h.initial != nil {
		t.putACL(n, XattrACLDefault, timeline.Found{}, h.initial)
	}
}
