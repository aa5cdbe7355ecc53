package stores

import (
	"context"
	"strings"
	"sync"
	"time"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// defaultLease is how long a server is waited for that is not heard of, where
// nothing else is said.
const defaultLease = 20 * time.Second

// longestPause is that between two attempts to take up what is not just waiting
// for a server to end.
const longestPause = time.Minute

// Run takes up what is to be, until all of it is here or ctx is done.
func (m *Manager) Run(ctx context.Context) {
	var all sync.WaitGroup
	m.mu.Lock()
	for _, r := range m.records {
		if r.TakeUp {
			all.Go(func() { m.takeUpAll(ctx, r.Name) })
		}
	}
	m.mu.Unlock()
	all.Wait()
}

// takeUpAll asks for the trees of a store until it has all of them.
func (m *Manager) takeUpAll(ctx context.Context, name string) {
	lease := m.o.Lease
	if lease == 0 {
		lease = defaultLease
	}
	told := map[tine.TreeID]tine.ErrorKind{}
	for pause := lease / 4; ; {
		took, err := m.host.TakeUp(ctx, name, false)
		if ctx.Err() != nil || tine.KindOf(err) == tine.KindNotFound && err != nil {
			return // the server stops, or the store was removed
		}
		m.note(name, took)
		left := 0
		pause = min(2*pause, longestPause)
		for _, t := range took {
			if t.Err == nil {
				continue
			}
			left++
			kind := tine.KindOf(t.Err)
			if told[t.Tree] != kind {
				told[t.Tree] = kind
				m.o.Log.Warn("a tree cannot be taken up yet; it is asked for again", "store", name, "tree", t.Tree.String(), "error", t.Err, "hint", tine.HintOf(t.Err))
			}
			if kind == tine.KindBusy {
				pause = lease / 4
			}
		}
		switch {
		case err == nil && left == 0:
			m.done(name)
			return
		case err != nil:
			pause = min(pause, lease/4) // it has not answered yet, which costs nothing to ask
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// done notes that a store's trees are here.
func (m *Manager) done(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.find(name)
	if r == nil {
		return
	}
	r.TakeUp = false
	if err := m.saveLocked(); err != nil {
		m.o.Log.Warn("that a store's trees are here could not be noted; the next start looks again", "store", name, "error", err)
	}
}

// note tells of trees that were taken up, and keeps why others were not.
func (m *Manager) note(name string, took []volume.TakenUp) {
	var waiting []volume.TakenUp
	for _, t := range took {
		if t.Err != nil {
			waiting = append(waiting, t)
			continue
		}
		m.o.Log.Info("took up a tree", "store", name, "tree", t.Tree.String(), "disks", strings.Join(t.Disks, " "))
		if m.o.Took != nil {
			m.o.Took(name, t)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting[name] = waiting
}

// TakeUp takes up what it can of a store now, those trees included that this
// server has lost, and says of each other one why not.
// Errors: those of volume.Host.TakeUp.
func (m *Manager) TakeUp(ctx context.Context, name string) ([]volume.TakenUp, error) {
	took, err := m.host.TakeUp(ctx, name, true)
	if err == nil {
		m.note(name, took)
	}
	return took, err
}
