package posix

import (
	"slices"

	"tine.dev/tine/internal/tine"
)

// ChangeKind tells on which side a path exists.
type ChangeKind uint8

// The kinds of change.
const (
	Added ChangeKind = iota
	Removed
	Changed
)

// Changes returns what a path-by-path comparison of two trees finds: what must
// be reported, and for paths on both sides only if data or attributes differ.
// A name that means something of another type is both removed and added, with
// all below it.
func Changes(a, b Tree) map[string][]ChangeKind {
	out := map[string][]ChangeKind{}
	changes(a, b, a.Get(tine.RootIno), b.Get(tine.RootIno), "", out)
	return out
}

func changes(a, b Tree, da, db *Node, at string, out map[string][]ChangeKind) {
	add := func(path string, k ChangeKind) { out[path] = append(out[path], k) }
	if own(da, db) {
		add(at, Changed)
	}
	for _, e := range da.Names {
		path, x := join(at, e.Name), a.Get(e.Ino)
		ino, ok := db.lookup(e.Name)
		if !ok {
			each(a, x, path, func(p string) { add(p, Removed) })
			continue
		}
		y := b.Get(ino)
		switch {
		case x.Type() != y.Type():
			each(a, x, path, func(p string) { add(p, Removed) })
			each(b, y, path, func(p string) { add(p, Added) })
		case x.IsDir():
			changes(a, b, x, y, path, out)
		case own(x, y) || x.Mtime != y.Mtime || x.Content.Size != y.Content.Size || x.Content.sum != y.Content.sum:
			add(path, Changed)
		}
	}
	for _, e := range db.Names {
		if _, ok := da.lookup(e.Name); !ok {
			each(b, b.Get(e.Ino), join(at, e.Name), func(p string) { add(p, Added) })
		}
	}
}

// own reports whether two nodes of one type differ in what is not data, times
// apart.
func own(x, y *Node) bool {
	return x.Mode != y.Mode || x.UID != y.UID || x.GID != y.GID || x.Rdev != y.Rdev || x.Target != y.Target ||
		!slices.Equal(x.Xattrs, y.Xattrs)
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "/" + name
}

// each calls fn for a path and all below it.
func each(t Tree, n *Node, path string, fn func(string)) {
	fn(path)
	for _, e := range n.Names {
		each(t, t.Get(e.Ino), join(path, e.Name), fn)
	}
}
