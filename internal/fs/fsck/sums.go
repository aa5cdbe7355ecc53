package fsck

import (
	"maps"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// The file types of st_mode, and where they stand in it.
const (
	modeType    = 0o170000
	modeDir     = 0o040000
	modeFile    = 0o100000
	modeSymlink = 0o120000
	typeDir     = modeDir >> 12
)

// brief is what of an inode takes part in the sums.
type brief struct {
	exists bool
	flags  record.InodeFlags
	mode   uint32
	nlink  uint32
	parent tine.Ino
	size   int64
	bytes  int64
}

func briefOf(n *record.Inode) brief {
	return brief{true, n.Flags, n.Mode, n.Nlink, n.Parent, n.Size, n.Bytes}
}

func (b *brief) isDir() bool  { return b.exists && b.mode&modeType == modeDir }
func (b *brief) isFile() bool { return b.exists && b.mode&modeType == modeFile }

// living reports a directory that has a name, or the root.
func (b *brief) living() bool { return b.isDir() && b.nlink > 0 }

// counts is what the inode adds to a disk's counters.
func (b *brief) counts() (inodes, bytes int64) {
	if b.exists && b.nlink > 0 {
		return 1, b.bytes
	}
	return 0, 0
}

// sums are what must come out as zero for every inode: what the inode says,
// less what the rows say.
type sums struct {
	names   int64  // links, less names; of a directory 1 less names
	subdirs int64  // a directory's links past the first two, less subdirectories
	orphan  int64  // 1 without links, less 1 with a mark
	bytes   int64  // bytes, less those of the chunks
	parents uint64 // hashes of where the names stand: in the directories, less what the inode knows
	cookies uint64 // hashes of a directory's names, less those in paging order
}

func (s sums) plus(o sums) sums {
	return sums{s.names + o.names, s.subdirs + o.subdirs, s.orphan + o.orphan, s.bytes + o.bytes, s.parents + o.parents, s.cookies + o.cookies}
}

func (s sums) minus(o sums) sums {
	return sums{s.names - o.names, s.subdirs - o.subdirs, s.orphan - o.orphan, s.bytes - o.bytes, s.parents - o.parents, s.cookies - o.cookies}
}

// sums returns the inode's own part.
func (b *brief) sums(ino tine.Ino) sums {
	var s sums
	if !b.exists {
		return s
	}
	s.bytes = b.bytes
	if b.nlink == 0 {
		s.orphan = 1
	}
	root := ino == tine.RootIno
	if b.isDir() {
		if b.nlink > 0 {
			s.subdirs = int64(b.nlink) - 2
			if !root {
				s.names = 1
			}
		}
	} else {
		s.names = int64(b.nlink)
	}
	if b.parent != 0 && !root && !(b.isDir() && b.nlink == 0) {
		s.parents = -hashParent(ino, b.parent)
	}
	return s
}

// mix spreads a number over 64 bits (the finaliser of MurmurHash3).
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

func hashParent(ino, parent tine.Ino) uint64 {
	return mix(mix(uint64(ino)+0x9e3779b97f4a7c15) ^ uint64(parent))
}

// hashEntry is of a name at its place in the paging order.
func hashEntry(cookie uint64, name string, ino tine.Ino, typ uint8) uint64 {
	h := uint64(0xcbf29ce484222325) // FNV-1a
	for i := 0; i < len(name); i++ {
		h = (h ^ uint64(name[i])) * 0x100000001b3
	}
	return mix(mix(h^cookie) ^ mix(uint64(ino)<<8|uint64(typ)))
}

// ledger is what did not come out as zero in a view.
type ledger struct {
	sums   map[tine.Ino]sums
	inodes int64 // of the counters
	bytes  int64
}

// next returns a copy to be changed for the next view. Most are empty.
func (l *ledger) next() *ledger {
	if l == nil {
		return &ledger{}
	}
	c := *l
	c.sums = maps.Clone(l.sums)
	return &c
}

func (l *ledger) set(ino tine.Ino, s sums) {
	if s == (sums{}) {
		delete(l.sums, ino)
		return
	}
	if l.sums == nil {
		l.sums = map[tine.Ino]sums{}
	}
	l.sums[ino] = s
}
