// Package run keeps rows in an object store: as sorted runs that a row store reads
// where they are.
//
// A run is what a part of a tree's history has done to its rows, or, for a base,
// all rows of a moment: for each key the last set or deletion, and the ranges that
// were deleted before that. All of a run counts as one moment. A row of it that
// lies in one of its deleted ranges was set after the deletion and is there; what
// older runs have there is not. So runs put on top of each other, oldest first,
// are the rows, and any two neighbours can be replaced by one (Merge).
//
// A run is a list of tables, each one object of some 8 MiB: a table of package
// kv/pebble, so that it can stand among that store's own tables (kv.Adopter), and
// behind it a trailer with a checksum of each of its frames of 256 KiB, see
// layout.go. Objects never change, and the runs of a tree are named by its manifest:
// objects that no manifest names are left-overs of a writer that did not end.
//
//	Fold            changes in the order of their commits -> a sorted set, in memory
//	Writer          a sorted set -> tables in the store
//	Merge           runs -> one run, streaming
//	Tables          tables in the store, for a row store to read, frame by frame through a cache
//	Check           one table, all its bytes
//	AppendTables,   a run's list of tables, as manifests carry it
//	DecodeTables
//
// A table is cut only between rows, never between the versions of one, and its parts
// (kv.Part) end with the owners of its rows: what lies between two owners of
// one tree belongs to other trees, which must stay readable when this one is not.
package run

import (
	"strconv"
	"strings"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/tine"
)

// Table is one table of a run.
type Table struct {
	Key         blob.Key
	ObjectBytes int64 // of the object: table and trailer
	Rows        int64 // sets
	Deletes     int64 // deletions of one key
	Ranges      int64 // deletions of ranges
	// Parts are where these lie, see kv.Table. Never empty.
	Parts []kv.Part
}

// Lower and Upper bound all of the table: [Lower, Upper).
func (t Table) Lower() []byte { return t.Parts[0].Lower }

// Upper is beside Lower.
func (t Table) Upper() []byte { return t.Parts[len(t.Parts)-1].Upper }

// Adoptable returns the table as a row store adopts it. Its name holds all that
// Tables needs to know of it.
func (t Table) Adoptable() kv.Table {
	return kv.Table{Name: Name(t.Key, t.ObjectBytes), Parts: t.Parts}
}

// Adoptables returns a run as a group for kv.Adopter.
func Adoptables(run []Table) []kv.Table {
	group := make([]kv.Table, 0, len(run))
	for _, t := range run {
		group = append(group, t.Adoptable())
	}
	return group
}

// Name returns the name by which a row store knows a table: its key and the bytes of its object.
func Name(key blob.Key, objectBytes int64) string {
	return string(key) + "#" + strconv.FormatInt(objectBytes, 10)
}

// ParseName is the reverse of Name. Errors: tine.KindInvalid.
func ParseName(name string) (key blob.Key, objectBytes int64, err error) {
	i := strings.LastIndexByte(name, '#')
	if i < 0 {
		return "", 0, tine.Errorf(tine.KindInvalid, "%q is not the name of a table", name)
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 64)
	if err != nil || n < trailerBytes(0) {
		return "", 0, tine.Errorf(tine.KindInvalid, "%q is not the name of a table", name)
	}
	key = blob.Key(name[:i])
	return key, n, key.Check()
}
