// Package posix is a model of a POSIX file system: the simplest code that
// gives the right answer to every call, so that the engine can be compared
// with it call by call.
//
// It is written from the manual pages of Linux and shares no code with the
// engine. Everything below a Tree is immutable; an operation makes a new Tree
// that shares all it did not touch. So a fork or a checkpoint is an
// assignment, and a history of thousands of states costs what changed.
//
// Every Tree carries a sum over all that can be seen in it, kept up to date by
// each operation. Two trees that show the same have the same sum, however they
// came about: "is this one of the states of that history" is one map look-up.
package posix
