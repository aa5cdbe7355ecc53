package keeper

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/tine"
)

// Mounted is one live mount.
type Mounted interface {
	// Unmount takes the mount away and makes all it holds durable. A mount in
	// use is tine.KindBusy.
	Unmount(ctx context.Context) error
	// ForceUnmount does the same to a mount in use: the programs that use it
	// keep handles that answer ENOTCONN.
	ForceUnmount(ctx context.Context) error
	// Remount changes whether the mount is read-only, and AllowSUID, AllowDev
	// and NoExec, to what the record says. On an error nothing has changed.
	Remount(ctx context.Context, r Record) error
	// Done is closed when the kernel has let go of the mount.
	Done() <-chan struct{}
	// Shown reports whether the kernel's table still has the mount at its
	// directory. After umount(8) it has not, some time before Done is closed.
	Shown() bool
}

// Mounter makes mounts; Fuse makes the real one.
type Mounter interface {
	// Mount checks the directory and mounts there.
	Mount(ctx context.Context, r Record) (Mounted, error)
	// CleanStale takes away a mount whose server is dead, and touches nothing
	// else.
	CleanStale(dir string) error
}

// unmountTime bounds one unmount: a mount that is also visible elsewhere never
// goes.
const unmountTime = 30 * time.Second

// goneTime bounds the wait for the end of a mount that umount(8) has taken away
// before another one is made on its directory.
const goneTime = 10 * time.Second

// State is how a recorded mount is.
type State string

// The states.
const (
	StateMounted    State = "mounted"
	StateUnmounting State = "unmounting" // as was asked for, but programs or the kernel hold on to it
	StateDown       State = "down"       // unmounted from outside
	StateFailed     State = "failed"     // could not be restored
)

// Status is a recorded mount and how it is.
type Status struct {
	Record
	State State
	Error string
}

// entry is a recorded mount; live is nil unless it is mounted.
type entry struct {
	record Record
	live   Mounted
	failed error
	moving bool // being mounted, changed or unmounted
	// leaving is set when somebody has asked for the unmount and it has not
	// ended in time: the record is gone, and the entry goes when the kernel lets
	// go of the mount.
	leaving bool
}

// Keeper holds the mounts of one server. Its methods may be called
// concurrently. The lock is never held while the kernel is asked to mount or
// unmount; a directory that is on its way is marked instead, and other calls
// for it are refused.
type Keeper struct {
	data     string
	mounter  Mounter
	log      *slog.Logger
	observer func(Change) // see Observe
	boot     string       // names this start of the machine

	mu      sync.Mutex
	entries []*entry // in the order in which they were mounted
	closing bool
}

// Open reads the records of the data directory. Nothing is mounted before
// Restore, which must be called once.
func Open(data string, m Mounter, log *slog.Logger) (*Keeper, error) {
	rs, err := readRecords(data)
	if err != nil {
		return nil, err
	}
	k := &Keeper{data: data, mounter: m, log: log, boot: bootID()}
	for _, r := range rs {
		// Until Restore has seen to it, nobody else may.
		k.entries = append(k.entries, &entry{record: r, moving: true})
	}
	return k, nil
}

// Restore mounts everything that is recorded, oldest first, after taking away
// what a crashed server left. A mount that fails is logged, keeps its record
// and shows its error; the others go on.
//
// What mount(8) had asked for is mounted again too, so that a restart of the
// server goes unnoticed; but not after another start of the machine, nor where
// an automounter waits, who will ask again.
func (k *Keeper) Restore(ctx context.Context) {
	k.mu.Lock()
	k.dropOthersLocked()
	entries := slices.Clone(k.entries)
	k.mu.Unlock()
	// Newest first: what was mounted inside another mount is in its way.
	for _, e := range slices.Backward(entries) {
		if err := k.mounter.CleanStale(e.record.Dir); err != nil {
			k.log.Warn("could not take away a left-over mount", "dir", e.record.Dir, "error", err)
		}
	}
	for _, e := range entries {
		m, err := k.mounter.Mount(ctx, e.record)
		k.mu.Lock()
		e.live, e.failed, e.moving = m, err, false
		if err == nil {
			k.watchLocked(e)
		}
		k.mu.Unlock()
		if err != nil {
			k.log.Error("could not restore a mount", "disk", e.record.Ref().String(), "dir", e.record.Dir, "error", err, "hint", tine.HintOf(err))
		} else {
			k.log.Info("restored a mount", "disk", e.record.Ref().String(), "dir", e.record.Dir)
			k.tell(Mounting, e.record)
		}
	}
}

