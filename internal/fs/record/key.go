package record

import (
	"bytes"
	"encoding/binary"

	"tine.dev/tine/internal/tine"
)

// Table tells what a row holds.
type Table byte

// The tables. The numbers are part of the format and never change.
const (
	TableTree       Table = 0x01 // tree: (nothing) -> Tree
	TableTimeline   Table = 0x02 // tree: timeline id -> Timeline
	TableCheckpoint Table = 0x03 // tree: checkpoint id -> Checkpoint
	TableSegment    Table = 0x04 // tree: segment id -> Segment
	TableTail       Table = 0x05 // tree: segment id, offset -> bytes
	TableTask       Table = 0x06 // tree: sequence -> Task
	TableLog        Table = 0x07 // tree: disk id, sequence -> LogEntry
	TableLive       Table = 0x08 // tree: segment id -> Live
	TablePiece      Table = 0x09 // tree: segment id, offset -> Piece
	TableAlias      Table = 0x0a // tree: timeline id -> Alias
	TableOutbox     Table = 0x0b // tree: sequence -> the changes of one commit that its store does not have yet
	TableShipped    Table = 0x0c // tree: (nothing) -> Shipped
	TableGrave      Table = 0x0d // tree: segment id -> Grave
	TableDisk       Table = 0x10 // tenant: disk id -> Disk
	TablePolicy     Table = 0x11 // tenant: disk id -> Policy
	TableInode      Table = 0x20 // stratum: ino -> Inode
	TableDentry     Table = 0x21 // stratum: parent ino, name NUL -> Dentry
	TableCookie     Table = 0x22 // stratum: parent ino, cookie -> Cookie
	TableChunk      Table = 0x23 // stratum: ino, index -> Chunk
	TableXattr      Table = 0x24 // stratum: ino, name NUL -> bytes
	TableLink       Table = 0x25 // stratum: ino, parent ino, name NUL -> nothing: the names of a file with several
	TableOrphan     Table = 0x26 // stratum: ino -> nothing: unlinked, still open or not yet reaped
	TableCounters   Table = 0x27 // stratum: (nothing) -> Counters
)

// EpochLen is the length of the inverted epoch at the end of every key.
const EpochLen = 8

// AppendEpoch ends a key with the epoch, inverted so that newer sorts first.
func AppendEpoch(key []byte, e tine.Epoch) []byte {
	return binary.BigEndian.AppendUint64(key, ^uint64(e))
}

// SplitEpoch cuts a full key into what precedes the epoch and the epoch.
// ok is false for keys too short to have one.
func SplitEpoch(key []byte) (prefix []byte, e tine.Epoch, ok bool) {
	n := len(key) - EpochLen
	if n < 0 {
		return nil, 0, false
	}
	return key[:n], tine.Epoch(^binary.BigEndian.Uint64(key[n:])), true
}

// Logical is a row's key within its owner: the table byte and the logical
// key. It is what pending commits are keyed by, for it is the same in every
// stratum of a lineage.
type Logical string

// Table returns the table of the row.
func (l Logical) Table() Table { return Table(l[0]) }

// AppendKey builds owner . logical, to be ended by AppendEpoch.
func AppendKey(dst []byte, owner [tine.IDSize]byte, l Logical) []byte {
	dst = append(dst, owner[:]...)
	return append(dst, l...)
}

// Key returns the full key of a row.
func Key(owner [tine.IDSize]byte, l Logical, e tine.Epoch) []byte {
	b := make([]byte, 0, tine.IDSize+len(l)+EpochLen)
	return AppendEpoch(AppendKey(b, owner, l), e)
}

// SplitKey cuts a full key into its parts. The logical key is a copy.
func SplitKey(key []byte) (owner [tine.IDSize]byte, l Logical, e tine.Epoch, err error) {
	prefix, e, ok := SplitEpoch(key)
	if !ok || len(prefix) < tine.IDSize+1 {
		return owner, "", 0, tine.Errorf(tine.KindCorrupt, "a row key of %d bytes is too short", len(key))
	}
	copy(owner[:], prefix)
	return owner, Logical(prefix[tine.IDSize:]), e, nil
}

func appendU64(b []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(b, v) }

// TableKey is the logical key of a table that holds one row, and the common
// prefix of all keys of any table.
func TableKey(t Table) Logical { return Logical([]byte{byte(t)}) }

// InodeKey is the key of an inode.
func InodeKey(ino tine.Ino) Logical { return inoKey(TableInode, ino) }

// OrphanKey is the key of the mark that an inode has no name left.
func OrphanKey(ino tine.Ino) Logical { return inoKey(TableOrphan, ino) }

func inoKey(t Table, ino tine.Ino) Logical {
	var a [9]byte
	b := append(a[:0], byte(t))
	return Logical(appendU64(b, uint64(ino)))
}

