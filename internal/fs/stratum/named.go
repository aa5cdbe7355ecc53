package stratum

import (
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// EachNamedTimeline calls note with every timeline that a record of the tree names,
// the records of its disks left out, which are the tenant's.
func EachNamedTimeline(snap kv.Snapshot, tree tine.TreeID, note func(tine.TimelineID)) error {
	for table, id := range map[record.Table]func(v []byte) (tine.TimelineID, error){
		record.TableTimeline: func(v []byte) (tine.TimelineID, error) {
			rec, err := record.DecodeTimeline(v)
			return rec.Parent, err
		},
		record.TableCheckpoint: func(v []byte) (tine.TimelineID, error) {
			rec, err := record.DecodeCheckpoint(v)
			return rec.Timeline, err
		},
		record.TableSegment: func(v []byte) (tine.TimelineID, error) {
			rec, err := record.DecodeSegment(v)
			return rec.Timeline, err
		},
		record.TableTask: func(v []byte) (tine.TimelineID, error) {
			rec, err := record.DecodeTask(v)
			return rec.Timeline, err
		},
	} {
		err := ScanTable(snap, tree, table, func(_ record.Logical, v []byte) error {
			n, err := id(v)
			note(n)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
