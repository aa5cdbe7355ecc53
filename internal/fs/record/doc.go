// Package record says how the rows of a disk look as bytes.
//
// A row is one key and one value. The key of every row is
//
//	owner (16 bytes) . table (1) . logical key . inverted epoch (8)
//
// so that plain byte order sorts everything: an owner is one contiguous range
// (one range delete removes it), and the newest version of a row that is not
// after epoch e is the first key at or after logical key . ^e. The owner of
// file system rows is a stratum; of a tree's own records, the tree; of disk
// names, the tenant. Records that have no versions carry epoch 0.
//
// Logical keys are free of prefixes: they have a fixed length, or end in a
// NUL byte that names cannot contain. That keeps byte order equal to
// (logical key, newest first), which the key-value store relies on (I1).
//
// Every value starts with a format byte. A decoder refuses formats that it
// does not know with tine.KindVersion, and bytes that it cannot read with
// tine.KindCorrupt. A new format keeps the decoder of the old one beside it;
// rows are rewritten when they are next changed.
//
// The package is pure: it does no input or output and keeps no state.
package record
