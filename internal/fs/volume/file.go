package volume

import (
	"context"
	"math"
	"sync"
	"sync/atomic"

	"tine.dev/tine/internal/fs/meta"
	"tine.dev/tine/internal/tine"
)

// File is a handle on a regular file. While it is open the file can be read
// and written even without a name. It is safe for concurrent use.
type File struct {
	s    *Session
	n    Node
	once sync.Once
}

// Create makes a regular file and opens it. Unless excl, a file that exists
// already is opened as it is.
func (s *Session) Create(c Cred, parent Node, name string, mode uint32, excl bool) (*File, Attr, Node, error) {
	for {
		what := meta.NewNode{Mode: typeRegular | mode&permMask, Open: true}
		a, n, err := s.create(OpCreate, c, parent, name, what)
		if tine.KindOf(err) == tine.KindExists && !excl {
			if a, n, err = s.Lookup(parent, name); err == nil {
				f, err := s.open(n)
				if tine.KindOf(err) == tine.KindStale {
					continue // removed between the two: make it
				}
				return f, a, n, err
			}
			if tine.KindOf(err) == tine.KindNotFound {
				continue
			}
		}
		if err != nil {
			return nil, Attr{}, Node{}, err
		}
		f, err := s.track(&File{s: s, n: n})
		return f, a, n, err
	}
}

// Tmpfile makes a regular file without a name, open; it goes at the last close
// unless Link gives it a name.
func (s *Session) Tmpfile(c Cred, parent Node, mode uint32) (*File, Attr, Node, error) {
	var a Attr
	var n Node
	err := s.alter(OpCreate, parent, func(v meta.View, gen uint32) (err error) {
		a, err = v.Create(c, parent.Ino, "", meta.NewNode{Mode: typeRegular | mode&permMask, Unnamed: true})
		n = Node{gen, a.Ino}
		return err
	})
	if err != nil {
		return nil, a, n, err
	}
	f, err := s.track(&File{s: s, n: n})
	return f, a, n, err
}

// Open opens a regular file. Its client has then been told of all that other
// sessions have written before.
func (s *Session) Open(n Node) (*File, error) {
	f, err := s.open(n)
	if err == nil {
		s.catchUp()
	}
	return f, err
}

