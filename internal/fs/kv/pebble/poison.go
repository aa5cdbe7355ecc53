package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"

	pdb "github.com/cockroachdb/pebble/v2"

	"tine.dev/tine/internal/tine"
)

// poison is the end of a store that Pebble cannot go on with. Pebble would end
// the process; one failing device must not take the disks on others with it,
// so the store is declared dead instead, and every caller is let go. What
// strikes: the fence, on an error that Pebble would not survive; the logger,
// on what Pebble calls fatal; a panic under a commit; a flush that fails.
type poison struct {
	once sync.Once
	done chan struct{} // closed when err is set
	err  *tine.Error
	shut func()                      // shuts the fence
	hook atomic.Pointer[func(error)] // set once the store is open
}

func (p *poison) strike(cause error) {
	p.once.Do(func() {
		kind := "a fatal error"
		if errors.Is(cause, syscall.ENOSPC) {
			kind = "a full device"
		}
		p.err = tine.Errorf(tine.KindUnavailable, "the key-value store stopped after %s: %w", kind, cause).
			WithHint("look at the device and its free space, then open the store again")
		if tooManyFiles(cause) {
			p.err = p.err.WithHint(openFilesHint + ", then open the store again")
		}
		close(p.done)
		p.shut()
		if hook := p.hook.Load(); hook != nil && *hook != nil {
			go (*hook)(p.err)
		}
	})
}

// check returns the error that all calls on a poisoned store return.
func (p *poison) check() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// run calls f on a goroutine of its own and waits for it, or for the poison:
// then f is abandoned. A panic in f poisons the store.
func (p *poison) run(f func() error) error {
	if err := p.check(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				err, ok := r.(error)
				if !ok {
					err = fmt.Errorf("%v", r)
				}
				p.strike(err)
			}
		}()
		done <- f()
	}()
	select {
	case err := <-done:
		return err
	case <-p.done:
		select {
		case err := <-done: // it was ready as well: the call has happened
			return err
		default:
			return p.err
		}
	}
}

// logger hands Pebble's messages on and stands in the way of its exit.
type logger struct {
	log    *slog.Logger
	poison *poison
}

func (l *logger) Infof(format string, args ...any) {
	l.log.Debug("pebble", "message", fmt.Sprintf(format, args...))
}

func (l *logger) Errorf(format string, args ...any) {
	l.log.Error("pebble", "message", fmt.Sprintf(format, args...))
}

// Fatalf must not return: Pebble counts on that. It poisons the store and
// parks the goroutine, which may hold any of Pebble's locks; so nobody who
// must come back may wait on one (see poison.run and snapshot.release).
func (l *logger) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	for _, a := range args {
		if cause, ok := a.(error); ok {
			err = fmt.Errorf("%s: %w", err.Error(), cause)
			break
		}
	}
	l.log.Error("pebble: fatal", "error", err)
	l.poison.strike(err)
	select {}
}

// tooManyFiles reports that the process, or the machine, has too many files open,
// with which the device has nothing to do.
func tooManyFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

const openFilesHint = "raise the limit of open files of the server (LimitNOFILE= in its unit, `ulimit -n`) or of the machine (sysctl fs.file-max)"

// translate gives Pebble's errors their kind.
func translate(what string, err error) error {
	var typed *tine.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &typed): // of a table outside, for example
		return tine.Errorf(typed.Kind, "%s: %w", what, err).WithHint("%s", typed.Hint)
	case pdb.IsCorruptionError(err):
		return tine.Errorf(tine.KindCorrupt, "%s: %w", what, err).
			WithHint(RepairHint)
	case errors.Is(err, syscall.ENOSPC):
		return tine.Errorf(tine.KindNoSpace, "%s: %w", what, err).WithHint("free space on the device")
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EACCES) && what == "lock":
		return tine.Errorf(tine.KindBusy, "the directory of the key-value store is in use: %w", err).
			WithHint("stop the other process that has it open")
	case tooManyFiles(err):
		return tine.Errorf(tine.KindIO, "%s: %w", what, err).WithHint(openFilesHint)
	case errors.Is(err, fs.ErrPermission):
		return tine.Errorf(tine.KindAccess, "%s: %w", what, err)
	}
	return tine.Errorf(tine.KindIO, "%s: %w", what, err).WithHint("look at the device and the system log")
}
