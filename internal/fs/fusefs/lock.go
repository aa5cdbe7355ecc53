package fusefs

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"tine.dev/tine/internal/fs/volume"
)

func lockKind(typ uint32) volume.LockKind {
	switch typ {
	case syscall.F_RDLCK:
		return volume.ReadLock
	case syscall.F_WRLCK:
		return volume.WriteLock
	}
	return volume.Unlock
}

func lockType(k volume.LockKind) uint32 {
	switch k {
	case volume.ReadLock:
		return syscall.F_RDLCK
	case volume.WriteLock:
		return syscall.F_WRLCK
	}
	return syscall.F_UNLCK
}

func lockOf(in *fuse.LkIn) volume.Lock {
	return volume.Lock{
		Kind:  lockKind(in.Lk.Typ),
		Start: int64(in.Lk.Start),
		End:   int64(in.Lk.End),
		PID:   in.Lk.Pid,
		Owner: in.Owner,
	}
}

// GetLk is fcntl(F_GETLK).
func (fs *fileSystem) GetLk(_ <-chan struct{}, in *fuse.LkIn, out *fuse.LkOut) fuse.Status {
	l, err := fs.s.GetLock(fs.ids.node(in.NodeId), lockOf(in))
	if err != nil {
		return fs.status("getlk", in.NodeId, err)
	}
	out.Lk = fuse.FileLock{Start: uint64(l.Start), End: uint64(l.End), Typ: lockType(l.Kind), Pid: l.PID}
	return fuse.OK
}

// SetLk is fcntl(F_SETLK) and flock(LOCK_NB).
func (fs *fileSystem) SetLk(_ <-chan struct{}, in *fuse.LkIn) fuse.Status {
	return fs.status("setlk", in.NodeId, fs.setLock(context.Background(), in, false))
}

// SetLkw is fcntl(F_SETLKW) and flock(2): the one request that waits for
// somebody else, and the one that an INTERRUPT ends.
func (fs *fileSystem) SetLkw(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	ctx := &fuse.Context{Caller: in.Caller, Cancel: cancel}
	return fs.status("setlkw", in.NodeId, fs.setLock(ctx, in, true))
}

func (fs *fileSystem) setLock(ctx context.Context, in *fuse.LkIn, wait bool) error {
	n := fs.ids.node(in.NodeId)
	if in.LkFlags&fuse.FUSE_LK_FLOCK != 0 {
		return fs.s.Flock(ctx, n, in.Owner, lockKind(in.Lk.Typ), wait)
	}
	fs.locked.Store(true)
	if h := fs.files.get(in.Fh); h != nil && in.Lk.Typ != syscall.F_UNLCK {
		h.locks(in.Owner)
	}
	return fs.s.SetLock(ctx, n, lockOf(in), wait)
}
