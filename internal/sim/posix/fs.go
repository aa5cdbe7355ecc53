package posix

import (
	"tine.dev/tine/internal/tine"
)

// FS is a disk under change: a tree, and the files that have no name any more
// but are still open. Not safe for concurrent use.
type FS struct {
	Tree    Tree
	Now     int64 // the time that operations take, nanoseconds since 1970
	NextIno tine.Ino
	Unseen  int // grows with every change to a node without a name
	orphans map[tine.Ino]*Node
	open    map[tine.Ino]int
}

// NewFS returns a disk that holds only the given root directory.
func NewFS(root Node) *FS {
	fs := FromTree(Tree{}.put(&root))
	fs.NextIno = root.Ino + 1
	return fs
}

// FromTree returns a disk whose state is t and on which nothing is open.
func FromTree(t Tree) *FS {
	fs := &FS{Tree: t, orphans: map[tine.Ino]*Node{}, open: map[tine.Ino]int{}}
	t.All(func(n *Node) { fs.NextIno = max(fs.NextIno, n.Ino+1) })
	return fs
}

// Get returns a node that has a name or is open, or nil.
func (fs *FS) Get(ino tine.Ino) *Node {
	if n := fs.Tree.Get(ino); n != nil {
		return n
	}
	return fs.orphans[ino]
}

func (fs *FS) node(ino tine.Ino) (*Node, error) {
	if n := fs.Get(ino); n != nil {
		return n, nil
	}
	return nil, tine.ErrNotFound
}

func (fs *FS) dir(ino tine.Ino) (*Node, error) {
	n, err := fs.node(ino)
	if err == nil && !n.IsDir() {
		return nil, tine.ErrNotDir
	}
	return n, err
}

func (fs *FS) file(ino tine.Ino) (*Node, error) {
	n, err := fs.node(ino)
	switch {
	case err != nil:
		return nil, err
	case n.IsDir():
		return nil, tine.ErrIsDir
	case n.Type() != TypeRegular:
		return nil, tine.ErrInvalid
	}
	return n, nil
}

// put makes the node's state the current one, wherever it belongs: in the
// tree, among the open files without a name, or nowhere.
func (fs *FS) put(n Node) {
	delete(fs.orphans, n.Ino)
	if n.Nlink > 0 {
		fs.Tree = fs.Tree.put(&n)
		return
	}
	fs.Unseen++
	fs.Tree = fs.Tree.drop(n.Ino)
	if fs.open[n.Ino] > 0 {
		n.Parent = 0
		fs.orphans[n.Ino] = &n
	}
}

// Open counts a handle on the node: until Close it lives on without a name.
func (fs *FS) Open(ino tine.Ino) { fs.open[ino]++ }

// Close ends one Open.
func (fs *FS) Close(ino tine.Ino) {
	fs.open[ino]--
	if fs.open[ino] <= 0 {
		delete(fs.open, ino)
		if _, ok := fs.orphans[ino]; ok {
			fs.Unseen++
			delete(fs.orphans, ino)
		}
	}
}

// Unnamed returns how many nodes are open without a name.
func (fs *FS) Unnamed() int { return len(fs.orphans) }

func checkName(name string) error {
	switch {
	case len(name) > tine.MaxNameBytes:
		return tine.ErrNameTooLong
	case name == "", name == ".", name == "..":
		return tine.ErrInvalid
	}
	for i := range len(name) {
		if name[i] == '/' || name[i] == 0 {
			return tine.ErrInvalid
		}
	}
	return nil
}

// Who is who asks. The umask is what the engine is to take off the mode.
type Who struct{ UID, GID, Umask uint32 }

// New is what a new inode is to be: Mode with the type, Ino as the engine has
// chosen it.
type New struct {
	Who    Who
	Mode   uint32
	Rdev   uint32
	Target string
	Ino    tine.Ino
}

// place checks that a name can be looked up for creation and returns the
// directory and what stands there.
func (fs *FS) place(parent tine.Ino, name string) (dir *Node, there *Node, err error) {
	if dir, err = fs.dir(parent); err != nil {
		return nil, nil, err
	}
	if err = checkName(name); err != nil {
		return nil, nil, err
	}
	if ino, ok := dir.lookup(name); ok {
		return dir, fs.Get(ino), nil
	}
	return dir, nil, nil
}

// Lookup finds a name in a directory.
func (fs *FS) Lookup(parent tine.Ino, name string) (*Node, error) {
	_, there, err := fs.place(parent, name)
	if err == nil && there == nil {
		err = tine.ErrNotFound
	}
	return there, err
}

// inherit builds the inode of a new file in dir.
func (fs *FS) inherit(dir *Node, w New) Node {
	n := Node{Attr: Attr{
		Ino: w.Ino, Mode: w.Mode, UID: w.Who.UID, GID: w.Who.GID, Nlink: 1, Rdev: w.Rdev,
		Mtime: fs.Now, Ctime: fs.Now, Atime: fs.Now, Btime: fs.Now,
	}, Target: w.Target}
	n.inheritACL(dir, w.Who.Umask)
	if dir.Mode&SetGID != 0 {
		n.GID = dir.GID
		if n.IsDir() {
			n.Mode |= SetGID
		}
	}
	return n
}

// Make creates a file of any type under a name that must be free.
func (fs *FS) Make(parent tine.Ino, name string, w New) (*Node, error) {
	dir, there, err := fs.place(parent, name)
	switch {
	case w.Mode&TypeMask == TypeSymlink && len(w.Target) > tine.MaxSymlinkBytes:
		return nil, tine.ErrNameTooLong
	case err != nil:
		return nil, err
	case there != nil:
		return nil, tine.ErrExists
	case dir.Nlink == 0:
		return nil, tine.ErrNotFound
	}
	n := fs.inherit(dir, w)
	d := *dir
	d.Mtime, d.Ctime = fs.Now, fs.Now
	d.setName(name, w.Ino)
	if n.IsDir() {
		n.Nlink, n.Parent = 2, dir.Ino
		d.Nlink++
	}
	fs.put(n)
	fs.put(d)
	fs.NextIno = max(fs.NextIno, w.Ino+1)
	return fs.Get(w.Ino), nil
}

// MakeUnnamed creates an open regular file without a name (O_TMPFILE) in the
// file system of the directory; it counts as opened once.
func (fs *FS) MakeUnnamed(parent tine.Ino, w New) (*Node, error) {
	dir, err := fs.dir(parent)
	if err != nil {
		return nil, err
	}
	if dir.Nlink == 0 {
		return nil, tine.ErrNotFound
	}
	n := fs.inherit(dir, w)
	n.Nlink = 0
	fs.Open(w.Ino)
	fs.put(n)
	fs.NextIno = max(fs.NextIno, w.Ino+1)
	return fs.Get(w.Ino), nil
}
