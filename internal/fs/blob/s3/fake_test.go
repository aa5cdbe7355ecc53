package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/s3"
	"tine.dev/tine/internal/tine"
)

const secret = "MarkerSecret0123456789"

// failing are credentials that cannot be had.
type failing struct{}

func (failing) Retrieve(context.Context) (aws.Credentials, error) {
	return aws.Credentials{}, errors.New("the profile says " + secret)
}

// noSecret looks at every error in the chain, in every form it can be printed.
func noSecret(t *testing.T, err error) {
	t.Helper()
	for e := err; e != nil; e = errors.Unwrap(e) {
		if s := fmt.Sprintf("%v %+v %#v", e, e, e); strings.Contains(s, secret) {
			t.Errorf("an error tells the secret: %s", s)
		}
	}
	if strings.Contains(tine.HintOf(err), secret) {
		t.Errorf("the hint tells the secret: %s", tine.HintOf(err))
	}
}

// fake is a store that answers as a test says.
func fake(t *testing.T, answer http.HandlerFunc) s3.Options {
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return s3.Options{Bucket: "bucket", Region: "us-east-1", Endpoint: server.URL,
		Credentials: credentials.NewStaticCredentialsProvider("A"+secret, secret, "T"+secret)}
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>%s</Message><Resource>%s</Resource></Error>`, code, message, message)
}

// TestSecretsStayHere: a store that quotes what it was sent, in all places of
// its answers, and connections that fail in all ways put no credential into an
// error or a log.
func TestSecretsStayHere(t *testing.T) {
	var logged bytes.Buffer
	before := slog.Default()
	log.SetOutput(&logged)
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})))
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(os.Stderr)
	})
	for _, c := range []struct {
		status int
		code   string
		kind   tine.ErrorKind
	}{{403, "SignatureDoesNotMatch", tine.KindAccess}, {400, "ExpiredToken", tine.KindAccess}, {503, "SlowDown", tine.KindUnavailable},
		{429, "TooManyRequests", tine.KindUnavailable}, {400, secret, tine.KindInvalid}, {301, "PermanentRedirect", tine.KindInvalid},
		{507, "InsufficientStorage", tine.KindNoSpace}} {
		opt := fake(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Amz-Request-Id", secret)
			refuse(w, c.status, c.code, r.Header.Get("Authorization")+r.Header.Get("X-Amz-Security-Token"))
		})
		s := blob.NewStore(open(t, opt), blob.Options{Retry: blob.Policy{Attempts: 1}})
		_, _, err := s.Get(t.Context(), "k", blob.Range{}, "")
		noSecret(t, err)
		if tine.KindOf(err) != c.kind {
			t.Errorf("%d %s: %v", c.status, c.code, err)
		}
		_, err = s.Put(t.Context(), "k", strings.NewReader("text"), blob.Condition{Absent: true})
		noSecret(t, err)
		noSecret(t, s.Delete(t.Context(), "k"))
	}
	if strings.Contains(logged.String(), secret) {
		t.Errorf("the log tells the secret: %s", logged.String())
	}
}

// TestBrokenConnections: no answer, half an answer and nobody there are all
// "not now", told in words that hold no address with a password.
func TestBrokenConnections(t *testing.T) {
	hang := fake(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	everyCall(t, hang, tine.KindUnavailable)
	nobody := hang
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Endpoint = "http://user:" + secret + "@" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	everyCall(t, nobody, tine.KindUnavailable)
	half := fake(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write(make([]byte, 50))
	})
	d := open(t, half)
	if data, _, err := d.Get(t.Context(), "k", blob.GetOptions{}); tine.KindOf(err) != tine.KindUnavailable || data != nil {
		t.Errorf("half an object: %d bytes, %v", len(data), err)
	}
}

// TestRangesThatAreNotKept: a store that answers with other bytes than those
// asked for, or does not say which, is found out.
func TestRangesThatAreNotKept(t *testing.T) {
	for what, contentRange := range map[string]string{"no range": "", "another": "bytes 0-9/100", "no size": "bytes 10-19/*"} {
		opt := fake(t, func(w http.ResponseWriter, _ *http.Request) {
			if contentRange != "" {
				w.Header().Set("Content-Range", contentRange)
				w.WriteHeader(http.StatusPartialContent)
			}
			_, _ = w.Write(make([]byte, 10))
		})
		data, _, err := open(t, opt).Get(t.Context(), "k", blob.GetOptions{Range: blob.Range{Offset: 10, Length: 10}})
		if tine.KindOf(err) != tine.KindUnsupported || data != nil {
			t.Errorf("%s: %d bytes, %v", what, len(data), err)
		}
	}
	chunked := fake(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("some"))
		w.(http.Flusher).Flush()
	})
	if data, _, err := open(t, chunked).Get(t.Context(), "k", blob.GetOptions{}); tine.KindOf(err) != tine.KindUnsupported || data != nil {
		t.Errorf("an object of unknown size: %q, %v", data, err)
	}
}

// TestOneRequestAnAttempt: the SDK does not try again by itself, so that the
// budget of the store counts every request.
func TestOneRequestAnAttempt(t *testing.T) {
	var requests atomic.Int64
	opt := fake(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		refuse(w, 503, "SlowDown", "")
	})
	d := open(t, opt)
	for _, call := range []func() error{
		func() error { _, err := d.List(t.Context(), blob.ListOptions{}); return err },
		func() error { _, err := d.Put(t.Context(), "k", nil, blob.Head{}); return err },
		func() error { _, _, err := d.Get(t.Context(), "k", blob.GetOptions{}); return err },
	} {
		if err := call(); tine.KindOf(err) != tine.KindUnavailable {
			t.Error(err)
		}
	}
	if n := requests.Load(); n != 3 {
		t.Errorf("%d requests for 3 attempts", n)
	}
}

// TestDeleteInPart: the keys that the store refuses come back one by one.
func TestDeleteInPart(t *testing.T) {
	opt := fake(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `<?xml version="1.0"?><DeleteResult>
			<Error><Key>p/b</Key><Code>AccessDenied</Code><Message>no</Message></Error>
			<Error><Key>p/c</Key><Code>NoSuchKey</Code></Error>
			<Error><Key>p/d</Key><Code>InternalError</Code></Error>
			<Error><Key>p/e</Key><Code>Peculiar</Code></Error></DeleteResult>`)
	})
	opt.Prefix = "p"
	failed, err := open(t, opt).Delete(t.Context(), []blob.Key{"a", "b", "c", "d", "e"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[blob.Key]tine.ErrorKind{"b": tine.KindAccess, "d": tine.KindUnavailable, "e": tine.KindIO}
	for _, f := range failed {
		if want[f.Key] != tine.KindOf(f.Err) {
			t.Errorf("%q: %v", f.Key, f.Err)
		}
		delete(want, f.Key)
	}
	if len(want) > 0 || len(failed) != 3 {
		t.Errorf("%v, missing %v", failed, want)
	}
}

// TestListingThatGoesBack: some stores list the prefix again that the listing
// is to start after, and one that breaks off is no listing.
func TestListingThatGoesBack(t *testing.T) {
	list := ""
	opt := fake(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `<?xml version="1.0"?><ListBucketResult>%s</ListBucketResult>`, list)
	})
	opt.Prefix = "p"
	d := open(t, opt)
	list = `<Contents><Key>p/a/</Key></Contents><Contents><Key>p/b</Key><Size>3</Size></Contents>
		<CommonPrefixes><Prefix>p/a/</Prefix></CommonPrefixes><CommonPrefixes><Prefix>p/c/</Prefix></CommonPrefixes>`
	page, err := d.List(t.Context(), blob.ListOptions{Delimiter: "/", StartAfter: "a/"})
	if err != nil || len(page.Objects) != 1 || page.Objects[0].Key != "b" || page.Objects[0].Size != 3 || len(page.Prefixes) != 1 || page.Prefixes[0] != "c/" {
		t.Errorf("%+v, %v", page, err)
	}
	list = `<IsTruncated>true</IsTruncated><Contents><Key>p/b</Key></Contents>`
	if page, err := d.List(t.Context(), blob.ListOptions{}); tine.KindOf(err) != tine.KindUnavailable || len(page.Objects) > 0 {
		t.Errorf("a listing without end: %+v, %v", page, err)
	}
}

// TestBadConfiguration: what is wrong with it is told without quoting it.
func TestBadConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte("[default\naws_secret_access_key = "+secret+"\n[["+secret), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CONFIG_FILE", file)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	for _, opt := range []s3.Options{{Bucket: "b", Profile: "nobody"}, {Bucket: "b", RootCAs: []byte(secret)}, {Bucket: "b", Prefix: "/" + "x"}} {
		_, err := s3.Open(t.Context(), opt)
		if tine.KindOf(err) != tine.KindInvalid {
			t.Errorf("%+v: %v", opt.Prefix, err)
		}
		noSecret(t, err)
	}
}
