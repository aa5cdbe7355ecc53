package meta

import (
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// renaming is one rename under way.
type renaming struct {
	from, to   *node // the directories; the same node when they are one
	name, as   string
	src, dst   *dentryOf
	moved, old *node // what moves, and what it replaces or is exchanged with (nil: nothing)
	keep       Keep
}

// Rename moves a name, as renameat2(2) with its flags. It returns the inode
// that has moved and the one that was replaced or exchanged with it; 0 is none.
func (v View) Rename(c Cred, parent tine.Ino, name string, newParent tine.Ino, newName string, flags uint32, keep Keep) (moved, old tine.Ino, err error) {
	if flags&^(RenameNoReplace|RenameExchange|RenameWhiteout) != 0 ||
		flags&RenameExchange != 0 && flags&(RenameNoReplace|RenameWhiteout) != 0 {
		return 0, 0, tine.ErrInvalid
	}
	for _, s := range []string{name, newName} {
		if err := checkName(s); err != nil {
			return 0, 0, err
		}
		if s == "." || s == ".." {
			return 0, 0, tine.Errorf(tine.KindBusy, "%q cannot be renamed", s)
		}
	}
	full := v.Full()
	err = v.change(func(t *txn) error {
		m := &renaming{name: name, as: newName, keep: keep}
		if err := m.find(t, parent, newParent); err != nil {
			return err
		}
		if m.old != nil && m.old.ino == m.moved.ino && flags&RenameNoReplace == 0 {
			return nil // two names of one inode: nothing happens, as rename(2) says
		}
		if err := m.check(t, flags); err != nil {
			return err
		}
		if full && m.old == nil {
			return tine.ErrNoSpace
		}
		moved = m.moved.ino
		if m.old != nil {
			old = m.old.ino
		}
		if flags&RenameExchange != 0 {
			return m.exchange(t)
		}
		return m.move(t, c, flags&RenameWhiteout != 0)
	})
	return moved, old, err
}

func (m *renaming) find(t *txn, parent, newParent tine.Ino) (err error) {
	if m.from, err = t.dir(parent); err != nil {
		return err
	}
	m.to = m.from
	if newParent != parent {
		if m.to, err = t.livingDir(newParent); err != nil {
			return err
		}
	} else if m.to.Nlink == 0 {
		return tine.ErrNotFound
	}
	if m.src, err = t.dentry(parent, m.name); err != nil {
		return err
	}
	if !m.src.exists() {
		return tine.ErrNotFound
	}
	if m.dst, err = t.dentry(newParent, m.as); err != nil {
		return err
	}
	if m.moved, err = t.inode(m.src.Ino); err != nil {
		return err
	}
	if m.dst.exists() {
		m.old, err = t.inode(m.dst.Ino)
	}
	return err
}

// check refuses what must not happen; after it nothing can fail but the store.
func (m *renaming) check(t *txn, flags uint32) error {
	exchange := flags&RenameExchange != 0
	switch {
	case exchange && m.old == nil:
		return tine.ErrNotFound
	case flags&RenameNoReplace != 0 && m.old != nil:
		return tine.ErrExists
	}
	if m.moved.isDir() && m.from != m.to {
		if err := t.checkNotBelow(m.to, m.moved.ino); err != nil {
			return err
		}
	}
	if exchange {
		if m.old.isDir() && m.from != m.to {
			return t.checkNotBelow(m.from, m.old.ino)
		}
		return nil
	}
	if m.old == nil {
		return nil
	}
	switch {
	case m.moved.isDir() && !m.old.isDir():
		return tine.ErrNotDir
	case !m.moved.isDir() && m.old.isDir():
		return tine.ErrIsDir
	}
	return t.checkRemovable(m.old, m.old.isDir())
}

// checkNotBelow refuses to move a directory below itself.
func (t *txn) checkNotBelow(d *node, ino tine.Ino) error {
	for at := d; ; {
		if at.ino == ino {
			return tine.ErrInvalid
		}
		if at.ino == tine.RootIno {
			return nil
		}
		p, err := t.inode(at.Parent)
		if err != nil {
			return err
		}
		at = p
	}
}

func (m *renaming) move(t *txn, c Cred, whiteout bool) (err error) {
	var w *node
	if whiteout {
		if w, err = t.newInode(c, m.from, NewNode{Mode: modeChar}); err != nil {
			return err
		}
	}
	if m.old != nil {
		if m.old.isDir() {
			m.to.Nlink--
		}
		if err := t.dropLink(m.old, m.to.ino, m.as, m.keep); err != nil {
			return err
		}
	}
	if err := m.relink(t, m.moved, m.from, m.name, m.to, m.as); err != nil {
		return err
	}
	t.setName(m.dst, m.to.ino, m.as, m.moved)
	if whiteout {
		t.setName(m.src, m.from.ino, m.name, w)
		t.Count(1, 0)
		t.putInode(w)
	} else if err := t.dropName(m.src, m.from.ino); err != nil {
		return err
	}
	m.stamp(t, m.moved)
	return nil
}

func (m *renaming) exchange(t *txn) error {
	if err := m.relink(t, m.moved, m.from, m.name, m.to, m.as); err != nil {
		return err
	}
	if err := m.relink(t, m.old, m.to, m.as, m.from, m.name); err != nil {
		return err
	}
	t.setName(m.dst, m.to.ino, m.as, m.moved)
	t.setName(m.src, m.from.ino, m.name, m.old)
	m.stamp(t, m.moved, m.old)
	return nil
}

// relink updates what an inode knows of where it lies.
func (m *renaming) relink(t *txn, n *node, from *node, name string, to *node, as string) error {
	if n.isDir() {
		if from != to {
			from.Nlink--
			to.Nlink++
			n.Parent = to.ino
		}
		return nil
	}
	if err := t.forgetLink(n, from.ino, name); err != nil {
		return err
	}
	return t.learnLink(n, to.ino, as)
}

// stamp sets the times that a rename changes and puts the inodes.
func (m *renaming) stamp(t *txn, ns ...*node) {
	for _, n := range ns {
		n.Ctime = t.Now()
		t.putInode(n)
	}
	m.from.Mtime, m.from.Ctime = t.Now(), t.Now()
	t.putInode(m.from)
	if m.to != m.from {
		m.to.Mtime, m.to.Ctime = t.Now(), t.Now()
		t.putInode(m.to)
	}
}

// NextCookie returns the cookie that the next name made gets. Those of all names
// that there are, are smaller.
func (v View) NextCookie() (c uint64, err error) {
	err = v.read(func(r *reader) error {
		c, err = r.NextCookie()
		return err
	})
	return c, err
}

// ReadDir calls fn for the directory's entries after the cookie, in order,
// until it returns false. "." and ".." are not among them.
func (v View) ReadDir(ino tine.Ino, cookie uint64, fn func(DirEntry) bool) error {
	return v.read(func(r *reader) error {
		if _, err := r.dir(ino); err != nil {
			return err
		}
		end := prefixEnd(record.InoPrefix(record.TableCookie, ino))
		return r.Scan(record.CookieKey(ino, cookie+1), end, func(k record.Logical, f timeline.Found) (bool, error) {
			c, err := record.DecodeCookie(f.Val)
			if err != nil {
				return false, err
			}
			return fn(DirEntry{Name: c.Name, Ino: c.Ino, Type: c.Type, Cookie: k.Number()}), nil
		})
	})
}
