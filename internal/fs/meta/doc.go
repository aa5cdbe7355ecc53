// Package meta is the POSIX rules of a disk, once, for every front end: what
// create, rename, unlink, write, truncate and the rest do to rows. It is
// written on package timeline, which gives it views whose rows can be read and
// changed as one operation, and keeps their history.
//
// A disk's namespace is a handful of tables: inodes, names by directory, the
// same names in paging order, chunks of file data, extended attributes, and
// marks on files that have lost their last name. Every operation first reads
// and checks, and changes rows only when nothing can refuse it any more, for a
// change is never taken back (I15).
package meta
