// Package tine is the vocabulary of the project: the identifiers, the limits
// and the kinds of error that every other package speaks in.
//
// It imports nothing but the standard library and does nothing by itself, so
// that a reader can learn the words here and meet them unchanged everywhere
// else. The words themselves (disk, timeline, stratum, epoch, tree, ...) are
// defined in ARCHITECTURE.md.
package tine
