package pebble_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/kvtest"
	"tine.dev/tine/internal/fs/kv/pebble"
)

func open(t testing.TB, o pebble.Options) kv.Store {
	t.Helper()
	s, err := pebble.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// driver keeps the options of each store, to open it again.
func driver(options func(t *testing.T) pebble.Options) kvtest.Driver {
	opened := map[kv.Store]pebble.Options{}
	return kvtest.Driver{
		Open: func(t *testing.T) kv.Store {
			o := options(t)
			s := open(t, o)
			opened[s] = o
			return s
		},
		Reopen: func(t *testing.T, s kv.Store) kv.Store {
			o := opened[s]
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			again := open(t, o)
			opened[again] = o
			return again
		},
	}
}

func TestContract(t *testing.T) {
	kvtest.Run(t, driver(func(t *testing.T) pebble.Options {
		return pebble.Options{Dir: t.TempDir(), ReserveBytes: 1 << 20}
	}))
}

// TestContractSmall has tiny memory tables, so that rows move through all
// levels while the suite runs.
func TestContractSmall(t *testing.T) {
	kvtest.Run(t, driver(func(*testing.T) pebble.Options {
		return pebble.Options{Dir: "db", FS: vfs.NewMem(), MemTableBytes: 64 << 10, CacheBytes: 1 << 20}
	}))
}
