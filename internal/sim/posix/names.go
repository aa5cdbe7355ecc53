package posix

import "tine.dev/tine/internal/tine"

// Rename flags, as renameat2(2).
const (
	NoReplace = 1
	Exchange  = 2
	Whiteout  = 4
)

// touch changes a node's ctime, and its mtime if content changed, and lets
// change do the rest.
func (fs *FS) touch(ino tine.Ino, content bool, change func(*Node)) {
	old := fs.Get(ino)
	if old == nil {
		return
	}
	n := *old
	n.Ctime = fs.Now
	if content {
		n.Mtime = fs.Now
		n.dropCapability()
	}
	if change != nil {
		change(&n)
	}
	fs.put(n)
}

// Link gives a file another name.
func (fs *FS) Link(ino, parent tine.Ino, name string) error {
	n, err := fs.node(ino)
	if err != nil {
		return err
	}
	dir, there, err := fs.place(parent, name)
	switch {
	case err != nil:
		return err
	case there != nil:
		return tine.ErrExists
	case dir.Nlink == 0:
		return tine.ErrNotFound
	case n.IsDir():
		return tine.ErrPermission
	case n.Nlink >= tine.MaxLinks:
		return tine.ErrTooMany
	}
	fs.touch(ino, false, func(n *Node) { n.Nlink++ })
	fs.touch(parent, true, func(d *Node) { d.setName(name, ino) })
	return nil
}

// Unlink removes a name of anything but a directory.
func (fs *FS) Unlink(parent tine.Ino, name string) error {
	_, there, err := fs.place(parent, name)
	switch {
	case err != nil:
		return err
	case there == nil:
		return tine.ErrNotFound
	case there.IsDir():
		return tine.ErrIsDir
	}
	fs.touch(parent, true, func(d *Node) { d.setName(name, 0) })
	fs.touch(there.Ino, false, func(n *Node) { n.Nlink-- })
	return nil
}

// Rmdir removes an empty directory.
func (fs *FS) Rmdir(parent tine.Ino, name string) error {
	_, there, err := fs.place(parent, name)
	switch {
	case err != nil:
		return err
	case there == nil:
		return tine.ErrNotFound
	case !there.IsDir():
		return tine.ErrNotDir
	case len(there.Names) > 0:
		return tine.ErrNotEmpty
	}
	fs.touch(parent, true, func(d *Node) { d.setName(name, 0); d.Nlink-- })
	fs.touch(there.Ino, false, func(n *Node) { n.Nlink = 0 })
	return nil
}

// Within reports whether ino is dir or lies anywhere below it.
func (fs *FS) Within(ino, dir tine.Ino) bool {
	for ino != dir {
		n := fs.Get(ino)
		if n == nil || n.Parent == ino || n.Parent == 0 {
			return false
		}
		ino = n.Parent
	}
	return true
}

// move is a rename whose names have been looked up.
type move struct {
	from, to         tine.Ino // the directories
	name, newName    string
	moved, replaced  *Node // replaced is nil if the new name is free
	exchange, leaves bool
}

// checkMove gives the errors of rename in the order in which Linux looks.
func (fs *FS) checkMove(m move, flags uint32) error {
	switch {
	case m.moved == nil:
		return tine.ErrNotFound
	case flags&NoReplace != 0 && m.replaced != nil:
		return tine.ErrExists
	case m.exchange && m.replaced == nil:
		return tine.ErrNotFound
	case m.moved.IsDir() && fs.Within(m.to, m.moved.Ino):
		return tine.ErrInvalid
	case m.replaced != nil && m.replaced.IsDir() && fs.Within(m.from, m.replaced.Ino):
		if m.exchange {
			return tine.ErrInvalid
		}
		return tine.ErrNotEmpty
	case m.replaced == nil && fs.Get(m.to).Nlink == 0:
		return tine.ErrNotFound
	}
	if m.exchange || m.replaced == nil || m.replaced.Ino == m.moved.Ino {
		return nil
	}
	switch {
	case m.moved.IsDir() && !m.replaced.IsDir():
		return tine.ErrNotDir
	case !m.moved.IsDir() && m.replaced.IsDir():
		return tine.ErrIsDir
	case len(m.replaced.Names) > 0:
		return tine.ErrNotEmpty
	}
	return nil
}

// Rename moves a name. whiteout is the inode to leave behind with that flag,
// its number as the engine has chosen it.
func (fs *FS) Rename(from tine.Ino, name string, to tine.Ino, newName string, flags uint32, whiteout New) error {
	if flags&^(NoReplace|Exchange|Whiteout) != 0 || flags&Exchange != 0 && flags != Exchange {
		return tine.ErrInvalid
	}
	m := move{from: from, to: to, name: name, newName: newName, exchange: flags == Exchange, leaves: flags&Whiteout != 0}
	for _, s := range []string{name, newName} {
		if err := checkName(s); err != nil {
			return err
		}
	}
	var err error
	if _, m.moved, err = fs.place(from, name); err != nil {
		return err
	}
	if _, m.replaced, err = fs.place(to, newName); err != nil {
		return err
	}
	if err = fs.checkMove(m, flags); err != nil {
		return err
	}
	if m.replaced != nil && m.replaced.Ino == m.moved.Ino {
		return nil
	}
	if m.exchange {
		fs.exchange(m)
		return nil
	}
	fs.replace(m)
	if m.leaves {
		_, err = fs.Make(from, name, whiteout)
	}
	return err
}

func (fs *FS) exchange(m move) {
	fs.touch(m.from, true, func(d *Node) { d.setName(m.name, m.replaced.Ino) })
	fs.touch(m.to, true, func(d *Node) { d.setName(m.newName, m.moved.Ino) })
	fs.rehome(m.moved, m.from, m.to)
	fs.rehome(m.replaced, m.to, m.from)
}

// rehome makes a moved node a child of its new directory.
func (fs *FS) rehome(n *Node, from, to tine.Ino) {
	fs.touch(n.Ino, false, func(n *Node) {
		if n.IsDir() {
			n.Parent = to
		}
	})
	if n.IsDir() && from != to {
		fs.touch(from, true, func(d *Node) { d.Nlink-- })
		fs.touch(to, true, func(d *Node) { d.Nlink++ })
	}
}

func (fs *FS) replace(m move) {
	fs.touch(m.from, true, func(d *Node) { d.setName(m.name, 0) })
	fs.touch(m.to, true, func(d *Node) {
		d.setName(m.newName, m.moved.Ino)
		if m.replaced != nil && m.replaced.IsDir() {
			d.Nlink--
		}
	})
	if m.replaced != nil {
		fs.touch(m.replaced.Ino, false, func(n *Node) {
			if n.IsDir() {
				n.Nlink = 0
			} else {
				n.Nlink--
			}
		})
	}
	fs.rehome(m.moved, m.from, m.to)
}
