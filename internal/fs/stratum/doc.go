// Package stratum is the stored form of the rows of a line: how one range of
// them is asked, walked, counted, filtered and moved. It knows rows and their
// versions; which strata make up a line, in which order they are asked, and
// which of their versions may go is for its callers.
//
// A stratum is the range of all keys that begin with one id. A line is a list
// of strata, and lines that become one put their lists behind one another, so
// no row moves and every key stays what it is. Later the rows of a small
// stratum are moved into its neighbour (Fold).
//
// Each row has one version for each epoch at which it was written and is still
// needed. A version is a value, or a tombstone: the row was deleted then. The
// versions of a row may lie in several strata of its line; together, in the
// order of their births, they are its history in that line.
//
// All reading is from a snapshot that the caller gives, and closes. Whoever
// looks at several strata takes it after the list of them, so that rows that
// are moved meanwhile are found where the list leads.
package stratum
