package baddays

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// file is what a path of a disk should be. Two paths with one file are hard
// links.
type file struct {
	dir    bool
	target string // of a symbolic link
	data   []byte
	xattrs map[string]string
	links  int
}

// tree is what a disk should show.
type tree map[string]*file

// put is a write.
func (f *file) put(p []byte, off int) {
	if grow := off + len(p) - len(f.data); grow > 0 {
		f.data = append(f.data, make([]byte, grow)...)
	}
	copy(f.data[off:], p)
}

// clone copies a tree so that changes of one do not show in the other.
func (t tree) clone() tree {
	c, seen := tree{}, map[*file]*file{}
	for p, f := range t {
		if seen[f] == nil {
			seen[f] = &file{f.dir, f.target, bytes.Clone(f.data), maps.Clone(f.xattrs), f.links}
		}
		c[p] = seen[f]
	}
	return c
}

// sight is what a disk shows: for each path a line that says all of it.
type sight map[string]string

// sight returns what the tree should look like.
func (t tree) sight() sight {
	s := sight{}
	for p, f := range t {
		s[p] = f.line()
	}
	return s
}

func (f *file) line() string {
	var b strings.Builder
	switch {
	case f.dir:
		b.WriteString("directory")
	case f.target != "":
		fmt.Fprintf(&b, "-> %s", f.target)
	default:
		sum := sha256.Sum256(f.data)
		fmt.Fprintf(&b, "%d links, %d bytes, %x", f.links, len(f.data), sum[:6])
	}
	for _, k := range slices.Sorted(maps.Keys(f.xattrs)) {
		fmt.Fprintf(&b, ", %s=%.20s", k, f.xattrs[k])
	}
	return b.String()
}

// look reads what a mount shows. The paths of what cannot be read for EIO are
// apart; any other error ends it.
func look(dir string) (s sight, damaged map[string]bool, err error) {
	s, damaged = sight{}, map[string]bool{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name, rerr := filepath.Rel(dir, path)
		if rerr != nil {
			return rerr
		}
		if err == nil && path != dir {
			var l string
			if l, err = lookAt(path); err == nil {
				s[name] = l
			}
		}
		if errors.Is(err, unix.EIO) {
			damaged[name] = true
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return err
	})
	return s, damaged, err
}

func lookAt(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "", &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	f := &file{dir: st.Mode&unix.S_IFMT == unix.S_IFDIR, links: int(st.Nlink)}
	var err error
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		f.target, err = os.Readlink(path)
		return f.line(), err
	case unix.S_IFREG:
		if f.data, err = os.ReadFile(path); err != nil {
			return "", err
		}
	}
	f.xattrs, err = xattrsOf(path)
	return f.line(), err
}

func xattrsOf(path string) (map[string]string, error) {
	buf := make([]byte, 4096)
	n, err := unix.Listxattr(path, buf)
	if err != nil || n == 0 {
		return nil, err
	}
	all := map[string]string{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00") {
		value := make([]byte, 65536)
		n, err := unix.Getxattr(path, name, value)
		if err != nil {
			return nil, err
		}
		all[name] = string(value[:n])
	}
	return all, nil
}

// differ says in a few lines how what is shown differs from what should be; ""
// if it does not. Paths that are excused may be missing.
func differ(got, want sight, excused map[string]bool) string {
	var b strings.Builder
	n := 0
	for _, p := range slices.Sorted(maps.Keys(want)) {
		if got[p] != want[p] && !covered(p, excused) && n < 10 {
			fmt.Fprintf(&b, "  %s is %q and should be %q\n", p, got[p], want[p])
			n++
		}
	}
	for _, p := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[p]; !ok && n < 20 {
			fmt.Fprintf(&b, "  %s should not be there: %q\n", p, got[p])
			n++
		}
	}
	return b.String()
}

// covered reports whether a path or a directory above it is excused.
func covered(p string, excused map[string]bool) bool {
	for ; p != "."; p = filepath.Dir(p) {
		if excused[p] {
			return true
		}
	}
	return excused["."]
}

// history is what a disk has shown since it was last acknowledged as durable,
// step by step.
type history struct {
	tree  tree
	now   sight
	base  sight   // what was acknowledged
	steps []sight // what each step since has changed; "" for a path that went
}

func newHistory(t tree) *history {
	h := &history{tree: t, now: t.sight()}
	h.acknowledge()
	return h
}

// step notes that the named paths of the tree have changed.
func (h *history) step(paths ...string) {
	change := sight{}
	for _, p := range paths {
		change[p] = ""
		if f := h.tree[p]; f != nil {
			change[p] = f.line()
		}
	}
	h.steps = append(h.steps, change)
	h.now.apply(change)
}

// become notes that the disk shows another tree.
func (h *history) become(t tree) {
	paths := slices.Collect(maps.Keys(h.tree))
	for p := range t {
		if h.tree[p] == nil {
			paths = append(paths, p)
		}
	}
	h.tree = t
	h.step(paths...)
}

// acknowledge notes that all that the disk shows is durable.
func (h *history) acknowledge() { h.base, h.steps = maps.Clone(h.now), nil }

func (s sight) apply(change sight) {
	for p, l := range change {
		if l == "" {
			delete(s, p)
		} else {
			s[p] = l
		}
	}
}

// recovered looks for what is shown after a crash among the states that are
// allowed, takes that for the state from now on, and returns how many steps were
// lost.
func (h *history) recovered(got sight) (lost int, err error) {
	at, found := maps.Clone(h.base), -1
	for i := 0; ; i++ {
		if maps.Equal(at, got) {
			found = i
		}
		if i == len(h.steps) {
			break
		}
		at.apply(h.steps[i])
	}
	if found < 0 {
		return 0, fmt.Errorf("it shows none of the %d states since the last that was acknowledged; against that:\n%sagainst the newest:\n%s",
			len(h.steps)+1, differ(got, h.base, nil), differ(got, h.now, nil))
	}
	return len(h.steps) - found, nil
}

// readTree reads all that a directory holds into a tree.
func readTree(dir string) (tree, error) {
	t, inodes := tree{}, map[uint64]*file{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		f := inodes[st.Ino]
		if f == nil {
			f = &file{dir: st.Mode&unix.S_IFMT == unix.S_IFDIR}
			switch st.Mode & unix.S_IFMT {
			case unix.S_IFLNK:
				f.target, err = os.Readlink(path)
			case unix.S_IFREG:
				f.links = int(st.Nlink)
				if f.data, err = os.ReadFile(path); err == nil {
					f.xattrs, err = xattrsOf(path)
				}
			}
			inodes[st.Ino] = f
		}
		t[name] = f
		return err
	})
	return t, err
}
