// Package crash proves P1 and P2 on the real program. `tine serve` runs with
// its data directory on a recorder (package recorder), while clients work on
// mounts of its disks and note, for everything that they were told is durable,
// how long the recording was when they were told.
//
// Then power is cut at every flush of the recording. For each the data
// directory is built as two devices could have left it, and opened:
//
//   - exact: everything that was written is there. That is also what the death
//     of the process alone leaves.
//   - dropped: only what was flushed is there. A file has the bytes of its last
//     fsync. A directory has the names of its own last fsync, whatever was
//     flushed in the files: no name is taken for durable because a file is.
//
// and, in the long form, a third, torn: each 4 KiB block and each name that was
// not flushed is there or not, by the throw of a seeded die.
//
// What must be found is this. Each client is one thread that makes one system
// call at a time, so a disk has a history: the list of its states, one a call.
// What a crash leaves of a disk must be equal, in every name, length and byte,
// to one state of that list (P2), not before the last that was acknowledged as
// durable (P1), and not after the last call that had begun. A fork, a
// checkpoint, a promotion is there whole or not at all, and never without the
// state of the parent that it rests on.
//
// A seed fixes what each client does, but not how the clients and the program's
// own timers interleave: run a seed that has failed several times.
package crash
