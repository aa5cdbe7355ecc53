package kv

import "context"

// Tables opens sorted tables that lie outside of a store, for example in an
// object store. It is safe for concurrent use.
//
// Errors: tine.KindUnavailable if the table cannot be read now;
// tine.KindCorrupt if it is gone, or its bytes are not those that were written.
// A store reads at any moment, also for its own background work, and hands such
// an error to the reader that needed the bytes, and to no other.
type Tables interface {
	// OpenTable opens a table by the name that it was adopted under. The name
	// of a table never stands for other bytes.
	OpenTable(ctx context.Context, name string) (TableReader, error)
}

// TableReader reads one table. It is safe for concurrent use.
type TableReader interface {
	// ReadAt fills p from the bytes at off, wholly or with an error.
	ReadAt(ctx context.Context, p []byte, off int64) error
	// Size returns the table's bytes.
	Size() int64
	Close() error
}

// Span is the range of keys [Lower, Upper).
type Span struct{ Lower, Upper []byte }

// Table is a table that lies outside of a store.
type Table struct {
	Name string // what Tables knows it by
	// Parts are where its rows and deletions lie, in key order, disjoint. What
	// lies between two parts has nothing to do with the table: other rows
	// there can be read though it cannot.
	Parts []Part
}

// Part is a range of a table. Its bounds are prefixes of rows, or the start of
// such: they have no epoch.
type Part struct {
	Span
	Bytes int64 // of the table that the part takes, estimated
}

// Adopter is a Store that can take rows from tables outside of it without
// copying them.
type Adopter interface {
	// Adopt makes the rows of tables the store's. A group is a set of tables
	// with disjoint parts; what a group holds hides what earlier groups hold,
	// and its deletions delete from those. Nothing is read of the tables, as a
	// rule. Rows and deletions that were in the groups' parts before are removed
	// first, so that a call can be repeated: after a crash within, or an error,
	// each group is there whole or not at all. The caller says by a row that
	// it commits afterwards that all are, and no one else writes to the parts
	// meanwhile. What is adopted is durable when it returns.
	// Errors: tine.KindInvalid, tine.KindInterrupted, those of Commit.
	Adopt(ctx context.Context, groups [][]Table) error
	// Clear removes all rows and deletions of ranges whose bounds are as those of
	// a Part, and with them the need for the tables there. Each range goes
	// as a whole and durably. Iterators that are open still see the rows.
	Clear(ctx context.Context, spans []Span) error
	// Adopted returns the tables that the store may still read from; Parts are
	// the ranges of which it needs them. One that only open snapshots need
	// has no Parts.
	Adopted() ([]Table, error)
	// Localize copies all rows of a range that lie in tables outside into the
	// store's own files. It returns when none are left, or with the error that
	// stopped it (as Tables); what was copied stays copied. When ctx ends it
	// returns tine.KindInterrupted; a copy of one table under way may still end.
	Localize(ctx context.Context, lower, upper []byte) error
}
