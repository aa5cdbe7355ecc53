package fusefs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// Options say what is mounted where, and how.
type Options struct {
	// Dir is the directory to mount on; it must exist.
	Dir string
	// Attach attaches the mount to its disk; it is called once. A dead
	// session is the caller's to see: the mount answers what the session
	// answers.
	Attach func(context.Context, volume.AttachOptions) (*volume.Session, error)
	// ReadOnly mounts read-only. Checkpoints always are.
	ReadOnly bool
	// AllowOther lets other users than the server's in, root included. A
	// server that runs as root always does, as the modes of the files
	// decide; for another, /etc/fuse.conf must say user_allow_other.
	AllowOther bool
	// AllowSUID and AllowDev make set-user-ID programs and device nodes on
	// the disk work. Off unless the content of the disk is trusted.
	AllowSUID, AllowDev bool
	// NoExec keeps the programs on the disk from being run.
	NoExec bool
	// IDMapped allows bind mounts of it that map user ids.
	IDMapped bool
	// CacheNone is the strict mode for disks that many machines write: the
	// kernel keeps no names, attributes or pages.
	CacheNone bool
	// Writeback lets the kernel gather small writes before it passes them
	// on. It reorders what a crash can lose, and makes small files slower.
	// The kernel then believes no size or time of a file but its own, so
	// the mount must have the disk for itself: New fails if it has not, and
	// what other sessions write later is seen only in part.
	Writeback bool
	// Disable turns kernel features off.
	Disable Features
	// Source is what df and /proc/mounts show; empty is "tine".
	Source string
	Logger *slog.Logger
	// Trace logs every request and reply. Slow.
	Trace bool
}

// Mount is a mounted disk. Its methods may be called from any goroutine.
type Mount struct {
	dir      string
	log      *slog.Logger
	features Features
	solo     bool   // a write-back cache: the disk must have no other session
	dev      uint64 // st_dev of everything in it
	epochs   bool   // the kernel takes epoch notifications

	// fs is nil until the first request can come; the session may call back
	// before. What is set in serve is set before fs.
	fs       atomic.Pointer[fileSystem]
	session  *volume.Session
	device   int      // the /dev/fuse descriptor that the library owns
	notify   *os.File // our duplicate of it
	notifyFD int      // its number, known also while the file is being closed

	sharedOnce sync.Once // for the warning of a write-back mount

	// pathMu is held around system calls that reach the mount by its path,
	// so that a flush does not make an unmount find it busy.
	pathMu sync.Mutex

	served chan struct{} // closed after the last answer
	done   chan struct{} // closed after the session is detached
	err    error         // of the detach; written before done is closed
}

// New attaches a session and mounts it on a directory. It returns when the
// mount answers. The mount lasts until Unmount, umount(8) or the end of the
// process; ctx only bounds the call.
//
// Who may not mount has fusermount3 do it, which lets only its own user in
// unless AllowOther is asked for and /etc/fuse.conf permits that.
//
// Errors: tine.KindNotFound or KindNotDir for the directory, KindBusy when a
// disk is mounted there already or Writeback meets other sessions, KindInvalid
// for options that contradict each other, KindAccess when the process may not
// mount, KindUnsupported without /dev/fuse, or for an ordinary user without
// fusermount3, and whatever Attach returns.
func New(ctx context.Context, o Options) (*Mount, error) {
	if o.Source == "" {
		o.Source = "tine"
	}
	log := o.Logger
	if log == nil {
		log = slog.Default()
	}
	if o.CacheNone && o.Writeback {
		return nil, tine.Errorf(tine.KindInvalid, "a mount cannot have both no cache and a write-back cache")
	}
	dir, err := mountPoint(o.Dir)
	if err != nil {
		return nil, err
	}
	m := &Mount{dir: dir, log: log.With("mount", dir), solo: o.Writeback, served: make(chan struct{}), done: make(chan struct{})}
	m.session, err = o.Attach(ctx, volume.AttachOptions{
		Label:      "mount " + dir,
		ReadOnly:   o.ReadOnly,
		Knows:      m.knows,
		Invalidate: m.invalidate,
		Flush:      m.flush,
	})
	if err != nil {
		return nil, err
	}
	if !m.session.ReadOnly() {
		if err := m.alone(); err != nil {
			return nil, errors.Join(err, m.session.Detach(context.WithoutCancel(ctx)))
		}
	}
	if err := m.serve(o); err != nil {
		return nil, errors.Join(err, m.session.Detach(context.WithoutCancel(ctx)))
	}
	if err := m.apart(ctx, m.settle); err != nil {
		return nil, errors.Join(err, m.ForceUnmount(context.WithoutCancel(ctx)))
	}
	return m, nil
}

