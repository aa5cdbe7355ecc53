package policy

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// Principal is the caller of all that a policy does: no user has it.
const Principal = "policy"

// Host is what a manager needs of the disks; volume.Host is it.
type Host interface {
	Disk(ctx context.Context, c volume.Caller, name string) (volume.DiskInfo, error)
	Disks(ctx context.Context, c volume.Caller, deleted bool) ([]volume.DiskInfo, error)
	Checkpoint(ctx context.Context, c volume.Caller, disk, name, message string, wait volume.Wait) (volume.CheckpointInfo, error)
	Checkpoints(ctx context.Context, c volume.Caller, disk string) ([]volume.CheckpointInfo, error)
	RemoveCheckpoint(ctx context.Context, c volume.Caller, disk, name string) error
	Diff(ctx context.Context, c volume.Caller, a, b volume.Ref, fn func(volume.Change) error) error
	RemoveDiskByID(ctx context.Context, c volume.Caller, id tine.DiskID) error
	SetPolicy(id tine.DiskID, p volume.Policy) error
	Policies() (map[tine.DiskID]volume.Policy, error)
}

// Deed is something that a policy has done, or failed to do.
type Deed struct {
	Kind   string // checkpoint, checkpoint-remove, disk-expire or policy-failed
	Disk   string
	ID     tine.DiskID
	Detail string
	Err    error
}

// Options are what a manager is made from.
type Options struct {
	Host  Host
	Clock Clock
	Log   *slog.Logger
	// Done, if set, is told of every deed, from one goroutine at a time for each
	// disk and with no lock held.
	Done func(Deed)
}

// Manager carries out the policies of one data directory. It is safe for
// concurrent use.
//
// Lock order: setting, then mu. The host is called with setting held, never
// with mu.
type Manager struct {
	Options
	setting sync.Mutex // held while a policy is stored: one writer for each row
	poke    chan struct{}

	mu    sync.Mutex // guards what follows
	plans map[tine.DiskID]*plan
	wall  time.Time     // of the last look
	then  time.Duration // Passed at the same moment
}

// plan is a policy under way. It is guarded by Manager.mu; policy is also
// guarded by setting for writing.
type plan struct {
	policy  volume.Policy
	due     time.Duration // when the next checkpoint is; never, if there is none to be
	known   bool          // due is known: what there is has been looked at
	ends    time.Duration // when the disk's time is over; never
	trashed bool          // the disk is in the trash: no checkpoint is due
	prune   bool          // the policy was changed: all that is too old goes
	failed  int           // tries in a row
	err     error         // of the last try
	errAt   time.Time
}

// never is a moment that does not come.
const never = time.Duration(math.MaxInt64)

// Open reads the policies. Nothing is done before Run.
func Open(o Options) (*Manager, error) {
	m := &Manager{Options: o, poke: make(chan struct{}, 1), plans: map[tine.DiskID]*plan{}}
	ps, err := o.Host.Policies()
	if err != nil {
		return nil, err
	}
	m.wall, m.then = o.Clock.Now(), o.Clock.Passed()
	for id, p := range ps {
		m.plans[id] = m.resume(p)
	}
	return m, nil
}

// resume plans a policy that was stored by an earlier run.
func (m *Manager) resume(p volume.Policy) *plan {
	x := &plan{policy: p, due: never, ends: never}
	if p.Every > 0 {
		x.due = m.then // looks first at what there is
	}
	if p.TTL > 0 {
		left := time.Duration(p.Expires - m.wall.UnixNano())
		x.ends = m.then + min(max(left, 0), time.Duration(p.TTL))
	}
	return x
}

// Wake has the manager look now: a disk was unmounted, which may be due.
func (m *Manager) Wake() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// longestWait bounds the time between two looks, so that a wall clock that was
// set is noticed soon.
const longestWait = time.Minute

// Run carries out the policies until ctx is done.
func (m *Manager) Run(ctx context.Context) {
	for {
		wait := m.Look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-m.poke:
		case <-m.Clock.After(wait):
		}
	}
}

// who is on whose behalf a policy acts.
func who() volume.Caller {
	return volume.Caller{Tenant: tine.DefaultTenant, Author: "tine", Principal: Principal}
}

func (m *Manager) tell(d Deed) {
	if m.Done != nil {
		m.Done(d)
	}
}
