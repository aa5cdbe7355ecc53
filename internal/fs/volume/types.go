package volume

import (
	"context"
	"strings"

	"tine.dev/tine/internal/fs/meta"
	"tine.dev/tine/internal/tine"
)

// The file system's own types, as front ends use them.
type (
	Attr     = meta.Attr
	Cred     = meta.Cred
	SetAttr  = meta.SetAttr
	DirEntry = meta.DirEntry
	FSStat   = meta.FSStat
)

// The extended attributes that hold ACLs, acl(5).
const (
	XattrACLAccess  = meta.XattrACLAccess
	XattrACLDefault = meta.XattrACLDefault
)

// Node names an inode in one generation of a disk. Generation 0 stands for
// whichever is current; only the root is addressed so.
type Node struct {
	Gen uint32
	Ino tine.Ino
}

// Root is the root directory of a disk in whichever generation is current.
var Root = Node{Ino: tine.RootIno}

// Ref names a disk, or a checkpoint of one: DISK or DISK@CHECKPOINT.
type Ref struct{ Disk, Checkpoint string }

// ParseRef reads DISK[@CHECKPOINT].
func ParseRef(s string) (Ref, error) {
	disk, cp, at := strings.Cut(s, "@")
	if err := tine.CheckName("disk", disk); err != nil {
		return Ref{}, err
	}
	if at {
		if err := tine.CheckName("checkpoint", cp); err != nil {
			return Ref{}, err
		}
	}
	return Ref{disk, cp}, nil
}

// String is the reverse of ParseRef.
func (r Ref) String() string {
	if r.Checkpoint == "" {
		return r.Disk
	}
	return r.Disk + "@" + r.Checkpoint
}

// Caller is on whose behalf something is done to a disk.
type Caller struct {
	Tenant    tine.TenantID
	Author    string // as the caller declares
	Principal string // as the server has authenticated
}

// Wait says how long a fork or checkpoint waits.
type Wait uint8

const (
	WaitRunnable Wait = iota // until it can be used
	WaitDurable              // until it also survives a crash
)

// AttachOptions say how a client attaches.
type AttachOptions struct {
	// Label says who this is, for "in use by" messages: "mount /mnt/a".
	Label string
	// ReadOnly refuses every change with tine.KindReadOnly. Checkpoints are
	// always read-only.
	ReadOnly bool
	// Invalidate is told what others have changed and what this client may
	// have cached. It is called from one goroutine, in order, with no lock
	// held; nil for clients that cache nothing.
	Invalidate func(Invalidation)
	// Knows is for a client that refers to inodes by number whether they are
	// open or not, as a kernel does: it is asked of what is about to lose its
	// last name, and what it knows stays, as if it was open, until Forget.
	// Called with locks of the engine held: it must only look at memory of
	// the client's own.
	Knows func(Node) bool
	// Flush pushes to the session what the client still holds dirty, before
	// a fork or checkpoint freezes the disk. Called with no lock held; nil
	// for clients that hold nothing.
	Flush func(context.Context) error
}

// Invalidation is one thing that a client must no longer believe.
type Invalidation struct {
	Kind InvalidationKind
	Node Node   // the inode whose attributes or data changed, or the directory of Name
	Name string // InvalidEntry, InvalidNewEntry: the name that changed
	Off  int64  // InvalidData: the range of bytes that changed
	Len  int64  // 0 to the end
}

// InvalidationKind tells what changed.
type InvalidationKind uint8

const (
	InvalidAttr     InvalidationKind = iota // attributes of Node
	InvalidData                             // attributes and data of Node
	InvalidEntry                            // Name in directory Node
	InvalidNewEntry                         // Name in directory Node, where there was none: only that it is absent is wrong
	InvalidAll                              // everything: the disk has a new generation
)

// LockKind is what a lock claims.
type LockKind uint8

const (
	Unlock LockKind = iota
	ReadLock
	WriteLock
)

// Lock is a byte range claimed by an owner: fcntl(2) F_SETLK. End is
// inclusive; the largest int64 means to the end of the file.
type Lock struct {
	Kind  LockKind
	Start int64
	End   int64
	PID   uint32
	Owner uint64
}
