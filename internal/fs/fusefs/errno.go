package fusefs

import (
	"log/slog"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"tine.dev/tine/internal/tine"
)

// errnos is the one place where an error kind becomes what a program sees.
var errnos = [tine.NumKinds]syscall.Errno{
	tine.KindInternal:     syscall.EIO,
	tine.KindNotFound:     syscall.ENOENT,
	tine.KindExists:       syscall.EEXIST,
	tine.KindNotDir:       syscall.ENOTDIR,
	tine.KindIsDir:        syscall.EISDIR,
	tine.KindNotEmpty:     syscall.ENOTEMPTY,
	tine.KindPermission:   syscall.EPERM,
	tine.KindAccess:       syscall.EACCES,
	tine.KindInvalid:      syscall.EINVAL,
	tine.KindNameTooLong:  syscall.ENAMETOOLONG,
	tine.KindTooBig:       syscall.EFBIG,
	tine.KindTooManyLinks: syscall.EMLINK,
	tine.KindNoSpace:      syscall.ENOSPC,
	tine.KindQuota:        syscall.ENOSPC,
	tine.KindReadOnly:     syscall.EROFS,
	tine.KindStale:        syscall.ESTALE,
	tine.KindCorrupt:      syscall.EIO,
	tine.KindIO:           syscall.EIO,
	tine.KindBusy:         syscall.EBUSY,
	tine.KindConflict:     syscall.EBUSY,
	tine.KindNoAttr:       syscall.ENODATA,
	tine.KindRange:        syscall.ERANGE,
	tine.KindAgain:        syscall.EAGAIN,
	tine.KindDeadlock:     syscall.EDEADLK,
	tine.KindInterrupted:  syscall.EINTR,
	tine.KindNoSeek:       syscall.ENXIO,
	tine.KindUnsupported:  syscall.EOPNOTSUPP,
	tine.KindCrossDevice:  syscall.EXDEV,
	tine.KindLoop:         syscall.ELOOP,
	tine.KindVersion:      syscall.EIO,
	tine.KindUnavailable:  syscall.EIO,
	tine.KindTooLarge:     syscall.E2BIG,
}

// statusStale makes the kernel look again where a path leads.
const statusStale = fuse.Status(syscall.ESTALE)

// Errno returns the errno that a program sees for err, and 0 for nil.
func Errno(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if e, ok := err.(*tine.Error); ok && int(e.Kind) < tine.NumKinds {
		return errnos[e.Kind] // the hot path: a bare error of the engine
	}
	return errnos[tine.KindOf(err)]
}

// status answers a request. A program sees no more than EIO of most failures,
// so those go to the log with their text.
func (fs *fileSystem) status(op string, node uint64, err error) fuse.Status {
	if err == nil {
		return fuse.OK
	}
	errno := Errno(err)
	if errno == syscall.EIO {
		fs.log.Error("a file operation failed", "op", op, "inode", inoOf(node), "error", err, slog.String("hint", tine.HintOf(err)))
	}
	return fuse.Status(errno)
}
