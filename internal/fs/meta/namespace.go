package meta

import (
	"strings"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// NewNode says what to make: a file, directory, symbolic link or special file.
type NewNode struct {
	Mode    uint32 // type and permissions
	Rdev    uint32
	Target  string // of a symbolic link
	Open    bool   // also open it, so that a racing unlink leaves it to the handle
	Unnamed bool   // O_TMPFILE: no name; it goes at the last close unless linked
}

// Create makes an inode with a name. The name must not exist.
func (v View) Create(c Cred, parent tine.Ino, name string, what NewNode) (a Attr, err error) {
	if err := checkName(name); err != nil && !what.Unnamed {
		return a, err
	}
	if name == "." || name == ".." {
		return a, tine.ErrExists
	}
	if len(what.Target) > tine.MaxSymlinkBytes {
		return a, tine.ErrNameTooLong
	}
	if strings.Contains(what.Target, "\x00") { // readlink(2) would show a part of it
		return a, tine.ErrInvalid
	}
	if v.Full() {
		return a, tine.ErrNoSpace
	}
	err = v.change(func(t *txn) error {
		p, err := t.livingDir(parent)
		if err != nil {
			return err
		}
		var e *dentryOf
		if !what.Unnamed {
			if e, err = t.dentry(parent, name); err != nil {
				return err
			}
			if e.exists() {
				return tine.ErrExists
			}
		}
		n, err := t.newInode(c, p, what)
		if err != nil {
			return err
		}
		if what.Unnamed {
			n.Nlink, n.Parent = 0, 0
			t.Put(record.OrphanKey(n.ino), timeline.Found{}, emptyRow)
		} else {
			t.setName(e, parent, name, n)
			t.Count(1, 0)
			if n.isDir() {
				p.Nlink++
			}
			p.Mtime, p.Ctime = t.Now(), t.Now()
			t.putInode(p)
		}
		t.putInode(n)
		if what.Open || what.Unnamed {
			h := t.Opened(n.ino)
			h.Count++
			t.SetOrphan(h, what.Unnamed, 0)
		}
		a = n.attr()
		return nil
	})
	return a, err
}

// emptyRow is the value of a row that only exists.
var emptyRow = []byte{1}

// newInode makes an inode in directory p, with the group and set-group-ID
// rules of a set-group-ID directory and what a default list says.
func (t *txn) newInode(c Cred, p *node, what NewNode) (*node, error) {
	if err := t.AdmitInodes(1); err != nil {
		return nil, err
	}
	h, err := t.inherit(p, what.Mode, c.Umask)
	if err != nil {
		return nil, err
	}
	n := &node{ino: t.NextIno()}
	n.Inode = record.Inode{
		Mode: h.mode, UID: c.UID, GID: c.GID, Nlink: 1, Rdev: what.Rdev, Parent: p.ino, Target: what.Target,
		Mtime: t.Now(), Ctime: t.Now(), Atime: t.Now(), Btime: t.Now(),
	}
	if p.Mode&modeSetGID != 0 {
		n.GID = p.GID
		if n.isDir() {
			n.Mode |= modeSetGID
		}
	}
	switch n.Mode & modeType {
	case modeDir:
		n.Nlink = 2
	case modeSymlink:
		n.Size = int64(len(what.Target))
	}
	// What counts is whether execution was asked for, not what is left of it.
	if m := uint32(modeSetGID | modeXGroup); !n.isDir() && what.Mode&m == m && !c.InGroup(n.GID) {
		n.Mode &^= modeSetGID
	}
	t.bequeath(n, h)
	return n, nil
}

// setName gives an inode a name in the directory; an existing entry keeps its
// place in the paging order.
func (t *txn) setName(e *dentryOf, parent tine.Ino, name string, n *node) {
	cookieAt := timeline.Found{}
	if e.exists() {
		cookieAt = timeline.Found{Kind: timeline.Value, Birth: e.at.Birth}
	} else {
		e.Cookie = t.NextCookie()
	}
	e.Ino, e.Type = n.ino, direntType(n.Mode)
	t.Put(e.key, e.at, e.Dentry.Append(nil))
	t.Put(record.CookieKey(parent, e.Cookie), cookieAt, record.Cookie{Ino: n.ino, Type: e.Type, Name: name}.Append(nil))
}

// dropName takes a name away.
func (t *txn) dropName(e *dentryOf, parent tine.Ino) error {
	if err := t.Del(record.CookieKey(parent, e.Cookie), timeline.Found{Kind: timeline.Value, Birth: e.at.Birth}); err != nil {
		return err
	}
	return t.Del(e.key, e.at)
}

// forgetLink updates what an inode knows of its names when one goes.
func (t *txn) forgetLink(n *node, parent tine.Ino, name string) error {
	if n.Flags&record.FlagLinks != 0 {
		k := record.LinkKey(n.ino, parent, name)
		f, err := t.Get(k)
		if err != nil {
			return err
		}
		if f.Kind == timeline.Value {
			return t.Del(k, f)
		}
	}
	if n.Parent == parent {
		n.Parent = 0
	}
	return nil
}

// learnLink updates what an inode knows of its names when one comes.
func (t *txn) learnLink(n *node, parent tine.Ino, name string) error {
	if n.Parent == 0 {
		n.Parent = parent
		return nil
	}
	k := record.LinkKey(n.ino, parent, name)
	f, err := t.Get(k)
	if err != nil {
		return err
	}
	n.Flags |= record.FlagLinks
	t.Put(k, f, emptyRow)
	return nil
}

// Link gives an inode another name.
func (v View) Link(ino, parent tine.Ino, name string) (a Attr, err error) {
	if err := checkName(name); err != nil {
		return a, err
	}
	if v.Full() {
		return a, tine.ErrNoSpace
	}
	err = v.change(func(t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		p, err := t.livingDir(parent)
		if err != nil {
			return err
		}
		e, err := t.dentry(parent, name)
		if err != nil {
			return err
		}
		switch {
		case n.isDir():
			return tine.ErrPermission
		case e.exists() || name == "." || name == "..":
			return tine.ErrExists
		case n.Nlink >= tine.MaxLinks:
			return tine.ErrTooMany
		}
		if n.Nlink == 0 {
			h := t.Handles(ino)
			if h == nil || !h.Orphan {
				return tine.ErrNotFound
			}
			if err := t.adoptOrphan(n, h); err != nil {
				return err
			}
		}
		if err := t.learnLink(n, parent, name); err != nil {
			return err
		}
		t.setName(e, parent, name, n)
		n.Nlink++
		n.Ctime = t.Now()
		t.putInode(n)
		p.Mtime, p.Ctime = t.Now(), t.Now()
		t.putInode(p)
		a = n.attr()
		return nil
	})
	return a, err
}

// adoptOrphan takes the mark of an unlinked file away because it gets a name:
// O_TMPFILE with linkat(2).
func (t *txn) adoptOrphan(n *node, h *timeline.Handles) error {
	k := record.OrphanKey(n.ino)
	f, err := t.Get(k)
	if err != nil {
		return err
	}
	t.SetOrphan(h, false, 0)
	t.Count(1, n.Bytes)
	return t.Del(k, f)
}

// Keep says of an inode that is about to lose its last name how many handles
// are to be counted on it, as Open does: it stays until that many are closed.
// It is called with the line locked and must not call the engine; nil is none.
type Keep func(tine.Ino) int

// Unlink removes the name of anything but a directory, and returns its inode.
func (v View) Unlink(parent tine.Ino, name string, keep Keep) (tine.Ino, error) {
	return v.remove(parent, name, false, keep)
}

// Rmdir removes an empty directory, and returns its inode.
func (v View) Rmdir(parent tine.Ino, name string, keep Keep) (tine.Ino, error) {
	return v.remove(parent, name, true, keep)
}

func (v View) remove(parent tine.Ino, name string, dir bool, keep Keep) (ino tine.Ino, err error) {
	switch {
	case len(name) > tine.MaxNameBytes:
		return 0, tine.ErrNameTooLong
	case dir && name == ".":
		return 0, tine.ErrInvalid
	case dir && name == "..":
		return 0, tine.ErrNotEmpty
	case name == "." || name == "..":
		return 0, tine.ErrIsDir
	}
	err = v.change(func(t *txn) error {
		p, err := t.dir(parent)
		if err != nil {
			return err
		}
		e, err := t.dentry(parent, name)
		if err != nil {
			return err
		}
		if !e.exists() {
			return tine.ErrNotFound
		}
		n, err := t.inode(e.Ino)
		if err != nil {
			return err
		}
		if err := t.checkRemovable(n, dir); err != nil {
			return err
		}
		if err := t.dropName(e, parent); err != nil {
			return err
		}
		if n.isDir() {
			p.Nlink--
		}
		p.Mtime, p.Ctime = t.Now(), t.Now()
		t.putInode(p)
		ino = n.ino
		return t.dropLink(n, parent, name, keep)
	})
	return ino, err
}

func (t *txn) checkRemovable(n *node, dir bool) error {
	switch {
	case n.isDir() && !dir:
		return tine.ErrIsDir
	case !n.isDir() && dir:
		return tine.ErrNotDir
	case n.isDir():
		empty, err := t.emptyDir(n.ino)
		if err != nil {
			return err
		}
		if !empty {
			return tine.ErrNotEmpty
		}
	}
	return nil
}

func (r *reader) emptyDir(ino tine.Ino) (bool, error) {
	empty := true
	p := record.InoPrefix(record.TableCookie, ino)
	err := r.Scan(p, prefixEnd(p), func(record.Logical, timeline.Found) (bool, error) {
		empty = false
		return false, nil
	})
	return empty, err
}

// dropLink takes one link of an inode away; the last one takes the inode, or
// leaves it to handles.
func (t *txn) dropLink(n *node, parent tine.Ino, name string, keep Keep) error {
	n.Ctime = t.Now()
	if n.isDir() {
		n.Nlink = 0
	} else {
		n.Nlink--
		if err := t.forgetLink(n, parent, name); err != nil {
			return err
		}
	}
	if n.Nlink > 0 {
		t.putInode(n)
		return nil
	}
	t.Count(-1, -n.Bytes)
	if keep != nil {
		if handles := keep(n.ino); handles > 0 {
			t.Opened(n.ino).Count += handles
		}
	}
	return t.dropInode(n)
}