// Mount mounts and records. Dir is absolute; symbolic links in it are
// resolved, and the record and the answer name what they lead to.
func (k *Keeper) Mount(ctx context.Context, r Record) (Record, error) {
	if !filepath.IsAbs(r.Dir) {
		return r, tine.Errorf(tine.KindInvalid, "the directory %q is not an absolute path", r.Dir)
	}
	r.Dir = filepath.Clean(r.Dir)
	if !r.Staged { // else the directory must not be touched
		if err := k.mounter.CleanStale(r.Dir); err != nil {
			return r, err
		}
		if real, err := filepath.EvalSymlinks(r.Dir); err == nil {
			r.Dir = real
		}
	}
	if err := k.inDataDir(r.Dir); err != nil {
		return r, err
	}
	k.awaitGone(ctx, r.Dir)
	e, err := k.begin(r)
	if err != nil {
		return r, err
	}
	m, err := k.mounter.Mount(ctx, r)
	if err := k.settle(e, m, err); err != nil {
		return r, err
	}
	k.tell(Mounting, r)
	return r, nil
}

// awaitGone waits for the end of a mount on the directory that umount(8) has
// taken away: the server hears of that only when the kernel lets go of the
// file system, which may be after the next mount(8) is here. Told that the
// directory is mounted already, mount.tine would report a mount that is not
// there, and what is written to it would go to the directory beneath.
func (k *Keeper) awaitGone(ctx context.Context, dir string) {
	k.mu.Lock()
	e := k.findLocked(dir)
	if e == nil || e.live == nil || e.moving {
		k.mu.Unlock()
		return
	}
	live := e.live
	k.mu.Unlock()
	if live.Shown() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, goneTime)
	defer cancel()
	select {
	case <-live.Done():
		k.ended(e, live)
	case <-ctx.Done(): // programs hold on to it; begin refuses
	}
}

// settle notes how a mount has ended; err is passed through.
func (k *Keeper) settle(e *entry, m Mounted, err error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	e.moving = false
	if err != nil {
		k.dropLocked(e)
		if saveErr := k.saveLocked(); saveErr != nil {
			k.log.Error("could not take back the record of a failed mount", "dir", e.record.Dir, "error", saveErr)
		}
		return err
	}
	e.live = m
	k.watchLocked(e)
	return nil
}

// inDataDir refuses to hide the server's own files under a mount.
func (k *Keeper) inDataDir(dir string) error {
	data := k.data
	if real, err := filepath.EvalSymlinks(data); err == nil {
		data = real
	}
	if dir == data || strings.HasPrefix(data, strings.TrimSuffix(dir, "/")+"/") || strings.HasPrefix(dir, data+"/") {
		return tine.Errorf(tine.KindInvalid, "a mount on %s would cover or lie in the data directory %s", dir, data).
			WithHint("choose a directory elsewhere")
	}
	return nil
}

// begin records the mount durably and marks the directory.
func (k *Keeper) begin(r Record) (*entry, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing {
		return nil, tine.Errorf(tine.KindUnavailable, "the server is stopping")
	}
	if old := k.findLocked(r.Dir); old != nil {
		if old.leaving {
			return nil, tine.Errorf(tine.KindBusy, "%s is being unmounted from %s, but programs still use it", old.record.Ref(), r.Dir).
				WithHint("end them, or take it away from them: tine umount --force %s", r.Dir)
		}
		if old.moving || old.live != nil {
			return nil, tine.Errorf(tine.KindBusy, "%s is mounted on %s already", old.record.Ref(), r.Dir).
				WithHint("choose another directory, or unmount it first: tine umount %s", r.Dir)
		}
		k.dropLocked(old)
	}
	e := &entry{record: r, moving: true}
	k.entries = append(k.entries, e)
	if err := k.saveLocked(); err != nil {
		k.dropLocked(e)
		return nil, err
	}
	return e, nil
}

