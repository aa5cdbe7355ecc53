package fusefs

import (
	"context"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/tine"
)

// Remount changes what a mount lets its users do: ReadOnly, AllowSUID, AllowDev
// and NoExec become what o says; nothing else of o counts. Programs that use the
// mount go on. A checkpoint stays read-only. It is of the kernel's file system
// and of the mount on the directory; other places that show the same file system
// (mount --bind) become read-only or writable with it, and keep their other flags.
//
// The session is opened for changes before the kernel lets any through, and
// closed to them after the kernel has let the last one through, so no write that
// a program is allowed fails. On an error all is as it was; when ctx ends first,
// the kernel may yet do what was asked, and then refuses or lets in what the
// session does not.
//
// Errors: tine.KindBusy when files are open for writing in what is to become
// read-only, when a mount with a write-back cache would write beside others, and
// when the disk is no longer what the directory shows; tine.KindAccess when the
// process may not mount.
func (m *Mount) Remount(ctx context.Context, o Options) error {
	was := m.session.ReadOnly()
	readOnly := o.ReadOnly || m.session.Ref().Checkpoint != ""
	if was && !readOnly {
		if err := m.alone(); err != nil {
			return err
		}
		m.session.SetReadOnly(false)
	}
	err := m.apart(ctx, func() error {
		m.pathMu.Lock()
		defer m.pathMu.Unlock()
		return m.remount(mountFlags(o, readOnly))
	})
	if err != nil {
		m.session.SetReadOnly(was)
		return err
	}
	m.session.SetReadOnly(readOnly)
	return nil
}

func (m *Mount) remount(flags uintptr) error {
	if top, ok := mountedAt(m.dir); !ok || top.dev != m.dev {
		return tine.Errorf(tine.KindBusy, "%s does not show the disk that was mounted there", m.dir).
			WithHint("see what is mounted there: findmnt %s", m.dir)
	}
	switch err := unix.Mount("", m.dir, "", unix.MS_REMOUNT|flags, ""); err {
	case nil:
		return nil
	case unix.EBUSY:
		return tine.Errorf(tine.KindBusy, "files on %s are open for writing, or removed and still open", m.dir).
			WithHint("find the programs that have them open with fuser -vm %s, and end them", m.dir)
	case unix.EPERM, unix.EACCES:
		return tine.Errorf(tine.KindAccess, "cannot change the mount on %s: %w", m.dir, err).
			WithHint("only a server that runs as root can; else unmount it, and mount it as it should be")
	default:
		return tine.Errorf(tine.KindIO, "cannot change the mount on %s: %w", m.dir, err)
	}
}
