// Package sim runs the file system in a seeded world and compares it with a
// model, step by step.
//
// A World is a Host on a file system in memory, a clock that moves only
// between steps, and for each disk a posix.FS that is told the same as the
// engine. A step is one call with random arguments; its result must be the
// model's, error kinds included. Now and then a disk or a checkpoint is read
// completely and compared as a whole.
//
// A crash takes a clone of the file system in which a random part of what was
// not yet flushed is missing, at one of the moments that package crashpoint
// names or at any write. What is found after opening the clone must be a state
// of each disk's own history, not older than what it was told is durable.
//
// A cut is a crash from which the run does not go on. So one run is crashed
// hundreds of times: at named points, and before writes, flushes and changes of
// names; with all, nothing or a random part lost of what was not flushed. Some of
// the recoveries are cut in turn.
//
// Steps draw their randomness from (seed, number of the step), so leaving one
// out does not change what the others are. That is what shrinks a failing run
// to a few steps.
package sim
