package keeper

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/tine"
)

// staged is a mount that the server has made in a directory of its own and that
// mount(8) shows in another one, by a bind mount.
//
// It is for directories on which an automounter waits. Whoever touches such a
// directory is held by the kernel until the automounter says that the mount is
// there, but for the automounter's own processes. mount(8) is one of those; the
// server is not, and would wait for itself.
//
// The mount lasts as long as it is shown there: once the kernel's table has it
// no more, the server takes its own away.
type staged struct {
	Mounted
	own, dir string
	dev      string // the number of the device, as the kernel's table has it
	done     chan struct{}
	quit     chan struct{}
	once     sync.Once
}

const (
	// stagedLook is the time between two looks at the table, should the kernel
	// not tell of a change.
	stagedLook = 2 * time.Second
	// stagedGrace is how long mount(8) may take to show the mount.
	stagedGrace = time.Minute
)

// stage mounts in a new directory below root, for a mount on dir.
func stage(root, dir string, mount func(own string) (Mounted, error)) (*staged, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, oserr.Wrap(err, "make %s", root)
	}
	own, err := os.MkdirTemp(root, "m")
	if err != nil {
		return nil, oserr.Wrap(err, "make a directory in %s", root)
	}
	m, err := mount(own)
	if err != nil {
		_ = os.Remove(own)
		return nil, err
	}
	s := &staged{Mounted: m, own: own, dir: dir, done: make(chan struct{}), quit: make(chan struct{})}
	if s.dev, err = deviceAt(own); err != nil {
		return nil, errors.Join(err, m.ForceUnmount(context.Background()))
	}
	go s.watch()
	return s, nil
}

// deviceAt returns the number of the device that is mounted at the directory,
// on top of others, as the kernel's table has it.
func deviceAt(dir string) (string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", oserr.Wrap(err, "list the mounts")
	}
	dev := ""
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) >= 5 && unescape(f[4]) == dir {
			dev = f[2]
		}
	}
	return dev, nil
}

// Done is closed when the mount is gone from both directories.
func (s *staged) Done() <-chan struct{} { return s.done }

// Unmount takes it from the directory where it is shown, then from the own one.
func (s *staged) Unmount(ctx context.Context) error {
	if err := s.hide(0); err != nil {
		return err
	}
	return s.end(s.Mounted.Unmount(ctx))
}

// ForceUnmount does the same to a mount in use.
func (s *staged) ForceUnmount(ctx context.Context) error {
	if err := s.hide(unix.MNT_DETACH); err != nil {
		return err
	}
	return s.end(s.Mounted.ForceUnmount(ctx))
}

func (s *staged) hide(flags int) error {
	if shown, err := s.shown(); err != nil || !shown {
		return err
	}
	switch err := unix.Unmount(s.dir, flags|unix.UMOUNT_NOFOLLOW); {
	case errors.Is(err, unix.EBUSY):
		return tine.Errorf(tine.KindBusy, "the disk on %s is in use", s.dir).WithHint("fuser -vm %s shows by whom", s.dir)
	case err != nil && !errors.Is(err, unix.EINVAL):
		return oserr.Wrap(err, "unmount %s", s.dir)
	}
	return nil
}

// end lets go of the watcher and the directory, unless err says that the mount
// is still there.
func (s *staged) end(err error) error {
	if err == nil {
		s.once.Do(func() { close(s.quit) })
		<-s.done
	}
	return err
}

// Shown reports whether the disk is seen at the directory, as far as is known.
func (s *staged) Shown() bool {
	shown, err := s.shown()
	return shown || err != nil
}

func (s *staged) shown() (bool, error) {
	dev, err := deviceAt(s.dir)
	return err == nil && dev == s.dev, err
}

