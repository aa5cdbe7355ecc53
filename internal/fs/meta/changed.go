package meta

import (
	"maps"
	"math"
	"slices"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// changed is what a diff of two views of one tree has to look at. It is worked
// out from the keys of the rows that were born since the views parted, so that
// it costs with those, however large the directories are that hold them.
type changed struct {
	inodes map[tine.Ino]bool            // of which some row was born since
	above  map[tine.Ino]bool            // directories, on either side, that lead to one
	names  map[tine.Ino]map[string]bool // by directory: all names that differ, or lead to one of inodes or above
	least  map[tine.Ino]int             // by directory: how many names it has at least
}

// How many names of a directory are read for each that is looked for, before
// each is looked for by itself: as many as cost about the same. Most directories
// end before.
const (
	scanPerName  = 8  // by its name
	scanPerInode = 32 // by its inode
)

func newChanged() *changed {
	return &changed{inodes: map[tine.Ino]bool{}, above: map[tine.Ino]bool{}, names: map[tine.Ino]map[string]bool{}, least: map[tine.Ino]int{}}
}

// collect fills c from two views.
func (c *changed) collect(a, b *reader) error {
	err := timeline.EachChanged(a.Reader, b.Reader, func(k record.Logical) {
		switch k.Table() {
		case record.TableDentry:
			c.inodes[k.Ino()] = true
			c.name(k.Ino(), k.Name())
		case record.TableInode, record.TableChunk, record.TableXattr:
			c.inodes[k.Ino()] = true
		}
	})
	for _, r := range []*reader{a, b} {
		if err == nil {
			err = c.climb(r)
		}
	}
	return err
}

func (c *changed) name(dir tine.Ino, name string) {
	if c.names[dir] == nil {
		c.names[dir] = map[string]bool{}
	}
	c.names[dir][name] = true
}

// unnamed are the inodes of one directory whose name there is looked for, each
// with the names that are known and not meant.
type unnamed map[tine.Ino][]string

// climb finds the directories and names that lead to the inodes in one view,
// a level at a time: what is looked for in one directory is looked for at once.
func (c *changed) climb(r *reader) error {
	seen := map[tine.Ino]bool{}
	var level []tine.Ino
	for ino := range c.inodes {
		seen[ino] = true
		level = append(level, ino)
	}
	for len(level) > 0 {
		parents := map[tine.Ino]unnamed{}
		for _, ino := range level {
			if err := c.parents(r, ino, parents); err != nil {
				return err
			}
		}
		level = nil
		for dir, wanted := range parents {
			if err := c.findNames(r, dir, wanted); err != nil {
				return err
			}
			c.above[dir] = true
			if !seen[dir] {
				seen[dir] = true
				level = append(level, dir)
			}
		}
	}
	return nil
}

// parents adds the directories in which an inode has names. The names of a file
// with several stand in the link table, but for the one that it had first.
func (c *changed) parents(r *reader, ino tine.Ino, to map[tine.Ino]unnamed) error {
	n, err := r.inode(ino)
	if err == tine.ErrStale {
		return nil // on the other side only
	}
	if err != nil {
		return err
	}
	at := func(dir tine.Ino) unnamed {
		if to[dir] == nil {
			to[dir] = unnamed{}
		}
		return to[dir]
	}
	var beside []string // the other names in the first one's directory
	if n.Flags&record.FlagLinks != 0 {
		p := record.InoPrefix(record.TableLink, ino)
		err := r.Scan(p, prefixEnd(p), func(k record.Logical, _ timeline.Found) (bool, error) {
			dir, name := k.LinkParent(), k.Name()
			at(dir)
			c.name(dir, name)
			if dir == n.Parent {
				beside = append(beside, name)
			}
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	if n.Parent != 0 && ino != tine.RootIno {
		at(n.Parent)[ino] = beside
	}
	return nil
}

// findNames finds the names of inodes in a directory, in the way that is
// cheapest: among those that changed or led to one in the other view; among its
// first names; by the order in which names and inodes are given out; and only if
// that fails by reading all of it.
func (c *changed) findNames(r *reader, dir tine.Ino, wanted unnamed) error {
	if len(wanted) == 0 {
		return nil
	}
	found := func(name string, ino tine.Ino) {
		if known, ok := wanted[ino]; ok && !slices.Contains(known, name) {
			c.name(dir, name)
			delete(wanted, ino)
		}
	}
	es, err := c.entries(r, dir)
	if err != nil {
		return err
	}
	for _, e := range es {
		found(e.name, e.ino)
	}
	look := func(k record.Logical, e record.Dentry) bool {
		if _, ok := wanted[e.Ino]; ok {
			found(k.Name(), e.Ino)
		}
		return len(wanted) > 0
	}
	whole, err := c.read(r, dir, scanPerInode*len(wanted), look)
	if err != nil || whole || len(wanted) == 0 {
		return err
	}
	for ino := range wanted {
		name, err := r.guessName(dir, ino)
		if err != nil {
			return err
		}
		if name != "" {
			found(name, ino)
		}
	}
	if len(wanted) > 0 {
		_, err = c.read(r, dir, math.MaxInt, look)
	}
	return err
}

// read is reader.eachEntry, and remembers how large the directory is at least.
func (c *changed) read(r *reader, dir tine.Ino, most int, fn func(record.Logical, record.Dentry) bool) (whole bool, err error) {
	n := 0
	whole, err = r.eachEntry(dir, most, func(k record.Logical, e record.Dentry) bool {
		n++
		return fn(k, e)
	})
	c.least[dir] = max(c.least[dir], n)
	return whole, err
}

// entries returns those of a directory's entries whose names are in c, by name.
// It reads all of a directory or asks for each name, whichever is cheaper.
func (c *changed) entries(r *reader, dir tine.Ino) (es []named, err error) {
	names := c.names[dir]
	if len(names) == 0 {
		return nil, nil
	}
	if most := scanPerName * len(names); c.least[dir] <= most {
		whole, err := c.read(r, dir, most, func(k record.Logical, e record.Dentry) bool {
			if name := k.Name(); names[name] {
				es = append(es, named{name, e.Ino, e.Type})
			}
			return true
		})
		if err != nil || whole {
			return es, err
		}
		es = nil
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		e, err := r.dentry(dir, name)
		if err != nil {
			return nil, err
		}
		if e.exists() {
			es = append(es, named{name, e.Ino, e.Type})
		}
	}
	return es, nil
}

// guessName looks for the name of an inode in a directory by its place in the
// paging order: places and inode numbers are both given out in the order of
// creation, and mostly one with one. So the place is about as far from that of
// another name as the inodes' numbers are apart; where that does not lead on, the
// middle is asked. It finds nothing, "", if files were moved or replaced since
// and it was led astray.
func (r *reader) guessName(dir, ino tine.Ino) (string, error) {
	end := prefixEnd(record.InoPrefix(record.TableCookie, dir))
	low, high := uint64(firstCookie), uint64(tine.MaxIno)
	at := uint64(ino)
	for tries := 0; low < high; tries++ {
		if middle := low + (high-low)/2; at < low || at >= high || tries%2 == 1 && tries > 2 {
			at = middle
		}
		var name string
		var place uint64
		var is tine.Ino
		err := r.Scan(record.CookieKey(dir, at), end, func(k record.Logical, f timeline.Found) (bool, error) {
			c, err := record.DecodeCookie(f.Val)
			name, place, is = c.Name, k.Number(), c.Ino
			return false, err
		})
		switch {
		case err != nil:
			return "", err
		case is == ino:
			return name, nil
		case place == 0: // none from there on
			high = at
			continue
		case is > ino:
			high = at
		default:
			low = place + 1
		}
		at = place + uint64(ino) - uint64(is)
	}
	return "", nil
}
