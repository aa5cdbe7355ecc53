package importer

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/fs/archive"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// unpacker puts the entries of an archive into a disk. A name leads from the
// base through directories only: no symbolic link is followed, whether the
// archive made it or it was there.
//
// The times of a directory are set when its content has come: when an entry
// lies elsewhere. For the entries that come later still, its time is put back
// after each. So memory is bounded by the depth of the tree.
type unpacker struct {
	ctx    context.Context
	s      *volume.Session
	r      *archive.Reader
	counts *counts
	note   func(path, text string)
	begun  int64
	path   []level // from the base to the directory of the last entry
	buf    []byte
}

// level is a directory on the way to an entry.
type level struct {
	name  string
	node  volume.Node
	mtime *int64 // to be set when it is left
	atime *int64
}

func unpack(ctx context.Context, s *volume.Session, path string, from io.Reader, rep *reporter) error {
	base, err := makePath(s, path)
	if err != nil {
		return err
	}
	u := &unpacker{ctx: ctx, s: s, r: archive.NewReader(from, machineUsers{}), counts: rep.counts, note: rep.note,
		begun: time.Now().UnixNano(), path: []level{{node: base}}, buf: make([]byte, copyBytes)}
	for {
		if ctx.Err() != nil {
			return cancelled()
		}
		e, err := u.r.Next()
		if err == io.EOF {
			return u.leave(0)
		}
		if err == nil {
			err = u.entry(e)
		}
		if ctx.Err() != nil {
			return cancelled()
		}
		if err != nil {
			return err
		}
	}
}

// makePath finds a directory in the disk, and makes what is missing of it.
func makePath(s *volume.Session, path string) (volume.Node, error) {
	a, n, err := s.Resolve(path, true)
	switch {
	case err == nil && a.Mode&unix.S_IFMT != unix.S_IFDIR:
		return n, tine.Errorf(tine.KindNotDir, "%q in the disk is not a directory", path)
	case err == nil || tine.KindOf(err) != tine.KindNotFound:
		return n, err
	}
	trimmed := strings.TrimRight(path, "/")
	i := strings.LastIndexByte(trimmed, '/')
	parent, name := trimmed[:i+1], trimmed[i+1:]
	if name == "." || name == ".." || name == "" {
		return n, err
	}
	in, err := makePath(s, parent)
	if err != nil {
		return n, err
	}
	_, n, err = s.Mkdir(root, in, name, 0o755)
	return n, made(err, path)
}

// entry puts one entry into the disk.
func (u *unpacker) entry(e *archive.Entry) error {
	for _, text := range e.Notes {
		u.note(e.Name, text)
	}
	parts, err := archive.Path(e.Name)
	if err != nil {
		return err
	}
	if e.Type == archive.Unknown {
		u.counts.skipped.Add(1)
		u.note(e.Name, "of a kind that is not known here; skipped")
		return nil
	}
	if e.Type == archive.Directory {
		return u.directory(e, parts)
	}
	if len(parts) == 0 {
		return tine.Errorf(tine.KindInvalid, "the archive has the name %q for what is no directory, at byte %d", e.Name, e.Offset)
	}
	name := parts[len(parts)-1]
	in, err := u.enter(parts[:len(parts)-1], e)
	if err != nil {
		return err
	}
	late, err := u.lateParent(in)
	if err != nil {
		return err
	}
	if err := u.leafEntry(e, in.node, name); err != nil {
		return at(err, e)
	}
	return u.setTimes(in.node, late, nil)
}

// at says which entry of the archive could not be unpacked.
func at(err error, e *archive.Entry) error {
	if err == nil || tine.KindOf(err) == tine.KindCorrupt {
		return err // it says so itself
	}
	return oserr.Wrap(err, "unpack %q, at byte %d of the archive", e.Name, e.Offset)
}

func (u *unpacker) leafEntry(e *archive.Entry, in volume.Node, name string) error {
	if e.Type == archive.HardLink {
		return u.hardLink(e, in, name)
	}
	if err := u.makeRoom(in, name); err != nil {
		return err
	}
	var a volume.Attr
	var n volume.Node
	var err error
	switch e.Type {
	case archive.Regular:
		return u.file(e, in, name)
	case archive.Symlink:
		if e.Link == "" {
			return tine.Errorf(tine.KindInvalid, "a symbolic link to nothing")
		}
		u.counts.symlinks.Add(1)
		a, n, err = u.s.Symlink(root, in, name, e.Link)
	case archive.Fifo:
		u.counts.specials.Add(1)
		a, n, err = u.s.Mknod(root, in, name, unix.S_IFIFO|0o600, 0)
	default:
		kind := uint32(unix.S_IFCHR)
		if e.Type == archive.Block {
			kind = unix.S_IFBLK
		}
		u.counts.specials.Add(1)
		a, n, err = u.s.Mknod(root, in, name, kind|0o600, uint32(unix.Mkdev(e.Major, e.Minor)))
	}
	if err != nil {
		return err
	}
	return u.attributes(e, a, n)
}

