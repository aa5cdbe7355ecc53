package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/sim/posix"
	"tine.dev/tine/internal/tine"
)

// session is one attachment of the driver to a disk.
type session struct{ *volume.Session }

// handle is an open file or directory of a session.
type handle struct {
	s    *session
	ino  tine.Ino
	file *volume.File // nil for a directory
	dir  *volume.Dir
}

func (h *handle) close() error {
	if h.file != nil {
		return h.file.Close()
	}
	return h.dir.Close()
}

// turn is one step on the files of one disk: where it happens, and the
// randomness that decides what.
type turn struct {
	*World
	d *disk
	s *session
	r *rand.Rand
}

// node names an inode as the engine wants it.
func (t *turn) node(ino tine.Ino) volume.Node {
	return volume.Node{Gen: t.s.Generation(), Ino: ino}
}

// chance is true in percent of 100 cases.
func (t *turn) chance(percent int) bool { return t.r.IntN(100) < percent }

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// pickNode returns a node with a name that fits, or one that does not in a few
// of 100 cases.
func (t *turn) pickNode(fits func(*posix.Node) bool) tine.Ino {
	var good, all []tine.Ino
	t.d.fs.Tree.All(func(n *posix.Node) {
		all = append(all, n.Ino)
		if fits(n) {
			good = append(good, n.Ino)
		}
	})
	if len(good) == 0 || t.chance(3) {
		return pick(t.r, all)
	}
	return pick(t.r, good)
}

func isDir(n *posix.Node) bool     { return n.IsDir() }
func isRegular(n *posix.Node) bool { return n.Type() == posix.TypeRegular }
func isAny(*posix.Node) bool       { return true }

// pickDir returns a directory, now and then one without a name that is open.
func (t *turn) pickDir() tine.Ino {
	if t.chance(4) {
		for _, h := range t.d.handles {
			if h.dir != nil {
				return h.ino
			}
		}
	}
	return t.pickNode(isDir)
}

// pickEntry returns a directory and a name in it, most often one that exists.
func (t *turn) pickEntry(fits func(*posix.Node) bool) (tine.Ino, string) {
	type entry struct {
		dir  tine.Ino
		name string
	}
	var all []entry
	t.d.fs.Tree.All(func(d *posix.Node) {
		for _, e := range d.Names {
			if fits(t.d.fs.Get(e.Ino)) {
				all = append(all, entry{d.Ino, e.Name})
			}
		}
	})
	if len(all) == 0 || t.chance(8) {
		return t.pickDir(), t.name()
	}
	e := pick(t.r, all)
	return e.dir, e.name
}

// name returns a name out of a small set, so that names meet; a few are hard.
func (t *turn) name() string {
	long := make([]byte, tine.MaxNameBytes)
	for i := range long {
		long[i] = byte('a' + i%26)
	}
	switch t.r.IntN(60) {
	case 0:
		return string(long)
	case 1:
		return string(long) + "x"
	case 2:
		return "\xff\xfe not utf-8"
	case 3:
		return "zażółć"
	case 4:
		return string(long[:t.r.IntN(200)+1])
	}
	return fmt.Sprintf("n%d", t.r.IntN(14))
}

// cred returns who asks: root most often.
func (t *turn) cred() volume.Cred {
	if t.chance(20) {
		return volume.Cred{UID: 1000, GID: 100}
	}
	return volume.Cred{}
}

func who(c volume.Cred) posix.Who { return posix.Who{UID: c.UID, GID: c.GID} }

// bytes returns length bytes that are unlikely to equal any others.
func (t *turn) bytes(length int) []byte {
	b := make([]byte, length)
	word := t.r.Uint64() | 1
	for i := range b {
		b[i] = byte(word >> (8 * (i % 8)))
		if i%8 == 7 {
			word = word*6364136223846793005 + 1442695040888963407
		}
	}
	return b
}

