// Package exporter writes what a disk or a checkpoint holds as a tar archive.
//
// An export of a head is of one moment: it reads a checkpoint that is taken
// for it and removed after it. Such a checkpoint is noted in a file first, and
// the next start removes those that a crash left. A copy of single files out
// of a head reads the head itself, as a copy out of a mount would.
//
// An archive is written as it is read, and what is kept in memory grows with
// the depth of the tree and the number of files that have several names, not
// with the size of the disk.
package exporter
