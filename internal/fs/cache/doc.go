// Package cache keeps frames, byte strings of some KiB to 1 MiB that come from
// far away, on the server's own device, and the hottest of them in memory.
//
// A frame is named by the object that it is part of and a number. What lies
// under a name never changes, so the cache never asks whether it is still
// right. It only forgets.
//
// # What it promises
//
//   - The bytes are those that were fetched, or there is an error. Each file
//     has a checksum; a file that is damaged, short, or of another frame counts
//     as absent and is removed. So nothing is flushed, and nothing is repaired
//     after a crash.
//   - Files never have more bytes than MaxBytes, also while one is written:
//     what has to go is removed before what comes is written.
//   - Many who want one frame at the same time cause one fetch. Who gives up
//     waiting leaves; the fetch goes on as long as anyone waits for it.
//   - A device that is full or fails makes the cache slower, never wrong: after
//     a failed write none is tried for a minute, and the log says so once.
//
// # Why one file a frame
//
// A frame of 256 KiB makes 40,000 files of 10 GiB, in 256 directories: about
// 160 each, which any file system takes. It makes a frame removable on its own
// with a call that every file system has, needs no space map of ours that a
// crash could tear, and lets the index be rebuilt by listing names. One file an
// object would have to be punched to give a frame back, which not all file
// systems can; one large file for all would have to be a file system. A frame
// counts as 16 KiB at least, so that small ones cannot make millions of files.
//
// # Which frame goes
//
// S3-FIFO: two queues in order of arrival. A frame comes into a small one, and
// leaves the cache from there unless somebody came back to it; if so it moves to
// the main queue, where it gets another round for each time that it was read.
// Names of frames that left are remembered for a while; such a frame
// comes back into the main queue at once. So one long scan pushes out only the small
// queue. One thing is added: a reader takes a frame in several bites, which
// says nothing about whether the frame will be wanted again, so touches count
// only once some other bytes have come in between. It is written here, in 150
// lines, because the libraries that were looked at evict in the background, when
// the bytes are already there, and so cannot hold a bound on a device.
//
// # Locks
//
// Cache.roomMu, then Cache.mu. roomMu is held while files are removed and room
// is made for one; mu is a leaf, with no input or output under it.
package cache
