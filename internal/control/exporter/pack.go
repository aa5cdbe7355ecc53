package exporter

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/fs/archive"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

const (
	// copyBytes is how much is read at a time.
	copyBytes = 1 << 20
	// namesAtOnce is how many names of a directory are kept while what they
	// name is written.
	namesAtOnce = 128
	// maxNotes bounds the notes that are kept; the rest is counted.
	maxNotes = 100
)

// linked is an inode with several names, of which the first was written.
type linked struct {
	name string
	left uint32 // names that are still to come
}

// packer writes one archive.
type packer struct {
	ctx   context.Context
	s     *volume.Session
	w     *archive.Writer
	links map[tine.Ino]*linked
	done  api.ExportDone
	buf   []byte
}

func (p *packer) note(path, text string) {
	p.done.Skipped++
	if len(p.done.Notes) < maxNotes {
		p.done.Notes = append(p.done.Notes, api.ImportNote{Path: path, Note: text})
	}
}

// tree writes what the node is, and all below it.
func (p *packer) tree(n volume.Node, a volume.Attr, name string) error {
	if a.Mode&unix.S_IFMT != unix.S_IFDIR {
		return p.inode(n, a, name)
	}
	if err := p.inode(n, a, "./"); err != nil {
		return err
	}
	return p.below(n, "./")
}

