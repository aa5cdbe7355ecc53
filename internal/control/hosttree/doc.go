// Package hosttree turns files and directories of the machine into an archive,
// and an archive into files and directories, in the process and with the rights
// of whoever asks: the command line copies into and out of disks with it, so
// that no server reads or writes in its user's stead.
//
// Modes, times in nanoseconds, hard links, holes and extended attributes are
// kept; owners, devices, and set-user-ID bits of others as far as the user may.
// What could not be kept is noted, not hidden.
//
// Everything is reached relative to the descriptor of its directory and never
// through a symbolic link, so that neither an archive nor a tree that changes
// meanwhile can lead elsewhere.
package hosttree

// Totals counts what was copied.
type Totals struct {
	Files, Directories, Symlinks, HardLinks, Specials, Skipped, Bytes int64
}

// Note is told what was left out, or could not be kept, and where.
type Note func(path, text string)

// aclXattr is the attribute that holds a file's ACL.
const aclXattr = "system.posix_acl_access"

// copyBytes is how much is read and written at a time.
const copyBytes = 1 << 20