// InoPrefix is the common prefix of all rows of a table that belong to one
// inode: the entries of a directory, the chunks or xattrs of a file.
func InoPrefix(t Table, ino tine.Ino) Logical { return inoKey(t, ino) }

// DentryKey is the key of a name in a directory.
func DentryKey(parent tine.Ino, name string) Logical { return inoNameKey(TableDentry, parent, name) }

// XattrKey is the key of an extended attribute.
func XattrKey(ino tine.Ino, name string) Logical { return inoNameKey(TableXattr, ino, name) }

func inoNameKey(t Table, ino tine.Ino, name string) Logical {
	var a [9 + tine.MaxNameBytes + 1]byte
	b := append(a[:0], byte(t))
	b = appendU64(b, uint64(ino))
	b = append(b, name...)
	return Logical(append(b, 0))
}

// CookieKey is the key of a directory entry in paging order.
func CookieKey(parent tine.Ino, cookie uint64) Logical {
	return inoNumberKey(TableCookie, parent, cookie)
}

// ChunkKey is the key of a chunk of a file.
func ChunkKey(ino tine.Ino, index uint64) Logical { return inoNumberKey(TableChunk, ino, index) }

func inoNumberKey(t Table, ino tine.Ino, n uint64) Logical {
	var a [17]byte
	b := append(a[:0], byte(t))
	b = appendU64(b, uint64(ino))
	return Logical(appendU64(b, n))
}

// LinkKey is the key of one name of a file that has, or had, several.
func LinkKey(ino, parent tine.Ino, name string) Logical {
	var a [17 + tine.MaxNameBytes + 1]byte
	b := append(a[:0], byte(TableLink))
	b = appendU64(b, uint64(ino))
	b = appendU64(b, uint64(parent))
	b = append(b, name...)
	return Logical(append(b, 0))
}

// IDKey is the key of a record named by an identifier.
func IDKey(t Table, id [tine.IDSize]byte) Logical {
	return Logical(append([]byte{byte(t)}, id[:]...))
}

// OffsetKey is the key of a tail or piece: a place in a segment.
func OffsetKey(t Table, seg tine.SegmentID, offset int64) Logical {
	b := append([]byte{byte(t)}, seg[:]...)
	return Logical(appendU64(b, uint64(offset)))
}

// TaskKey is the key of a task in a tree.
func TaskKey(seq uint64) Logical { return Logical(appendU64([]byte{byte(TableTask)}, seq)) }

// OutboxKey is the key of a commit that waits to be shipped.
func OutboxKey(seq uint64) Logical { return Logical(appendU64([]byte{byte(TableOutbox)}, seq)) }

// LogKey is the key of a log entry of a disk.
func LogKey(disk tine.DiskID, seq uint64) Logical {
	return Logical(appendU64(append([]byte{byte(TableLog)}, disk[:]...), seq))
}

// Ino returns the inode number that a file system row's key starts with; 0
// for tables that have none.
func (l Logical) Ino() tine.Ino {
	if len(l) < 9 || l.Table() < TableInode || l.Table() > TableOrphan {
		return 0
	}
	return tine.Ino(binary.BigEndian.Uint64([]byte(l[1:9])))
}

// Number returns the index of a chunk key or the cookie of a cookie key.
func (l Logical) Number() uint64 {
	if len(l) != 17 {
		return 0
	}
	return binary.BigEndian.Uint64([]byte(l[9:17]))
}

// Name returns the name that ends a dentry, xattr or link key.
func (l Logical) Name() string {
	skip := 9
	if l.Table() == TableLink {
		skip = 17
	}
	if len(l) <= skip {
		return ""
	}
	return string(l[skip : len(l)-1])
}

// LinkParent returns the directory in a link key.
func (l Logical) LinkParent() tine.Ino {
	if l.Table() != TableLink || len(l) < 18 {
		return 0
	}
	return tine.Ino(binary.BigEndian.Uint64([]byte(l[9:17])))
}

// ID returns the identifier at the start of a tree or tenant record's key,
// and the number after it, if there is one.
func (l Logical) ID() (id [tine.IDSize]byte, n uint64) {
	if len(l) >= 1+tine.IDSize {
		copy(id[:], l[1:])
		if rest := l[1+tine.IDSize:]; len(rest) == 8 {
			n = binary.BigEndian.Uint64([]byte(rest))
		}
	}
	return id, n
}

// Seq returns the sequence number of a task key.
func (l Logical) Seq() uint64 {
	if t := l.Table(); t != TableTask && t != TableOutbox || len(l) != 9 {
		return 0
	}
	return binary.BigEndian.Uint64([]byte(l[1:]))
}

// End is the first logical key after all that start with l.
func (l Logical) End() Logical { return Logical(PrefixEnd([]byte(l))) }

// PrefixEnd returns the first key after all keys that start with p, or nil if
// there is none.
func PrefixEnd(p []byte) []byte {
	end := bytes.Clone(p)
	for i := len(end) - 1; i >= 0; i-- {
		end[i]++
		if end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}
