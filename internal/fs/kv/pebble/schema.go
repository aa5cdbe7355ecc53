package pebble

import (
	"github.com/cockroachdb/pebble/v2/sstable/colblk"

	"tine.dev/tine/internal/fs/kv/pebble/dbfiles"
)

// Schema returns how the stores of this package order and pack their keys, for who
// reads their files without Pebble.
func Schema() dbfiles.Schema {
	c := newComparer()
	keys := colblk.DefaultKeySchema(c, bundleRows)
	return dbfiles.Schema{Comparer: c, Keys: &keys}
}
