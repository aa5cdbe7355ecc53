package server

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// Exclusive takes an existing data directory for a program that works on it
// without a server, such as a repair. Nothing is made. The caller releases the
// lock. Errors: KindNotFound and KindInvalid if there is no data directory,
// KindVersion, KindBusy while a server has it.
func Exclusive(data string) (*Lock, error) {
	b, err := os.ReadFile(filepath.Join(data, "format"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, tine.Errorf(tine.KindNotFound, "%s is not a data directory of tine", data).WithHint("name it with --data")
	case err != nil:
		return nil, dataHint(oserr.Wrap(err, "read the data directory %s", data), data)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	switch {
	case err != nil || n < 1:
		return nil, tine.Errorf(tine.KindCorrupt, "%s/format does not hold a format number", data).
			WithHint("if this is a data directory, write the number 1 into that file")
	case n > volume.Format:
		return nil, tine.Errorf(tine.KindVersion, "the data directory %s has format %d; this program knows up to %d", data, n, volume.Format).
			WithHint("use the newer tine that wrote it")
	}
	l, h, err := TakeLock(filepath.Join(data, lockName), Holder{PID: os.Getpid()})
	if err != nil && tine.KindOf(err) == tine.KindBusy {
		return nil, tine.Errorf(tine.KindBusy, "the data directory %s is in use by a server%s", data, holderText(h)).
			WithHint("stop the server first; `tine fsck` without --data and --repair checks while it runs")
	}
	if err != nil {
		return nil, dataHint(err, data)
	}
	return l, nil
}
