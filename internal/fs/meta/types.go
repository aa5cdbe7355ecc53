package meta

import (
	"tine.dev/tine/internal/tine"
)

// Attr is what stat(2) shows of an inode.
type Attr struct {
	Ino    tine.Ino
	Mode   uint32 // type and permission bits
	Nlink  uint32
	UID    uint32
	GID    uint32
	Rdev   uint32
	Size   int64
	Bytes  int64 // bytes of data that exist; st_blocks is this divided by 512, rounded up
	Mtime  int64 // nanoseconds since 1970, as are the others
	Ctime  int64
	Atime  int64
	Btime  int64
	Xattrs bool // false: the inode certainly has no extended attributes
}

// Cred is who asks: the file system ids of the calling process. Groups are its
// supplementary groups, which decide whether set-group-ID survives. Umask is
// taken off the mode of what the process makes, unless the directory has a
// default ACL; 0 if it has been taken off already.
type Cred struct {
	UID    uint32
	GID    uint32
	Groups []uint32
	Umask  uint32
	// Member is asked for groups that are not named above, if it is there:
	// it is for front ends to which asking is dear.
	Member func(gid uint32) bool
}

// InGroup reports whether the caller is a member of the group.
func (c Cred) InGroup(gid uint32) bool {
	if c.GID == gid || c.UID == 0 {
		return true
	}
	for _, g := range c.Groups {
		if g == gid {
			return true
		}
	}
	return c.Member != nil && c.Member(gid)
}

// SetAttr is a change of attributes; nil fields stay as they are.
type SetAttr struct {
	Mode     *uint32 // permission bits only
	UID      *uint32
	GID      *uint32
	Size     *int64
	Mtime    *int64 // nanoseconds since 1970
	Atime    *int64
	Ctime    *int64 // as the kernel sends it with its own cached times; else now
	KillPriv bool   // clear set-user-ID and set-group-ID as a write would
}

// DirEntry is one name of a directory.
type DirEntry struct {
	Name   string
	Ino    tine.Ino
	Type   uint8  // as dirent's d_type
	Cookie uint64 // where the entry after this one starts
}

// Rename flags, as renameat2(2).
const (
	RenameNoReplace = 1
	RenameExchange  = 2
	RenameWhiteout  = 4
)

// Xattr flags, as setxattr(2).
const (
	XattrCreate  = 1
	XattrReplace = 2
)

// Fallocate modes, as fallocate(2).
const (
	FallocKeepSize  = 0x01
	FallocPunchHole = 0x02
	FallocZeroRange = 0x10
)

// FSStat is what statfs(2) shows.
type FSStat struct {
	Bytes  int64 // bytes of data in named files
	Inodes int64
	// FreeBytes is what the device still takes.
	FreeBytes int64
	// LimitBytes and LimitInodes are the disk's quota; 0 for none.
	LimitBytes  int64
	LimitInodes int64
}