// length returns a number of bytes: most often few, sometimes about the sizes
// at which the engine changes its ways.
func (t *turn) length() int {
	switch n := t.r.IntN(100); {
	case t.cfg.Small && n >= 93:
		return 60<<10 + t.r.IntN(80<<10)
	case t.cfg.Small && n >= 75:
		return t.r.IntN(24 << 10)
	case n < 40:
		return t.r.IntN(64)
	case n < 65:
		return t.r.IntN(tine.InlineBytes)
	case n < 75:
		return tine.InlineBytes - 2 + t.r.IntN(4)
	case n < 92:
		return t.r.IntN(64 << 10)
	case n < 98:
		return t.r.IntN(300 << 10)
	}
	return tine.ChunkBytes - 2 + t.r.IntN(tine.ChunkBytes)
}

// offset returns a place in a file of the given size, most often in it.
func (t *turn) offset(size int64) int64 {
	near := func(at int64) int64 { return max(0, at-3+t.r.Int64N(6)) }
	switch n := t.r.IntN(100); {
	case n < 20:
		return 0
	case n < 35:
		return size
	case n < 75:
		return t.r.Int64N(min(size, 1<<22) + 1)
	case n < 82, t.cfg.Small && n < 97:
		return near(tine.InlineBytes)
	case n < 90:
		return near(tine.ChunkBytes)
	case n < 94:
		return near(2*tine.ChunkBytes) + t.r.Int64N(5000)
	case n < 99:
		return size + t.r.Int64N(10000)
	}
	return 1<<40 + t.r.Int64N(1<<20)
}

// same compares how the engine and the model ended.
func same(got, want error) error {
	switch {
	case got == nil && want == nil:
		return nil
	case errors.Is(want, tine.ErrNotDir) && errors.Is(got, tine.ErrNameTooLong):
		return nil // both are true
	case got == nil || want == nil || tine.KindOf(got) != tine.KindOf(want):
		return fmt.Errorf("the engine says %s, the model %s", sayError(got), sayError(want))
	}
	return nil
}

func sayError(err error) string {
	if err == nil {
		return "it worked"
	}
	return fmt.Sprintf("%s (%v)", tine.KindOf(err), err)
}

// sameAttr compares what the engine shows of an inode with the model's.
func (t *turn) sameAttr(what string, a volume.Attr, ino tine.Ino) error {
	n := t.d.fs.Get(ino)
	if n == nil {
		return fmt.Errorf("%s: the engine shows inode %d, which the model does not have", what, ino)
	}
	got := posix.Attr{
		Ino: a.Ino, Mode: a.Mode, UID: a.UID, GID: a.GID, Nlink: a.Nlink, Rdev: a.Rdev,
		Mtime: a.Mtime, Ctime: a.Ctime, Atime: a.Atime, Btime: a.Btime,
	}
	switch {
	case got != n.Attr:
		return fmt.Errorf("%s: the engine shows %+v, the model %+v", what, got, n.Attr)
	case !n.IsDir() && a.Size != n.Size():
		return fmt.Errorf("%s: inode %d has size %d, in the model %d", what, ino, a.Size, n.Size())
	case isRegular(n) && (a.Bytes < n.Content.Allocated() || a.Bytes > n.Content.MayAllocate()):
		return fmt.Errorf("%s: inode %d has %d bytes of data, in the model %d", what, ino, a.Bytes, n.Content.Allocated())
	}
	return nil
}

// verify compares the attributes of the given inodes; those that the model
// does not have any more must be gone.
func (t *turn) verify(inos ...tine.Ino) error {
	slices.Sort(inos)
	for _, ino := range slices.Compact(inos) {
		a, err := t.s.GetAttr(t.node(ino))
		if t.d.fs.Get(ino) == nil {
			if k := tine.KindOf(err); err == nil || k != tine.KindNotFound && k != tine.KindStale {
				return fmt.Errorf("stat of the removed inode %d: %s", ino, sayError(err))
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("stat of inode %d: %w", ino, err)
		}
		if err := t.sameAttr("stat", a, ino); err != nil {
			return err
		}
	}
	return nil
}

// fresh returns the number that the engine chose for a new inode, after
// checking that no other ever had it.
func (t *turn) fresh(ino tine.Ino, failed error) (tine.Ino, error) {
	if failed != nil {
		return t.d.fs.NextIno, nil
	}
	if ino < t.d.fs.NextIno {
		return ino, fmt.Errorf("the new inode number %d was used before; the next free one is %d", ino, t.d.fs.NextIno)
	}
	return ino, nil
}
