package dir

import (
	"context"
	"errors"
	"hash/fnv"
	"os"
	"path"
	"strconv"
	"syscall"
	"time"

	"tine.dev/tine/internal/fs/blob"
)

// stripes is how many lock files there are: enough that two keys rarely share
// one, few enough that they are made once and stay.
const stripes = 64

// locks lets one at a time look at an object and then replace it.
type locks struct {
	// turns come before the file locks, so that within a process callers
	// queue instead of polling.
	turns [stripes]chan struct{}
}

// hold takes the lock of a key, in this process and among processes, and
// returns how to give it back. The kernel gives back the lock of a process
// that dies.
func (s *Store) hold(ctx context.Context, op string, key blob.Key) (release func(), err error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	stripe := h.Sum32() % stripes
	select {
	case s.locks.turns[stripe] <- struct{}{}:
	case <-ctx.Done():
		return nil, blob.Interrupted(ctx, op, key)
	}
	turn := func() { <-s.locks.turns[stripe] }
	f, err := s.root.OpenFile(path.Join(lockDir, strconv.Itoa(int(stripe))), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		turn()
		if gone := s.present(op, key); gone != nil {
			return nil, gone
		}
		return nil, failure(op, key, err)
	}
	if err := flock(ctx, f); err != nil {
		_ = f.Close()
		turn()
		if gone := blob.Interrupted(ctx, op, key); gone != nil {
			return nil, gone
		}
		return nil, failure(op, key, err)
	}
	return func() {
		_ = f.Close() // gives back the file lock
		turn()
	}, nil
}

// flock waits for the lock of a file. It polls, since a blocked flock(2)
// cannot be called off when ctx ends.
func flock(ctx context.Context, f *os.File) error {
	wait := time.Millisecond
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		wait = min(2*wait, 20*time.Millisecond)
	}
}
