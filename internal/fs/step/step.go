// Package step orders what becomes durable: each step starts after those that it
// depends on are durable, and fails if one of them has failed.
package step

import (
	"context"
	"time"

	"tine.dev/tine/internal/tine"
)

// Step is something that becomes durable at one moment: a commit of a line or
// a record of a tree. Whoever makes it so calls After, AwaitDeps and Finish;
// everybody else may wait.
type Step struct {
	deps []*Step
	done chan struct{} // closed when the step is durable or has failed
	err  error         // set before done is closed
}

// New returns a step that depends on the given ones.
func New(deps ...*Step) *Step {
	s := &Step{done: make(chan struct{})}
	s.After(deps...)
	return s
}

// After makes the step depend on the given ones, and on no others. Those that
// are nil or done are left out.
func (s *Step) After(deps ...*Step) {
	s.deps = nil
	for _, d := range deps {
		if d != nil && !d.IsDone() {
			s.deps = append(s.deps, d)
		}
	}
}

// IsDone reports that the step is durable.
func (s *Step) IsDone() bool {
	select {
	case <-s.done:
		return s.err == nil
	default:
		return false
	}
}

// Done is closed when the step is durable or has failed; Err tells which, and
// only then.
func (s *Step) Done() <-chan struct{} { return s.done }

// Err is beside Done.
func (s *Step) Err() error { return s.err }

// AwaitDeps waits until all that the step depends on is durable.
func (s *Step) AwaitDeps() error {
	for _, d := range s.deps {
		<-d.done
		if d.err != nil {
			return d.err
		}
	}
	s.deps = nil
	return nil
}

// Finish says how the step has gone. It is called once.
func (s *Step) Finish(err error) {
	s.err = err
	close(s.done)
}

// Device says whether steps can become durable at all: Stuck reports that a commit
// has found no room, and waits for some.
type Device interface{ Stuck() bool }

// Wait waits until the step is durable. Waiting can be given up, and ends with
// KindNoSpace when the device is found to be stuck, also if it fills meanwhile;
// the step still happens. A nil step is one that is durable.
func (s *Step) Wait(ctx context.Context, d Device) error {
	if s == nil {
		return nil
	}
	look := time.NewTimer(fullPatience)
	defer look.Stop()
	for {
		select {
		case <-s.done:
			return s.err
		case <-ctx.Done():
			return tine.Errorf(tine.KindInterrupted, "gave up waiting for a commit: %w", context.Cause(ctx))
		case <-look.C:
			if d.Stuck() {
				return tine.Errorf(tine.KindNoSpace, "the device is full: what was asked for is done but not yet durable, and lost should the server end before there is room").
					WithHint("free space on the device that holds the data directory, or make it larger")
			}
			look.Reset(fullPatience)
		}
	}
}

// fullPatience is how long a commit that is waited for may take on a full
// device.
const fullPatience = 500 * time.Millisecond
