package hosttree

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/fs/archive"
	"tine.dev/tine/internal/tine"
)

// namesAtOnce is how many names of a directory are read at a time.
const namesAtOnce = 1024

// Owner replaces the owners of all that is packed, when it is not nil: an
// ordinary user's copies are the user's.
type Owner struct{ UID, GID uint32 }

// packer writes one tree.
type packer struct {
	ctx    context.Context
	w      *archive.Writer
	owner  *Owner
	note   Note
	links  map[devIno]string
	totals Totals
	buf    []byte
}

// devIno names an inode of the machine.
type devIno struct{ dev, ino uint64 }

// Pack writes what is at the path, and all below it, under the name as; where
// that is ".", only the content of a directory. It does not end the archive.
func Pack(ctx context.Context, w *archive.Writer, at, as string, owner *Owner, note Note) (Totals, error) {
	p := &packer{ctx: ctx, w: w, owner: owner, note: note, links: map[devIno]string{}, buf: make([]byte, copyBytes)}
	clean := filepath.Clean(at)
	in, name := filepath.Split(clean)
	if in == "" {
		in = "."
	}
	if name == "" || name == "." || name == ".." || strings.HasSuffix(at, "/") {
		in, name = at, "." // what the kernel resolves, links included
	}
	dir, err := os.Open(in)
	if err != nil {
		return p.totals, oserr.Wrap(bare(err), "open %s", in)
	}
	defer dir.Close()
	if as == "." {
		as = ""
	}
	if err := p.entry(dir, name, as, clean); err != nil {
		return p.totals, err
	}
	if as == "" && p.totals.Directories == 0 {
		return p.totals, tine.Errorf(tine.KindNotDir, "%s is not a directory", at)
	}
	return p.totals, nil
}

// bare takes away what os says around an error of the system.
func bare(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func (p *packer) skip(path, why string) {
	p.totals.Skipped++
	p.note(path, why)
}

// entry writes one name of a directory.
func (p *packer) entry(dir *os.File, name, as, at string) error {
	if p.ctx.Err() != nil {
		return tine.Errorf(tine.KindInterrupted, "interrupted")
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return oserr.Wrap(err, "look at %s", at)
	}
	kind := st.Mode & unix.S_IFMT
	switch kind {
	case unix.S_IFREG, unix.S_IFDIR:
		return p.opened(dir, name, as, at, kind)
	case unix.S_IFSOCK:
		p.skip(at, "a socket; skipped, because nobody would listen on the copy")
		return nil
	}
	e := p.describe(&st, as)
	if p.again(e, &st) {
		return p.w.Entry(e)
	}
	switch kind {
	case unix.S_IFLNK:
		e.Type = archive.Symlink
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(int(dir.Fd()), name, buf)
		if err != nil {
			return oserr.Wrap(err, "read the link %s", at)
		}
		e.Link = string(buf[:n])
		p.totals.Symlinks++
	case unix.S_IFIFO:
		e.Type = archive.Fifo
		p.totals.Specials++
	default:
		e.Type = archive.Char
		if kind == unix.S_IFBLK {
			e.Type = archive.Block
		}
		e.Major, e.Minor = unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev))
		p.totals.Specials++
	}
	reach := "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + name
	err := p.xattrs(e, at, func(b []byte) (int, error) { return unix.Llistxattr(reach, b) },
		func(name string, b []byte) (int, error) { return unix.Lgetxattr(reach, name, b) })
	if err != nil {
		return err
	}
	return p.w.Entry(e)
}

func (p *packer) describe(st *unix.Stat_t, as string) *archive.Entry {
	atime := nanos(st.Atim)
	e := &archive.Entry{Name: as, Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid, Mtime: nanos(st.Mtim), Atime: &atime}
	if p.owner != nil {
		e.UID, e.GID = p.owner.UID, p.owner.GID
	}
	return e
}

func nanos(t unix.Timespec) int64 { return time.Unix(t.Sec, t.Nsec).UnixNano() }

// again makes the entry a hard link if its inode was written already.
func (p *packer) again(e *archive.Entry, st *unix.Stat_t) bool {
	if st.Nlink < 2 {
		return false
	}
	id := devIno{uint64(st.Dev), st.Ino}
	first, ok := p.links[id]
	if !ok {
		p.links[id] = e.Name
		return false
	}
	p.totals.HardLinks++
	e.Type, e.Link = archive.HardLink, first
	return true
}

