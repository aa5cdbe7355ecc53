package sim

import (
	"bytes"
	"fmt"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/sim/posix"
	"tine.dev/tine/internal/tine"
)

// wholeBytes is the size up to which a file is read from start to end; of a
// larger one, only what SEEK_DATA finds.
const wholeBytes = 8 << 20

const (
	seekData = 3
	seekHole = 4
)

// observer reads all that a session shows.
type observer struct {
	s     *volume.Session
	build posix.Builder
	seen  map[tine.Ino]bool
}

// observe reads the whole disk through the session into a tree of the model,
// checking on the way that the ways to learn one fact agree.
func observe(s *volume.Session) (posix.Tree, error) {
	o := &observer{s: s, seen: map[tine.Ino]bool{}}
	attr, err := s.GetAttr(volume.Root)
	if err != nil {
		return posix.Tree{}, fmt.Errorf("stat of the root: %w", err)
	}
	if err := o.dir(attr, volume.Root, tine.RootIno, "/"); err != nil {
		return posix.Tree{}, err
	}
	return o.build.Tree(), nil
}

// dir adds a directory and all below it.
func (o *observer) dir(attr volume.Attr, n volume.Node, parent tine.Ino, path string) error {
	if o.seen[attr.Ino] {
		return fmt.Errorf("%s: directory %d has a second name", path, attr.Ino)
	}
	o.seen[attr.Ino] = true
	node, err := o.node(attr, n, path)
	if err != nil {
		return err
	}
	node.Parent = parent
	entries, err := readDir(o.s, n)
	if err != nil {
		return fmt.Errorf("%s: readdir: %w", path, err)
	}
	for _, e := range entries {
		kid := path + "/" + e.Name
		a, kn, err := o.s.Lookup(n, e.Name)
		switch {
		case err != nil:
			return fmt.Errorf("%s is listed, but its look-up says: %w", kid, err)
		case a.Ino != e.Ino || kn.Ino != e.Ino:
			return fmt.Errorf("%s is listed as inode %d and looked up as %d", kid, e.Ino, a.Ino)
		case a.Mode>>12 != uint32(e.Type):
			return fmt.Errorf("%s is listed with type %d and has mode %o", kid, e.Type, a.Mode)
		}
		node.Names = append(node.Names, posix.Name{Name: e.Name, Ino: e.Ino})
		if err := o.child(a, kn, attr.Ino, kid); err != nil {
			return err
		}
	}
	posix.SortNames(node.Names)
	o.build.Add(node)
	return nil
}

func (o *observer) child(a volume.Attr, n volume.Node, parent tine.Ino, path string) error {
	if a.Mode&posix.TypeMask == posix.TypeDir {
		return o.dir(a, n, parent, path)
	}
	if o.seen[a.Ino] {
		return nil
	}
	o.seen[a.Ino] = true
	node, err := o.node(a, n, path)
	if err == nil {
		o.build.Add(node)
	}
	return err
}

// node reads what belongs to one inode.
func (o *observer) node(a volume.Attr, n volume.Node, path string) (posix.Node, error) {
	again, err := o.s.GetAttr(n)
	if err != nil {
		return posix.Node{}, fmt.Errorf("%s: stat: %w", path, err)
	}
	if again != a {
		return posix.Node{}, fmt.Errorf("%s: the look-up gave %+v, stat %+v", path, a, again)
	}
	node := posix.Node{Attr: posix.Attr{
		Ino: a.Ino, Mode: a.Mode, UID: a.UID, GID: a.GID, Nlink: a.Nlink, Rdev: a.Rdev,
		Mtime: a.Mtime, Ctime: a.Ctime, Atime: a.Atime, Btime: a.Btime,
	}}
	if err := o.xattrs(&node, a, n, path); err != nil {
		return node, err
	}
	switch node.Type() {
	case posix.TypeSymlink:
		if node.Target, err = o.s.Readlink(n); err != nil {
			return node, fmt.Errorf("%s: readlink: %w", path, err)
		}
		if int64(len(node.Target)) != a.Size {
			return node, fmt.Errorf("%s: a target of %d bytes and size %d", path, len(node.Target), a.Size)
		}
	case posix.TypeRegular:
		f, err := o.s.Open(n)
		if err != nil {
			return node, fmt.Errorf("%s: open: %w", path, err)
		}
		node.Content, err = readContent(f, a.Size)
		if e := f.Close(); err == nil {
			err = e
		}
		if err != nil {
			return node, fmt.Errorf("%s: %w", path, err)
		}
		if got := node.Content.Allocated(); got != a.Bytes {
			return node, fmt.Errorf("%s: %d bytes are data by SEEK_DATA and SEEK_HOLE, %d by stat", path, got, a.Bytes)
		}
	}
	return node, nil
}

