package stratum

import (
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// ScanTable calls fn for every row of one table of an owner.
func ScanTable(snap kv.Snapshot, owner [tine.IDSize]byte, t record.Table, fn func(record.Logical, []byte) error) error {
	return ScanPrefix(snap, owner, record.TableKey(t), fn)
}

// ScanPrefix calls fn for every row of an owner whose logical key starts with p.
func ScanPrefix(snap kv.Snapshot, owner [tine.IDSize]byte, p record.Logical, fn func(record.Logical, []byte) error) error {
	lower := record.AppendKey(nil, owner, p)
	scan, err := snap.Scan(lower, record.PrefixEnd(lower), nil)
	if err != nil {
		return err
	}
	defer scan.Close()
	for scan.Next() {
		_, l, _, err := record.SplitKey(scan.Key())
		if err != nil {
			return err
		}
		if err := fn(l, scan.Value()); err != nil {
			return err
		}
	}
	return scan.Err()
}