// makeRoom removes what an entry replaces, as tar does: a file that has other
// names keeps its content under them. A directory is not replaced.
func (u *unpacker) makeRoom(in volume.Node, name string) error {
	a, _, err := u.s.Lookup(in, name)
	switch {
	case tine.KindOf(err) == tine.KindNotFound:
		return nil
	case err != nil:
		return err
	case a.Mode&unix.S_IFMT == unix.S_IFDIR:
		return tine.Errorf(tine.KindIsDir, "a directory is in its place").WithHint("remove that first, or unpack elsewhere")
	}
	return u.s.Unlink(root, in, name)
}

func (u *unpacker) file(e *archive.Entry, in volume.Node, name string) error {
	f, a, n, err := u.s.Create(root, in, name, 0o600, true)
	if err != nil {
		return err
	}
	defer f.Close()
	u.counts.files.Add(1)
	for _, r := range e.Data() {
		for r.Len > 0 {
			if u.ctx.Err() != nil {
				return cancelled()
			}
			got, err := io.ReadFull(u.r, u.buf[:min(r.Len, copyBytes)])
			if err != nil {
				return err
			}
			if _, err := f.WriteAt(root, u.buf[:got], r.Off); err != nil {
				return err
			}
			u.counts.bytes.Add(int64(got))
			r.Off, r.Len = r.Off+int64(got), r.Len-int64(got)
		}
	}
	if runs := e.Runs; runs != nil && (len(runs) == 0 || runs[len(runs)-1].End() < e.Size) {
		if err := f.Truncate(root, e.Size); err != nil {
			return err
		}
	}
	return u.attributes(e, a, n)
}

// hardLink gives what an earlier entry made, or what was there, another name.
func (u *unpacker) hardLink(e *archive.Entry, in volume.Node, name string) error {
	parts, err := archive.Path(e.Link)
	if err != nil {
		return err
	}
	n := u.path[0].node
	var a volume.Attr
	for i, p := range parts {
		if i > 0 && a.Mode&unix.S_IFMT != unix.S_IFDIR {
			return tine.Errorf(tine.KindNotDir, "it is a hard link to %q, which leads through something that is no directory", e.Link)
		}
		a, n, err = u.s.Lookup(n, p)
		if tine.KindOf(err) == tine.KindNotFound {
			return tine.Errorf(tine.KindNotFound, "it is a hard link to %q, which is neither in the archive before it nor in the disk", e.Link).
				WithHint("unpack the whole archive, or make it with --hard-dereference")
		}
		if err != nil {
			return err
		}
	}
	if len(parts) == 0 || a.Mode&unix.S_IFMT == unix.S_IFDIR {
		return tine.Errorf(tine.KindInvalid, "it is a hard link to %q, which is a directory", e.Link)
	}
	u.counts.hardLinks.Add(1)
	if _, have, err := u.s.Lookup(in, name); err == nil && have.Ino == n.Ino {
		return nil
	}
	if err := u.makeRoom(in, name); err != nil {
		return err
	}
	_, err = u.s.Link(root, n, in, name)
	return err
}

// directory makes a directory, or takes one that is there, and goes into it.
func (u *unpacker) directory(e *archive.Entry, parts []string) error {
	u.counts.directories.Add(1)
	if len(parts) == 0 {
		if err := u.leave(1); err != nil {
			return err
		}
		base := &u.path[0]
		base.mtime, base.atime = &e.Mtime, e.Atime
		a, err := u.s.GetAttr(base.node)
		if err != nil {
			return at(err, e)
		}
		return at(u.owner(e, a, base.node), e)
	}
	in, err := u.enter(parts[:len(parts)-1], e)
	if err != nil {
		return err
	}
	late, err := u.lateParent(in)
	if err != nil {
		return err
	}
	name := parts[len(parts)-1]
	a, n, err := u.s.Lookup(in.node, name)
	if err == nil && a.Mode&unix.S_IFMT != unix.S_IFDIR {
		if err = u.s.Unlink(root, in.node, name); err == nil {
			err = tine.ErrNotFound
		}
	}
	if tine.KindOf(err) == tine.KindNotFound {
		a, n, err = u.s.Mkdir(root, in.node, name, 0o700)
	}
	if err == nil {
		err = u.owner(e, a, n)
	}
	if err == nil {
		err = u.setTimes(in.node, late, nil)
	}
	u.path = append(u.path, level{name, n, &e.Mtime, e.Atime})
	return at(err, e)
}

