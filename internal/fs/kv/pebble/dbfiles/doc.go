// Package dbfiles reads the files of a Pebble store without Pebble, so that what
// is left of a damaged one can be told and saved.
//
// Pebble opens all of a store or nothing, and takes the first thing that it cannot
// read in a log or manifest for the end of it. Here each file stands alone:
//
//   - a log or manifest is a row of records, cut into pieces with a checksum each;
//     see Records;
//   - a manifest is a log of edits: which tables came and went, and from which log
//     on nothing is in tables yet; see ReadManifest;
//   - a table is a row of blocks, each with a checksum, followed by an index of
//     them. The rows are read block by block, so that a damaged one costs its own
//     rows only. Where the index or what leads to it is damaged, the blocks are
//     found by their checksums; see OpenTable.
//
// Nothing here changes a file. The functions are safe for concurrent use; a Table
// is not.
package dbfiles
