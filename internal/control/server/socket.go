package server

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/tine"
)

// maxSocketPath is sizeof(sun_path) without the final zero.
const maxSocketPath = 107

// listener is the server's socket and the lock that says whose it is.
type listener struct {
	net.Listener
	lock *Lock
}

// release removes the socket and lets go of its lock.
func (l *listener) release() {
	_ = l.Close()
	l.lock.Release()
}

// listen makes the socket, for its owner only. A socket that is left from a
// server that has died is replaced; one at which somebody listens is not. The
// lock beside it keeps two servers that start at once from taking each other's
// socket for a left-over.
func listen(path, data string) (*listener, error) {
	if len(path) > maxSocketPath {
		return nil, tine.Errorf(tine.KindInvalid, "the socket path %s has %d bytes; the kernel allows %d", path, len(path), maxSocketPath).
			WithHint("choose a shorter path with --socket")
	}
	if err := socketDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	lock, h, err := TakeLock(path+".lock", Holder{PID: os.Getpid(), Data: data})
	if tine.KindOf(err) == tine.KindBusy && err != nil {
		return nil, inUse(path, holderText(h))
	}
	if err != nil {
		return nil, err
	}
	l, err := bind(path)
	if err != nil {
		lock.Release()
		return nil, err
	}
	return &listener{l, lock}, nil
}

func inUse(path, by string) error {
	return tine.Errorf(tine.KindBusy, "a server listens on %s already%s", path, by).
		WithHint("choose another socket with --socket, or stop that server first")
}

func bind(path string) (net.Listener, error) {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, oserr.Wrap(err, "look at %s", path)
	case fi.Mode().Type() != os.ModeSocket:
		return nil, tine.Errorf(tine.KindExists, "%s exists and is not a socket", path).WithHint("move it away, or choose another path with --socket")
	default:
		if err := removeStale(path); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, oserr.Wrap(err, "listen on %s", path)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, oserr.Wrap(err, "protect %s", path)
	}
	return l, nil
}

func removeStale(path string) error {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close()
		return inUse(path, "")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return oserr.Wrap(err, "ask whether a server listens on %s", path)
	}
	return oserr.Wrap(os.Remove(path), "remove the left-over socket %s", path)
}

// socketDir makes the socket's directory, or makes sure that nobody else can
// put a socket of their own in the place of ours.
func socketDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return oserr.Wrap(err, "make the socket's directory %s", dir)
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return oserr.Wrap(err, "look at %s", dir)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return tine.Errorf(tine.KindInternal, "no owner is known of %s", dir)
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return tine.Errorf(tine.KindAccess, "the socket's directory %s belongs to uid %d", dir, st.Uid).
			WithHint("choose a directory of your own with --socket")
	}
	if fi.Mode().Perm()&0o022 != 0 && fi.Mode()&os.ModeSticky == 0 {
		return tine.Errorf(tine.KindAccess, "others can write to the socket's directory %s", dir).
			WithHint("chmod go-w %s, or choose another directory with --socket", dir)
	}
	return nil
}
