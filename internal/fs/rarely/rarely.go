// Package rarely tells of a state that lasts, such as a full device, without
// filling the log with it: once when it is met, then at most once a minute with
// how often it was met since, and once when it is over.
package rarely

import (
	"log/slog"
	"sync"
	"time"
)

// every is how often a state that goes on is told.
const every = time.Minute

// Teller tells of one state. The zero value is ready; it is safe for concurrent
// use, and its lock is a leaf. It tells with the lock held, so that the end of a
// state is never told before its beginning.
type Teller struct {
	mu   sync.Mutex
	met  int // since it was last told
	told time.Time
	on   bool
}

// Met notes at the given time that the state was met once more, and tells it as
// a warning if that is due. args are pairs as of slog.
func (t *Teller) Met(log *slog.Logger, now time.Time, msg string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.met++
	if t.on && now.Sub(t.told) < every {
		return
	}
	if t.on {
		args = append(args[:len(args):len(args)], "times", t.met)
	}
	t.on, t.told, t.met = true, now, 0
	log.Warn(msg, args...)
}

// Over tells that the state is over, if it was told.
func (t *Teller) Over(log *slog.Logger, msg string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.on {
		return
	}
	t.on, t.met = false, 0
	log.Info(msg, args...)
}
