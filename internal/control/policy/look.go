package policy

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

const (
	// beside is how many disks are attended to at once: one whose mount does not
	// answer must not keep the others waiting.
	beside = 4
	// turnTime bounds what is done for one disk in one look.
	turnTime = time.Minute
	// jumpTime is by how much the wall clock may drift between two looks.
	jumpTime = 30 * time.Second
)

// job is a disk whose turn it is.
type job struct {
	id      tine.DiskID
	name    string
	deleted bool
	plan    plan // as it was
	over    bool // the disk's time is over
}

// Look does all that is due now, and returns how long nothing will be.
func (m *Manager) Look(ctx context.Context) time.Duration {
	m.followJump()
	m.mu.Lock()
	some := len(m.plans) > 0
	m.mu.Unlock()
	if !some {
		return longestWait
	}
	jobs, err := m.due(ctx)
	if err != nil {
		if ctx.Err() == nil {
			m.Log.Warn("policies are tried again later", "error", err)
		}
		return longestWait
	}
	slots := make(chan struct{}, beside)
	var wg sync.WaitGroup
	for _, j := range jobs {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, turnTime)
			defer cancel()
			m.turn(ctx, j)
		})
	}
	wg.Wait()
	return m.wait()
}

// wait returns the time until something is due.
func (m *Manager) wait() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	passed, wait := m.Clock.Passed(), longestWait
	for _, x := range m.plans {
		if !x.trashed {
			wait = min(wait, x.due-passed)
		}
		wait = min(wait, x.ends-passed)
	}
	return max(wait, 10*time.Millisecond)
}

// followJump moves the stored ends of disks along with a wall clock that was
// set, so that what is left of their time stays the same over a restart.
func (m *Manager) followJump() {
	m.setting.Lock()
	defer m.setting.Unlock()
	m.mu.Lock()
	now, passed := m.Clock.Now(), m.Clock.Passed()
	jump := now.Round(0).Sub(m.wall.Round(0)) - (passed - m.then) // Round: the wall clock's reading only
	m.wall, m.then = now, passed
	moved := map[tine.DiskID]volume.Policy{}
	if jump.Abs() > jumpTime {
		for id, x := range m.plans {
			if x.policy.TTL > 0 {
				x.policy.Expires += int64(jump)
				moved[id] = x.policy
			}
		}
	}
	m.mu.Unlock()
	if len(moved) > 0 {
		m.Log.Info("the clock was set; disks keep what was left of their time", "by", jump.String(), "disks", len(moved))
	}
	for id, p := range moved {
		if err := m.Host.SetPolicy(id, p); err != nil {
			m.Log.Warn("a disk's end could not be stored after the clock was set", "disk", id.String(), "error", err)
		}
	}
}

// due returns the disks whose turn it is, and forgets policies of disks that
// are gone.
func (m *Manager) due(ctx context.Context) ([]job, error) {
	passed := m.Clock.Passed()
	m.mu.Lock()
	plans := map[tine.DiskID]plan{}
	for id, x := range m.plans {
		plans[id] = *x
	}
	m.mu.Unlock()
	// The trash before and after: a disk that moves between the two lists is in
	// one of them at each of two moments.
	names := map[tine.DiskID]job{}
	for _, deleted := range []bool{true, false, true} {
		ds, err := m.Host.Disks(ctx, who(), deleted)
		if err != nil {
			return nil, err
		}
		for _, d := range ds {
			if _, had := names[d.ID]; !had || !deleted {
				names[d.ID] = job{id: d.ID, name: d.Name, deleted: deleted}
			}
		}
	}
	var jobs []job
	for id, x := range plans {
		j, there := names[id]
		m.note(id, j.deleted)
		switch {
		case !there:
			m.forget(id)
			continue
		case x.ends <= passed:
			j.over = true
		case j.deleted, x.due > passed && !x.prune:
			continue
		}
		j.plan = x
		jobs = append(jobs, j)
	}
	slices.SortFunc(jobs, func(a, b job) int {
		return cmp.Or(cmp.Compare(a.plan.due, b.plan.due), strings.Compare(a.name, b.name))
	})
	return jobs, nil
}

// note notes whether the disk is in the trash.
func (m *Manager) note(id tine.DiskID, trashed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x := m.plans[id]; x != nil {
		x.trashed = trashed
	}
}

// forget removes the policy of a disk that was purged or promoted.
func (m *Manager) forget(id tine.DiskID) {
	m.setting.Lock()
	defer m.setting.Unlock()
	if err := m.Host.SetPolicy(id, volume.Policy{}); err != nil {
		m.Log.Warn("the policy of a disk that is gone could not be removed; it is tried again", "disk", id.String(), "error", err)
		return
	}
	m.mu.Lock()
	delete(m.plans, id)
	m.mu.Unlock()
}

// turn does what is due for one disk.
func (m *Manager) turn(ctx context.Context, j job) {
	var err error
	switch {
	case j.over && j.deleted:
		err = m.endTTL(j) // somebody was quicker; brought back, it must not go again
	case j.over:
		err = m.expire(ctx, j)
	case j.plan.due <= m.Clock.Passed():
		err = m.makeOne(ctx, j)
	default:
		err = m.prune(ctx, j, true)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the server stops
	}
	m.settle(j, err)
}

// The waits after a failure, doubled from the first to the last.
const (
	firstRetry = 5 * time.Second
	lastRetry  = 5 * time.Minute
	// busyRetry is how long a disk in use is left alone when its time is over;
	// unmounting it wakes the manager earlier.
	busyRetry = 15 * time.Second
)

// settle notes how a turn went, and plans the next one.
func (m *Manager) settle(j job, err error) {
	m.mu.Lock()
	x := m.plans[j.id]
	if x == nil {
		m.mu.Unlock()
		return
	}
	passed := m.Clock.Passed()
	if !j.over && x.policy == j.plan.policy {
		x.prune = false
	}
	busy := j.over && err != nil && tine.KindOf(err) == tine.KindBusy
	if err == nil || busy {
		x.failed, x.err = 0, nil
	} else {
		x.failed++
		x.err, x.errAt = err, m.Clock.Now()
	}
	retry := min(lastRetry, firstRetry<<min(max(x.failed-1, 0), 10))
	switch {
	case busy:
		x.ends = passed + busyRetry
	case j.over && err != nil:
		x.ends = passed + retry
	case j.over || x.due == never || x.due > passed:
	case err != nil:
		x.due = passed + min(retry, time.Duration(x.policy.Every))
	}
	failed := x.failed
	m.mu.Unlock()
	if err == nil || busy {
		return
	}
	if failed == 1 {
		m.Log.Warn("a policy could not be carried out; it is tried again", "disk", j.name, "error", err, "hint", tine.HintOf(err))
		m.tell(Deed{Kind: "policy-failed", Disk: j.name, ID: j.id, Err: err})
	}
}
