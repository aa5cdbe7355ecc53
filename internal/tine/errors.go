package tine

import (
	"errors"
	"fmt"
)

// ErrorKind is the closed set of things that can go wrong, as a caller can
// tell them apart. Every front end maps kinds by one table (errno, HTTP
// status, exit code); nothing maps on message text.
type ErrorKind uint8

// The kinds. The comment gives the errno that a mount shows for each.
const (
	KindInternal     ErrorKind = iota // EIO: a bug in tine
	KindNotFound                      // ENOENT
	KindExists                        // EEXIST
	KindNotDir                        // ENOTDIR
	KindIsDir                         // EISDIR
	KindNotEmpty                      // ENOTEMPTY
	KindPermission                    // EPERM
	KindAccess                        // EACCES
	KindInvalid                       // EINVAL
	KindNameTooLong                   // ENAMETOOLONG
	KindTooBig                        // EFBIG
	KindTooManyLinks                  // EMLINK
	KindNoSpace                       // ENOSPC
	KindQuota                         // ENOSPC: the disk is at its quota
	KindReadOnly                      // EROFS
	KindStale                         // ESTALE: the handle belongs to a state that was rolled back or lost
	KindCorrupt                       // EIO: a checksum does not match (P5)
	KindIO                            // EIO: the device or store failed
	KindBusy                          // EBUSY: in use
	KindConflict                      // EBUSY: the target moved since the caller looked
	KindNoAttr                        // ENODATA
	KindRange                         // ERANGE
	KindAgain                         // EAGAIN: a lock is held
	KindDeadlock                      // EDEADLK
	KindInterrupted                   // EINTR
	KindNoSeek                        // ENXIO: no data or hole beyond the offset
	KindUnsupported                   // EOPNOTSUPP
	KindCrossDevice                   // EXDEV
	KindLoop                          // ELOOP
	KindVersion                       // EIO: a format version this program does not know
	KindUnavailable                   // EIO: shutting down, poisoned or not reachable; may work later
	KindTooLarge                      // E2BIG: an extended attribute value or list over the limit
	numKinds
)

var kindNames = [numKinds]string{
	KindInternal: "internal", KindNotFound: "not_found", KindExists: "exists", KindNotDir: "not_a_directory",
	KindIsDir: "is_a_directory", KindNotEmpty: "not_empty", KindPermission: "not_permitted", KindAccess: "access_denied",
	KindInvalid: "invalid", KindNameTooLong: "name_too_long", KindTooBig: "file_too_big", KindTooManyLinks: "too_many_links",
	KindNoSpace: "no_space", KindQuota: "quota", KindReadOnly: "read_only", KindStale: "stale",
	KindCorrupt: "corrupt", KindIO: "io", KindBusy: "in_use", KindConflict: "conflict", KindNoAttr: "no_attribute",
	KindRange: "range", KindAgain: "again", KindDeadlock: "deadlock", KindInterrupted: "interrupted", KindNoSeek: "no_seek",
	KindUnsupported: "unsupported", KindCrossDevice: "cross_device", KindLoop: "loop", KindVersion: "version",
	KindUnavailable: "unavailable", KindTooLarge: "too_large",
}

// NumKinds is how many kinds there are; front ends test that their tables
// cover all of them.
const NumKinds = int(numKinds)

// String returns the stable word for the kind, as it appears in JSON.
func (k ErrorKind) String() string {
	if k < numKinds {
		return kindNames[k]
	}
	return "internal"
}

// ParseKind is the reverse of String; an unknown word is KindInternal.
func ParseKind(s string) ErrorKind {
	for k, n := range kindNames {
		if n == s {
			return ErrorKind(k)
		}
	}
	return KindInternal
}

// Error is an error with a kind. Hint, where set, tells the operator what to
// do next.
type Error struct {
	Kind ErrorKind
	Msg  string
	Hint string
	Err  error // the cause, if any
}

// Error returns the message and its cause; the hint is apart, for front ends
// to show on a line of its own.
func (e *Error) Error() string {
	switch {
	case e.Err != nil && e.Msg != "":
		return e.Msg + ": " + e.Err.Error()
	case e.Err != nil:
		return e.Err.Error()
	case e.Msg != "":
		return e.Msg
	}
	return e.Kind.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, tine.ErrNotFound) true for every error of the kind.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Kind == e.Kind && t.Msg == "" && t.Err == nil
}

// WithHint returns a copy of e that tells the operator what to do next.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// Errorf makes an error of the kind. A %w verb records the cause.
func Errorf(k ErrorKind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	if errors.Unwrap(err) == nil {
		return &Error{Kind: k, Msg: err.Error()}
	}
	return &Error{Kind: k, Err: err}
}

// KindOf returns the kind of the outermost Error in err's chain, and
// KindInternal for an error that has none.
func KindOf(err error) ErrorKind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindInternal
}

// HintOf returns the first hint in err's chain, or "".
func HintOf(err error) string {
	for err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return ""
		}
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Err
	}
	return ""
}

// Bare errors for the kinds that the engine returns on its hot paths, where a
// message would only be thrown away by the kernel. Compare with errors.Is.
var (
	ErrNotFound    = &Error{Kind: KindNotFound}
	ErrExists      = &Error{Kind: KindExists}
	ErrNotDir      = &Error{Kind: KindNotDir}
	ErrIsDir       = &Error{Kind: KindIsDir}
	ErrNotEmpty    = &Error{Kind: KindNotEmpty}
	ErrPermission  = &Error{Kind: KindPermission}
	ErrAccess      = &Error{Kind: KindAccess}
	ErrInvalid     = &Error{Kind: KindInvalid}
	ErrNameTooLong = &Error{Kind: KindNameTooLong}
	ErrTooBig      = &Error{Kind: KindTooBig}
	ErrTooMany     = &Error{Kind: KindTooManyLinks}
	ErrNoSpace     = &Error{Kind: KindNoSpace}
	ErrReadOnly    = &Error{Kind: KindReadOnly}
	ErrStale       = &Error{Kind: KindStale}
	ErrNoAttr      = &Error{Kind: KindNoAttr}
	ErrRange       = &Error{Kind: KindRange}
	ErrAgain       = &Error{Kind: KindAgain}
	ErrDeadlock    = &Error{Kind: KindDeadlock}
	ErrInterrupted = &Error{Kind: KindInterrupted}
	ErrNoSeek      = &Error{Kind: KindNoSeek}
	ErrUnsupported = &Error{Kind: KindUnsupported}
	ErrTooLarge    = &Error{Kind: KindTooLarge}
)
