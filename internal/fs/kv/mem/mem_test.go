package mem_test

import (
	"testing"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/kvtest"
	"tine.dev/tine/internal/fs/kv/mem"
)

func TestContract(t *testing.T) {
	kvtest.Run(t, kvtest.Driver{Open: func(*testing.T) kv.Store { return mem.New() }})
}
