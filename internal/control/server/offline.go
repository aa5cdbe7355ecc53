package server

import (
	"os"
	"path/filepath"

	"tine.dev/tine/internal/control/keeper"
	"tine.dev/tine/internal/tine"
)

// UnmountOffline takes away what a server that no longer runs has left mounted
// on dir, and its record in the data directory, so that the next start does
// not bring it back. It is refused while a server runs there.
func UnmountOffline(data, dir string) error {
	forgotten, err := forget(data, dir)
	if err != nil {
		return err
	}
	was, err := keeper.IsTineMount(dir)
	if err != nil {
		return err
	}
	if !was {
		if forgotten {
			return nil
		}
		return tine.Errorf(tine.KindNotFound, "no tine disk is mounted on %s", dir).
			WithHint("no server runs either; if its data directory is not %s, name it with --data", data)
	}
	if err := keeper.CleanStale(dir); err != nil {
		return err
	}
	if still, err := keeper.IsTineMount(dir); err != nil || !still {
		return err
	}
	return tine.Errorf(tine.KindBusy, "a running server has mounted the disk on %s", dir).
		WithHint("name its socket with --socket")
}

// forget removes the record under the data directory's lock.
func forget(data, dir string) (bool, error) {
	path := filepath.Join(data, lockName)
	if _, err := os.Stat(path); err != nil {
		return false, nil
	}
	lock, h, err := TakeLock(path, Holder{PID: os.Getpid()})
	if tine.KindOf(err) == tine.KindBusy && err != nil {
		return false, tine.Errorf(tine.KindBusy, "the data directory %s is in use by a server%s", data, holderText(h)).
			WithHint("name that server's socket with --socket")
	}
	if err != nil {
		return false, err
	}
	defer lock.Release()
	return keeper.Forget(data, dir)
}
