package record

import "tine.dev/tine/internal/tine"

// Inode is the row of a file, directory, link or special file.
type Inode struct {
	Mode   uint32 // type and permission bits, as in st_mode
	UID    uint32
	GID    uint32
	Nlink  uint32
	Rdev   uint32
	Flags  InodeFlags
	Size   int64
	Bytes  int64 // bytes of data that exist: Size less holes; 0 for anything but a file
	Mtime  int64 // nanoseconds since 1970, as are the other times; negative before
	Ctime  int64
	Atime  int64
	Btime  int64
	Parent tine.Ino // of a directory, or of a file with one link; 0 otherwise
	Target string   // of a symbolic link
}

// InodeFlags are facts that spare look-ups.
type InodeFlags uint32

const (
	// FlagXattrs is set when the inode has, or had, extended attributes.
	FlagXattrs InodeFlags = 1 << iota
	// FlagInline is set when the content is inline in chunk 0.
	FlagInline
	// FlagLinks is set when the names of the file stand in the link table.
	FlagLinks
)

const inodeFormat = 1

// Append encodes the row.
func (n *Inode) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u8(inodeFormat)
	e.uint(uint64(n.Mode))
	e.uint(uint64(n.UID))
	e.uint(uint64(n.GID))
	e.uint(uint64(n.Nlink))
	e.uint(uint64(n.Rdev))
	e.uint(uint64(n.Flags))
	e.uint(uint64(n.Size))
	e.uint(uint64(n.Bytes))
	e.int(n.Mtime)
	e.int(n.Ctime - n.Mtime)
	e.int(n.Atime - n.Mtime)
	e.int(n.Btime - n.Mtime)
	e.uint(uint64(n.Parent))
	e.str(n.Target)
	return e.b
}

// DecodeInode reads the row.
func DecodeInode(b []byte) (Inode, error) {
	d := decoder{b: b}
	if err := d.format("inode", inodeFormat); err != nil {
		return Inode{}, err
	}
	n := Inode{
		Mode: uint32(d.uint()), UID: uint32(d.uint()), GID: uint32(d.uint()), Nlink: uint32(d.uint()),
		Rdev: uint32(d.uint()), Flags: InodeFlags(d.uint()), Size: int64(d.uint()), Bytes: int64(d.uint()),
		Mtime: d.int(),
	}
	n.Ctime = d.int() + n.Mtime
	n.Atime = d.int() + n.Mtime
	n.Btime = d.int() + n.Mtime
	n.Parent = tine.Ino(d.uint())
	n.Target = d.str()
	if n.Size < 0 || n.Bytes < 0 {
		d.fail()
	}
	return n, d.finish("inode")
}

// Dentry is the row of a name in a directory.
type Dentry struct {
	Ino    tine.Ino
	Type   uint8 // the file type as in dirent's d_type
	Cookie uint64
}

const dentryFormat = 1

// Append encodes the row.
func (n Dentry) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u8(dentryFormat)
	e.uint(uint64(n.Ino))
	e.u8(n.Type)
	e.uint(n.Cookie)
	return e.b
}

// DecodeDentry reads the row.
func DecodeDentry(b []byte) (Dentry, error) {
	d := decoder{b: b}
	if err := d.format("dentry", dentryFormat); err != nil {
		return Dentry{}, err
	}
	n := Dentry{Ino: tine.Ino(d.uint()), Type: d.u8(), Cookie: d.uint()}
	return n, d.finish("dentry")
}

// Cookie is the row that puts a name at its place in the paging order.
type Cookie struct {
	Ino  tine.Ino
	Type uint8
	Name string
}

const cookieFormat = 1

// Append encodes the row.
func (n Cookie) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u8(cookieFormat)
	e.uint(uint64(n.Ino))
	e.u8(n.Type)
	e.str(n.Name)
	return e.b
}

// DecodeCookie reads the row.
func DecodeCookie(b []byte) (Cookie, error) {
	d := decoder{b: b}
	if err := d.format("cookie", cookieFormat); err != nil {
		return Cookie{}, err
	}
	n := Cookie{Ino: tine.Ino(d.uint()), Type: d.u8(), Name: d.str()}
	return n, d.finish("cookie")
}

// Counters is the row that a timeline keeps of itself. It is versioned like
// the files, so that a fork or an older epoch finds its own.
type Counters struct {
	Inodes     int64    // inodes with a name, the root included
	Bytes      int64    // bytes of data in them
	NextIno    tine.Ino // never goes back along a name's history
	NextCookie uint64
	Commits    uint64 // commits made in the lineage so far
}

const countersFormat = 1

// Append encodes the row.
func (c Counters) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u8(countersFormat)
	e.int(c.Inodes)
	e.int(c.Bytes)
	e.uint(uint64(c.NextIno))
	e.uint(c.NextCookie)
	e.uint(c.Commits)
	return e.b
}

// DecodeCounters reads the row.
func DecodeCounters(b []byte) (Counters, error) {
	d := decoder{b: b}
	if err := d.format("counters", countersFormat); err != nil {
		return Counters{}, err
	}
	c := Counters{Inodes: d.int(), Bytes: d.int(), NextIno: tine.Ino(d.uint()), NextCookie: d.uint(), Commits: d.uint()}
	return c, d.finish("counters")
}
