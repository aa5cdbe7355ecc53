package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/tine"
)

// lockName is the lock's file in the data directory. It may lie there before
// the directory is one of tine's.
const lockName = "tine.lock"

// Holder says who holds a lock. It is written into the lock's file for the
// error message of whoever comes second; the lock itself is the kernel's.
type Holder struct {
	PID    int    `json:"pid"`
	Socket string `json:"socket,omitempty"`
	Data   string `json:"data,omitempty"`
}

// Lock is a file held exclusively. The kernel lets go of it when the process
// ends, however it ends; the file stays, because removing it would let two
// processes hold two different files of one name.
type Lock struct {
	f     *os.File
	fresh bool // this process made the file
}

// TakeLock takes the file's lock without waiting. When another process holds
// it, the error has the kind KindBusy and the holder is returned.
func TakeLock(path string, me Holder) (*Lock, Holder, error) {
	_, missing := os.Stat(path)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, Holder{}, oserr.Wrap(err, "open the lock %s", path)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			var h Holder
			_ = json.NewDecoder(f).Decode(&h)
			return nil, h, tine.Errorf(tine.KindBusy, "%s is locked by another process", path)
		}
		return nil, Holder{}, oserr.Wrap(err, "lock %s", path)
	}
	b, err := json.Marshal(me)
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(append(b, '\n'), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, Holder{}, oserr.Wrap(err, "write the lock %s", path)
	}
	return &Lock{f, missing != nil}, Holder{}, nil
}

// Release lets go of the lock.
func (l *Lock) Release() { _ = l.f.Close() }

// withdraw removes a file that should never have been made, because the
// directory turned out to be somebody else's.
func (l *Lock) withdraw() {
	if l.fresh {
		_ = os.Remove(l.f.Name())
	}
}

// lockData makes the data directory if need be and takes its lock.
func lockData(dir, socket string) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, dataHint(oserr.Wrap(err, "make the data directory %s", dir), dir)
	}
	l, h, err := TakeLock(dir+"/"+lockName, Holder{PID: os.Getpid(), Socket: socket})
	if tine.KindOf(err) == tine.KindBusy && err != nil {
		return nil, tine.Errorf(tine.KindBusy, "the data directory %s is in use by a server%s", dir, holderText(h)).
			WithHint("talk to it with --socket, stop it first, or choose another directory with --data")
	}
	if err != nil {
		return nil, dataHint(err, dir)
	}
	return l, nil
}

func dataHint(err error, dir string) error {
	var e *tine.Error
	if errors.As(err, &e) && e.Hint == "" {
		return e.WithHint("choose a directory that can be written, with --data; this is %s", dir)
	}
	return err
}

func holderText(h Holder) string {
	s := ""
	if h.PID != 0 {
		s += fmt.Sprintf(", process %d", h.PID)
	}
	if h.Socket != "" {
		s += ", which listens on " + h.Socket
	}
	if h.Data != "" {
		s += ", which serves " + h.Data
	}
	return s
}
