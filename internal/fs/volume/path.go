package volume

import (
	"strings"

	"tine.dev/tine/internal/tine"
)

// maxLinks is how many symbolic links a path may lead through, as in Linux.
const maxLinks = 40

// Resolve finds what a path names, as a kernel would whose root is the disk's:
// "..", and links that are absolute, cannot lead out of it. A symbolic link at
// the end is followed if follow is set or the path ends with a slash.
func (s *Session) Resolve(path string, follow bool) (Attr, Node, error) {
	a, err := s.GetAttr(Root)
	if err != nil {
		return Attr{}, Node{}, err
	}
	type place struct {
		attr Attr
		node Node
	}
	at := []place{{a, Node{s.Generation(), a.Ino}}}
	rest := strings.Split(path, "/")
	follow = follow || strings.HasSuffix(path, "/")
	for links := 0; len(rest) > 0; {
		name, here := rest[0], at[len(at)-1]
		rest = rest[1:]
		if here.attr.Mode&typeMask != typeDir && name != "" {
			return Attr{}, Node{}, noPath(tine.KindNotDir, path, "something in it is not a directory")
		}
		switch name {
		case "", ".":
			continue
		case "..":
			at = at[:max(1, len(at)-1)]
			continue
		}
		a, n, err := s.Lookup(here.node, name)
		if tine.KindOf(err) == tine.KindNotFound {
			return Attr{}, Node{}, noPath(tine.KindNotFound, path, "it does not exist")
		}
		if err != nil {
			return Attr{}, Node{}, err
		}
		if a.Mode&typeMask != typeSymlink || len(rest) == 0 && !follow {
			at = append(at, place{a, n})
			continue
		}
		if links++; links > maxLinks {
			return Attr{}, Node{}, noPath(tine.KindLoop, path, "it leads through too many symbolic links")
		}
		target, err := s.Readlink(n)
		if err != nil {
			return Attr{}, Node{}, err
		}
		if strings.HasPrefix(target, "/") {
			at = at[:1]
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	last := at[len(at)-1]
	if strings.HasSuffix(path, "/") && last.attr.Mode&typeMask != typeDir {
		return Attr{}, Node{}, noPath(tine.KindNotDir, path, "it is not a directory")
	}
	return last.attr, last.node, nil
}

func noPath(k tine.ErrorKind, path, why string) error {
	return tine.Errorf(k, "the path %q in the disk cannot be used: %s", path, why)
}