// enter goes to the directory of an entry. What is missing on the way is made.
func (u *unpacker) enter(parts []string, e *archive.Entry) (*level, error) {
	same := 0
	for same < len(parts) && same+1 < len(u.path) && u.path[same+1].name == parts[same] {
		same++
	}
	if err := u.leave(same + 1); err != nil {
		return nil, at(err, e)
	}
	for _, name := range parts[same:] {
		in := u.path[len(u.path)-1].node
		a, n, err := u.s.Lookup(in, name)
		if tine.KindOf(err) == tine.KindNotFound {
			a, n, err = u.s.Mkdir(root, in, name, 0o755)
		}
		if err != nil {
			return nil, at(err, e)
		}
		switch a.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
		case unix.S_IFLNK:
			return nil, at(tine.Errorf(tine.KindInvalid, "its name leads through the symbolic link %q, which is not followed", name).
				WithHint("make the archive anew with names that lead through directories only"), e)
		default:
			return nil, at(tine.Errorf(tine.KindNotDir, "its name leads through %q, which is not a directory", name), e)
		}
		u.path = append(u.path, level{name: name, node: n})
	}
	return &u.path[len(u.path)-1], nil
}

// leave goes up until n levels are left (0: also out of the base), and sets
// the times of the directories that it leaves.
func (u *unpacker) leave(n int) error {
	for _, l := range slices.Backward(u.path[n:]) {
		if err := u.setTimes(l.node, l.mtime, l.atime); err != nil {
			return err
		}
	}
	u.path = u.path[:n]
	return nil
}

// lateParent returns the time that a directory has to keep although an entry
// is made in it: that of one which this archive has made and then left.
func (u *unpacker) lateParent(in *level) (*int64, error) {
	if in.mtime != nil {
		return nil, nil // set when it is left
	}
	a, err := u.s.GetAttr(in.node)
	if err != nil || a.Btime < u.begun {
		return nil, err
	}
	return &a.Mtime, nil
}

func (u *unpacker) setTimes(n volume.Node, mtime, atime *int64) error {
	if mtime == nil && atime == nil {
		return nil
	}
	_, err := u.s.SetAttr(root, n, volume.SetAttr{Mtime: mtime, Atime: atime})
	return err
}

// attributes gives a new inode all that the entry says of it.
func (u *unpacker) attributes(e *archive.Entry, a volume.Attr, n volume.Node) error {
	if err := u.owner(e, a, n); err != nil {
		return err
	}
	return u.setTimes(n, &e.Mtime, e.Atime)
}

// owner sets the owner, the extended attributes and the mode, in this order: a
// change of owner takes set-user-ID and capabilities away, and an ACL changes
// the mode.
func (u *unpacker) owner(e *archive.Entry, a volume.Attr, n volume.Node) error {
	if a.UID != e.UID || a.GID != e.GID {
		if _, err := u.s.SetAttr(root, n, volume.SetAttr{UID: &e.UID, GID: &e.GID}); err != nil {
			return err
		}
	}
	if a.Xattrs {
		if err := u.dropInherited(e, n); err != nil {
			return err
		}
	}
	for _, x := range e.Xattrs {
		err := u.s.SetXattr(root, n, x.Name, x.Value, 0)
		switch tine.KindOf(err) {
		case tine.KindInvalid, tine.KindUnsupported, tine.KindRange, tine.KindTooLarge:
			u.note(e.Name, "the extended attribute "+x.Name+" is of a kind that a disk does not keep; left out")
			continue
		}
		if err != nil {
			return err
		}
	}
	if e.Type == archive.Symlink {
		return nil
	}
	_, err := u.s.SetAttr(root, n, volume.SetAttr{Mode: &e.Mode})
	return err
}

// dropInherited takes away the ACLs that an inode has from its directory and
// not from the archive.
func (u *unpacker) dropInherited(e *archive.Entry, n volume.Node) error {
	names, err := u.s.ListXattr(n)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, aclXattrs) || slices.ContainsFunc(e.Xattrs, func(x archive.Xattr) bool { return x.Name == name }) {
			continue
		}
		if err := u.s.RemoveXattr(root, n, name); err != nil && tine.KindOf(err) != tine.KindNoAttr {
			return err
		}
	}
	return nil
}
