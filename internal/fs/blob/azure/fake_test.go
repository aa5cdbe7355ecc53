package azure_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/azure"
	"tine.dev/tine/internal/fs/blob/blobtest"
	"tine.dev/tine/internal/fs/blob/faultproxy"
	"tine.dev/tine/internal/tine"
)

// TestFake: with a signature, which is in every URL, and with a key.
func TestFake(t *testing.T) {
	for name, opt := range map[string]azure.Options{
		"SAS": {SAS: blob.NewSecret("?sv=2030&sig=" + blobtest.Secret)},
		"Key": {Key: blob.NewSecret(base64.StdEncoding.EncodeToString([]byte(blobtest.Secret)))},
	} {
		t.Run(name, func(t *testing.T) {
			blobtest.RunFake(t, faultproxy.Azure(), "upload sweep", func(t testing.TB, endpoint string) blob.Driver {
				opt := opt
				opt.Account, opt.Container, opt.Endpoint = "account", "container", endpoint
				return open(t, opt)
			})
		})
	}
}

// tokens are credentials that cannot be had.
type tokens struct{ err error }

func (t tokens) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{}, t.err
}

func TestNoToken(t *testing.T) {
	for _, c := range []struct {
		err  error
		kind tine.ErrorKind
	}{
		{errors.New("the profile says " + blobtest.Secret), tine.KindAccess},
		{&azidentity.AuthenticationFailedError{RawResponse: &http.Response{StatusCode: 401}}, tine.KindAccess},
		{&azidentity.AuthenticationFailedError{RawResponse: &http.Response{StatusCode: 503}}, tine.KindUnavailable},
		{&url.Error{Op: "Post", URL: "https://login/?secret=" + blobtest.Secret, Err: errors.New(blobtest.Secret)}, tine.KindUnavailable},
	} {
		opt := azure.Options{Account: "account", Container: "container", Endpoint: "https://127.0.0.1:1", Credential: tokens{c.err}}
		blobtest.EveryCall(t, open(t, opt), "upload sweep", c.kind)
	}
}

// TestBadConfiguration: what is wrong with it is told without quoting it.
func TestBadConfiguration(t *testing.T) {
	base := azure.Options{Account: "a", Container: "c", Key: blob.NewSecret("a2V5")}
	for kind, change := range map[tine.ErrorKind]func(*azure.Options){
		tine.KindAccess:  func(o *azure.Options) { o.Key = blob.NewSecret("%" + blobtest.Secret) },
		tine.KindInvalid: func(o *azure.Options) { o.Endpoint = "https://a.example/?sig=" + blobtest.Secret },
	} {
		opt := base
		change(&opt)
		_, err := azure.Open(opt)
		if tine.KindOf(err) != kind || tine.HintOf(err) == "" {
			t.Errorf("want %v: %v", kind, err)
		}
		blobtest.NoSecret(t, err)
	}
	for _, change := range []func(*azure.Options){
		func(o *azure.Options) { o.Prefix = "/x" },
		func(o *azure.Options) { o.Endpoint = "a.example" },
		func(o *azure.Options) { o.Web.RootCAs = []byte(blobtest.Secret) },
	} {
		opt := base
		change(&opt)
		if _, err := azure.Open(opt); tine.KindOf(err) != tine.KindInvalid {
			t.Errorf("%v", err)
		}
	}
}

// TestForeignBlocks: a write under the key drops the blocks of an upload, which
// is told that its condition is broken, or to start again.
func TestForeignBlocks(t *testing.T) {
	for name, c := range map[string]struct {
		cond blob.Condition
		now  string // the version that is there; "": none, "?": it is not told
		kind tine.ErrorKind
	}{
		"exists":    {blob.Condition{Absent: true}, `"2"`, tine.KindExists},
		"absent":    {blob.Condition{Absent: true}, "", tine.KindStale},
		"changed":   {blob.Condition{Version: `"1"`}, `"2"`, tine.KindConflict},
		"unchanged": {blob.Condition{Version: `"1"`}, `"1"`, tine.KindStale},
		"deleted":   {blob.Condition{Version: `"1"`}, "", tine.KindConflict},
		"unasked":   {blob.Condition{Version: `"1"`}, "?", tine.KindUnavailable},
		"none":      {blob.Condition{}, `"2"`, tine.KindStale},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				refuse := func(status int, code string) {
					w.Header().Set("X-Ms-Error-Code", code)
					w.WriteHeader(status)
				}
				switch {
				case r.Method == http.MethodPut && r.URL.Query().Get("comp") == "blocklist":
					refuse(http.StatusBadRequest, "InvalidBlockList")
				case r.Method == http.MethodPut:
					w.WriteHeader(http.StatusCreated)
				case c.now == "?":
					refuse(http.StatusServiceUnavailable, "ServerBusy")
				case c.now == "":
					refuse(http.StatusNotFound, "BlobNotFound")
				default:
					w.Header().Set("ETag", c.now)
					w.Header().Set("Content-Length", "4")
				}
			}))
			defer server.Close()
			d := open(t, azure.Options{Account: "a", Container: "c", Endpoint: server.URL, Key: blob.NewSecret("a2V5")})
			up, err := d.Upload(t.Context(), "k", blob.Head{Size: 4, If: c.cond})
			if err != nil {
				t.Fatal(err)
			}
			if err := up.Part(t.Context(), 1, 0, []byte("text"), blob.Checksum([]byte("text"))); err != nil {
				t.Fatal(err)
			}
			if _, err := up.Complete(t.Context()); tine.KindOf(err) != c.kind {
				t.Errorf("want %v, got %v", c.kind, err)
			}
		})
	}
}
