package policy

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock is where time comes from.
type Clock interface {
	// Now is the time of day, which may be set.
	Now() time.Time
	// Passed is how long some moment is ago: it only grows.
	Passed() time.Duration
	// After sends once when so much time has passed.
	After(time.Duration) <-chan time.Time
}

// SystemClock is the machine's clock.
type SystemClock struct{}

// Now is the machine's time of day.
func (SystemClock) Now() time.Time { return time.Now() }

// Passed is how long the machine is up, sleep included.
func (SystemClock) Passed() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return time.Since(processStart)
	}
	return time.Duration(t.Nano())
}

// After is time.After.
func (SystemClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// processStart is what Passed counts from on a kernel that does not say.
var processStart = time.Now()
