// Package rowform knows the form of every row: which keys and values a table can
// have, and how to show them to people. It is the part of the checker that needs
// to know nothing of how rows hang together.
package rowform

import (
	"strings"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// IsTombstone: the value of a deleted row.
func IsTombstone(v []byte) bool { return len(v) == 1 && v[0] == 0 }

// FileTable reports that the table's rows belong to a stratum.
func FileTable(t record.Table) bool { return t >= record.TableInode }

// TenantTable reports that the table's rows belong to a tenant.
func TenantTable(t record.Table) bool {
	return t == record.TableTree || t == record.TableDisk || t == record.TablePolicy
}

// Shape says whether a key's logical part is as its table has it. known is
// false for tables that this version does not know.
func Shape(l record.Logical) (good, known bool) {
	switch l.Table() {
	case record.TableTree, record.TableTimeline, record.TableCheckpoint, record.TableSegment, record.TableLive,
		record.TableAlias, record.TableDisk, record.TablePolicy, record.TableGrave:
		return len(l) == 1+tine.IDSize, true
	case record.TableTail, record.TablePiece, record.TableLog:
		return len(l) == 1+tine.IDSize+8, true
	case record.TableInode, record.TableOrphan, record.TableTask, record.TableOutbox:
		return len(l) == 9, true
	case record.TableCookie, record.TableChunk:
		return len(l) == 17, true
	case record.TableDentry, record.TableXattr:
		return endsInName(l, 9), true
	case record.TableLink:
		return endsInName(l, 17), true
	case record.TableCounters, record.TableShipped:
		return len(l) == 1, true
	}
	return false, false
}

// endsInName reports that a key ends, after the given bytes, in a name and NUL.
func endsInName(l record.Logical, from int) bool {
	if len(l) < from+2 || len(l) > from+tine.MaxNameBytes+1 {
		return false
	}
	return strings.IndexByte(string(l[from:]), 0) == len(l)-from-1
}

// Decodes returns why a value of the table cannot be read, or nil.
func Decodes(t record.Table, v []byte) error {
	var err error
	switch t {
	case record.TableTree:
		_, err = record.DecodeTree(v)
	case record.TableTimeline:
		_, err = record.DecodeTimeline(v)
	case record.TableCheckpoint:
		_, err = record.DecodeCheckpoint(v)
	case record.TableSegment:
		_, err = record.DecodeSegment(v)
	case record.TableTask:
		_, err = record.DecodeTask(v)
	case record.TableLog:
		_, err = record.DecodeLogEntry(v)
	case record.TableLive:
		_, err = record.DecodeLive(v)
	case record.TablePiece:
		_, err = record.DecodePiece(v)
	case record.TableAlias:
		_, err = record.DecodeAlias(v)
	case record.TableDisk:
		_, err = record.DecodeDisk(v)
	case record.TablePolicy:
		_, err = record.DecodePolicy(v)
	case record.TableInode:
		_, err = record.DecodeInode(v)
	case record.TableDentry:
		_, err = record.DecodeDentry(v)
	case record.TableCookie:
		_, err = record.DecodeCookie(v)
	case record.TableChunk:
		_, err = record.DecodeChunk(v)
	case record.TableCounters:
		_, err = record.DecodeCounters(v)
	case record.TableGrave:
		_, err = record.DecodeGrave(v)
	case record.TableShipped:
		_, err = record.DecodeShipped(v)
	case record.TableOutbox:
		if len(v) < 2 || v[0] > 1 {
			err = tine.Errorf(tine.KindCorrupt, "the outbox row is damaged")
		}
	case record.TableXattr, record.TableLink, record.TableOrphan:
		if len(v) == 0 || v[0] != 1 {
			err = tine.Errorf(tine.KindCorrupt, "the %s row is damaged", TableName(t))
		}
	}
	return err
}

// TableName is the table's name as it appears in messages.
func TableName(t record.Table) string {
	switch t {
	case record.TableTree:
		return "tree"
	case record.TableTimeline:
		return "timeline"
	case record.TableCheckpoint:
		return "checkpoint"
	case record.TableSegment:
		return "segment"
	case record.TableTail:
		return "tail"
	case record.TableTask:
		return "task"
	case record.TableLog:
		return "log"
	case record.TableLive:
		return "live"
	case record.TablePiece:
		return "piece"
	case record.TableAlias:
		return "alias"
	case record.TableOutbox:
		return "outbox"
	case record.TableShipped:
		return "shipped"
	case record.TableGrave:
		return "grave"
	case record.TableDisk:
		return "disk"
	case record.TablePolicy:
		return "policy"
	case record.TableInode:
		return "inode"
	case record.TableDentry:
		return "dentry"
	case record.TableCookie:
		return "cookie"
	case record.TableChunk:
		return "chunk"
	case record.TableXattr:
		return "xattr"
	case record.TableLink:
		return "link"
	case record.TableOrphan:
		return "orphan"
	case record.TableCounters:
		return "counters"
	}
	return "unknown"
}
