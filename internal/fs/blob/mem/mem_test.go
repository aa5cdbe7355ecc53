package mem_test

import (
	"testing"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/blobtest"
	"tine.dev/tine/internal/fs/blob/mem"
)

func place(testing.TB) blobtest.Place {
	s := mem.New(mem.Options{})
	return func(testing.TB) blob.Driver { return s }
}

func TestContract(t *testing.T) { blobtest.Run(t, place, blob.Options{}) }

func TestDriver(t *testing.T) { blobtest.RunDriver(t, place) }
