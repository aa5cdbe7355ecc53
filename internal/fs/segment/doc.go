// Package segment is the data log: it keeps the bytes of files in append-only
// segment files on the server's own device.
//
// An extent of a file names (segment, logical offset, length) and never
// changes. A segment's bytes are its payload, numbered from 0 in the order of
// Append. Where they lie physically is this package's business: the payload is
// cut into blocks, each with a checksum of its own, and a repack may leave out
// blocks that nothing names any more. format.go documents the file.
//
// # Life of a segment
//
// Create makes the file of generation 0 and its Writer. Append adds payload;
// full blocks go to the page cache as they fill, the rest stays in memory, so
// that no byte is written twice. Harden makes a prefix durable for a commit,
// either by a flush or, when little is missing, by handing the bytes to the
// caller to ride in the commit itself. Seal writes the last block and a footer
// and flushes; from then on the file never changes. Repack writes the blocks
// that are still named to the next generation, and Remove unlinks a file once
// nobody reads it. After a crash, Recover turns what a commit promised of an
// open segment into a sealed one.
//
// A sealed segment that is safe elsewhere may be evicted: its file goes, and a
// Handle reads through Remote what the file had. The row does not say where
// the bytes are; the file is asked for first. A repack of such a segment makes a file
// again, of the next generation.
//
// # What is durable when
//
// A commit carries a location row (record.Segment) and tail rows
// (record.Tail). The file up to the row's Synced was flushed, with its
// directory entry, before Harden returned it; the tail rows not yet dropped
// cover the rest up to the row's End. Nothing beyond Synced in a file is ever
// trusted, whatever it looks like.
//
// # Why blocks of 16 KiB
//
// A read verifies whole blocks: small blocks waste checksums and calls, large
// ones make a 4 KiB read expensive. 16 KiB costs a 4 KiB read one or two
// checksums of about a microsecond each, and 0.02 % of space.
//
// # Locks
//
// In this order: Writer.hardenMu, Writer.appendMu, Writer.flushMu, file.loadMu,
// Store.mu, and then Writer.mu or Store.dirMu, which are leaves. A reader
// holds no lock during input or output, but for loadMu when it is the first to
// open a file; an append holds appendMu while it writes, a flush holds flushMu.
package segment
