package policy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// own returns the checkpoints of a disk that a policy made, in the order in
// which they were made: that of their names.
func (m *Manager) own(ctx context.Context, disk string) ([]volume.CheckpointInfo, error) {
	cps, err := m.Host.Checkpoints(ctx, who(), disk)
	if err != nil {
		return nil, err
	}
	cps = slices.DeleteFunc(cps, func(c volume.CheckpointInfo) bool { return c.Caller != Principal || c.Auto })
	slices.SortFunc(cps, func(a, b volume.CheckpointInfo) int { return strings.Compare(a.Name, b.Name) })
	return cps, nil
}

// makeOne makes the checkpoint that is due, unless nothing was written since the
// last, and removes those that need not be kept.
func (m *Manager) makeOne(ctx context.Context, j job) error {
	own, err := m.own(ctx, j.name)
	if err != nil {
		return err
	}
	every := time.Duration(j.plan.policy.Every)
	if !j.plan.known {
		if left := m.leftOf(j.plan.policy, own); left > 0 {
			m.plan(j.id, m.Clock.Passed()+left)
			return nil
		}
	}
	written := true
	if n := len(own); n > 0 {
		if written, err = m.writtenSince(ctx, j.name, own[n-1].Name); err != nil {
			return err
		}
	}
	if written {
		if err := m.checkpoint(ctx, j, own); err != nil {
			return err
		}
	}
	passed := m.Clock.Passed()
	next := j.plan.due + every
	if !j.plan.known || next <= passed {
		next = passed + every // what was missed is not made up for
	}
	m.plan(j.id, next)
	return m.prune(ctx, j, j.plan.prune)
}

// leftOf returns how long a policy that was stored by an earlier run has until
// its next checkpoint is due.
func (m *Manager) leftOf(p volume.Policy, own []volume.CheckpointInfo) time.Duration {
	now := m.Clock.Now()
	var last time.Time
	for _, t := range append(created(own), time.Unix(0, p.Since)) {
		if !t.After(now) && t.After(last) {
			last = t // one from the future says nothing
		}
	}
	if last.IsZero() {
		return 0
	}
	return time.Duration(p.Every) - now.Sub(last)
}

func created(cps []volume.CheckpointInfo) []time.Time {
	ts := make([]time.Time, len(cps))
	for i, c := range cps {
		ts[i] = c.Created
	}
	return ts
}

// plan sets when the next checkpoint is due, unless somebody has changed the
// policy meanwhile.
func (m *Manager) plan(id tine.DiskID, due time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x := m.plans[id]; x != nil && x.policy.Every > 0 && x.due <= m.Clock.Passed() {
		x.due, x.known = due, true
	}
}

var errDiffers = errors.New("they differ")

// writtenSince reports whether the disk shows anything that the checkpoint does
// not. It ends at the first difference, and looks only at what was born since.
func (m *Manager) writtenSince(ctx context.Context, disk, checkpoint string) (bool, error) {
	err := m.Host.Diff(ctx, who(), volume.Ref{Disk: disk, Checkpoint: checkpoint}, volume.Ref{Disk: disk},
		func(volume.Change) error { return errDiffers })
	if errors.Is(err, errDiffers) || tine.KindOf(err) == tine.KindNotFound && err != nil {
		return true, nil // or the checkpoint was removed meanwhile
	}
	return false, err
}

// nameForm is the time in a name: of one length, so that names sort.
const (
	namePrefix = "policy-"
	nameForm   = "20060102-150405"
)

// nameAt returns the name of a checkpoint made at t, and its time, after the
// newest that there is.
func nameAt(t time.Time, own []volume.CheckpointInfo) (string, time.Time) {
	t = t.UTC().Truncate(time.Second)
	if n := len(own); n > 0 {
		if last, err := time.Parse(namePrefix+nameForm, own[n-1].Name); err == nil && !t.After(last) {
			t = last.Add(time.Second)
		}
	}
	return namePrefix + t.Format(nameForm), t
}

