// Package timeline is the engine of a disk: it turns POSIX operations into row
// changes, once, for every front end, and keeps the history that forks,
// checkpoints and rollbacks are made of.
//
// # How an operation becomes durable
//
// An operation changes rows in its line's open layer, in memory; it is visible
// at once. The committer seals the layer, makes the file data that it names
// durable, and applies it to the row store as one batch: a commit. Commits of
// one line are applied in order, so what a crash leaves is a prefix of the
// line's history. Records that concern a whole tree (fork, checkpoint,
// rollback, promote, absorb) are steps of a stream of their own; the few
// edges between streams are explicit dependencies of a step on others.
//
// # How a row is found
//
// A view is (line, epoch). A look-up asks the line's layers from the newest,
// then its strata, then its parent at the branch epoch, and stops at the first
// version or tombstone that is not after the view's epoch. The order in which
// a reader collects what it asks is path, layers, snapshot: see Reader.
//
// Package stratum reads and moves the stored rows of one stratum; this package
// knows which strata make up a line. Package reclaim says what may go. Whoever
// works out what a removal would free (package usage) gets copies: see Survey.
//
// # Locks
//
// In this order: janitor.work, Disk.mu (of two disks the lower id first),
// tree.mu, line.mu (of two lines the lower id first), tree.topo, space.mu; and
// the leaves Engine.mu, tree.segMu and that of flights. No lock is held while
// waiting for a commit or calling a session back, with one exception: a line
// about to be removed is settled with tree.mu held, which nothing that its
// committer does can want. Disk.mu is held for reading by every operation on a head and for writing
// while a head is exchanged (rollback, promote), which is what makes those
// atomic. tree.mu serialises records. line.mu guards a line's rows. tree.topo
// guards what connects lines; it is written with tree.mu held as well.
package timeline
