package posix

import (
	"fmt"
	"strings"

	"tine.dev/tine/internal/tine"
)

// paths gives each inode the first path that leads to it.
func (t Tree) paths() map[tine.Ino]string {
	out := map[tine.Ino]string{tine.RootIno: "/"}
	var walk func(n *Node, at string)
	walk = func(n *Node, at string) {
		for _, e := range n.Names {
			path := at + "/" + e.Name
			if _, ok := out[e.Ino]; !ok {
				out[e.Ino] = path
			}
			if kid := t.Get(e.Ino); kid != nil && kid.IsDir() && kid.Parent == n.Ino {
				walk(kid, path)
			}
		}
	}
	if root := t.Get(tine.RootIno); root != nil {
		walk(root, "")
	}
	return out
}

// Difference describes the first few things in which the trees differ, want
// being the model's and got the engine's; "" if nothing does.
func Difference(want, got Tree) string {
	if want.sum == got.sum {
		return ""
	}
	var lines []string
	wantPaths, gotPaths := want.paths(), got.paths()
	want.All(func(n *Node) {
		if g := got.Get(n.Ino); g == nil {
			lines = append(lines, fmt.Sprintf("inode %d %s is missing", n.Ino, wantPaths[n.Ino]))
		} else if g.sum != n.sum {
			lines = append(lines, fmt.Sprintf("inode %d %s: %s", n.Ino, wantPaths[n.Ino], nodeDifference(n, g)))
		}
	})
	got.All(func(n *Node) {
		if want.Get(n.Ino) == nil {
			lines = append(lines, fmt.Sprintf("inode %d %s should not be there", n.Ino, gotPaths[n.Ino]))
		}
	})
	if len(lines) > 12 {
		lines = append(lines[:12], fmt.Sprintf("and %d more", len(lines)-12))
	}
	return strings.Join(lines, "\n")
}

func nodeDifference(want, got *Node) string {
	var out []string
	say := func(what string, a, b any) {
		if a != b {
			out = append(out, fmt.Sprintf("%s is %v, want %v", what, b, a))
		}
	}
	say("mode", fmt.Sprintf("%o", want.Mode), fmt.Sprintf("%o", got.Mode))
	say("uid", want.UID, got.UID)
	say("gid", want.GID, got.GID)
	say("links", want.Nlink, got.Nlink)
	say("rdev", want.Rdev, got.Rdev)
	say("mtime", want.Mtime, got.Mtime)
	say("ctime", want.Ctime, got.Ctime)
	say("atime", want.Atime, got.Atime)
	say("btime", want.Btime, got.Btime)
	say("parent", want.Parent, got.Parent)
	say("target", want.Target, got.Target)
	say("names", fmt.Sprint(want.Names), fmt.Sprint(got.Names))
	say("xattrs", fmt.Sprintf("%.300q", want.Xattrs), fmt.Sprintf("%.300q", got.Xattrs))
	say("size", want.Content.Size, got.Content.Size)
	if at, ok := firstDifference(&want.Content, &got.Content); ok {
		out = append(out, fmt.Sprintf("content differs from offset %d: % x, want % x", at, got.Content.Read(at, 16), want.Content.Read(at, 16)))
	}
	return strings.Join(out, "; ")
}

func firstDifference(a, b *Content) (int64, bool) {
	if a.sum == b.sum {
		return 0, false
	}
	first := int64(-1)
	look := func(x, y *Content) {
		x.pages.all(0, func(i uint64, p *page) bool {
			q := y.pages.get(i)
			if q != nil && q.sum == p.sum {
				return true
			}
			for k := range p.data {
				if q == nil && p.data[k] != 0 || q != nil && p.data[k] != q.data[k] {
					if at := int64(i)*pageBytes + int64(k); first < 0 || at < first {
						first = at
					}
					break
				}
			}
			return false
		})
	}
	look(a, b)
	look(b, a)
	return first, first >= 0
}
