package mixed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/sim/posix"
	"tine.dev/tine/internal/tine"
)

type inode = tine.Ino

// root is the root directory of one mount. Paths below it lead to that mount
// and nowhere else, also when the server has died and another one has mounted
// at the same place.
type root struct{ fd int }

// openRoot opens a mount of tine; errBare if there is none.
func openRoot(dir string) (root, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return root{-1}, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	var st unix.Statfs_t
	err = unix.Fstatfs(fd, &st)
	if err == nil && st.Type != unix.FUSE_SUPER_MAGIC {
		err = errBare
	}
	if err != nil {
		_ = unix.Close(fd)
		return root{-1}, fmt.Errorf("%s: %w", dir, err)
	}
	return root{fd}, nil
}

// close may be called again.
func (r *root) close() {
	if r.fd >= 0 {
		_ = unix.Close(r.fd)
	}
	r.fd = -1
}

// path is one that can be given to any system call of this process.
func (r *root) path(p string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", r.fd, p) }

// read reads the whole disk into a tree of the model, with all times zero.
func (r *root) read() (posix.Tree, error) {
	w := walk{root: r, seen: map[inode]bool{}}
	err := w.node(".", tine.RootIno)
	return w.built.Tree(), err
}

// walk is a reading of a disk.
type walk struct {
	root  *root
	built posix.Builder
	seen  map[inode]bool
}

func (w *walk) node(path string, parent inode) error {
	at := w.root.path(path)
	var st unix.Stat_t
	if err := unix.Lstat(at, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	n := posix.Node{Attr: posix.Attr{Ino: inode(st.Ino), Mode: st.Mode, UID: st.Uid, GID: st.Gid, Nlink: uint32(st.Nlink)}}
	if w.seen[n.Ino] {
		return nil // another name of it
	}
	w.seen[n.Ino] = true
	var err error
	switch n.Type() {
	case posix.TypeSymlink:
		n.Target, err = os.Readlink(at)
	case posix.TypeRegular:
		var data []byte
		if data, err = os.ReadFile(at); err == nil {
			n.Content = posix.Content{}.Write(0, data).Resize(st.Size)
			if int64(len(data)) != st.Size {
				err = fmt.Errorf("%s: %d bytes of %d can be read", path, len(data), st.Size)
			}
		}
	case posix.TypeDir:
		n.Parent = parent
		err = w.names(path, &n)
	}
	if err == nil && n.Type() != posix.TypeSymlink {
		n.Xattrs, err = attributes(at)
	}
	if err == nil {
		w.built.Add(n)
	}
	return err
}

func (w *walk) names(path string, dir *posix.Node) error {
	entries, err := os.ReadDir(w.root.path(path))
	if err != nil {
		return err
	}
	for _, e := range entries {
		below := strings.TrimPrefix(path+"/"+e.Name(), "./")
		if err := w.node(below, dir.Ino); err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(w.root.path(below), &st); err != nil {
			return &fs.PathError{Op: "lstat", Path: below, Err: err}
		}
		dir.Names = append(dir.Names, posix.Name{Name: e.Name(), Ino: inode(st.Ino)})
	}
	posix.SortNames(dir.Names)
	return nil
}

func attributes(at string) ([]posix.Xattr, error) {
	buf := make([]byte, 64<<10)
	n, err := unix.Llistxattr(at, buf)
	if err != nil {
		return nil, &fs.PathError{Op: "listxattr", Path: at, Err: err}
	}
	var found []posix.Xattr
	for _, name := range strings.Split(string(buf[:n]), "\x00") {
		if name == "" {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(at, name, value)
		if err != nil {
			return nil, &fs.PathError{Op: "getxattr", Path: at, Err: err}
		}
		found = append(found, posix.Xattr{Name: name, Value: string(value[:n])})
	}
	posix.SortXattrs(found)
	return found, nil
}

// place is a name in a directory.
type place struct {
	dir  inode
	name string
}

// in looks the name up.
func (p place) in(t posix.Tree) (inode, bool) {
	dir := t.Get(p.dir)
	if dir == nil {
		return 0, false
	}
	for _, e := range dir.Names {
		if e.Name == p.name {
			return e.Ino, true
		}
	}
	return 0, false
}

// path leads from the root to the place.
func (p place) path(t posix.Tree) (string, error) {
	path := p.name
	for dir := p.dir; dir != tine.RootIno; {
		d := t.Get(dir)
		if d == nil {
			return "", errors.New("the model has lost a directory")
		}
		up := t.Get(d.Parent)
		for _, e := range up.Names {
			if e.Ino == dir {
				path = e.Name + "/" + path
			}
		}
		dir = d.Parent
	}
	return path, nil
}
