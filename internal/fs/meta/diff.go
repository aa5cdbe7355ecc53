package meta

import (
	"cmp"
	"maps"
	"slices"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// Change is one path that differs between two views.
type Change struct {
	Path     []byte // from the root, without a leading slash
	Kind     ChangeKind
	Type     uint8 // as dirent's d_type, of what is there (or was)
	Content  bool  // Changed: the data differs
	Metadata bool  // Changed: mode, owner, times, target or extended attributes differ
}

// ChangeKind tells on which side a path exists.
type ChangeKind uint8

// The kinds of change.
const (
	Added ChangeKind = iota
	Removed
	Changed
)

// differ compares two views. Where they share ancestry only rows born since
// they parted are looked at, so the cost follows the changes, not the trees.
type differ struct {
	a, b  *reader
	fn    func(Change) error
	names map[tine.Ino]map[string]bool // names of directories that differ
	inos  map[tine.Ino]bool            // inodes of which some row differs
}

// Diff calls fn for every path that differs between what a and b show, first
// by directory, then by name. Directories count as changed only for what is
// theirs: mode, owner, attributes; that their entries differ is shown by those.
func Diff(a, b View, fn func(Change) error) error {
	return timeline.ReadBoth(a.View, b.View, func(ra, rb *timeline.Reader) error {
		d := &differ{&reader{ra}, &reader{rb}, fn, map[tine.Ino]map[string]bool{}, map[tine.Ino]bool{}}
		if err := d.collect(); err != nil {
			return err
		}
		if err := d.entries(); err != nil {
			return err
		}
		return d.inodes()
	})
}

// collect finds the rows that may differ.
func (d *differ) collect() error {
	return timeline.EachChanged(d.a.Reader, d.b.Reader, func(k record.Logical) {
		switch k.Table() {
		case record.TableDentry:
			p := k.Ino()
			if d.names[p] == nil {
				d.names[p] = map[string]bool{}
			}
			d.names[p][k.Name()] = true
		case record.TableInode, record.TableChunk, record.TableXattr:
			d.inos[k.Ino()] = true
		}
	})
}

// entries reports names that exist on one side only, or mean another inode.
func (d *differ) entries() error {
	for _, parent := range sortedKeys(d.names) {
		inA, errA := d.a.inode(parent)
		inB, errB := d.b.inode(parent)
		if errA != nil || errB != nil || !inA.isDir() || !inB.isDir() {
			continue // the directory itself is on one side only, and is reported whole
		}
		for _, name := range sortedKeys(d.names[parent]) {
			ea, err := d.a.dentry(parent, name)
			if err != nil {
				return err
			}
			eb, err := d.b.dentry(parent, name)
			if err != nil {
				return err
			}
			if err := d.entry(parent, name, ea, eb); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *differ) entry(parent tine.Ino, name string, ea, eb *dentryOf) error {
	if ea.exists() && eb.exists() && (ea.Ino == eb.Ino || ea.Type == eb.Type && ea.Type != direntType(modeDir)) {
		if ea.Ino == eb.Ino {
			return nil
		}
		path, ok, err := d.pathIn(d.b, parent)
		if err != nil || !ok {
			return err
		}
		return d.compare(ea.Ino, eb.Ino, join(path, name))
	}
	if ea.exists() {
		if path, ok, err := d.pathIn(d.a, parent); err != nil {
			return err
		} else if ok {
			if err := d.subtree(d.a, Removed, ea.Dentry, join(path, name)); err != nil {
				return err
			}
		}
	}
	if eb.exists() {
		path, ok, err := d.pathIn(d.b, parent)
		if err != nil || !ok {
			return err
		}
		return d.subtree(d.b, Added, eb.Dentry, join(path, name))
	}
	return nil
}

func join(dir []byte, name string) []byte {
	if len(dir) == 0 {
		return []byte(name)
	}
	return append(append(slices.Clone(dir), '/'), name...)
}

// subtree reports a name and, below a directory, all that is in it.
func (d *differ) subtree(r *reader, kind ChangeKind, e record.Dentry, path []byte) error {
	if err := d.fn(Change{Path: path, Kind: kind, Type: e.Type}); err != nil {
		return err
	}
	if e.Type != direntType(modeDir) {
		return nil
	}
	p := record.InoPrefix(record.TableDentry, e.Ino)
	return r.Scan(p, prefixEnd(p), func(k record.Logical, f timeline.Found) (bool, error) {
		c, err := record.DecodeDentry(f.Val)
		if err != nil {
			return false, err
		}
		return true, d.subtree(r, kind, c, join(path, k.Name()))
	})
}

// pathIn returns a directory's path in a view; false if it has none there.
func (d *differ) pathIn(r *reader, ino tine.Ino) ([]byte, bool, error) {
	var parts []string
	for ino != tine.RootIno {
		n, err := r.inode(ino)
		if err == tine.ErrStale || err == nil && n.Nlink == 0 {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		names, err := d.namesOf(r, n.Parent, map[tine.Ino]bool{ino: true})
		if err != nil || len(names[ino]) == 0 {
			return nil, false, err
		}
		parts = append(parts, names[ino][0])
		ino = n.Parent
	}
	var path []byte
	for i := len(parts) - 1; i >= 0; i-- {
		path = join(path, parts[i])
	}
	return path, true, nil
}

// namesOf finds which names in a directory mean the wanted inodes.
func (d *differ) namesOf(r *reader, parent tine.Ino, want map[tine.Ino]bool) (map[tine.Ino][]string, error) {
	names := map[tine.Ino][]string{}
	p := record.InoPrefix(record.TableDentry, parent)
	err := r.Scan(p, prefixEnd(p), func(k record.Logical, f timeline.Found) (bool, error) {
		e, err := record.DecodeDentry(f.Val)
		if want[e.Ino] {
			names[e.Ino] = append(names[e.Ino], k.Name())
		}
		return true, err
	})
	return names, err
}

// inodes reports inodes that exist on both sides and differ, by their names in
// b. The names are timeline.Found by one scan per directory that holds any.
func (d *differ) inodes() error {
	wanted := map[tine.Ino]map[tine.Ino]bool{} // parent -> inodes
	for ino := range d.inos {
		na, errA := d.a.inode(ino)
		nb, errB := d.b.inode(ino)
		if errA != nil || errB != nil || na.Nlink == 0 || nb.Nlink == 0 {
			continue
		}
		for _, p := range d.parents(nb) {
			if wanted[p] == nil {
				wanted[p] = map[tine.Ino]bool{}
			}
			wanted[p][ino] = true
		}
	}
	for _, p := range sortedKeys(wanted) {
		path, ok, err := d.pathIn(d.b, p)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		names, err := d.namesOf(d.b, p, wanted[p])
		if err != nil {
			return err
		}
		for _, ino := range sortedKeys(names) {
			for _, name := range names[ino] {
				if err := d.known(p, ino, name, path); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// known compares an inode under one of its names, unless the name is new.
func (d *differ) known(parent, ino tine.Ino, name string, dir []byte) error {
	ea, err := d.a.dentry(parent, name)
	if err != nil {
		return err
	}
	if !ea.exists() || ea.Ino != ino {
		return nil
	}
	path := join(dir, name)
	if ino == tine.RootIno {
		path = []byte(".")
	}
	return d.compare(ino, ino, path)
}

// parents returns the directories in which an inode has names.
func (d *differ) parents(n *node) []tine.Ino {
	ps := []tine.Ino{}
	if n.Parent != 0 && n.ino != tine.RootIno {
		ps = append(ps, n.Parent)
	}
	if n.Flags&record.FlagLinks != 0 {
		p := record.InoPrefix(record.TableLink, n.ino)
		d.b.Scan(p, prefixEnd(p), func(k record.Logical, _ timeline.Found) (bool, error) {
			if !slices.Contains(ps, k.LinkParent()) {
				ps = append(ps, k.LinkParent())
			}
			return true, nil
		})
	}
	return ps
}

// compare reports how the inode x of a and the inode y of b differ.
func (d *differ) compare(x, y tine.Ino, path []byte) error {
	na, err := d.a.inode(x)
	if err != nil {
		return err
	}
	nb, err := d.b.inode(y)
	if err != nil {
		return err
	}
	c := Change{Path: path, Kind: Changed, Type: direntType(nb.Mode)}
	c.Metadata = na.Mode != nb.Mode || na.UID != nb.UID || na.GID != nb.GID || na.Rdev != nb.Rdev || na.Target != nb.Target ||
		!nb.isDir() && na.Mtime != nb.Mtime
	if !c.Metadata && (na.Flags|nb.Flags)&record.FlagXattrs != 0 {
		if c.Metadata, err = d.tablesDiffer(record.TableXattr, x, y); err != nil {
			return err
		}
	}
	if c.Content = na.Size != nb.Size; !c.Content && nb.Mode&modeType == modeRegular {
		if c.Content, err = d.tablesDiffer(record.TableChunk, x, y); err != nil {
			return err
		}
	}
	if nb.isDir() {
		c.Content = false
	}
	if !c.Metadata && !c.Content {
		return nil
	}
	return d.fn(c)
}

// tablesDiffer compares all rows of one table of two inodes.
func (d *differ) tablesDiffer(t record.Table, x, y tine.Ino) (bool, error) {
	read := func(r *reader, ino tine.Ino) (map[record.Logical]string, error) {
		rows := map[record.Logical]string{}
		p := record.InoPrefix(t, ino)
		err := r.Scan(p, prefixEnd(p), func(k record.Logical, f timeline.Found) (bool, error) {
			rows[k[len(p):]] = string(f.Val)
			return true, nil
		})
		return rows, err
	}
	ra, err := read(d.a, x)
	if err != nil {
		return false, err
	}
	rb, err := read(d.b, y)
	if err != nil || len(ra) != len(rb) {
		return true, err
	}
	for k, v := range ra {
		if rb[k] != v {
			return true, nil
		}
	}
	return false, nil
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
	err = Diff(View{va}, View{vb}, func(c Change) error {
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

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
