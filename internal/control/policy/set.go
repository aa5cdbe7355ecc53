package policy

import (
	"context"
	"time"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// The least times that can be asked for: below them a policy would be busy
// with itself.
const (
	LeastEvery = time.Second
	LeastTTL   = time.Second
)

// DefaultKeep is how long checkpoints of a policy are kept when nothing else is
// said: they must not fill the device because somebody forgot to say it.
const DefaultKeep = 24 * time.Hour

// Change says what is to be different; nil leaves a part as it is, 0 takes it
// away.
type Change struct {
	Every, KeepFor, TTL *time.Duration
	KeepCount           *int64
}

// State is a policy and how it goes.
type State struct {
	volume.Policy
	Next   time.Time // when the next checkpoint is due; zero: none is
	Ends   time.Time // when the disk is removed; zero: never
	Err    error     // why the last try failed
	Failed time.Time // when
}

// Set changes the policy of a disk. It is durable when Set returns. Errors:
// KindNotFound, KindInvalid, and what the store says.
func (m *Manager) Set(ctx context.Context, c volume.Caller, disk string, ch Change) (State, error) {
	d, err := m.Host.Disk(ctx, c, disk)
	if err != nil {
		return State{}, err
	}
	m.setting.Lock()
	defer m.setting.Unlock()
	m.mu.Lock()
	var old plan
	if x := m.plans[d.ID]; x != nil {
		old = *x
	}
	m.mu.Unlock()
	now, passed := m.Clock.Now(), m.Clock.Passed()
	p, err := ch.apply(old.policy, now)
	if err != nil {
		return State{}, err
	}
	if err := m.Host.SetPolicy(d.ID, p); err != nil {
		return State{}, err
	}
	m.adopt(d.ID, p, passed, ch.TTL != nil)
	m.Wake()
	return m.Of(d.ID), nil
}

// adopt plans a policy that has just been stored.
func (m *Manager) adopt(id tine.DiskID, p volume.Policy, passed time.Duration, ttl bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p == (volume.Policy{}) {
		delete(m.plans, id)
		return
	}
	x := m.plans[id]
	if x == nil {
		x = &plan{due: never, ends: never}
		m.plans[id] = x
	}
	switch {
	case p.Every == 0:
		x.due, x.known, x.err, x.failed = never, false, nil, 0
	case p.Every != x.policy.Every:
		x.due, x.known = passed+time.Duration(p.Every), true
	}
	if p.TTL == 0 {
		x.ends = never
	} else if ttl {
		x.ends = passed + time.Duration(p.TTL)
	}
	x.prune = p.Every > 0
	x.policy = p
}

// apply returns the policy after the change.
func (ch Change) apply(p volume.Policy, now time.Time) (volume.Policy, error) {
	if ch.Every != nil {
		if *ch.Every != 0 && *ch.Every < LeastEvery {
			return p, tine.Errorf(tine.KindInvalid, "a checkpoint every %v is too often", *ch.Every).WithHint("the least is %v", LeastEvery)
		}
		if p.Every == 0 && ch.KeepFor == nil && ch.KeepCount == nil {
			p.KeepFor = int64(DefaultKeep)
		}
		if int64(*ch.Every) != p.Every {
			p.Every, p.Since = int64(*ch.Every), now.UnixNano()
		}
	}
	if ch.KeepFor != nil {
		p.KeepFor = int64(*ch.KeepFor)
	}
	if ch.KeepCount != nil {
		p.KeepCount = uint64(*ch.KeepCount)
	}
	if ch.TTL != nil {
		if *ch.TTL != 0 && *ch.TTL < LeastTTL {
			return p, tine.Errorf(tine.KindInvalid, "a time to live of %v is too short", *ch.TTL).WithHint("the least is %v", LeastTTL)
		}
		p.TTL, p.Expires = int64(*ch.TTL), 0
		if p.TTL > 0 {
			p.Expires = now.Add(*ch.TTL).UnixNano()
		}
	}
	if p.Every == 0 {
		if p.KeepFor != 0 || p.KeepCount != 0 {
			if ch.Every == nil {
				return p, tine.Errorf(tine.KindInvalid, "nothing makes the checkpoints that are to be kept").
					WithHint("say how often one is made: --checkpoint-every 10m")
			}
		}
		p.KeepFor, p.KeepCount, p.Since = 0, 0, 0
	}
	return p, nil
}

// Of returns the policy of a disk, the zero State if it has none.
func (m *Manager) Of(id tine.DiskID) State {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.plans[id]
	if x == nil {
		return State{}
	}
	s := State{Policy: x.policy, Err: x.err, Failed: x.errAt}
	now, passed := m.Clock.Now(), m.Clock.Passed()
	if x.due != never && x.known {
		s.Next = now.Add(max(0, x.due-passed))
	}
	if x.policy.TTL > 0 {
		s.Ends = time.Unix(0, x.policy.Expires)
	}
	return s
}

// OfDisk returns the policy of a disk and its checkpoints, oldest first.
func (m *Manager) OfDisk(ctx context.Context, c volume.Caller, disk string) (State, []volume.CheckpointInfo, error) {
	d, err := m.Host.Disk(ctx, c, disk)
	if err != nil {
		return State{}, nil, err
	}
	own, err := m.own(ctx, disk)
	return m.Of(d.ID), own, err
}
