package pebble

import (
	"errors"
	"io/fs"

	pdb "github.com/cockroachdb/pebble/v2"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/pebble/dbfiles"
)

// Verify reads the tables that hold rows now, past all caches; of those
// outside it reads nothing, see run.Check. A table that a
// compaction has replaced meanwhile is left out: what took its place was read from it.
func (s *store) Verify(fn func(kv.Damage) error) error {
	if err := s.check(); err != nil {
		return err
	}
	var levels [][]pdb.SSTableInfo
	err := s.poison.run(func() (err error) {
		levels, err = s.db.SSTables()
		return err
	})
	if err != nil {
		return translate("list the tables", err)
	}
	schema := Schema()
	seen := map[uint64]bool{}
	for _, level := range levels {
		for _, t := range level {
			file := uint64(t.BackingSSTNum) // several tables may be parts of one file
			if t.BackingType != pdb.BackingTypeLocal || seen[file] {
				continue
			}
			seen[file] = true
			name := s.fence.FS.PathJoin(s.dir, TableName(file))
			if err := dbfiles.VerifyTable(s.fence.FS, name, schema, fn); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if err := s.check(); err != nil {
				return err
			}
		}
	}
	return nil
}
