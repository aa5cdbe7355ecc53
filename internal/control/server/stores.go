package server

import (
	"context"
	"errors"
	"os"
	"time"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/stores"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// openStores reads what is known of object stores, and adds what the
// configuration names.
func (s *server) openStores() (err error) {
	o := stores.Options{Data: s.Config.Data, Open: s.OpenStore, Log: s.Log, Lease: s.Config.StoreLease, Took: s.tookUp}
	s.Config.EachStore(func(name, url string) { o.Given = append(o.Given, stores.Spec{Name: name, URL: url}) })
	s.stores, err = stores.Open(o)
	return err
}

// volumeOptions are the settings of the disks.
func (s *server) volumeOptions() volume.Options {
	c := s.Config
	return volume.Options{
		Dir: c.Data, Owner: volume.Cred{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}, Logger: s.Log, CacheBytes: c.CacheBytes,
		CommitInterval: c.CommitInterval, UndoKeep: c.UndoKeep, TrashKeep: c.TrashKeep,
		Stores: s.stores.Stores(), StoreLease: c.StoreLease, StoreLost: s.lostTree,
	}
}

// tookUp tells of disks that are served here now.
func (s *server) tookUp(store string, t volume.TakenUp) {
	for _, d := range t.Disks {
		s.watch.events.Add(api.Event{Kind: "disk-taken-up", Disk: d, Detail: "from store " + store})
	}
	s.watch.policies.Wake()
}

// lostTree is told of a tree that another server has taken over. Its disks'
// programs must not go on with a state that is not the disk's any more, so their
// mounts are taken away, in the background: the mounts of a start must be there
// before that.
func (s *server) lostTree(l volume.LostTree) {
	for _, d := range l.Disks {
		s.watch.events.Add(api.Event{Kind: "disk-lost", Disk: d.Name, DiskID: d.ID.String(),
			Error: &api.Error{Kind: tine.KindOf(l.Why).String(), Message: l.Why.Error(), Hint: tine.HintOf(l.Why)}})
	}
	s.parting.Go(func() {
		select {
		case <-s.restored:
		case <-s.quit.Done():
			return
		}
		for _, d := range l.Disks {
			s.takeAway(d.Name)
		}
	})
}

// lostGrace is how long programs that use a lost disk are left with it: their
// writes and fsyncs fail, which tells them why. Then it is taken from them.
const lostGrace = 10 * time.Second

// takeAway takes the mounts of a disk away for good.
func (s *server) takeAway(disk string) {
	grace := lostGrace
	if s.Config.StoreLease > 0 {
		grace = min(grace, s.Config.StoreLease/2)
	}
	for _, force := range []bool{false, true} {
		for _, dir := range s.keeper.On(disk) {
			// What was not stored cannot be made durable any more; the mount goes all the same.
			err := s.keeper.Unmount(s.quit, dir, force)
			if err != nil && (force || tine.KindOf(err) != tine.KindBusy) && !errors.Is(err, tine.ErrStale) {
				s.Log.Warn("the mount of a lost disk was not taken away cleanly", "disk", disk, "dir", dir, "error", err)
			}
		}
		if len(s.keeper.On(disk)) == 0 {
			break
		}
		select {
		case <-s.quit.Done():
			return // stopping takes it away
		case <-time.After(grace):
		}
	}
	if err := s.keeper.Removed(disk); err != nil {
		s.Log.Warn("could not forget the mounts of a lost disk", "disk", disk, "error", err)
	}
}

// part ends the taking away of mounts: what is left goes as the server stops.
func (s *server) part() {
	s.leave()
	s.parting.Wait()
}

// newParting makes what lostTree needs.
func (s *server) newParting() {
	s.restored = make(chan struct{})
	s.quit, s.leave = context.WithCancel(context.Background())
}
