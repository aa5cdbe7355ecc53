package gcs_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/blobtest"
	"tine.dev/tine/internal/fs/blob/faultproxy"
	"tine.dev/tine/internal/fs/blob/gcs"
	"tine.dev/tine/internal/tine"
)

// identity starts a server that gives tokens, and returns a file of credentials
// for it. The token holds the secret.
func identity(t testing.TB, answer http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{"type": "service_account", "project_id": "test", "private_key_id": blobtest.Secret,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "client_email": "tine@test.example",
		"client_id": "1", "token_uri": server.URL})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "credentials.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func token(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, blobtest.Secret)
}

// TestFake: with a service account whose token is in every request.
func TestFake(t *testing.T) {
	file := identity(t, token)
	blobtest.RunFake(t, faultproxy.GCS(), "upload", func(t testing.TB, endpoint string) blob.Driver {
		return open(t, gcs.Options{Bucket: "bucket", Endpoint: endpoint, CredentialsFile: file})
	})
}

// TestTokens: requests carry the token, one token serves many, and the default
// chain finds the same file.
func TestTokens(t *testing.T) {
	var given atomic.Int64
	file := identity(t, func(w http.ResponseWriter, r *http.Request) {
		given.Add(1)
		token(w, r)
	})
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+blobtest.Secret {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, `{"items":[{"name":"k","size":"3"}]}`)
	}))
	defer store.Close()
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
	for _, f := range []string{file, ""} {
		given.Store(0)
		d := open(t, gcs.Options{Bucket: "bucket", Endpoint: store.URL, CredentialsFile: f})
		for range 3 {
			page, err := d.List(t.Context(), blob.ListOptions{})
			if err != nil || len(page.Objects) != 1 || page.Objects[0].Size != 3 {
				t.Fatalf("%+v, %v", page, err)
			}
		}
		if given.Load() != 1 {
			t.Errorf("%d tokens for 3 requests", given.Load())
		}
	}
	blobtest.EveryCall(t, open(t, gcs.Options{Bucket: "bucket", Endpoint: store.URL, Anonymous: true}), "upload", tine.KindAccess)
}

// TestNoToken: who refuses a token, and who cannot give one now.
func TestNoToken(t *testing.T) {
	for status, kind := range map[int]tine.ErrorKind{400: tine.KindAccess, 401: tine.KindAccess, 503: tine.KindUnavailable} {
		var asked atomic.Int64
		file := identity(t, func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"error":%q,"error_description":%q}`, blobtest.Secret, blobtest.Secret)
		})
		d := open(t, gcs.Options{Bucket: "bucket", Endpoint: "http://127.0.0.1:1", CredentialsFile: file})
		defer d.Close()
		_, _, err := d.Get(t.Context(), "k", blob.GetOptions{})
		if tine.KindOf(err) != kind || tine.HintOf(err) == "" || asked.Load() == 0 {
			t.Errorf("status %d: %v after %d requests", status, err, asked.Load())
		}
		blobtest.NoSecret(t, err)
	}
}

// TestBadConfiguration: what is wrong with it is told without quoting it.
func TestBadConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credentials.json")
	refused := func(kind tine.ErrorKind, opt gcs.Options) {
		t.Helper()
		opt.Bucket = "b"
		_, err := gcs.Open(opt)
		if tine.KindOf(err) != kind {
			t.Errorf("want %v: %v", kind, err)
		}
		blobtest.NoSecret(t, err)
	}
	for _, text := range []string{blobtest.Secret, `{"type":"` + blobtest.Secret + `"}`, `{}`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(tine.KindAccess, gcs.Options{CredentialsFile: file})
		t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
		refused(tine.KindAccess, gcs.Options{})
	}
	refused(tine.KindAccess, gcs.Options{CredentialsFile: filepath.Join(t.TempDir(), "none")})
	refused(tine.KindInvalid, gcs.Options{Prefix: "/x", Anonymous: true})
	refused(tine.KindInvalid, gcs.Options{Endpoint: "no-url", Anonymous: true})
}

// TestConditionsThatAreNotKept: a stand-in or a cache that answers with another
// version than the one asked for is found out, and a version that cannot be is
// never sent: the service reads 0 as "there is none".
func TestConditionsThatAreNotKept(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Goog-Generation", "8")
		fmt.Fprint(w, "text")
	}))
	defer server.Close()
	d := open(t, gcs.Options{Bucket: "b", Endpoint: server.URL, Anonymous: true})
	for _, v := range []blob.Version{"7", "0", "-1", "x"} {
		if data, _, err := d.Get(t.Context(), "k", blob.GetOptions{Version: v}); tine.KindOf(err) != tine.KindConflict || data != nil {
			t.Errorf("version %q: %q, %v", v, data, err)
		}
	}
	head := blob.Head{If: blob.Condition{Version: "0"}}
	if _, err := d.Put(t.Context(), "k", nil, head); tine.KindOf(err) != tine.KindConflict {
		t.Errorf("put: %v", err)
	}
	if _, err := d.Upload(t.Context(), "k", head); tine.KindOf(err) != tine.KindConflict {
		t.Errorf("upload: %v", err)
	}
}
