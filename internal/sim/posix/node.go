package posix

import (
	"encoding/binary"
	"slices"
	"strings"

	"tine.dev/tine/internal/tine"
)

// File types, as in st_mode.
const (
	TypeMask    = 0o170000
	TypeSocket  = 0o140000
	TypeSymlink = 0o120000
	TypeRegular = 0o100000
	TypeBlock   = 0o060000
	TypeDir     = 0o040000
	TypeChar    = 0o020000
	TypeFifo    = 0o010000

	SetUID = 0o4000
	SetGID = 0o2000
)

// Attr is what stat shows of an inode, but for its size, which follows from
// the content. Times are nanoseconds since 1970.
type Attr struct {
	Ino                        tine.Ino
	Mode, UID, GID             uint32
	Nlink, Rdev                uint32
	Mtime, Ctime, Atime, Btime int64
}

// Xattr is an extended attribute.
type Xattr struct {
	Name  string
	Value string
}

// Name is an entry of a directory.
type Name struct {
	Name string
	Ino  tine.Ino
}

// Node is an inode with all that hangs on it. Immutable once it is in a Tree.
type Node struct {
	Attr
	Target  string   // of a symbolic link
	Parent  tine.Ino // of a directory
	Content Content  // of a regular file
	Names   []Name   // of a directory, sorted
	Xattrs  []Xattr  // sorted

	sum uint64
}

// Type returns the file type bits of the mode.
func (n *Node) Type() uint32 { return n.Mode & TypeMask }

// IsDir reports whether the node is a directory.
func (n *Node) IsDir() bool { return n.Type() == TypeDir }

// Size returns what st_size shows; the size of a directory is not compared.
func (n *Node) Size() int64 {
	if n.Type() == TypeSymlink {
		return int64(len(n.Target))
	}
	return n.Content.Size
}

func (n *Node) seal() {
	b := make([]byte, 0, 256)
	for _, v := range []uint64{
		uint64(n.Mode), uint64(n.UID), uint64(n.GID), uint64(n.Nlink), uint64(n.Rdev), uint64(n.Parent),
		uint64(n.Mtime), uint64(n.Ctime), uint64(n.Atime), uint64(n.Btime), uint64(n.Content.Size), n.Content.sum,
	} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = appendString(b, n.Target)
	for _, x := range n.Xattrs {
		b = appendString(appendString(append(b, 'x'), x.Name), x.Value)
	}
	for _, e := range n.Names {
		b = binary.LittleEndian.AppendUint64(appendString(append(b, 'n'), e.Name), uint64(e.Ino))
	}
	n.sum = sumOf('i', uint64(n.Ino), b)
}

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
	return append(b, s...)
}

func searchName(names []Name, name string) (int, bool) {
	return slices.BinarySearchFunc(names, name, func(e Name, s string) int { return strings.Compare(e.Name, s) })
}

func (n *Node) lookup(name string) (tine.Ino, bool) {
	if i, ok := searchName(n.Names, name); ok {
		return n.Names[i].Ino, true
	}
	return 0, false
}

// setName puts or replaces a name; ino 0 removes it.
func (n *Node) setName(name string, ino tine.Ino) {
	i, ok := searchName(n.Names, name)
	names := slices.Clone(n.Names)
	switch {
	case ino == 0 && ok:
		names = slices.Delete(names, i, i+1)
	case ok:
		names[i].Ino = ino
	case ino != 0:
		names = slices.Insert(names, i, Name{name, ino})
	}
	n.Names = names
}

// Tree is one state of a disk: all that can be reached from its root.
// A Tree is a value; copying it is a checkpoint.
type Tree struct {
	nodes  trie[Node]
	sum    uint64
	Inodes int64 // with a name, the root included
	Bytes  int64 // of data in regular files, holes not counted
}

// Sum tells states apart: equal trees have equal sums.
func (t Tree) Sum() uint64 { return t.sum }

// Get returns a node that can be reached, or nil.
func (t Tree) Get(ino tine.Ino) *Node { return t.nodes.get(uint64(ino)) }

// All calls fn for every node in the order of the inode numbers.
func (t Tree) All(fn func(*Node)) {
	t.nodes.all(0, func(_ uint64, n *Node) bool { fn(n); return true })
}

// put returns the tree with the node in the place of the one of that number.
func (t Tree) put(n *Node) Tree {
	t = t.drop(n.Ino)
	n.seal()
	t.nodes = t.nodes.set(uint64(n.Ino), n)
	t.sum += n.sum
	t.Inodes++
	t.Bytes += n.Content.Allocated()
	return t
}

func (t Tree) drop(ino tine.Ino) Tree {
	if old := t.Get(ino); old != nil {
		t.nodes = t.nodes.set(uint64(ino), nil)
		t.sum -= old.sum
		t.Inodes--
		t.Bytes -= old.Content.Allocated()
	}
	return t
}

// Builder makes a Tree out of what was read from somewhere else.
type Builder struct{ tree Tree }

// Add puts a node.
func (b *Builder) Add(n Node) { b.tree = b.tree.put(&n) }

// Tree returns what was built.
func (b *Builder) Tree() Tree { return b.tree }

// SortNames puts entries in the order that a Node has them in.
func SortNames(names []Name) {
	slices.SortFunc(names, func(a, b Name) int { return strings.Compare(a.Name, b.Name) })
}

// SortXattrs puts attributes in the order that a Node has them in.
func SortXattrs(xs []Xattr) {
	slices.SortFunc(xs, func(a, b Xattr) int { return strings.Compare(a.Name, b.Name) })
}
