// Package oserr turns errors of the operating system into errors of tine, so
// that a read-only device or a missing directory has the same kind, exit code
// and hint wherever it is met.
package oserr

import (
	"errors"
	"fmt"
	"syscall"

	"tine.dev/tine/internal/tine"
)

// Wrap returns an error of the kind that fits err, saying what was tried. An
// error that is of tine already keeps its kind and hint. A nil err is nil.
func Wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	kind, hint := classify(err)
	return &tine.Error{Kind: kind, Msg: fmt.Sprintf(format, args...), Hint: hint, Err: err}
}

func classify(err error) (tine.ErrorKind, string) {
	var te *tine.Error
	if errors.As(err, &te) {
		return te.Kind, tine.HintOf(err)
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return tine.KindIO, ""
	}
	switch errno {
	case syscall.ENOENT:
		return tine.KindNotFound, ""
	case syscall.EEXIST:
		return tine.KindExists, ""
	case syscall.ENOTDIR:
		return tine.KindNotDir, ""
	case syscall.EISDIR:
		return tine.KindIsDir, ""
	case syscall.EACCES:
		return tine.KindAccess, "run as a user who may, or change the permissions"
	case syscall.EPERM:
		return tine.KindPermission, "run as root, or as a user who may"
	case syscall.EROFS:
		return tine.KindReadOnly, "remount the device read-write, or choose another directory"
	case syscall.ENOSPC:
		return tine.KindNoSpace, "free some space on the device"
	case syscall.EDQUOT:
		return tine.KindQuota, "free some space, or raise the quota"
	case syscall.ENAMETOOLONG:
		return tine.KindNameTooLong, ""
	case syscall.ELOOP:
		return tine.KindLoop, ""
	case syscall.EBUSY, syscall.EADDRINUSE:
		return tine.KindBusy, ""
	case syscall.EMFILE, syscall.ENFILE:
		return tine.KindUnavailable, "raise the limit of open files (ulimit -n, LimitNOFILE=)"
	case syscall.EINVAL:
		return tine.KindInvalid, ""
	case syscall.EIO:
		return tine.KindIO, "look at the device and at the kernel's log"
	}
	return tine.KindIO, ""
}
