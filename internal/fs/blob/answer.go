package blob

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"tine.dev/tine/internal/tine"
)

// Answer is how a store refused a request. Drivers turn every refusal into an
// error through it, so that one table says what the answers of all stores
// mean. It takes only what cannot hold a credential: never the text of the
// store or of an SDK, which may quote headers and URLs.
type Answer struct {
	Op     string // get, put, ...
	Store  string // Traits.Name
	Key    string // or a prefix; may be empty
	Status int    // HTTP status
	Code   string // the store's own word, if it gave one
	If     Condition
	Wait   time.Duration // that the store asks to wait before another attempt; 0: nothing
}

// unmet stands in the tables for "the condition did not hold": which kind that
// is depends on the condition.
const unmet = tine.ErrorKind(255)

// codes are the words of S3 and its likes, of Google Cloud Storage and of
// Azure. A word goes before the status: stores give one status many meanings.
var codes = map[string]tine.ErrorKind{
	"NoSuchKey": tine.KindNotFound, "NoSuchVersion": tine.KindNotFound, "BlobNotFound": tine.KindNotFound, "NotFound": tine.KindNotFound,
	// A bucket that is not there must never look like an object that is not.
	"NoSuchBucket": tine.KindUnavailable, "ContainerNotFound": tine.KindUnavailable, "ContainerBeingDeleted": tine.KindUnavailable,
	"NoSuchUpload": tine.KindStale, "InvalidBlockList": tine.KindStale,
	"PreconditionFailed": unmet, "ConditionNotMet": unmet, "TargetConditionNotMet": unmet,
	"conditionNotMet": unmet, "BlobAlreadyExists": unmet,
	// Two conditional writes met: neither is told to have lost for good.
	"ConditionalRequestConflict": tine.KindUnavailable, "OperationAborted": tine.KindUnavailable,
	"AccessDenied": tine.KindAccess, "XAdminUserNotFound": tine.KindAccess, "AllAccessDisabled": tine.KindAccess, "InvalidAccessKeyId": tine.KindAccess,
	"SignatureDoesNotMatch": tine.KindAccess, "ExpiredToken": tine.KindAccess, "InvalidToken": tine.KindAccess,
	"RequestTimeTooSkewed": tine.KindAccess, "AuthenticationFailed": tine.KindAccess, "AuthorizationFailure": tine.KindAccess,
	"AuthorizationPermissionMismatch": tine.KindAccess, "InsufficientAccountPermissions": tine.KindAccess,
	"SlowDown": tine.KindUnavailable, "ServiceUnavailable": tine.KindUnavailable, "InternalError": tine.KindUnavailable,
	"RequestTimeout": tine.KindUnavailable, "TooManyRequests": tine.KindUnavailable, "RequestLimitExceeded": tine.KindUnavailable,
	"ServerBusy": tine.KindUnavailable, "OperationTimedOut": tine.KindUnavailable, "IncompleteBody": tine.KindUnavailable,
	"rateLimitExceeded": tine.KindUnavailable, "userRateLimitExceeded": tine.KindUnavailable, "backendError": tine.KindUnavailable,
	"BadDigest": tine.KindCorrupt, "InvalidDigest": tine.KindCorrupt, "XAmzContentChecksumMismatch": tine.KindCorrupt,
	"XAmzContentSHA256Mismatch": tine.KindCorrupt, "Md5Mismatch": tine.KindCorrupt, "Crc64Mismatch": tine.KindCorrupt,
	"InvalidRange": tine.KindRange, "EntityTooLarge": tine.KindTooBig, "KeyTooLongError": tine.KindNameTooLong,
	"QuotaExceeded": tine.KindNoSpace, "InsufficientStorage": tine.KindNoSpace, "XMinioStorageFull": tine.KindNoSpace,
	"AccountIsDisabled": tine.KindReadOnly, "BlobImmutableDueToPolicy": tine.KindReadOnly, "retentionPolicyNotMet": tine.KindReadOnly,
	"accountDisabled": tine.KindReadOnly, "NotImplemented": tine.KindUnsupported, "MethodNotAllowed": tine.KindUnsupported,
}

// statuses are for answers without a word that is known.
var statuses = map[int]tine.ErrorKind{
	304: unmet, 412: unmet,
	401: tine.KindAccess, 403: tine.KindAccess, 404: tine.KindNotFound, 405: tine.KindUnsupported,
	408: tine.KindUnavailable, 409: tine.KindUnavailable, 413: tine.KindTooBig, 416: tine.KindRange, 429: tine.KindUnavailable,
	501: tine.KindUnsupported, 507: tine.KindNoSpace,
}

// hints tell the operator what to do about a kind.
var hints = map[tine.ErrorKind]string{
	tine.KindAccess:      "check the store's credentials, their rights on the bucket and this machine's clock",
	tine.KindNoSpace:     "raise the quota of the bucket or free space in it",
	tine.KindReadOnly:    "the bucket takes no writes: check its account, retention and mount",
	tine.KindUnavailable: "check that the store's address and bucket are right and reachable; it is tried again",
	tine.KindUnsupported: "the store cannot do what tine needs; run tine store check",
}

