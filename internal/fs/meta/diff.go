package meta

import (
	"math"
	"slices"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// Change is one path that differs between two views.
type Change struct {
	Path     []byte // from the root, without a leading slash; empty for the root itself
	Kind     ChangeKind
	Type     uint8 // as dirent's d_type, of what is there (or was)
	Content  bool  // Changed: the data differs
	Metadata bool  // Changed: mode, owner, times, target or extended attributes differ
}

// ChangeKind tells on which side a path exists.
type ChangeKind uint8

// The kinds of change. A path that means things of different types on the two
// sides is removed and added.
const (
	Added ChangeKind = iota
	Removed
	Changed
)

// differ compares two views by path. It walks both trees together and goes down
// only where something may differ: where the views share ancestry, that is
// known from the rows born since they parted, so the cost follows the changes,
// not the trees, nor the directories that hold them.
//
// Inode numbers alone say nothing across views: forks of one parent hand out
// equal numbers. An inode that is in neither set of rows born since is the same
// on both sides; for any other the contents are compared.
type differ struct {
	a, b *reader
	fn   func(Change) error
	all  bool // nothing is shared: compare everything
	*changed
}

// Diff calls fn for every path that differs between what a and b show, in the
// order of a walk by name. Directories count as changed only for what is
// theirs: mode, owner, attributes; that their entries differ is shown by those.
func Diff(a, b View, related bool, fn func(Change) error) error {
	return timeline.ReadBoth(a.View, b.View, func(ra, rb *timeline.Reader) error {
		d := &differ{a: &reader{ra}, b: &reader{rb}, fn: fn, all: !related, changed: newChanged()}
		if related {
			if err := d.collect(d.a, d.b); err != nil {
				return err
			}
		}
		return d.inode(nil, tine.RootIno, tine.RootIno)
	})
}

// same reports that an inode number means one unchanged inode on both sides,
// with nothing changed below it.
func (d *differ) same(x, y tine.Ino) bool {
	return !d.all && x == y && !d.inodes[x] && !d.above[x]
}

// inode compares what one path means on the two sides; both exist.
func (d *differ) inode(path []byte, x, y tine.Ino) error {
	if d.same(x, y) {
		return nil
	}
	na, err := d.a.inode(x)
	if err != nil {
		return err
	}
	nb, err := d.b.inode(y)
	if err != nil {
		return err
	}
	if na.Mode&modeType != nb.Mode&modeType {
		if err := d.subtree(d.a, Removed, path, x, direntType(na.Mode)); err != nil {
			return err
		}
		return d.subtree(d.b, Added, path, y, direntType(nb.Mode))
	}
	if d.all || x != y || d.inodes[x] {
		if err := d.compare(path, na, nb); err != nil {
			return err
		}
	}
	if !na.isDir() {
		return nil
	}
	return d.directory(path, x, y)
}

// named is one entry of a directory.
type named struct {
	name string
	ino  tine.Ino
	typ  uint8
}

// eachEntry calls fn for a directory's entries by name, the first most of them
// or until it returns false, and returns whether there are no more.
func (r *reader) eachEntry(dir tine.Ino, most int, fn func(record.Logical, record.Dentry) bool) (whole bool, err error) {
	whole = true
	p := record.InoPrefix(record.TableDentry, dir)
	err = r.Scan(p, prefixEnd(p), func(k record.Logical, f timeline.Found) (bool, error) {
		if most--; most < 0 {
			whole = false
			return false, nil
		}
		e, err := record.DecodeDentry(f.Val)
		if err != nil {
			return false, err
		}
		whole = fn(k, e)
		return whole, nil
	})
	return whole, err
}

// list returns a directory's entries by name.
func (r *reader) list(dir tine.Ino) (es []named, err error) {
	_, err = r.eachEntry(dir, math.MaxInt, func(k record.Logical, e record.Dentry) bool {
		es = append(es, named{k.Name(), e.Ino, e.Type})
		return true
	})
	return es, err
}

// bothLists returns what has to be compared of two directories: of one that was
// there when the views parted the names that may lead to a difference, else all.
func (d *differ) bothLists(x, y tine.Ino) (as, bs []named, err error) {
	if !d.all && x == y {
		if as, err = d.entries(d.a, x); err == nil {
			bs, err = d.entries(d.b, y)
		}
		return as, bs, err
	}
	if as, err = d.a.list(x); err == nil {
		bs, err = d.b.list(y)
	}
	return as, bs, err
}

// directory compares the entries of two directories.
func (d *differ) directory(path []byte, x, y tine.Ino) error {
	as, bs, err := d.bothLists(x, y)
	if err != nil {
		return err
	}
	for len(as) > 0 || len(bs) > 0 {
		switch {
		case len(bs) == 0 || len(as) > 0 && as[0].name < bs[0].name:
			err = d.subtree(d.a, Removed, join(path, as[0].name), as[0].ino, as[0].typ)
			as = as[1:]
		case len(as) == 0 || bs[0].name < as[0].name:
			err = d.subtree(d.b, Added, join(path, bs[0].name), bs[0].ino, bs[0].typ)
			bs = bs[1:]
		default:
			err = d.inode(join(path, as[0].name), as[0].ino, bs[0].ino)
			as, bs = as[1:], bs[1:]
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func join(dir []byte, name string) []byte {
	path := make([]byte, 0, len(dir)+1+len(name))
	path = append(path, dir...)
	if len(dir) > 0 {
		path = append(path, '/')
	}
	return append(path, name...)
}

// subtree reports a path that is on one side only and, below a directory, all
// that is in it.
func (d *differ) subtree(r *reader, kind ChangeKind, path []byte, ino tine.Ino, typ uint8) error {
	if err := d.fn(Change{Path: path, Kind: kind, Type: typ}); err != nil {
		return err
	}
	if typ != direntType(modeDir) {
		return nil
	}
	es, err := r.list(ino)
	if err != nil {
		return err
	}
	for _, e := range es {
		if err := d.subtree(r, kind, join(path, e.name), e.ino, e.typ); err != nil {
			return err
		}
	}
	return nil
}

// compare reports how two inodes of one type differ.
func (d *differ) compare(path []byte, na, nb *node) (err error) {
	c := Change{Path: path, Kind: Changed, Type: direntType(nb.Mode)}
	c.Metadata = na.Mode != nb.Mode || na.UID != nb.UID || na.GID != nb.GID || na.Rdev != nb.Rdev || na.Target != nb.Target ||
		!nb.isDir() && na.Mtime != nb.Mtime
	if !c.Metadata && (na.Flags|nb.Flags)&record.FlagXattrs != 0 {
		if c.Metadata, err = d.tablesDiffer(record.TableXattr, na.ino, nb.ino); err != nil {
			return err
		}
	}
	if nb.Mode&modeType == modeRegular {
		if c.Content = na.Size != nb.Size; !c.Content {
			if c.Content, err = d.contentsDiffer(na, nb); err != nil {
				return err
			}
		}
	}
	if !c.Metadata && !c.Content {
		return nil
	}
	return d.fn(c)
}

// tablesDiffer compares all rows of one table of two inodes.
func (d *differ) tablesDiffer(t record.Table, x, y tine.Ino) (bool, error) {
	ra, err := d.a.rowsOf(t, x)
	if err != nil {
		return false, err
	}
	rb, err := d.b.rowsOf(t, y)
	if err != nil || len(ra) != len(rb) {
		return true, err
	}
	for k, v := range ra {
		if w, ok := rb[k]; !ok || w != v {
			return true, nil
		}
	}
	return false, nil
}

// rowsOf returns an inode's rows of a table, by what is the inode's own in
// their keys.
func (r *reader) rowsOf(t record.Table, ino tine.Ino) (map[record.Logical]string, error) {
	rows := map[record.Logical]string{}
	p := record.InoPrefix(t, ino)
	err := r.Scan(p, prefixEnd(p), func(k record.Logical, f timeline.Found) (bool, error) {
		rows[k[len(p):]] = string(f.Val)
		return true, nil
	})
	return rows, err
}

// contentsDiffer compares the data of two files of one size: by their rows
// where those are the same, and by their bytes where they are not.
func (d *differ) contentsDiffer(na, nb *node) (bool, error) {
	if na.Size == 0 {
		return false, nil
	}
	indexes, err := d.chunkIndexes(na.ino, nb.ino)
	if err != nil {
		return false, err
	}
	for _, index := range indexes {
		off := int64(index) * tine.ChunkBytes
		if off >= na.Size {
			break
		}
		fa, err := d.a.Get(record.ChunkKey(na.ino, index))
		if err != nil {
			return false, err
		}
		fb, err := d.b.Get(record.ChunkKey(nb.ino, index))
		if err != nil {
			return false, err
		}
		if string(fa.Val) == string(fb.Val) {
			continue
		}
		n := min(tine.ChunkBytes, na.Size-off)
		var bytes [2][]byte
		for i, side := range []struct {
			r *reader
			n *node
		}{{d.a, na}, {d.b, nb}} {
			bytes[i] = make([]byte, n)
			if err := side.r.readInto(side.n, bytes[i], off); err != nil {
				return false, err
			}
		}
		if string(bytes[0]) != string(bytes[1]) {
			return true, nil
		}
	}
	return false, nil
}

// chunkIndexes returns the chunks that either file has, in order: what neither
// has is a hole in both, and a file may be nearly all hole.
func (d *differ) chunkIndexes(x, y tine.Ino) ([]uint64, error) {
	var all []uint64
	for _, side := range []struct {
		r   *reader
		ino tine.Ino
	}{{d.a, x}, {d.b, y}} {
		p := record.InoPrefix(record.TableChunk, side.ino)
		err := side.r.Scan(p, prefixEnd(p), func(k record.Logical, _ timeline.Found) (bool, error) {
			all = append(all, k.Number())
			return true, nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// readInto reads a part of a file within an operation.
func (r *reader) readInto(n *node, p []byte, off int64) error {
	spans, handles, err := r.plan(n, p, off)
	for _, s := range spans {
		if err == nil {
			err = handles[s.h].ReadAt(s.dst, s.off)
		}
	}
	for _, h := range handles {
		h.Release()
	}
	return err
}

// DiffAttached is Diff of what two attachments show now. The changes are
// collected first, so that nothing is held up while the caller is told.
func DiffAttached(a, b *timeline.Attachment, fn func(Change) error) error {
	if timeline.SameHead(a, b) {
		return nil
	}
	va, vb, exit, err := timeline.EnterBoth(a, b)
	if err != nil {
		return err
	}
	var changes []Change
	err = Diff(View{va}, View{vb}, timeline.Related(a, b), func(c Change) error {
		changes = append(changes, c)
		return nil
	})
	exit()
	for _, c := range changes {
		if err == nil {
			err = fn(c)
		}
	}
	return err
}