// alone refuses a mount with a write-back cache that would write beside others.
func (m *Mount) alone() error {
	if !m.solo || m.session.Sessions() <= 1 {
		return nil
	}
	return tine.Errorf(tine.KindBusy, "a mount with a write-back cache needs the disk for itself").
		WithHint("mount without write-back, or detach the others first")
}

// serve mounts and starts to answer. On error nothing is left behind but the
// session.
func (m *Mount) serve(o Options) error {
	fs := newFileSystem(m.session, o, m.log)
	options := serverOptions(o, m.log)
	readOnly := o.ReadOnly || m.session.ReadOnly()
	fd, err := mountFUSE(m.dir, o, options.MaxWrite, readOnly)
	if err != nil {
		return err
	}
	undo := func() { unmountAt(m.dir, unix.MNT_DETACH) }
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		undo()
		unix.Close(fd)
		return tine.Errorf(tine.KindIO, "cannot duplicate the descriptor of /dev/fuse: %w", err)
	}
	m.device, m.notify, m.notifyFD = fd, os.NewFile(uintptr(dup), "/dev/fuse"), dup
	server, err := fuse.NewServer(fs, fmt.Sprintf("/dev/fd/%d", fd), options) // owns fd from here
	if err != nil {
		undo()
		m.notify.Close()
		return tine.Errorf(tine.KindIO, "the kernel and tine cannot agree on the FUSE protocol: %w", err)
	}
	m.features = (AllFeatures &^ o.Disable).offeredBy(server.KernelSettings().Flags64())
	m.epochs = m.features.Has(EpochNotify) && notifyEpoch(m.notify) == nil
	if !m.epochs {
		m.features &^= EpochNotify
		fs.names.start()
	}
	top, _ := mountedAt(m.dir)
	m.dev = top.dev
	m.fs.Store(fs)
	go m.run(server)
	return nil
}

// run answers requests until the mount is gone, then lets go of the session.
// By then every request has been answered.
func (m *Mount) run(server *fuse.Server) {
	defer close(m.done)
	server.Serve()
	close(m.served)
	m.notify.Close()
	m.err = m.session.Detach(context.Background())
	if m.err != nil {
		m.log.Error("what was written last may be lost", "error", m.err, "hint", tine.HintOf(m.err))
	}
}

// settle waits until the mount answers and tunes what can only be tuned then.
func (m *Mount) settle() error {
	st, err := statMount(m.dir)
	if err != nil {
		return err
	}
	if err := setReadAhead(st.Dev); err != nil {
		m.log.Debug("the kernel keeps its own read-ahead; large reads are slower", "error", err)
	}
	refusePolling(m.dir)
	return nil
}

// Dir is the directory that the disk is mounted on.
func (m *Mount) Dir() string { return m.dir }

// Features is what this mount uses of what the kernel offers.
func (m *Mount) Features() Features { return m.features }

// Done is closed when the disk is no longer mounted, by whomever, and its
// session is detached.
func (m *Mount) Done() <-chan struct{} { return m.done }

// Shown reports whether the kernel still has the disk mounted on its directory.
// Once umount(8) has returned it has not; Done is closed a little later.
func (m *Mount) Shown() bool { return slices.Contains(placesOf(m.dev), m.dir) }

// Unmount flushes, unmounts and detaches the session; when it returns nil,
// all that was written is durable. Unmounting what is no longer mounted is no
// error.
//
// While programs use the mount nothing is unmounted and the error is of kind
// tine.KindBusy and names some of them. When ctx ends first the error is its
// cause; the unmount goes on.
func (m *Mount) Unmount(ctx context.Context) error {
	err := m.apart(ctx, func() error {
		m.pathMu.Lock()
		defer m.pathMu.Unlock()
		return m.unmount(0)
	})
	if err != nil {
		return err
	}
	return m.wait(ctx)
}