// below writes the content of a directory, whose name ends in a slash.
func (p *packer) below(n volume.Node, name string) error {
	d, err := p.s.OpenDir(n)
	if vanished(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	var cookie uint64
	for {
		var es []volume.DirEntry
		err := d.Read(cookie, func(e volume.DirEntry) bool {
			es = append(es, e)
			return len(es) < namesAtOnce
		})
		if err != nil {
			return oserr.Wrap(err, "list %q in the disk", name)
		}
		for _, e := range es {
			if err := p.entry(d.Node(), e, name); err != nil {
				return err
			}
		}
		if len(es) < namesAtOnce {
			return nil
		}
		cookie = es[len(es)-1].Cookie
	}
}

func (p *packer) entry(dir volume.Node, e volume.DirEntry, in string) error {
	if err := p.ctx.Err(); err != nil {
		return tine.Errorf(tine.KindInterrupted, "the export was cancelled")
	}
	n, name := volume.Node{Gen: dir.Gen, Ino: e.Ino}, in+e.Name
	a, err := p.s.GetAttr(n)
	if vanished(err) {
		p.note(name, "was removed meanwhile; skipped")
		return nil
	}
	if err != nil {
		return oserr.Wrap(err, "look at %q in the disk", name)
	}
	if a.Mode&unix.S_IFMT != unix.S_IFDIR {
		return p.inode(n, a, name)
	}
	if err := p.inode(n, a, name+"/"); err != nil {
		return err
	}
	return p.below(n, name+"/")
}

// vanished reports that an inode has been removed since its name was read.
func vanished(err error) bool {
	k := tine.KindOf(err)
	return err != nil && (k == tine.KindStale || k == tine.KindNotFound)
}

// inode writes one entry.
func (p *packer) inode(n volume.Node, a volume.Attr, name string) error {
	e := &archive.Entry{Name: name, Mode: a.Mode & 0o7777, UID: a.UID, GID: a.GID, Mtime: a.Mtime, Atime: &a.Atime}
	kind := a.Mode & unix.S_IFMT
	if kind != unix.S_IFDIR && a.Nlink > 1 && p.again(e, a) {
		p.done.Totals.HardLinks++
		return p.w.Entry(e)
	}
	var err error
	switch kind {
	case unix.S_IFREG:
		return p.file(n, a, e)
	case unix.S_IFDIR:
		e.Type = archive.Directory
		p.done.Totals.Directories++
	case unix.S_IFLNK:
		e.Type = archive.Symlink
		e.Link, err = p.s.Readlink(n)
		p.done.Totals.Symlinks++
	case unix.S_IFIFO:
		e.Type = archive.Fifo
		p.done.Totals.Specials++
	case unix.S_IFCHR, unix.S_IFBLK:
		e.Type = archive.Char
		if kind == unix.S_IFBLK {
			e.Type = archive.Block
		}
		e.Major, e.Minor = unix.Major(uint64(a.Rdev)), unix.Minor(uint64(a.Rdev))
		p.done.Totals.Specials++
	default:
		p.note(name, "a socket; skipped, because nobody would listen on the copy")
		return nil
	}
	if err == nil {
		err = p.xattrs(n, a, e)
	}
	if vanished(err) {
		delete(p.links, a.Ino)
		p.note(name, "was removed meanwhile; skipped")
		return nil
	}
	if err != nil {
		return oserr.Wrap(err, "read %q in the disk", name)
	}
	return p.w.Entry(e)
}

// again makes the entry a hard link if the inode was written under another
// name already. Names outside of what is exported are not missed: an inode is
// remembered until all its names have come.
func (p *packer) again(e *archive.Entry, a volume.Attr) bool {
	first := p.links[a.Ino]
	if first == nil {
		if a.Mode&unix.S_IFMT != unix.S_IFSOCK {
			p.links[a.Ino] = &linked{e.Name, a.Nlink - 1}
		}
		return false
	}
	if first.left--; first.left == 0 {
		delete(p.links, a.Ino)
	}
	e.Type, e.Link = archive.HardLink, first.name
	return true
}

// xattrs reads the extended attributes.
func (p *packer) xattrs(n volume.Node, a volume.Attr, e *archive.Entry) error {
	if !a.Xattrs {
		return nil
	}
	names, err := p.s.ListXattr(n)
	if err != nil {
		return err
	}
	for _, name := range names {
		v, err := p.s.GetXattr(n, name)
		if tine.KindOf(err) == tine.KindNoAttr {
			continue
		}
		if err != nil {
			return err
		}
		e.Xattrs = append(e.Xattrs, archive.Xattr{Name: name, Value: v})
	}
	return nil
}

// file writes a regular file with its holes.
func (p *packer) file(n volume.Node, a volume.Attr, e *archive.Entry) error {
	f, err := p.s.Open(n)
	if vanished(err) {
		delete(p.links, a.Ino)
		p.note(e.Name, "was removed meanwhile; skipped")
		return nil
	}
	if err != nil {
		return oserr.Wrap(err, "open %q in the disk", e.Name)
	}
	defer f.Close()
	e.Type, e.Size = archive.Regular, a.Size
	if a.Bytes != a.Size {
		if e.Runs, err = runs(f, a.Size); err != nil {
			return oserr.Wrap(err, "read %q in the disk", e.Name)
		}
	}
	if err := p.xattrs(n, a, e); err != nil {
		return oserr.Wrap(err, "read %q in the disk", e.Name)
	}
	if err := p.w.Entry(e); err != nil {
		return err
	}
	p.done.Totals.Files++
	short := false
	for _, r := range e.Data() {
		for r.Len > 0 {
			if p.ctx.Err() != nil {
				return tine.Errorf(tine.KindInterrupted, "the export was cancelled")
			}
			b := p.buf[:min(r.Len, copyBytes)]
			got, err := f.ReadAt(b, r.Off)
			if err != nil {
				return oserr.Wrap(err, "read %q in the disk", e.Name)
			}
			if got < len(b) {
				clear(b[got:])
				short = true
			}
			if _, err := p.w.Write(b); err != nil {
				return err
			}
			r.Off, r.Len = r.Off+int64(len(b)), r.Len-int64(len(b))
			p.done.Totals.Bytes += int64(len(b))
		}
	}
	if short {
		p.done.Totals.Changed++
		p.note(e.Name, fmt.Sprintf("became shorter while it was read; filled up with zeros to %d bytes", a.Size))
	}
	return nil
}

// runs finds where a file has data.
func runs(f *volume.File, size int64) ([]archive.Run, error) {
	var c archive.Collector
	for off := int64(0); off < size; {
		start, err := f.SeekTo(off, unix.SEEK_DATA)
		if errors.Is(err, tine.ErrNoSeek) || err == nil && start >= size {
			break
		}
		var end int64
		if err == nil {
			end, err = f.SeekTo(start, unix.SEEK_HOLE)
		}
		if errors.Is(err, tine.ErrNoSeek) {
			break // it has become shorter
		}
		if err != nil {
			return nil, err
		}
		end = min(end, size)
		c.Add(archive.Run{Off: start, Len: end - start})
		off = end
	}
	return c.Runs(size), nil
}