// opened writes a file or a directory, which are read through a descriptor.
func (p *packer) opened(dir *os.File, name, as, at string, kind uint32) error {
	flags := unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(int(dir.Fd()), name, flags, 0)
	if err != nil {
		return oserr.Wrap(err, "open %s", at)
	}
	f := os.NewFile(uintptr(fd), at)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return oserr.Wrap(err, "look at %s", at)
	}
	if st.Mode&unix.S_IFMT != kind {
		return tine.Errorf(tine.KindConflict, "%s was replaced while it was read", at)
	}
	e := p.describe(&st, as)
	if kind == unix.S_IFREG && p.again(e, &st) {
		return p.w.Entry(e)
	}
	err = p.xattrs(e, at, func(b []byte) (int, error) { return unix.Flistxattr(fd, b) },
		func(name string, b []byte) (int, error) { return unix.Fgetxattr(fd, name, b) })
	if err != nil {
		return err
	}
	if kind == unix.S_IFDIR {
		return p.directory(f, e, at)
	}
	return p.file(f, e, &st, at)
}

func (p *packer) directory(d *os.File, e *archive.Entry, at string) error {
	e.Type = archive.Directory
	p.totals.Directories++
	as := e.Name
	if as != "" {
		if err := p.w.Entry(e); err != nil {
			return err
		}
	}
	for {
		names, err := d.Readdirnames(namesAtOnce)
		for _, name := range names {
			if err := p.entry(d, name, path.Join(as, name), filepath.Join(at, name)); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return oserr.Wrap(bare(err), "list %s", at)
		}
	}
}

func (p *packer) file(f *os.File, e *archive.Entry, st *unix.Stat_t, at string) error {
	e.Type, e.Size = archive.Regular, st.Size
	if st.Blocks*512 < st.Size {
		var err error
		if e.Runs, err = runs(int(f.Fd()), st.Size); err != nil {
			return oserr.Wrap(err, "read %s", at)
		}
	}
	if err := p.w.Entry(e); err != nil {
		return err
	}
	p.totals.Files++
	short := false
	for _, r := range e.Data() {
		for r.Len > 0 {
			if p.ctx.Err() != nil {
				return tine.Errorf(tine.KindInterrupted, "interrupted")
			}
			b := p.buf[:min(r.Len, copyBytes)]
			n, err := f.ReadAt(b, r.Off)
			if err == io.EOF {
				clear(b[n:])
				short, err = true, nil
			}
			if err != nil {
				return oserr.Wrap(bare(err), "read %s", at)
			}
			if _, err := p.w.Write(b); err != nil {
				return err
			}
			r.Off, r.Len = r.Off+int64(len(b)), r.Len-int64(len(b))
			p.totals.Bytes += int64(len(b))
		}
	}
	if short {
		p.skip(at, "became shorter while it was read; filled up with zeros")
	}
	return nil
}

// runs finds where a file has data. A file system that knows no holes is all
// data.
func runs(fd int, size int64) ([]archive.Run, error) {
	var c archive.Collector
	for off := int64(0); off < size; {
		start, err := unix.Seek(fd, off, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO):
			return c.Runs(size), nil
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
			return nil, nil
		case err != nil:
			return nil, err
		}
		end, err := unix.Seek(fd, start, unix.SEEK_HOLE)
		if err != nil || end <= start || end > size {
			end = size
		}
		c.Add(archive.Run{Off: start, Len: end - start})
		off = end
	}
	return c.Runs(size), nil
}

// xattrs reads the extended attributes. Those that the user may not read do
// not show in the list.
func (p *packer) xattrs(e *archive.Entry, at string, list func([]byte) (int, error), get func(string, []byte) (int, error)) error {
	n, err := list(nil)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) || err == nil && n == 0 {
		return nil
	}
	names := make([]byte, tine.MaxXattrListBytes)
	if err == nil {
		n, err = list(names)
	}
	if err != nil {
		return oserr.Wrap(err, "list the extended attributes of %s", at)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names[:n]), "\x00"), "\x00") {
		value := make([]byte, tine.MaxXattrValueBytes)
		n, err := get(name, value)
		if errors.Is(err, unix.ENODATA) || name == "" {
			continue
		}
		if err != nil {
			p.note(at, "the extended attribute "+name+" cannot be read; left out")
			continue
		}
		e.Xattrs = append(e.Xattrs, archive.Xattr{Name: name, Value: value[:n:n]})
	}
	return nil
}
