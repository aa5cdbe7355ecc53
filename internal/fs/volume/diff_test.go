package volume_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// shownAt is what a path shows, as far as a diff tells.
type shownAt struct {
	typ      uint8
	metadata string
	content  string
}

// showAll reads a whole disk.
func showAll(t *testing.T, s *volume.Session) map[string]shownAt {
	t.Helper()
	all := map[string]shownAt{}
	var walk func(dir volume.Node, prefix string)
	walk = func(dir volume.Node, prefix string) {
		d, err := s.OpenDir(dir)
		check(t, err)
		var es []volume.DirEntry
		check(t, d.Read(0, func(e volume.DirEntry) bool { es = append(es, e); return true }))
		check(t, d.Close())
		for _, e := range es {
			if cold(e.Name) {
				all[prefix+e.Name] = shownAt{typ: e.Type}
				continue
			}
			a, n, err := s.Lookup(dir, e.Name)
			check(t, err)
			at, path := shownAt{typ: e.Type, metadata: fmt.Sprint(a.Mode)}, prefix+e.Name
			if e.Type == 4 {
				walk(n, path+"/")
			} else {
				at.metadata += fmt.Sprint(" ", a.Mtime)
				f, err := s.Open(n)
				check(t, err)
				p := make([]byte, a.Size)
				_, err = f.ReadAt(p, 0)
				check(t, err)
				check(t, f.Close())
				at.content = string(p)
			}
			all[path] = at
		}
	}
	walk(volume.Root, "")
	return all
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// differences says how two disks differ, path by path, as lines.
func differences(a, b map[string]shownAt) []string {
	var lines []string
	add := func(path string, kind volume.Change) {
		lines = append(lines, fmt.Sprintf("%s %v %v %v", path, kind.Kind, kind.Content, kind.Metadata))
	}
	for path, x := range a {
		y, both := b[path]
		switch {
		case !both || x.typ != y.typ:
			add(path, volume.Change{Kind: volume.Removed})
		case x != y:
			add(path, volume.Change{Kind: volume.Changed, Content: x.content != y.content, Metadata: x.metadata != y.metadata})
		}
	}
	for path, y := range b {
		if x, both := a[path]; !both || x.typ != y.typ {
			add(path, volume.Change{Kind: volume.Added})
		}
	}
	slices.Sort(lines)
	return lines
}

// shuffler changes one disk at random: names in a few directories, one of which
// is large.
type shuffler struct {
	*rand.Rand
	t     *testing.T
	s     *volume.Session
	dirs  []string
	fresh string // the start of new names
	made  int
}

func (w *shuffler) dir(path string) volume.Node {
	w.t.Helper()
	_, n, err := w.s.Resolve("/"+path, false)
	check(w.t, err)
	return n
}

// largeNames is how many names the large directory has.
const largeNames = 5000

// hotName is one of the few names in the large directory that are changed.
func hotName(i int) string { return fmt.Sprintf("f%04d", i*(largeNames/40)) }

// cold reports that nothing ever changes a name.
func cold(name string) bool {
	var i int
	_, err := fmt.Sscanf(name, "f%04d", &i)
	return err == nil && i%(largeNames/40) != 0
}

// name is a name in the large directory, one of few, or one in another.
func (w *shuffler) name() (dir, name string) {
	if w.IntN(3) > 0 {
		return "large", hotName(w.IntN(40))
	}
	return w.dirs[w.IntN(len(w.dirs))], fmt.Sprintf("g%d", w.IntN(8))
}

func (w *shuffler) put(dir, name string) {
	w.t.Helper()
	f, _, _, err := w.s.Create(root, w.dir(dir), name, 0o644, false)
	if tine.KindOf(err) == tine.KindIsDir {
		return
	}
	check(w.t, err)
	w.made++
	_, err = f.WriteAt(root, fmt.Appendf(nil, "%s %d", w.fresh, w.made), 0)
	check(w.t, err)
	check(w.t, f.Close())
}

// step makes one change. What does not apply, for a name does not exist, changes
// nothing.
func (w *shuffler) step() {
	dir, name := w.name()
	toDir, toName := w.name()
	at, to := w.dir(dir), w.dir(toDir)
	switch w.IntN(9) {
	case 0:
		w.put(dir, name)
	case 1: // as editors save
		w.put(dir, w.fresh)
		_ = w.s.Rename(root, at, w.fresh, at, name, 0)
	case 2:
		_ = w.s.Rename(root, at, name, to, toName, 0)
	case 3:
		_, n, err := w.s.Lookup(at, name)
		if err == nil {
			_, _ = w.s.Link(root, n, to, toName)
		}
	case 4:
		_ = w.s.Unlink(root, at, name)
	case 5:
		if _, n, err := w.s.Lookup(at, name); err == nil {
			mode := uint32(w.IntN(0o1000))
			_, err = w.s.SetAttr(root, n, volume.SetAttr{Mode: &mode})
			check(w.t, err)
		}
	case 6:
		_, _, _ = w.s.Mkdir(root, at, name, 0o755)
	case 7: // a directory in the place of another
		_ = w.s.Rename(root, volume.Root, "d1", volume.Root, "moved", 0)
		_ = w.s.Rename(root, volume.Root, "d2", volume.Root, "d1", 0)
		_ = w.s.Rename(root, volume.Root, "moved", volume.Root, "d2", 0)
	case 8:
		_ = w.s.Rename(root, at, name, to, w.fresh+"-again", 0)
	}
}

// TestDiffOfALargeDirectory holds diffs against what both disks show. The large
// directory has more names than a diff reads before it looks for each name by
// itself, and names whose order tells nothing: moved, replaced, linked.
func TestDiffOfALargeDirectory(t *testing.T) {
	const seeds = 6
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			h := open(t, volume.Options{FS: vfs.NewMem()})
			defer h.Close(ctx)
			_, err := h.CreateDisk(ctx, me, "a")
			check(t, err)
			w := &shuffler{Rand: r, t: t, s: attach(t, h, "a"), dirs: []string{"large", "d1", "d2", "d3"}, fresh: "before"}
			for _, d := range w.dirs {
				_, _, err := w.s.Mkdir(root, volume.Root, d, 0o755)
				check(t, err)
			}
			for i := range largeNames {
				w.put("large", fmt.Sprintf("f%04d", i))
			}
			// Some worlds are in order, in some names were moved about before.
			for range int(seed%3) * 200 {
				w.step()
			}
			w.fresh = "a"
			for range 20 {
				_, err = h.Fork(ctx, me, volume.Ref{Disk: "a"}, []string{"b"}, volume.WaitRunnable)
				check(t, err)
				b := &shuffler{Rand: r, t: t, s: attach(t, h, "b"), dirs: w.dirs, fresh: "b"}
				for range 1 + r.IntN(3) {
					w.step()
					b.step()
				}
				diffIs(t, h, differences(showAll(t, w.s), showAll(t, b.s)))
				check(t, b.s.Detach(ctx))
				_, err := h.RemoveDisk(ctx, me, "b", true)
				check(t, err)
			}
			check(t, w.s.Detach(ctx))
		})
	}
}

// diffIs checks what the diff of disks a and b says, but of the root directory.
func diffIs(t *testing.T, h *volume.Host, want []string) {
	t.Helper()
	var got []string
	check(t, h.Diff(ctx, me, volume.Ref{Disk: "a"}, volume.Ref{Disk: "b"}, func(c volume.Change) error {
		if len(c.Path) > 0 {
			got = append(got, fmt.Sprintf("%s %v %v %v", c.Path, c.Kind, c.Content, c.Metadata))
		}
		return nil
	}))
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("the diff says\n%s\nwant\n%s", missing(got, want), missing(want, got))
	}
}

// missing returns the lines of a that b does not have.
func missing(a, b []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(a), func(l string) bool { return slices.Contains(b, l) }), "\n")
}
