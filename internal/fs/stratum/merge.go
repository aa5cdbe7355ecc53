package stratum

import "tine.dev/tine/internal/fs/record"

// Source is one ordered run of rows that Merge walks, with values of whatever
// kind its maker has. A Cursor is one of Found.
type Source[V any] interface {
	// Peek returns the key that the source stands at; false at its end.
	Peek() (record.Logical, bool, error)
	Value() V
	Next()
	Close()
}

// Merge walks the sources in key order and calls fn for each key until fn returns
// false; of several sources with the same key the first, which is the newest, wins.
// It closes none of them. Errors: those of the sources and of fn.
func Merge[V any](sources []Source[V], fn func(record.Logical, V) (bool, error)) error {
	for {
		best := -1
		var key record.Logical
		for i, s := range sources {
			k, ok, err := s.Peek()
			if err != nil {
				return err
			}
			if ok && (best < 0 || k < key) {
				best, key = i, k
			}
		}
		if best < 0 {
			return nil
		}
		v := sources[best].Value()
		for _, s := range sources {
			if k, ok, err := s.Peek(); err != nil {
				return err
			} else if ok && k == key {
				s.Next()
			}
		}
		if more, err := fn(key, v); err != nil || !more {
			return err
		}
	}
}
