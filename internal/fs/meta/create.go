package meta

import (
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// Empty returns the rows and counters of an empty disk: its root directory,
// which lets others than its owner look.
func Empty(owner Cred, now int64) ([]timeline.FirstRow, record.Counters) {
	root := record.Inode{Mode: modeDir | 0o755, UID: owner.UID, GID: owner.GID, Nlink: 2, Mtime: now, Ctime: now, Atime: now, Btime: now, Parent: tine.RootIno}
	rows := []timeline.FirstRow{{Key: record.InodeKey(tine.RootIno), Value: root.Append(nil)}}
	return rows, record.Counters{Inodes: 1, NextIno: tine.RootIno + 1, NextCookie: firstCookie}
}

// prefixEnd is the first logical key after all that start with p.
func prefixEnd(p record.Logical) record.Logical { return record.Logical(record.PrefixEnd([]byte(p))) }
