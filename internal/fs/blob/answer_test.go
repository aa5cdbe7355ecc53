package blob_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/blobtest"
	"tine.dev/tine/internal/tine"
)

func TestAnswersMeanTheSameEverywhere(t *testing.T) {
	absent, version := blob.Condition{Absent: true}, blob.Condition{Version: "v"}
	for _, c := range []struct {
		op     string
		status int
		code   string
		cond   blob.Condition
		want   tine.ErrorKind
	}{
		{"get", 404, "NoSuchKey", blob.Condition{}, tine.KindNotFound},
		{"get", 404, "BlobNotFound", blob.Condition{}, tine.KindNotFound},
		{"stat", 404, "", blob.Condition{}, tine.KindNotFound},
		{"get", 404, "NoSuchKey", version, tine.KindNotFound},
		{"get", 404, "NoSuchTenant", blob.Condition{}, tine.KindUnavailable},
		{"put", 404, "NoSuchTenant", version, tine.KindUnavailable},
		{"get", 404, "XAdminUserNotFound", blob.Condition{}, tine.KindAccess},
		{"get", 412, "PreconditionFailed", version, tine.KindConflict},
		{"get", 404, "NoSuchBucket", blob.Condition{}, tine.KindUnavailable},
		{"put", 412, "PreconditionFailed", absent, tine.KindExists},
		{"put", 412, "", absent, tine.KindExists},
		{"put", 409, "BlobAlreadyExists", absent, tine.KindExists},
		{"put", 409, "ConditionalRequestConflict", absent, tine.KindUnavailable},
		{"put", 409, "", absent, tine.KindUnavailable},
		{"put", 412, "PreconditionFailed", version, tine.KindConflict},
		{"put", 412, "ConditionNotMet", version, tine.KindConflict},
		{"put", 404, "NoSuchKey", version, tine.KindConflict},
		{"put", 404, "", version, tine.KindConflict},
		{"put", 404, "NoSuchUpload", version, tine.KindStale},
		{"put", 400, "BadDigest", absent, tine.KindCorrupt},
		{"put", 507, "", absent, tine.KindNoSpace},
		{"get", 403, "", blob.Condition{}, tine.KindAccess},
		{"get", 400, "ExpiredToken", blob.Condition{}, tine.KindAccess},
		{"get", 416, "InvalidRange", blob.Condition{}, tine.KindRange},
		{"list", 503, "SlowDown", blob.Condition{}, tine.KindUnavailable},
		{"list", 429, "", blob.Condition{}, tine.KindUnavailable},
		{"list", 599, "", blob.Condition{}, tine.KindUnavailable},
		{"list", 501, "NotImplemented", blob.Condition{}, tine.KindUnsupported},
		{"list", 400, "Strange", blob.Condition{}, tine.KindInvalid},
		{"list", 301, "", blob.Condition{}, tine.KindInvalid},
		{"put", 412, "conditionNotMet", absent, tine.KindExists},
		{"put", 412, "conditionNotMet", version, tine.KindConflict},
		{"put", 412, "TargetConditionNotMet", version, tine.KindConflict},
		{"list", 403, "userRateLimitExceeded", blob.Condition{}, tine.KindUnavailable},
		{"put", 400, "InvalidBlockList", absent, tine.KindStale},
		{"put", 400, "Crc64Mismatch", absent, tine.KindCorrupt},
		{"get", 404, "ContainerNotFound", blob.Condition{}, tine.KindUnavailable},
		{"delete", 409, "BlobImmutableDueToPolicy", blob.Condition{}, tine.KindReadOnly},
		{"get", 403, "AuthenticationFailed", blob.Condition{}, tine.KindAccess},
	} {
		err := blob.Answer{Op: c.op, Store: "s", Key: "k", Status: c.status, Code: c.code, If: c.cond}.Err()
		if err.Kind != c.want {
			t.Errorf("%s with %+v: %d %s is %v, want %v", c.op, c.cond, c.status, c.code, err.Kind, c.want)
		}
	}
}

const secret = blobtest.Secret

// TestErrorsHoldNoSecret: whatever a store or an SDK puts into its errors,
// none of it is told that is not known to be safe.
func TestErrorsHoldNoSecret(t *testing.T) {
	place := "https://user:" + secret + "@host/bucket?sig=" + secret
	for _, cause := range []error{
		errors.New("request failed: " + secret),
		&url.Error{Op: "Get", URL: place, Err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}},
		&url.Error{Op: "Get", URL: place, Err: &net.DNSError{Err: "no such host", Name: secret}},
		&url.Error{Op: "Get", URL: place, Err: x509.UnknownAuthorityError{}},
		&url.Error{Op: "Get", URL: place, Err: context.DeadlineExceeded},
		fmt.Errorf("proxyconnect tcp %s: %w", place, syscall.ECONNRESET),
	} {
		err := blob.Answer{Op: "get", Store: "s", Key: "k"}.Transport(t.Context(), cause)
		blobtest.NoSecret(t, err)
		if err.Kind != tine.KindUnavailable {
			t.Errorf("%v is of kind %v", err, err.Kind)
		}
	}
	blobtest.NoSecret(t, blob.Answer{Op: "get", Store: "s", Key: "k", Status: 403, Code: secret}.Err())
	refused := blob.Answer{Op: "get", Store: "s"}.Transport(t.Context(), &url.Error{Op: "Get", URL: place, Err: syscall.ECONNREFUSED})
	if !strings.Contains(refused.Error(), "connection refused") {
		t.Errorf("what is safe is not told: %v", refused)
	}
}