// takenNames bounds how many names that users have taken are passed over.
const takenNames = 1000

// checkpoint makes one. It is durable when it returns.
func (m *Manager) checkpoint(ctx context.Context, j job, own []volume.CheckpointInfo) error {
	name, at := nameAt(m.Clock.Now(), own)
	message := "every " + time.Duration(j.plan.policy.Every).String()
	for range takenNames {
		_, err := m.Host.Checkpoint(ctx, who(), j.name, name, message, volume.WaitDurable)
		if tine.KindOf(err) == tine.KindExists && err != nil {
			name, at = nameAt(at.Add(time.Second), nil)
			continue
		}
		if err == nil {
			m.tell(Deed{Kind: "checkpoint", Disk: j.name, ID: j.id, Detail: name})
		}
		return err
	}
	return tine.Errorf(tine.KindExists, "the names from %s on are all taken", name).WithHint("remove checkpoints that begin with %s", namePrefix)
}

// agedAtOnce is how many checkpoints go for their age in one round: more than
// are made, so that they become fewer, and few, so that a clock that is far ahead
// does not take all of them.
const agedAtOnce = 2

// prune removes the checkpoints that the policy need not keep; all also those
// of which a round takes only some. What is mounted stays until a later round.
func (m *Manager) prune(ctx context.Context, j job, all bool) error {
	p := j.plan.policy
	if p.KeepFor == 0 && p.KeepCount == 0 {
		return nil
	}
	own, err := m.own(ctx, j.name)
	if err != nil {
		return err
	}
	drop := surplus(own, p, m.Clock.Now(), all)
	for _, c := range own[:drop] {
		err := m.Host.RemoveCheckpoint(ctx, who(), j.name, c.Name)
		switch {
		case err == nil:
			m.tell(Deed{Kind: "checkpoint-remove", Disk: j.name, ID: j.id, Detail: c.Name})
		case tine.KindOf(err) != tine.KindBusy && tine.KindOf(err) != tine.KindNotFound:
			return err
		}
	}
	return nil
}

// surplus returns how many of the oldest need not be kept. The newest is always
// kept. One that comes from the future goes with the first after it that is too
// old.
func surplus(own []volume.CheckpointInfo, p volume.Policy, now time.Time, all bool) int {
	if len(own) == 0 {
		return 0
	}
	aged := 0
	if p.KeepFor > 0 {
		for i, c := range own[:len(own)-1] {
			if now.Sub(c.Created) > time.Duration(p.KeepFor) {
				aged = i + 1
			}
		}
	}
	if !all {
		aged = min(aged, agedAtOnce)
	}
	if p.KeepCount > 0 && uint64(len(own)) > p.KeepCount {
		aged = max(aged, len(own)-int(p.KeepCount))
	}
	return aged
}

// expire puts a disk whose time is over into the trash. In use it stays; the
// error is of kind tine.KindBusy.
func (m *Manager) expire(ctx context.Context, j job) error {
	if err := m.Host.RemoveDiskByID(ctx, who(), j.id); err != nil {
		return err
	}
	m.Log.Info("a disk's time is over; it is in the trash", "disk", j.name)
	m.tell(Deed{Kind: "disk-expire", Disk: j.name, ID: j.id})
	return m.endTTL(j)
}

// endTTL takes the time limit out of the policy of a disk in the trash: who
// brings the disk back wants to have it.
func (m *Manager) endTTL(j job) error {
	m.setting.Lock()
	defer m.setting.Unlock()
	m.mu.Lock()
	x := m.plans[j.id]
	if x == nil {
		m.mu.Unlock()
		return nil
	}
	p := x.policy
	p.TTL, p.Expires = 0, 0
	m.mu.Unlock()
	if err := m.Host.SetPolicy(j.id, p); err != nil {
		return err
	}
	m.adopt(j.id, p, m.Clock.Passed(), true)
	return nil
}
