package volume

import (
	"context"
	"sync"
	"sync/atomic"

	"tine.dev/tine/internal/fs/meta"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// Session is one attachment of a client to a disk. It is safe for concurrent
// use. Operations are linearizable at the owner: each takes effect at one
// moment between its call and its return.
type Session struct {
	host     *Host
	at       *timeline.Attachment
	hub      *hub
	ref      Ref
	label    string
	readOnly atomic.Bool
	bucket   bool        // what is durable is in the disk's store too
	wrote    atomic.Bool // was writable at some time: something may have to be made durable
	flush    func(context.Context) error
	knows    func(Node) bool
	kept     kept
	queue    *queue
	ops      *opCounters

	mu     sync.Mutex // guards what follows
	files  map[*File]struct{}
	dirs   map[*Dir]struct{}
	closed bool
}

// Detach ends the session: open files are closed, its locks are released, and
// all that has reached the disk is made durable.
func (s *Session) Detach(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	files, dirs := s.files, s.dirs
	s.files, s.dirs = nil, nil
	s.mu.Unlock()
	for f := range files {
		f.release()
	}
	for d := range dirs {
		d.release()
	}
	s.hub.leave(s) // from here on nothing more is kept
	for _, n := range s.kept.all() {
		s.letGo(n)
	}
	s.hub.locks.dropSession(s)
	if s.queue != nil {
		s.queue.close()
	}
	var err error
	wrote := s.wrote.Load()
	if wrote {
		err = s.Sync(ctx)
	}
	s.at.Detach()
	s.host.watch.leave(s.ops)
	if wrote && err == nil {
		s.host.letRest(ctx, s.at.Disk())
	}
	return err
}

// ReadOnly reports whether changes are refused.
func (s *Session) ReadOnly() bool { return s.readOnly.Load() }

// SetReadOnly has changes refused from now on, or no longer. One that is under
// way is not stopped. A session of a checkpoint stays as it is.
func (s *Session) SetReadOnly(on bool) {
	if s.at.Frozen() {
		return
	}
	if !on {
		s.wrote.Store(true)
	}
	s.readOnly.Store(on)
}

// Ref returns what the session was attached to.
func (s *Session) Ref() Ref { return s.ref }

// Sessions returns how many sessions the disk has now.
func (s *Session) Sessions() int { return int(s.hub.count.Load()) }

// Generation returns the disk's current generation.
func (s *Session) Generation() uint32 { return s.at.Generation() }

// Sync makes durable all that has reached the disk (P1).
func (s *Session) Sync(ctx context.Context) error { return s.commit(ctx, 0) }

// commit makes durable all that has reached the disk in the generation, or in
// whichever is current for 0.
func (s *Session) commit(ctx context.Context, gen uint32) error {
	start := readClock()
	v, _, err := s.at.Enter(gen)
	if err == nil {
		s.at.Exit()
		err = v.Sync(ctx)
	}
	if err == nil && s.bucket && !s.at.Frozen() {
		err = s.host.away.reach(ctx, s.at.Disk().Tree())
	}
	s.ops.observe(OpFsync, start, err)
	return err
}

// FsyncNode makes durable all that has reached the disk: fsync of a directory.
func (s *Session) FsyncNode(n Node) error { return s.commit(context.Background(), n.Gen) }

// look runs one operation that changes nothing.
func (s *Session) look(op Op, n Node, fn func(v meta.View, gen uint32) error) error {
	start := readClock()
	err := s.enter(n.Gen, fn)
	s.ops.observe(op, start, err)
	return err
}

// enter runs fn on a state of generation gen, which is not exchanged meanwhile.
func (s *Session) enter(gen uint32, fn func(v meta.View, gen uint32) error) error {
	v, gen, err := s.at.Enter(gen)
	if err != nil {
		return err
	}
	defer s.at.Exit()
	return fn(meta.View{View: v}, gen)
}

// alter runs one operation that changes the disk, and tells the others of it.
func (s *Session) alter(op Op, n Node, fn func(v meta.View, gen uint32) error, changes ...Invalidation) error {
	if s.readOnly.Load() {
		return tine.ErrReadOnly
	}
	start := readClock()
	v, gen, err := s.at.Enter(n.Gen)
	if err == nil {
		err = fn(meta.View{View: v}, gen)
		s.at.Exit()
	}
	s.ops.observe(op, start, err)
	if err == nil {
		for _, c := range changes {
			c.Node.Gen = gen
			s.hub.tell(s, c)
		}
	}
	return err
}

func attrOf(n Node) Invalidation { return Invalidation{Kind: InvalidAttr, Node: n} }

func entryOf(parent Node, name string) Invalidation {
	return Invalidation{Kind: InvalidEntry, Node: parent, Name: name}
}

func newEntryOf(parent Node, name string) Invalidation {
	return Invalidation{Kind: InvalidNewEntry, Node: parent, Name: name}
}

// Lookup finds a name in a directory.
func (s *Session) Lookup(parent Node, name string) (a Attr, n Node, err error) {
	err = s.look(OpLookup, parent, func(v meta.View, gen uint32) error {
		a, err = v.Lookup(parent.Ino, name)
		n = Node{gen, a.Ino}
		return err
	})
	return a, n, err
}

// GetAttr returns the attributes of an inode.
func (s *Session) GetAttr(n Node) (a Attr, err error) {
	err = s.look(OpGetAttr, n, func(v meta.View, _ uint32) error {
		a, err = v.Attr(n.Ino)
		return err
	})
	return a, err
}

// SetAttr changes attributes.
func (s *Session) SetAttr(c Cred, n Node, set SetAttr) (a Attr, err error) {
	change := attrOf(n)
	if set.Size != nil {
		change = Invalidation{Kind: InvalidData, Node: n, Off: *set.Size}
	}
	err = s.alter(OpSetAttr, n, func(v meta.View, _ uint32) error {
		a, err = v.SetAttr(c, n.Ino, set)
		return err
	}, change)
	return a, err
}

// create makes an inode with a name.
func (s *Session) create(op Op, c Cred, parent Node, name string, what meta.NewNode) (a Attr, n Node, err error) {
	err = s.alter(op, parent, func(v meta.View, gen uint32) error {
		a, err = v.Create(c, parent.Ino, name, what)
		n = Node{gen, a.Ino}
		return err
	}, attrOf(parent), newEntryOf(parent, name))
	return a, n, err
}

// Mknod makes a file or special file; mode includes the type, the umask has
// been applied.
func (s *Session) Mknod(c Cred, parent Node, name string, mode, rdev uint32) (Attr, Node, error) {
	switch mode & typeMask {
	case 0:
		mode |= typeRegular
	case typeDir, typeSymlink:
		return Attr{}, Node{}, tine.ErrInvalid
	}
	return s.create(OpMknod, c, parent, name, meta.NewNode{Mode: mode, Rdev: rdev})
}

// File types, as in st_mode.
const (
	typeMask    = 0o170000
	typeDir     = 0o040000
	typeRegular = 0o100000
	typeSymlink = 0o120000
	permMask    = 0o7777
)

// Mkdir makes a directory.
func (s *Session) Mkdir(c Cred, parent Node, name string, mode uint32) (Attr, Node, error) {
	return s.create(OpMkdir, c, parent, name, meta.NewNode{Mode: typeDir | mode&permMask})
}

// Symlink makes a symbolic link.
func (s *Session) Symlink(c Cred, parent Node, name, target string) (Attr, Node, error) {
	if target == "" {
		return Attr{}, Node{}, tine.ErrNotFound
	}
	return s.create(OpSymlink, c, parent, name, meta.NewNode{Mode: typeSymlink | 0o777, Target: target})
}

// Readlink returns a symbolic link's target.
func (s *Session) Readlink(n Node) (target string, err error) {
	err = s.look(OpReadlink, n, func(v meta.View, _ uint32) error {
		target, err = v.Readlink(n.Ino)
		return err
	})
	return target, err
}

// Link gives an inode another name.
func (s *Session) Link(_ Cred, n, parent Node, name string) (a Attr, err error) {
	if n.Gen != parent.Gen && n.Gen != 0 && parent.Gen != 0 {
		return a, tine.ErrStale
	}
	err = s.alter(OpLink, parent, func(v meta.View, _ uint32) error {
		a, err = v.Link(n.Ino, parent.Ino, name)
		return err
	}, attrOf(n), attrOf(parent), newEntryOf(parent, name))
	return a, err
}

// Unlink removes a name of anything but a directory.
func (s *Session) Unlink(_ Cred, parent Node, name string) error {
	return s.remove(OpUnlink, parent, name, meta.View.Unlink)
}

// Rmdir removes an empty directory.
func (s *Session) Rmdir(_ Cred, parent Node, name string) error {
	return s.remove(OpRmdir, parent, name, meta.View.Rmdir)
}

func (s *Session) remove(op Op, parent Node, name string, fn func(meta.View, tine.Ino, string, meta.Keep) (tine.Ino, error)) error {
	var gone Node
	err := s.alter(op, parent, func(v meta.View, gen uint32) (err error) {
		gone.Gen = gen
		gone.Ino, err = fn(v, parent.Ino, name, s.hub.keep(s, gen))
		return err
	}, attrOf(parent), entryOf(parent, name))
	if err == nil {
		s.hub.tell(s, attrOf(gone))
	}
	return err
}

// Rename moves a name, with the flags of renameat2(2).
func (s *Session) Rename(c Cred, parent Node, name string, newParent Node, newName string, flags uint32) error {
	if parent.Gen != newParent.Gen && parent.Gen != 0 && newParent.Gen != 0 {
		return tine.ErrStale
	}
	var moved, old Node
	err := s.alter(OpRename, parent, func(v meta.View, gen uint32) (err error) {
		moved.Gen, old.Gen = gen, gen
		moved.Ino, old.Ino, err = v.Rename(c, parent.Ino, name, newParent.Ino, newName, flags, s.hub.keep(s, gen))
		return err
	}, attrOf(parent), attrOf(newParent), entryOf(parent, name))
	if err == nil {
		entry := entryOf(Node{moved.Gen, newParent.Ino}, newName)
		if old.Ino == 0 {
			entry.Kind = InvalidNewEntry
		}
		s.hub.tell(s, entry)
	}
	for _, n := range []Node{moved, old} {
		if err == nil && n.Ino != 0 {
			s.hub.tell(s, attrOf(n))
		}
	}
	return err
}

// GetXattr returns an extended attribute.
func (s *Session) GetXattr(n Node, name string) (value []byte, err error) {
	err = s.look(OpGetXattr, n, func(v meta.View, _ uint32) error {
		value, err = v.GetXattr(n.Ino, name)
		return err
	})
	return value, err
}

// SetXattr sets an extended attribute, with the flags of setxattr(2). An ACL
// (system.posix_acl_access, system.posix_acl_default) changes the mode with it.
func (s *Session) SetXattr(c Cred, n Node, name string, value []byte, flags uint32) error {
	return s.alter(OpSetXattr, n, func(v meta.View, _ uint32) error {
		return v.SetXattr(c, n.Ino, name, value, flags)
	}, attrOf(n))
}

// ListXattr returns the names of the extended attributes.
func (s *Session) ListXattr(n Node) (names []string, err error) {
	err = s.look(OpListXattr, n, func(v meta.View, _ uint32) error {
		names, err = v.ListXattr(n.Ino)
		return err
	})
	return names, err
}

// RemoveXattr removes an extended attribute.
func (s *Session) RemoveXattr(_ Cred, n Node, name string) error {
	return s.alter(OpRemoveXattr, n, func(v meta.View, _ uint32) error { return v.RemoveXattr(n.Ino, name) }, attrOf(n))
}

// StatFS returns what statfs(2) shows.
func (s *Session) StatFS() (st FSStat, err error) {
	err = s.look(OpStatFS, Root, func(v meta.View, _ uint32) error {
		st, err = v.Stat()
		return err
	})
	st.FreeBytes = s.host.freeBytes()
	return st, err
}