// watch waits until the disk is no longer shown, and takes the own mount away.
func (s *staged) watch() {
	defer close(s.done)
	defer func() { _ = os.Remove(s.own) }()
	ended, wake := s.ended()
	defer wake()
	// Not os.Open: Go's own poller would take the news of changes.
	table, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(table)
	}
	seen, start := false, time.Now()
	for {
		select {
		case <-s.quit:
			return
		case <-s.Mounted.Done():
			_ = s.hide(unix.MNT_DETACH) // what is left there is dead
			return
		default:
		}
		shown, err := s.shown()
		seen = seen || shown
		if err == nil && !shown && (seen || time.Since(start) > stagedGrace) {
			ctx, cancel := context.WithTimeout(context.Background(), unmountTime)
			defer cancel()
			if s.Mounted.Unmount(ctx) != nil {
				_ = s.Mounted.ForceUnmount(ctx)
			}
			return
		}
		waitForChange(table, ended)
	}
}

// ended returns a pipe that ends when the watcher is to look at its channels,
// and what ends it.
func (s *staged) ended() (end *os.File, wake func()) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, func() {} // it looks now and then
	}
	stop := make(chan struct{})
	go func() {
		select {
		case <-s.quit:
		case <-s.Mounted.Done():
		case <-stop:
		}
		_ = w.Close()
	}()
	return r, func() {
		close(stop)
		_ = r.Close()
	}
}

// waitForChange waits until the table of mounts may have changed, of which the
// kernel tells by poll(2), or until the pipe ends.
func waitForChange(table int, ended *os.File) {
	fds := []unix.PollFd{{Fd: int32(table), Events: unix.POLLPRI}} // a number below 0 is left out
	if ended != nil {
		fds = append(fds, unix.PollFd{Fd: int32(ended.Fd()), Events: unix.POLLIN})
	}
	_, _ = unix.Poll(fds, int(stagedLook.Milliseconds()))
}

// automounted reports whether an automounter waits at the directory, and
// whether a disk is mounted on top of it.
func automounted(dir string) (waits, disk bool, err error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, false, oserr.Wrap(err, "list the mounts")
	}
	for line := range strings.Lines(string(b)) {
		before, after, ok := strings.Cut(line, " - ")
		f, rest := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(rest) < 1 || unescape(f[4]) != filepath.Clean(dir) {
			continue
		}
		waits, disk = waits || rest[0] == "autofs", rest[0] == fsType
	}
	return waits, waits && disk, nil
}

// cleanStaging takes away what a server that has crashed left below root.
func cleanStaging(root string, log *slog.Logger) {
	left, err := os.ReadDir(root)
	if err != nil {
		return // usually there is none
	}
	for _, d := range left {
		own := filepath.Join(root, d.Name())
		err := CleanStale(own)
		if err == nil {
			err = os.Remove(own)
		}
		if err != nil {
			log.Warn("could not take away a left-over mount", "dir", own, "error", err)
		}
	}
}

// bootID names the present start of the machine.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

// External marks a record as asked for by mount(8).
func (k *Keeper) External(r Record, staged bool) Record {
	r.Boot, r.Staged = k.boot, staged
	return r
}

// Own returns where the server itself has mounted what is shown at dir, if that
// is elsewhere.
func (k *Keeper) Own(dir string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.findLocked(dir); e != nil {
		if s, ok := e.live.(*staged); ok {
			return s.own
		}
	}
	return ""
}

// dropOthersLocked forgets the mounts that somebody else sees to now.
func (k *Keeper) dropOthersLocked() {
	before := len(k.entries)
	k.entries = slices.DeleteFunc(k.entries, func(e *entry) bool {
		if e.record.Boot == "" {
			return false
		}
		if e.record.Boot != k.boot {
			return true
		}
		waits, disk, err := automounted(e.record.Dir)
		if err != nil || !waits {
			return e.record.Staged // without an automounter nobody shows it
		}
		if disk {
			_ = unix.Unmount(e.record.Dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // dead: its server is
		}
		return true
	})
	if len(k.entries) == before {
		return
	}
	if err := k.saveLocked(); err != nil {
		k.log.Warn("could not forget mounts that others see to", "error", err)
	}
}
