// Package archive reads and writes tar archives without losing anything that a
// disk keeps: names of any bytes and length, times in nanoseconds, numeric
// owners, holes, extended attributes with binary values, and POSIX ACLs. It
// knows bytes and entries only; what is done with them, in a disk or on a
// machine, is its callers' business.
//
// What is written is the pax format of POSIX with what GNU tar adds to it, so
// that any tar can read it and GNU tar loses nothing:
//
//	holes                PAX sparse format 1.0: the map stands before the data
//	extended attributes  SCHILY.xattr.NAME records
//	ACLs                 SCHILY.acl.access and .default records, in their text form
//
// What is read is more: the old v7, ustar, star and GNU formats too, with base-256
// numbers, GNU's long names, and all four of its sparse formats. An archive
// comes from anywhere, so nothing in it is believed: sums are checked, what
// is kept in memory is bounded, and an error says at which byte of the archive
// it arose.
//
// An archive ends with a block of zeros. One without it may have been cut off
// between two files, so it is an error, and not taken for complete.
//
// The standard library's archive/tar is not used because it shows holes as
// zeros and cannot write them.
package archive
