// Package policy carries out what a disk's policy says: checkpoints made every
// so often, old ones of them removed, and disks removed when their time is over.
//
// A policy is a row of the disk's (volume.SetPolicy), kept by the disk's
// identifier, so that it survives a restart and follows a rename. What is known
// besides, when the next checkpoint is due and why the last try failed, is in
// memory: it follows from the policy and from the checkpoints that there are.
//
// Which checkpoints are a policy's own is told by their caller, which the
// server sets and no user can: Principal. Their names carry the time in a form
// that sorts, later than the newest before it even if the clock has been set
// back; a name that a user has taken is passed over.
//
// # Clocks
//
// The wall clock may be wrong, and be set right at any moment by hours or years.
// While the server runs, everything is due by a clock that only counts what has
// passed (CLOCK_BOOTTIME, which also counts sleep): setting the wall clock makes
// nothing due and puts nothing off. Where a time must be read from the wall
// clock, a wrong one is made harmless:
//
//   - At a start, a checkpoint that seems to come from the future says nothing
//     of when the next is due; then one is made at once. Missed ones are one, too.
//   - A disk's end is stored as a time. When the wall clock jumps while the server
//     runs, the stored times jump with it. At a start, no more is left than the
//     disk was given.
//   - Age is the only measure for keeping checkpoints by time. A clock that is far
//     ahead would make all of them too old at once; so a round removes at most two
//     for age, one more than it makes. When somebody changes the policy all that
//     is too old goes at once: then a person is there.
//   - The newest checkpoint is never removed for its age.
package policy
