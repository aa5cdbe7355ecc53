package meta

import (
	"strings"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// File types and mode bits, as in stat(2).
const (
	modeType    = 0o170000
	modeDir     = 0o040000
	modeRegular = 0o100000
	modeSymlink = 0o120000
	modeChar    = 0o020000
	modePerm    = 0o7777
	modeSetUID  = 0o4000
	modeSetGID  = 0o2000
	modeXGroup  = 0o010
)

// firstCookie leaves 1 and 2 to "." and "..".
const firstCookie = 3

// node is an inode as an operation has found it.
type node struct {
	ino tine.Ino
	record.Inode
	at timeline.Found
}

// inode finds an inode; its absence is tine.ErrStale, for the caller has a
// number that was once good.
func (r *reader) inode(ino tine.Ino) (*node, error) {
	f, err := r.Get(record.InodeKey(ino))
	if err != nil {
		return nil, err
	}
	if f.Kind != timeline.Value {
		return nil, tine.ErrStale
	}
	rec, err := record.DecodeInode(f.Val)
	if err != nil {
		return nil, tine.Errorf(tine.KindOf(err), "inode %d, born %s: %w", ino, f.Birth, err)
	}
	return &node{ino, rec, f}, nil
}

// dir finds a directory in which names may be looked up.
func (r *reader) dir(ino tine.Ino) (*node, error) {
	n, err := r.inode(ino)
	if err == tine.ErrStale {
		return nil, tine.ErrNotFound
	}
	if err == nil && n.Mode&modeType != modeDir {
		return nil, tine.ErrNotDir
	}
	return n, err
}

// livingDir finds a directory that still has a name.
func (r *reader) livingDir(ino tine.Ino) (*node, error) {
	n, err := r.dir(ino)
	if err == nil && n.Nlink == 0 {
		return nil, tine.ErrNotFound
	}
	return n, err
}

func (t *txn) putInode(n *node) { t.Put(record.InodeKey(n.ino), n.at, n.Append(nil)) }

func (n *node) isDir() bool { return n.Mode&modeType == modeDir }

// attr is what stat shows of the inode.
func (n *node) attr() Attr {
	return Attr{
		Ino: n.ino, Mode: n.Mode, Nlink: n.Nlink, UID: n.UID, GID: n.GID, Rdev: n.Rdev, Size: n.Size, Bytes: n.Bytes,
		Mtime: n.Mtime, Ctime: n.Ctime, Atime: n.Atime, Btime: n.Btime, Xattrs: n.Flags&record.FlagXattrs != 0,
	}
}

// direntType is the type of a mode as dirent's d_type has it.
func direntType(mode uint32) uint8 { return uint8(mode & modeType >> 12) }

// entryOf is a name of a directory as an operation has found it.
type dentryOf struct {
	key record.Logical
	at  timeline.Found
	record.Dentry
}

func (e *dentryOf) exists() bool { return e.at.Exists() }

// dentry looks a name up; it need not exist.
func (r *reader) dentry(parent tine.Ino, name string) (*dentryOf, error) {
	e := &dentryOf{key: record.DentryKey(parent, name)}
	var err error
	if e.at, err = r.Get(e.key); err != nil || !e.exists() {
		return e, err
	}
	if e.Dentry, err = record.DecodeDentry(e.at.Val); err != nil {
		return nil, tine.Errorf(tine.KindOf(err), "name %q in directory %d, born %s: %w", name, parent, e.at.Birth, err)
	}
	return e, nil
}

// checkName refuses what cannot be a name.
func checkName(name string) error {
	switch {
	case name == "" || strings.ContainsAny(name, "/\x00"):
		return tine.ErrInvalid
	case len(name) > tine.MaxNameBytes:
		return tine.ErrNameTooLong
	}
	return nil
}

// Lookup finds a name in a directory.
func (v View) Lookup(parent tine.Ino, name string) (a Attr, err error) {
	err = v.read(func(r *reader) error {
		if len(name) > tine.MaxNameBytes {
			if _, err := r.dir(parent); err != nil {
				return err
			}
			return tine.ErrNameTooLong
		}
		e, err := r.dentry(parent, name)
		if err != nil {
			return err
		}
		if !e.exists() {
			if _, err := r.dir(parent); err != nil {
				return err
			}
			return tine.ErrNotFound
		}
		n, err := r.inode(e.Ino)
		if err == tine.ErrStale {
			return tine.Errorf(tine.KindCorrupt, "name %q in directory %d names inode %d, which does not exist", name, parent, e.Ino)
		}
		if err != nil {
			return err
		}
		a = n.attr()
		return nil
	})
	return a, err
}

// Attr returns an inode's attributes.
func (v View) Attr(ino tine.Ino) (a Attr, err error) {
	err = v.read(func(r *reader) error {
		n, err := r.inode(ino)
		if err != nil {
			return err
		}
		a = n.attr()
		return nil
	})
	return a, err
}

// Parent returns the directory that a directory lies in; the root's is itself.
func (v View) Parent(ino tine.Ino) (p tine.Ino, err error) {
	err = v.read(func(r *reader) error {
		n, err := r.dir(ino)
		if err == nil {
			p = n.Parent
		}
		return err
	})
	return p, err
}

// Readlink returns a symbolic link's target.
func (v View) Readlink(ino tine.Ino) (target string, err error) {
	err = v.read(func(r *reader) error {
		n, err := r.inode(ino)
		if err != nil {
			return err
		}
		if n.Mode&modeType != modeSymlink {
			return tine.ErrInvalid
		}
		target = n.Target
		return nil
	})
	return target, err
}

// SetAttr changes attributes. A change of owner clears set-user-ID, and
// set-group-ID of executables, of anything but a directory, as chown(2) says;
// a change of mode by someone outside the file's group clears set-group-ID, and
// changes an access ACL with it.
func (v View) SetAttr(c Cred, ino tine.Ino, s SetAttr) (a Attr, err error) {
	if s.Size != nil {
		if err := v.checkSize(*s.Size); err != nil {
			return a, err
		}
	} else if v.Scarce() { // the rows of attributes would take what deletions need
		return a, tine.ErrNoSpace
	}
	err = v.change(func(t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		var list acl
		var listAt timeline.Found
		if s.Mode != nil {
			if list, listAt, err = t.acl(n, XattrACLAccess); err != nil {
				return err
			}
		}
		if s.Size != nil {
			if n.isDir() {
				return tine.ErrIsDir
			}
			if err := t.resize(n, *s.Size); err != nil {
				return err
			}
			n.Mtime = t.Now()
		}
		n.setOwnerAndMode(c, s)
		if s.Size != nil || s.UID != nil || s.GID != nil || s.KillPriv {
			if err := t.dropCapability(n); err != nil {
				return err
			}
		}
		if list != nil {
			list.chmod(n.Mode)
			t.putACL(n, XattrACLAccess, listAt, list)
		}
		if s.Mtime != nil {
			n.Mtime = *s.Mtime
		}
		if s.Atime != nil {
			n.Atime = *s.Atime
		}
		n.Ctime = t.Now()
		if s.Ctime != nil {
			n.Ctime = *s.Ctime
		}
		t.putInode(n)
		a = n.attr()
		return nil
	})
	return a, err
}

func (n *node) setOwnerAndMode(c Cred, s SetAttr) {
	if s.UID != nil {
		n.UID = *s.UID
	}
	if s.GID != nil {
		n.GID = *s.GID
	}
	if s.UID != nil || s.GID != nil || s.KillPriv {
		n.killPriv(c)
	}
	if s.Mode != nil {
		n.Mode = n.Mode&modeType | *s.Mode&modePerm
		if n.Mode&modeSetGID != 0 && !c.InGroup(n.GID) {
			n.Mode &^= modeSetGID
		}
	}
}

// killPriv takes away the rights that must not survive a write or a change of
// owner. Set-group-ID without the group's right to execute gives no rights, and
// stays when a member of the group makes the change.
func (n *node) killPriv(c Cred) {
	if n.isDir() {
		return
	}
	n.Mode &^= modeSetUID
	if n.Mode&modeXGroup != 0 || n.Mode&modeSetGID != 0 && !c.InGroup(n.GID) {
		n.Mode &^= modeSetGID
	}
}

// Stat returns what statfs shows of the view.
func (v View) Stat() (s FSStat, err error) {
	err = v.read(func(r *reader) error {
		s.Inodes, s.Bytes, err = r.Totals()
		q := r.Quota()
		s.LimitBytes, s.LimitInodes = q.Bytes, q.Inodes
		return err
	})
	return s, err
}
