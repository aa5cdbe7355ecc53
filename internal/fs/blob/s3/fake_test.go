package s3_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/blobtest"
	"tine.dev/tine/internal/fs/blob/faultproxy"
	"tine.dev/tine/internal/fs/blob/s3"
	"tine.dev/tine/internal/fs/blob/web"
	"tine.dev/tine/internal/tine"
)

const secret = blobtest.Secret

// failing are credentials that cannot be had.
type failing struct{}

func (failing) Retrieve(context.Context) (aws.Credentials, error) {
	return aws.Credentials{}, errors.New("the profile says " + secret)
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
// its answers, puts no credential into an error.
func TestSecretsStayHere(t *testing.T) {
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
		blobtest.NoSecret(t, err)
		if tine.KindOf(err) != c.kind {
			t.Errorf("%d %s: %v", c.status, c.code, err)
		}
		_, err = s.Put(t.Context(), "k", strings.NewReader("text"), blob.Condition{Absent: true})
		blobtest.NoSecret(t, err)
		blobtest.NoSecret(t, s.Delete(t.Context(), "k"))
	}
}

func TestFake(t *testing.T) {
	blobtest.RunFake(t, faultproxy.S3(), "", func(t testing.TB, endpoint string) blob.Driver {
		return open(t, s3.Options{Bucket: "bucket", Region: "us-east-1", Endpoint: endpoint,
			Credentials: credentials.NewStaticCredentialsProvider("A"+secret, secret, "T"+secret)})
	})
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
	for _, opt := range []s3.Options{{Bucket: "b", Profile: "nobody"}, {Bucket: "b", Web: web.Options{RootCAs: []byte(secret)}}, {Bucket: "b", Prefix: "/" + "x"}} {
		_, err := s3.Open(t.Context(), opt)
		if tine.KindOf(err) != tine.KindInvalid {
			t.Errorf("%+v: %v", opt.Prefix, err)
		}
		blobtest.NoSecret(t, err)
	}
}