func (s *Session) open(n Node) (*File, error) {
	f := &File{s: s}
	err := s.look(OpOpen, n, func(v meta.View, gen uint32) error {
		f.n = Node{gen, n.Ino}
		a, err := v.Open(n.Ino)
		if err == nil && a.Mode&typeMask == typeDir {
			v.Close(n.Ino)
			return tine.ErrIsDir
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.track(f)
}

// track remembers an open file, so that Detach can close it.
func (s *Session) track(f *File) (*File, error) {
	s.mu.Lock()
	if !s.closed {
		s.files[f] = struct{}{}
		s.mu.Unlock()
		return f, nil
	}
	s.mu.Unlock()
	f.release()
	return nil, tine.Errorf(tine.KindUnavailable, "the session has ended")
}

// Node returns the file's inode.
func (f *File) Node() Node { return f.n }

// ReadAt reads; fewer bytes than asked are returned only at the end of the
// file, without an error.
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.s.look(OpRead, f.n, func(v meta.View, _ uint32) error {
		n, err = v.ReadAt(f.n.Ino, p, off)
		return err
	})
	f.s.ops.read.Add(uint64(n))
	return n, err
}

// WriteAt writes all of p or fails. p may be reused when it returns. The write
// is durable after Fsync.
func (f *File) WriteAt(c Cred, p []byte, off int64) (int, error) {
	err := f.s.alter(OpWrite, f.n, func(v meta.View, _ uint32) error {
		_, err := v.WriteAt(c, f.n.Ino, p, off, false)
		return err
	}, Invalidation{Kind: InvalidData, Node: f.n, Off: off, Len: int64(len(p))})
	if err != nil {
		return 0, err
	}
	f.s.ops.written.Add(uint64(len(p)))
	return len(p), nil
}

// Append writes all of p at the end of the file, wherever that is when its
// turn comes, and returns where.
func (f *File) Append(c Cred, p []byte) (off int64, n int, err error) {
	err = f.s.alter(OpWrite, f.n, func(v meta.View, _ uint32) error {
		off, err = v.WriteAt(c, f.n.Ino, p, 0, true)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	f.s.ops.written.Add(uint64(len(p)))
	f.s.hub.tell(f.s, Invalidation{Kind: InvalidData, Node: f.n, Off: off, Len: int64(len(p))})
	return off, len(p), nil
}

// Truncate sets the size.
func (f *File) Truncate(c Cred, size int64) error {
	_, err := f.s.SetAttr(c, f.n, SetAttr{Size: &size, KillPriv: c.UID != 0})
	return err
}

// Fsync makes the file's data, and all that has reached the disk before,
// durable (P1).
func (f *File) Fsync(ctx context.Context, _ bool) error { return f.s.commit(ctx, f.n.Gen) }

// Allocate is fallocate(2).
func (f *File) Allocate(mode uint32, off, length int64) error {
	free := f.s.host.freeBytes()
	if free == unknownFree {
		free = math.MaxInt64
	}
	return f.s.alter(OpAllocate, f.n, func(v meta.View, _ uint32) error {
		return v.Allocate(Cred{}, f.n.Ino, mode, off, length, free)
	}, Invalidation{Kind: InvalidData, Node: f.n, Off: off, Len: length})
}

// SeekTo finds data or a hole; whence is SEEK_DATA (3) or SEEK_HOLE (4).
func (f *File) SeekTo(off int64, whence uint32) (at int64, err error) {
	if whence != meta.SeekData && whence != meta.SeekHole {
		return 0, tine.ErrInvalid
	}
	err = f.s.look(OpSeek, f.n, func(v meta.View, _ uint32) error {
		at, err = v.Seek(f.n.Ino, off, whence)
		return err
	})
	return at, err
}

// CopyTo copies a range to another file of the same session, sharing the data
// where it can, as copy_file_range(2). It returns how much was copied.
func (f *File) CopyTo(dst *File, offIn, offOut, length int64) (n int64, err error) {
	if dst.s.at.Disk() != f.s.at.Disk() {
		return 0, tine.Errorf(tine.KindCrossDevice, "the files are on different disks")
	}
	if dst.n.Gen != f.n.Gen {
		return 0, tine.ErrStale
	}
	err = dst.s.alter(OpCopy, dst.n, func(v meta.View, _ uint32) error {
		n, err = v.CopyRange(Cred{}, f.n.Ino, offIn, dst.n.Ino, offOut, length)
		return err
	}, Invalidation{Kind: InvalidData, Node: dst.n, Off: offOut, Len: length})
	return n, err
}

// Close gives the handle back. It does not make anything durable.
func (f *File) Close() error {
	f.s.mu.Lock()
	delete(f.s.files, f)
	f.s.mu.Unlock()
	return f.release()
}

func (f *File) release() (err error) {
	f.once.Do(func() {
		err = f.s.look(OpClose, f.n, func(v meta.View, _ uint32) error { return v.Close(f.n.Ino) })
		if tine.KindOf(err) == tine.KindStale {
			err = nil // its state was exchanged; nothing is held there any more
		}
	})
	return err
}

// Dir is a handle on a directory.
type Dir struct {
	s    *Session
	n    Node
	end  atomic.Uint64 // the cookie before which this listing ends; 0 before the first Read
	once sync.Once
}

// OpenDir opens a directory.
func (s *Session) OpenDir(n Node) (*Dir, error) {
	d := &Dir{s: s}
	err := s.look(OpOpenDir, n, func(v meta.View, gen uint32) error {
		d.n = Node{gen, n.Ino}
		a, err := v.Open(n.Ino)
		if err == nil && a.Mode&typeMask != typeDir {
			v.Close(n.Ino)
			return tine.ErrNotDir
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if !s.closed {
		s.dirs[d] = struct{}{}
		s.mu.Unlock()
		return d, nil
	}
	s.mu.Unlock()
	d.release()
	return nil, tine.Errorf(tine.KindUnavailable, "the session has ended")
}

// Node returns the directory's inode.
func (d *Dir) Node() Node { return d.n }

// Read calls fn for the entries after the cookie (0: from the start), in an
// order that stands still, until fn returns false: an entry that exists all
// the while comes exactly once. "." and ".." are not among them.
//
// Names made after the last Read from the start are not among them either. A new
// name comes last, so a program that renames each file that it reads would
// meet all of them again, and never come to an end.
func (d *Dir) Read(cookie uint64, fn func(DirEntry) bool) error {
	return d.s.look(OpReadDir, d.n, func(v meta.View, _ uint32) (err error) {
		end := d.end.Load()
		if cookie == 0 || end == 0 {
			if end, err = v.NextCookie(); err != nil {
				return err
			}
			d.end.Store(end)
		}
		return v.ReadDir(d.n.Ino, cookie, func(e DirEntry) bool { return e.Cookie < end && fn(e) })
	})
}

// Parent returns the directory that this one lies in; the root's is itself.
func (d *Dir) Parent() (n Node, err error) {
	err = d.s.look(OpGetAttr, d.n, func(v meta.View, gen uint32) error {
		ino, err := v.Parent(d.n.Ino)
		n = Node{gen, ino}
		return err
	})
	return n, err
}

// Fsync makes durable all that has reached the disk.
func (d *Dir) Fsync(ctx context.Context) error {
	return (&File{s: d.s, n: d.n}).Fsync(ctx, false)
}

// Close gives the handle back.
func (d *Dir) Close() error {
	d.s.mu.Lock()
	delete(d.s.dirs, d)
	d.s.mu.Unlock()
	return d.release()
}

func (d *Dir) release() (err error) {
	d.once.Do(func() {
		err = d.s.look(OpClose, d.n, func(v meta.View, _ uint32) error { return v.Close(d.n.Ino) })
		if tine.KindOf(err) == tine.KindStale {
			err = nil
		}
	})
	return err
}