// ForceUnmount is Unmount for a server that has to stop: programs that still
// use the mount do not keep it; their next use fails with ENOTCONN. What they
// have written before is flushed, for which it takes at most half of the time
// that ctx has, and durable all the same.
func (m *Mount) ForceUnmount(ctx context.Context) error {
	flushCtx, cancel := ctx, context.CancelFunc(func() {})
	if end, ok := ctx.Deadline(); ok {
		flushCtx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
	}
	defer cancel()
	if err := m.flush(flushCtx); err != nil {
		m.log.Warn("could not flush before unmounting", "error", err)
	}
	// Without pathMu: a flush that hangs must not keep this from helping.
	err := m.apart(ctx, func() error { return m.unmount(unix.MNT_FORCE | unix.MNT_DETACH) })
	if err != nil {
		return err
	}
	return m.wait(ctx)
}

// unmount takes the mount from its directory, and nothing else that may be
// mounted there by now.
func (m *Mount) unmount(flags int) error {
	top, ok := mountedAt(m.dir)
	switch {
	case ok && top.dev == m.dev:
	case slices.Contains(placesOf(m.dev), m.dir):
		return tine.Errorf(tine.KindBusy, "something else is mounted over the disk on %s", m.dir).
			WithHint("unmount that first: umount %s", m.dir)
	case flags&unix.MNT_FORCE != 0:
		return m.giveUp() // it has left its directory, and programs hold on to it
	default:
		return nil
	}
	switch err := unmountAt(m.dir, flags); err {
	case nil, unix.EINVAL, unix.ENOENT: // EINVAL: somebody else was quicker
		return nil
	case unix.EBUSY:
		return busyError(m.dir)
	default:
		return tine.Errorf(tine.KindIO, "cannot unmount %s: %w", m.dir, err)
	}
}

// giveUp takes the disk away from whoever still has it, wherever that is.
func (m *Mount) giveUp() error {
	dir, done, err := openControl()
	if err != nil {
		return err
	}
	defer done()
	return giveUp(dir, m.dev, func() bool {
		select {
		case <-m.served:
			return false // the number may be another's by now
		default:
			return true
		}
	})
}

// wait waits for the end of the serve loop. It does not end while the mount
// is visible at another place.
func (m *Mount) wait(ctx context.Context) error {
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
	}
	select {
	case <-m.served:
		return tine.Errorf(tine.KindUnavailable, "the disk is unmounted from %s, but what was written last is not yet durable: %w", m.dir, context.Cause(ctx))
	default:
	}
	if others := placesOf(m.dev); len(others) > 0 {
		return tine.Errorf(tine.KindBusy, "the disk is unmounted from %s but still mounted on %s", m.dir, others[0]).
			WithHint("unmount it there too: umount %s", others[0])
	}
	return tine.Errorf(tine.KindBusy, "the disk is unmounted from %s, but not all programs have let go of it: %w", m.dir, context.Cause(ctx))
}

// flush pushes the pages that the kernel holds dirty to the session: syncfs
// on a descriptor of its own, because one that was kept open would keep the
// mount busy. The session calls it before a fork, with no lock held.
//
// Without a write-back cache every write has passed already; what is left are
// stores to mappings, which are promised after msync only (F3).
func (m *Mount) flush(ctx context.Context) error {
	fs := m.fs.Load()
	if fs == nil {
		return nil // not mounted yet
	}
	err := m.apart(ctx, func() error {
		m.pathMu.Lock()
		defer m.pathMu.Unlock()
		return syncAt(m.dir, m.dev)
	})
	if err == errUnreachable {
		err = nil // a lazy unmount; only open files lead to it
	}
	if err != nil || !fs.writeback {
		return err
	}
	return m.within(ctx, func(result chan<- error) {
		go func() {
			fs.settleWrites()
			result <- nil
		}()
	})
}