// kind looks the answer up.
func (a Answer) kind() tine.ErrorKind {
	kind, known := codes[a.Code]
	if !known {
		kind, known = statuses[a.Status]
	}
	switch {
	case !known && a.Status >= 500:
		kind = tine.KindUnavailable
	case !known && a.Status == 0: // of one key among many
		kind = tine.KindIO
	case kind == tine.KindNotFound && a.Code != "" && codes[a.Code] != tine.KindNotFound:
		// Something else is not there. Who frees what is gone must not take
		// it for the object.
		kind = tine.KindUnavailable
	case !known:
		kind = tine.KindInvalid
	case kind == unmet && a.If.Absent:
		kind = tine.KindExists
	case kind == unmet, kind == tine.KindNotFound && a.If.Version != "" && a.Op != "get":
		// There is no object: whatever state was expected, it is not that.
		kind = tine.KindConflict
	}
	return kind
}

// Err returns the error for the answer.
func (a Answer) Err() *tine.Error {
	kind := a.kind()
	code := a.Code
	if _, known := codes[code]; !known {
		code = "no known code"
	}
	text := fmt.Sprintf("%s %q in store %s: status %d, %s", a.Op, a.Key, a.Store, a.Status, code)
	err := &tine.Error{Kind: kind, Msg: text}
	if kind == tine.KindUnavailable && a.Wait > 0 {
		err.Err = asked(a.Wait)
	}
	if a.Status >= 300 && a.Status < 400 && kind == tine.KindInvalid {
		return err.WithHint("the store sends elsewhere: check its region and endpoint")
	}
	if hint, ok := hints[kind]; ok {
		return err.WithHint("%s", hint)
	}
	return err
}

// Transport returns the error for a request that got no answer. If ctx has
// ended it is of kind tine.KindInterrupted, else tine.KindUnavailable. Of err
// it tells only what is safe to tell: an URL, which is in the text of many
// errors of net/http, may hold a credential.
func (a Answer) Transport(ctx context.Context, err error) *tine.Error {
	if ctx.Err() != nil {
		return tine.Errorf(tine.KindInterrupted, "%s %q in store %s: %w", a.Op, a.Key, a.Store, context.Cause(ctx))
	}
	return tine.Errorf(tine.KindUnavailable, "%s %q in store %s: %s", a.Op, a.Key, a.Store, plain(err)).
		WithHint("%s", hints[tine.KindUnavailable])
}

// asked is the error of a store that asks to wait before another attempt.
type asked time.Duration

func (a asked) Error() string { return fmt.Sprintf("it asks to wait %v", time.Duration(a)) }

// ProxyRefusal is the error of a proxy that answers a CONNECT with a status
// other than 200.
type ProxyRefusal int

// Error tells the status.
func (p ProxyRefusal) Error() string { return fmt.Sprintf("the proxy refuses with status %d", int(p)) }

// plain says in fixed words what went wrong with a connection.
func plain(err error) string {
	var (
		errno   syscall.Errno
		name    *net.DNSError
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		cert    *tls.CertificateVerificationError
		timeout interface{ Timeout() bool }
		refusal ProxyRefusal
		op      *net.OpError
	)
	switch {
	case errors.As(err, &refusal):
		return refusal.Error()
	case errors.As(err, &op) && op.Op == "proxyconnect":
		return "the proxy is not reached: " + plain(op.Err)
	case errors.As(err, &unknown):
		return "the certificate of the store is signed by an authority that is not known here"
	case errors.As(err, &host):
		return "the certificate of the store is for another host"
	case errors.As(err, &cert):
		return "the certificate of the store is not valid"
	case errors.As(err, &name):
		return "the host name of the store could not be looked up"
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection ended early"
	}
	return "the request failed"
}

// Interrupted returns the error for a call whose ctx has ended, or nil.
func Interrupted(ctx context.Context, op string, key Key) error {
	if ctx.Err() == nil {
		return nil
	}
	return tine.Errorf(tine.KindInterrupted, "%s %q: %w", op, key, context.Cause(ctx))
}

// DoubtError is how a write fails that may have happened all the same.
type DoubtError struct{ Err error }

// Error returns the text of the cause.
func (e *DoubtError) Error() string { return e.Err.Error() + " (the write may have happened)" }

// Unwrap returns the cause.
func (e *DoubtError) Unwrap() error { return e.Err }

// MayHaveHappened reports whether a write that failed with err may have
// happened, or may happen later. The caller must look before it goes on.
func MayHaveHappened(err error) bool {
	var d *DoubtError
	return errors.As(err, &d)
}

// PartialError is how a Delete fails of which only some keys failed.
type PartialError struct{ Failed []KeyError }

// Error tells how many failed, and the first of them.
func (e *PartialError) Error() string {
	return tine.Errorf(tine.KindIO, "%d objects could not be deleted, the first %q: %v", len(e.Failed), e.Failed[0].Key, e.Failed[0].Err).Error()
}

// Unwrap returns the first cause, whose kind is the kind of the whole.
func (e *PartialError) Unwrap() error { return e.Failed[0].Err }