// Unmount takes the mount on the directory away, with its record. A mount that
// is dead, or of a server that is gone, is taken away too; one that is in use
// only with force, which leaves its programs with handles that fail.
func (k *Keeper) Unmount(ctx context.Context, dir string, force bool) error {
	e, dir, err := k.seize(dir)
	if err != nil {
		return err
	}
	if e == nil {
		return k.unmountUnknown(dir)
	}
	if e.live == nil {
		err := k.mounter.CleanStale(dir)
		return k.release(e, err == nil, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, unmountTime, errors.New("the time for it is over"))
	defer cancel()
	if force {
		err = e.live.ForceUnmount(ctx)
	} else {
		err = withForce(e.live.Unmount(ctx), dir)
	}
	// Without an answer in time it goes on: umount2(2) cannot be called back.
	return k.release(e, err == nil || ctx.Err() != nil || !e.live.Shown(), err)
}

// seize finds the mount on a directory and keeps others from it: until release,
// its fields other than moving are the caller's to read. It returns the directory
// as the record has it, and no entry when none has it.
func (k *Keeper) seize(dir string) (*entry, string, error) {
	dir = filepath.Clean(dir)
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.findLocked(dir)
	if e == nil {
		// The directory may have been named through a symbolic link. That is
		// asked only now, because a dead mount answers no questions.
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
			e = k.findLocked(dir)
		}
	}
	if e == nil {
		return nil, dir, nil
	}
	if e.moving {
		return nil, dir, tine.Errorf(tine.KindBusy, "%s is just being mounted or unmounted", dir).WithHint("ask again in a moment")
	}
	e.moving = true
	return e, dir, nil
}

// release ends an unmount that was asked for. What is on its way out is
// forgotten now, so that it does not come back at the next start whatever
// happens here, and told of when it is out. Err is passed through.
func (k *Keeper) release(e *entry, out bool, err error) error {
	k.mu.Lock()
	var saveErr error
	changed := out != e.leaving
	if e.moving, e.leaving = false, out; changed {
		saveErr = k.saveLocked()
	}
	live := e.live
	k.mu.Unlock()
	if err == nil || live != nil && isClosed(live.Done()) {
		k.ended(e, live)
	}
	if err == nil {
		return saveErr
	}
	if saveErr != nil {
		k.log.Warn("could not forget a mount that is being taken away", "dir", e.record.Dir, "error", saveErr)
	}
	return err
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// withForce tells whoever finds a mount in use how to take it away all the same.
func withForce(err error, dir string) error {
	var e *tine.Error
	if errors.As(err, &e) && e.Kind == tine.KindBusy {
		return e.WithHint("%s; or take it away from them: tine umount --force %s", strings.TrimSuffix(tine.HintOf(err), "."), dir)
	}
	return err
}

// unmountUnknown takes away a dead tine mount that no record names.
func (k *Keeper) unmountUnknown(dir string) error {
	there, err := IsTineMount(dir)
	if err != nil {
		return err
	}
	if !there {
		return tine.Errorf(tine.KindNotFound, "no tine disk is mounted on %s", dir).WithHint("`tine mounts` lists the mounts")
	}
	if err := k.mounter.CleanStale(dir); err != nil {
		return err
	}
	if there, err = IsTineMount(dir); err != nil || !there {
		return err
	}
	return tine.Errorf(tine.KindBusy, "another server has mounted a disk on %s", dir).
		WithHint("ask that server, with --socket, or use umount %s", dir)
}

// Close unmounts everything, newest first, and keeps the records. Mounts that
// are in use are taken away from their users, so that none is left dead behind
// the server. The caller has ended the calls that mount before.
func (k *Keeper) Close(ctx context.Context) error {
	entries := k.startClosing()
	var errs []error
	for _, e := range slices.Backward(entries) {
		k.mu.Lock()
		live := e.live
		k.mu.Unlock()
		if live == nil {
			continue
		}
		err := live.Unmount(ctx)
		if err != nil {
			k.log.Warn("a mount is in use and is taken away from its users", "dir", e.record.Dir, "error", err)
			err = live.ForceUnmount(ctx)
		}
		if err != nil {
			errs = append(errs, oserr.Wrap(err, "unmount %s", e.record.Dir))
		}
	}
	return errors.Join(errs...)
}

// startClosing refuses new mounts and returns the present ones.
func (k *Keeper) startClosing() []*entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closing = true
	return slices.Clone(k.entries)
}
