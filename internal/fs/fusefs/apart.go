package fusefs

import (
	"context"
	"runtime"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/tine"
)

// apart runs a system call that reaches the mount which this very process
// serves, and returns its error or, should ctx end first, that it did.
//
// Such a call waits for our own answer. If the process is killed meanwhile the
// waiting thread cannot end before the answer, and as long as it holds the
// device open the kernel does not give up the connection: a process that
// nothing can kill, and a mount on which every program hangs. So the call is
// made on a thread with a table of descriptors of its own, in which the device
// is closed; when all other threads end, the device goes, the kernel fails the
// call, and this thread ends too.
//
// A notification cannot be made so, as it is a write to the device. For the
// rare case that a kill meets one that waits, see CleanStale.
func (m *Mount) apart(ctx context.Context, f func() error) error {
	return m.within(ctx, func(result chan<- error) {
		onOwnThread(func() {
			if unix.Unshare(unix.CLONE_FILES) == nil {
				unix.Close(m.device)
				unix.Close(m.notifyFD)
			}
			result <- f()
		})
	})
}

// within lets start begin something that sends its error when it is done, and
// returns that or, should ctx end first, that it did.
func (m *Mount) within(ctx context.Context, start func(result chan<- error)) error {
	result := make(chan error, 1)
	start(result)
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return tine.Errorf(tine.KindUnavailable, "%s does not answer: %w", m.dir, context.Cause(ctx))
	}
}

// onOwnThread runs f on a thread that ends with it, so that f may change what
// threads of a process usually share. The first thread of a process cannot
// end; if the goroutine happens to be on that, it occupies it while another
// goroutine tries again.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return // still locked: the thread ends
		}
		done := make(chan struct{})
		onOwnThread(func() {
			defer close(done)
			f()
		})
		<-done
		runtime.UnlockOSThread()
	}()
}
