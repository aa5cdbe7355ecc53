package pebble

import (
	"time"

	"tine.dev/tine/internal/fs/kv"
)

// SetSpaceClock replaces the clock that ages the known free space.
func SetSpaceClock(s kv.Store, now func() time.Time) {
	sp := s.(*store).space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.now = now
}
