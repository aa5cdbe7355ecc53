// Package fsck checks a data directory from nothing but its formats.
//
// It shares no code with the engine: it knows package record, the key-value
// seam and the documented form of segment files, and works out everything else
// anew. So a mistake of the engine, of a device or of a person shows as a
// difference between what the rows say and what can be counted.
//
// # What is looked at, in order
//
//  1. The catalog: trees, lines, disks, checkpoints, segments, aliases and
//     tasks, and how they hang together (codes T).
//  2. The segment files: there, of the right length, with sound ends; with
//     Data also every block (codes S).
//  3. The rows of each line, all versions of each: that they can be read, that
//     they were born when the line was written, that a pin or a task accounts
//     for each, and which bytes of which segments they name (codes R, L, D).
//  4. What is shown: each head, each checkpoint and each point at which a fork
//     branches off, as a file system (codes N, D, X).
//
// # How ten thousand forks are checked at the cost of what they changed
//
// A view is not walked. What must hold of a file system is written as sums that
// come out as zero for each inode: the link count less the names, the bytes
// counted less the bytes of the chunks, the directory entries less the entries
// in paging order (as sums of hashes), and so on. Such a sum can be carried from
// one view to the next by adding what the rows born in between change. So the
// first view of a tree costs its rows, and every other costs the rows born
// since the one before it on its line, or since the branch. What is wrong is
// reported in the first view that shows it, and not again in those that
// inherit it.
//
// # Memory
//
// One view at a time is held, as about 250 bytes for each inode that changed
// since the view before, which is every inode for the first view of a tree: a
// disk of a million files takes about 250 MB. The ranges that rows name are 32
// bytes each, joined where they touch; the catalog takes a few hundred bytes
// for each line, checkpoint and segment.
//
// # Repair
//
// Repair works on a directory that no server has open. It changes the heads, by
// rows at the head's own epoch, as any write would; what a checkpoint or
// another fork shows stays as it is, but for file data that is lost: the rows
// that name it are changed in place to name nothing, so that reading gives EIO
// there and the rest of the tree can be used. Nothing that can still be read is
// given up: files without a name come to /lost+found, and a segment file that
// is replaced is kept in the folder "damaged". Repair ends with a check of its
// own, whose findings are what remains.
package fsck
