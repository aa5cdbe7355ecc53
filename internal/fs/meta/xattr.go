package meta

import (
	"strings"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// GetXattr returns an extended attribute's value.
func (v View) GetXattr(ino tine.Ino, name string) (value []byte, err error) {
	err = v.read(func(r *reader) error {
		n, err := r.inode(ino)
		if err != nil {
			return err
		}
		if n.Flags&record.FlagXattrs == 0 {
			return tine.ErrNoAttr
		}
		f, err := r.Get(record.XattrKey(ino, name))
		if err != nil {
			return err
		}
		if f.Kind != timeline.Value {
			return tine.ErrNoAttr
		}
		value = f.Val[1:]
		return nil
	})
	return value, err
}

// SetXattr sets an extended attribute; the flags are those of setxattr(2). An
// ACL must be in order, changes the mode with it, and, set by someone outside
// the file's group, clears set-group-ID; the flags do not apply to it. A name
// with a NUL byte is KindInvalid.
func (v View) SetXattr(c Cred, ino tine.Ino, name string, value []byte, flags uint32) error {
	switch {
	case name == "":
		return tine.ErrRange
	case len(name) > tine.MaxXattrNameBytes:
		return tine.ErrRange
	case strings.Contains(name, "\x00"): // no kernel asks for it, an archive may; in a key it would end the name
		return tine.ErrInvalid
	case len(value) > tine.MaxXattrValueBytes:
		return tine.ErrTooLarge
	case flags&^(XattrCreate|XattrReplace) != 0:
		return tine.ErrInvalid
	case v.Full():
		return tine.ErrNoSpace
	}
	return v.change(func(t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		if isACL(name) {
			return t.setACL(c, n, name, value)
		}
		k := record.XattrKey(ino, name)
		f, err := t.Get(k)
		if err != nil {
			return err
		}
		switch exists := f.Kind == timeline.Value; {
		case exists && flags&XattrCreate != 0:
			return tine.ErrExists
		case !exists && flags&XattrReplace != 0:
			return tine.ErrNoAttr
		}
		t.Put(k, f, append([]byte{1}, value...))
		n.Flags |= record.FlagXattrs
		n.Ctime = t.Now()
		t.putInode(n)
		return nil
	})
}

// ListXattr returns the names of all extended attributes.
func (v View) ListXattr(ino tine.Ino) (names []string, err error) {
	err = v.read(func(r *reader) error {
		n, err := r.inode(ino)
		if err != nil || n.Flags&record.FlagXattrs == 0 {
			return err
		}
		p := record.InoPrefix(record.TableXattr, ino)
		return r.Scan(p, prefixEnd(p), func(k record.Logical, _ timeline.Found) (bool, error) {
			names = append(names, k.Name())
			return true, nil
		})
	})
	return names, err
}

// RemoveXattr removes an extended attribute. To remove an ACL that does not
// exist is no error, as in Linux.
func (v View) RemoveXattr(ino tine.Ino, name string) error {
	return v.change(func(t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		if isACL(name) {
			return t.setACL(Cred{}, n, name, nil)
		}
		k := record.XattrKey(ino, name)
		f, err := t.Get(k)
		if err != nil {
			return err
		}
		if f.Kind != timeline.Value {
			return tine.ErrNoAttr
		}
		n.Ctime = t.Now()
		t.putInode(n)
		return t.Del(k, f)
	})
}

// capability is the attribute that gives a program rights of root. Like
// set-user-ID it does not survive a change of what it was given to.
const capability = "security.capability"

func (t *txn) dropCapability(n *node) error {
	if n.Flags&record.FlagXattrs == 0 || n.isDir() {
		return nil
	}
	k := record.XattrKey(n.ino, capability)
	f, err := t.Get(k)
	if err != nil || f.Kind != timeline.Value {
		return err
	}
	return t.Del(k, f)
}
