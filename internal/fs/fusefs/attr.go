package fusefs

import (
	"math"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"tine.dev/tine/internal/fs/volume"
)

const (
	// aloneTimeout is how long names and attributes hold while nobody else
	// has the disk attached.
	aloneTimeout = time.Hour
	// aloneAbsent is the same for names that do not exist.
	aloneAbsent = 10 * time.Second
	// sharedTimeout bounds how long the kernel can be wrong on a shared disk
	// should an invalidation come late (promise S2).
	sharedTimeout = 100 * time.Millisecond

	// blockBytes is the size of a write that programs are advised to make.
	// Larger than a page, because buffered writers (stdio) take it as the
	// size of their buffer, and each write is one request.
	blockBytes = 64 << 10
)

// timeouts say how long the kernel may believe a reply.
type timeouts struct{ entry, absent, attr time.Duration }

func (fs *fileSystem) timeouts() timeouts {
	switch {
	case fs.cacheNone:
		return timeouts{}
	case fs.frozen:
		return timeouts{aloneTimeout, aloneTimeout, aloneTimeout}
	case fs.shared():
		return timeouts{sharedTimeout, sharedTimeout, sharedTimeout}
	}
	return timeouts{aloneTimeout, aloneAbsent, aloneTimeout}
}

// shared reports whether others may change the disk.
func (fs *fileSystem) shared() bool { return !fs.frozen && fs.s.Sessions() > 1 }

func splitTime(ns int64) (sec uint64, nsec uint32) {
	s, n := ns/int64(time.Second), ns%int64(time.Second)
	if n < 0 {
		s, n = s-1, n+int64(time.Second)
	}
	return uint64(s), uint32(n)
}

// joinTime is the reverse of splitTime. What 64 bits of nanoseconds cannot hold,
// before 1678 and after 2261, becomes the nearest time that they can.
func joinTime(sec uint64, nsec uint32) int64 {
	const last = math.MaxInt64/int64(time.Second) - 1
	switch s := int64(sec); {
	case s > last:
		return last * int64(time.Second)
	case s < -last:
		return -last * int64(time.Second)
	default:
		return s*int64(time.Second) + int64(nsec)
	}
}

func fillAttr(a *volume.Attr, out *fuse.Attr) {
	out.Ino = uint64(a.Ino)
	out.Size = uint64(a.Size)
	out.Blocks = blocks(a.Bytes)
	out.Atime, out.Atimensec = splitTime(a.Atime)
	out.Mtime, out.Mtimensec = splitTime(a.Mtime)
	out.Ctime, out.Ctimensec = splitTime(a.Ctime)
	out.Mode = a.Mode
	out.Nlink = a.Nlink
	out.Uid = a.UID
	out.Gid = a.GID
	out.Rdev = a.Rdev
	out.Blksize = blockBytes
}

// blocks is st_blocks: units of 512 bytes.
func blocks(bytes int64) uint64 { return uint64(bytes+511) / 512 }

// fillEntry answers a request that gives a node to the kernel.
func (fs *fileSystem) fillEntry(out *fuse.EntryOut, a *volume.Attr, n volume.Node, t timeouts) {
	out.NodeId = fs.ids.hold(n)
	out.Generation = 1
	out.SetEntryTimeout(t.entry)
	out.SetAttrTimeout(t.attr)
	fillAttr(a, &out.Attr)
}

func (fs *fileSystem) fillAttrOut(out *fuse.AttrOut, a *volume.Attr) {
	out.SetTimeout(fs.timeouts().attr)
	fillAttr(a, &out.Attr)
}