func (o *observer) xattrs(node *posix.Node, a volume.Attr, n volume.Node, path string) error {
	names, err := o.s.ListXattr(n)
	if err != nil {
		return fmt.Errorf("%s: listxattr: %w", path, err)
	}
	if len(names) > 0 && !a.Xattrs {
		return fmt.Errorf("%s: attributes %q, but stat says there are none", path, names)
	}
	for _, name := range names {
		v, err := o.s.GetXattr(n, name)
		if err != nil {
			return fmt.Errorf("%s: attribute %q is listed, but reading it says: %w", path, name, err)
		}
		node.Xattrs = append(node.Xattrs, posix.Xattr{Name: name, Value: string(v)})
	}
	posix.SortXattrs(node.Xattrs)
	return nil
}

// readDir lists a directory in as many calls as it has entries, so that every
// cookie is used.
func readDir(s *volume.Session, n volume.Node) ([]volume.DirEntry, error) {
	d, err := s.OpenDir(n)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var all []volume.DirEntry
	var cookie uint64
	for {
		before := len(all)
		err := d.Read(cookie, func(e volume.DirEntry) bool {
			all = append(all, e)
			return len(all) < before+3
		})
		if err != nil || len(all) == before {
			return all, err
		}
		cookie = all[len(all)-1].Cookie
	}
}

// readContent reads a file of the given size, with its holes.
func readContent(f *volume.File, size int64) (posix.Content, error) {
	var c posix.Content
	for off := int64(0); off < size; {
		data, err := f.SeekTo(off, seekData)
		if tine.KindOf(err) == tine.KindNoSeek && err != nil {
			break
		}
		if err != nil {
			return c, fmt.Errorf("SEEK_DATA from %d: %w", off, err)
		}
		hole, err := f.SeekTo(data, seekHole)
		if err != nil {
			return c, fmt.Errorf("SEEK_HOLE from %d: %w", data, err)
		}
		if data < off || hole <= data || hole > size {
			return c, fmt.Errorf("from %d, SEEK_DATA gives %d and SEEK_HOLE %d; the size is %d", off, data, hole, size)
		}
		buf, err := readAll(f, data, hole-data)
		if err != nil {
			return c, err
		}
		c = c.Write(data, buf)
		off = hole
	}
	c.Size = size
	if size > wholeBytes {
		return c, nil
	}
	whole, err := readAll(f, 0, size)
	if err != nil {
		return c, err
	}
	if at := firstDifference(whole, c.Read(0, size)); at >= 0 {
		return c, fmt.Errorf("offset %d is a hole by SEEK_HOLE, but holds data", at)
	}
	if n, err := f.ReadAt(make([]byte, 10), size); n != 0 || err != nil {
		return c, fmt.Errorf("reading at the end gives %d bytes, %v", n, err)
	}
	return c, nil
}

func readAll(f *volume.File, off, length int64) ([]byte, error) {
	buf := make([]byte, length)
	n, err := f.ReadAt(buf, off)
	if err != nil {
		return nil, fmt.Errorf("reading %d bytes at %d: %w", length, off, err)
	}
	if int64(n) != length {
		return nil, fmt.Errorf("reading %d bytes at %d gives only %d", length, off, n)
	}
	return buf, nil
}

func firstDifference(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	return -1
}
