package importer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/fs/volume"
)

// namesAtOnce is how many names of a directory are read at a time.
const namesAtOnce = 1024

// root is on whose behalf everything is made; owners are set afterwards.
var root = volume.Cred{}

// devIno names an inode of the machine.
type devIno struct{ dev, ino uint64 }

// walker makes the tree's names in the disk.
type walker struct {
	session *volume.Session
	jobs    chan<- job
	counts  *counts
	note    func(path, text string)
	// links maps the inodes that have more names to the one made first.
	links map[devIno]volume.Node
	// skip is the server's data directory, which must not be copied into
	// itself.
	skip devIno
}

// counts is what has been done; the copiers add to it too.
type counts struct {
	files, directories, symlinks, hardLinks, specials, skipped, changed, bytes atomic.Int64
}

// job is a file whose data is to be copied.
type job struct {
	from *os.File
	to   *volume.File
	stat unix.Stat_t
	path string
}

// directory fills node with what the open directory holds, then gives it its
// attributes. It closes dir.
func (w *walker) directory(ctx context.Context, dir *os.File, node volume.Node, path string) error {
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return oserr.Wrap(err, "look at %s", path)
	}
	for {
		names, err := dir.Readdirnames(namesAtOnce)
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				return cancelled()
			}
			if err := w.entry(ctx, dir, node, name, filepath.Join(path, name)); err != nil {
				return err
			}
		}
		if len(names) == 0 {
			if err != nil && !isEOF(err) {
				return oserr.Wrap(err, "list %s", path)
			}
			break
		}
	}
	if err := w.xattrs(int(dir.Fd()), node, path); err != nil {
		return err
	}
	return w.attributes(node, &st, path)
}

// entry copies one name of a directory.
func (w *walker) entry(ctx context.Context, dir *os.File, parent volume.Node, name, path string) error {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		w.vanished(path)
		return nil
	}
	if err != nil {
		return oserr.Wrap(err, "look at %s", path)
	}
	id := devIno{st.Dev, st.Ino}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFDIR && st.Nlink > 1 {
		if first, ok := w.links[id]; ok {
			_, err := w.session.Link(root, first, parent, name)
			w.counts.hardLinks.Add(1)
			return made(err, path)
		}
	}
	switch kind {
	case unix.S_IFDIR:
		return w.subdirectory(ctx, dir, parent, name, path, id)
	case unix.S_IFREG:
		return w.file(ctx, dir, parent, name, path, id)
	case unix.S_IFLNK:
		return w.symlink(dir, parent, name, path, &st)
	case unix.S_IFIFO, unix.S_IFCHR, unix.S_IFBLK:
		return w.special(dir, parent, name, path, &st)
	case unix.S_IFSOCK:
		w.counts.skipped.Add(1)
		w.note(path, "a socket; skipped, because nobody would listen on the copy")
		return nil
	}
	w.counts.skipped.Add(1)
	w.note(path, "of an unknown type; skipped")
	return nil
}

func (w *walker) vanished(path string) {
	w.counts.skipped.Add(1)
	w.note(path, "was removed during the import; skipped")
}

// made says which path could not be made in the disk.
func made(err error, path string) error { return oserr.Wrap(err, "make %s in the disk", path) }

func (w *walker) subdirectory(ctx context.Context, dir *os.File, parent volume.Node, name, path string, id devIno) error {
	if id == w.skip {
		w.counts.skipped.Add(1)
		w.note(path, "the server's own data directory; skipped")
		return nil
	}
	sub, err := openAt(dir, name, path, unix.O_DIRECTORY)
	if err != nil || sub == nil {
		if err == nil {
			w.vanished(path)
		}
		return err
	}
	_, node, err := w.session.Mkdir(root, parent, name, 0o700)
	if err != nil {
		_ = sub.Close()
		return made(err, path)
	}
	w.counts.directories.Add(1)
	return w.directory(ctx, sub, node, path)
}

// openAt opens a name without following a symbolic link or waiting for a
// fifo's other end. A name that has vanished is nil.
func openAt(dir *os.File, name, path string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|flags, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, oserr.Wrap(err, "open %s", path)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// file makes the name and leaves the data to a copier.
func (w *walker) file(ctx context.Context, dir *os.File, parent volume.Node, name, path string, id devIno) error {
	from, err := openAt(dir, name, path, 0)
	if err != nil || from == nil {
		if err == nil {
			w.vanished(path)
		}
		return err
	}
	j := job{from: from, path: path}
	if err := unix.Fstat(int(from.Fd()), &j.stat); err != nil {
		_ = from.Close()
		return oserr.Wrap(err, "look at %s", path)
	}
	if j.stat.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = from.Close()
		w.vanished(path)
		return nil
	}
	to, _, node, err := w.session.Create(root, parent, name, 0o600, true)
	if err != nil {
		_ = from.Close()
		return made(err, path)
	}
	j.to = to
	w.counts.files.Add(1)
	if j.stat.Nlink > 1 {
		w.links[id] = node
	}
	select {
	case w.jobs <- j:
		return nil
	case <-ctx.Done():
		j.close()
		return cancelled()
	}
}

func (w *walker) symlink(dir *os.File, parent volume.Node, name, path string, st *unix.Stat_t) error {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(dir.Fd()), name, buf)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		w.vanished(path)
		return nil
	}
	if err != nil {
		return oserr.Wrap(err, "read the link %s", path)
	}
	_, node, err := w.session.Symlink(root, parent, name, string(buf[:n]))
	if err != nil {
		return made(err, path)
	}
	w.counts.symlinks.Add(1)
	return w.leaf(dir, node, name, path, st)
}

func (w *walker) special(dir *os.File, parent volume.Node, name, path string, st *unix.Stat_t) error {
	_, node, err := w.session.Mknod(root, parent, name, st.Mode&unix.S_IFMT|0o600, uint32(st.Rdev))
	if err != nil {
		return made(err, path)
	}
	w.counts.specials.Add(1)
	return w.leaf(dir, node, name, path, st)
}

// leaf finishes an inode that cannot be opened: its attributes are reached
// through the parent's descriptor.
func (w *walker) leaf(dir *os.File, node volume.Node, name, path string, st *unix.Stat_t) error {
	if st.Nlink > 1 {
		w.links[devIno{st.Dev, st.Ino}] = node
	}
	if err := w.linkXattrs(dir, node, name, path); err != nil {
		return err
	}
	return w.attributes(node, st, path)
}

// attributes sets owner, mode and times. The owner comes first: changing it
// clears the set-user-ID and set-group-ID bits, which the mode brings back.
func (w *walker) attributes(node volume.Node, st *unix.Stat_t, path string) error {
	uid, gid := st.Uid, st.Gid
	if _, err := w.session.SetAttr(root, node, volume.SetAttr{UID: &uid, GID: &gid}); err != nil {
		return made(err, path)
	}
	mode := st.Mode & 0o7777
	mtime, atime := nanos(st.Mtim), nanos(st.Atim)
	set := volume.SetAttr{Mtime: &mtime, Atime: &atime}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		set.Mode = &mode
	}
	_, err := w.session.SetAttr(root, node, set)
	return made(err, path)
}

func nanos(t unix.Timespec) int64 { return time.Unix(t.Sec, t.Nsec).UnixNano() }
