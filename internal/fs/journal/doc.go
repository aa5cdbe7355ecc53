// Package journal is the form in which a tree's commits travel to its store:
// lists of row changes, and the objects that carry them.
//
// A tree's journal is a sequence of objects, numbered from 1 without a gap, each
// created only if there is none of its number. So two servers cannot both
// write number n, and who is refused knows that it no longer owns the tree. A
// server's first object is its term: it holds no changes, and all that follows
// under a lower term is refused by the numbers alone.
//
// # Why changes and not operations
//
// A change says what a row is from now on, or that it is gone. Replaying
// changes twice, or over rows that are newer in part, ends at the same rows as
// replaying them once, as long as all of them are replayed to the end. So what
// cuts a run from the rows need not stop the writers, and a reader need not
// know what a run already holds. Operations would be smaller, and would have to be
// understood by every later version exactly as they were meant.
//
// format.go documents the bytes.
package journal
