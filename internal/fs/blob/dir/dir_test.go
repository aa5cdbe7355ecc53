package dir_test

import (
	"testing"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/blobtest"
	"tine.dev/tine/internal/fs/blob/dir"
)

func open(t testing.TB, path string, opt dir.Options) *dir.Store {
	t.Helper()
	s, err := dir.Open(path, opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func place(t testing.TB) blobtest.Place {
	path := t.TempDir()
	return func(t testing.TB) blob.Driver { return open(t, path, dir.Options{}) }
}

func TestContract(t *testing.T) { blobtest.Run(t, place, blob.Options{}) }

func TestDriver(t *testing.T) { blobtest.RunDriver(t, place) }
