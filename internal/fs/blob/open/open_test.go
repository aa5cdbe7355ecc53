package open_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/blobtest"
	"tine.dev/tine/internal/fs/blob/open"
	"tine.dev/tine/internal/tine"
)

const secret = blobtest.Secret

// TestBadURLs: each is refused with the next step, and a credential in it is
// never quoted.
func TestBadURLs(t *testing.T) {
	t.Setenv("AZURE_STORAGE_ACCOUNT", "")
	for _, c := range []struct {
		url  string
		hint string // words of it
		kind tine.ErrorKind
	}{
		{"", "file://", tine.KindInvalid},
		{"bucket", "s3://BUCKET", tine.KindInvalid},
		{"/var/lib/store", "file://", tine.KindInvalid},
		{"s3:" + "bucket/prefix", "s3://BUCKET", tine.KindInvalid},
		{"s3://", "s3://BUCKET", tine.KindInvalid},
		{"s3:///prefix", "s3://BUCKET", tine.KindInvalid},
		{"s3://127.0.0.1:9000/bucket", "?endpoint=URL", tine.KindInvalid},
		{"s3://bucket/a//b", "", tine.KindInvalid},
		{"s3://bucket/../b", "", tine.KindInvalid},
		{"s3://bucket/" + strings.Repeat("a", 81), "", tine.KindNameTooLong},
		{"s3://bucket/a#b", "%23", tine.KindInvalid},
		{"s3://bucket/100%", "%25", tine.KindInvalid},
		{"s3://bucket?zone=a", "region, endpoint, profile", tine.KindInvalid},
		{"s3://bucket?region=", "region=VALUE", tine.KindInvalid},
		{"s3://bucket?region=a&region=b", "region=VALUE", tine.KindInvalid},
		{"s3://bucket?region=a;b", "%25", tine.KindInvalid},
		{"s3://bucket?endpoint=127.0.0.1:9000", "endpoint=https://HOST:PORT", tine.KindInvalid},
		{"s3://bucket?endpoint=ftp://host", "endpoint=https://HOST:PORT", tine.KindInvalid},
		{"gcs://bucket", "gs://", tine.KindInvalid},
		{"gs://bucket?region=a", "endpoint, credentials, anonymous", tine.KindInvalid},
		{"gs://bucket?anonymous=yes", "anonymous=true", tine.KindInvalid},
		{"gs://bucket?credentials=/not/there.json", "GOOGLE_APPLICATION_CREDENTIALS", tine.KindAccess},
		{"az://container", "azblob://", tine.KindInvalid},
		{"abfss://container", "azblob://", tine.KindInvalid},
		{"azblob://container", "?account=NAME", tine.KindInvalid},
		{"azblob://container?account=a&endpoint=host", "endpoint=https://HOST:PORT", tine.KindInvalid},
		{"minio://bucket", "s3://", tine.KindInvalid},
		{"sftp://host/dir", "azblob://CONTAINER", tine.KindInvalid},
		{"file://relative/dir", "three slashes", tine.KindInvalid},
		{"file:relative", "file:///DIRECTORY", tine.KindInvalid},
		{"file://", "three slashes", tine.KindInvalid},
		{"file:///tmp?region=a", "leave it out", tine.KindInvalid},
		{"file:///not/there/at/all", "must exist", tine.KindUnavailable},

		{"s3://id:" + secret + "@bucket/prefix", "environment", tine.KindInvalid},
		{"s3://" + secret + "@bucket/prefix", "environment", tine.KindInvalid},
		{"s3://id:" + secret + "%@bucket/prefix", "%25", tine.KindInvalid},
		{"s3://bucket?secret_access_key=" + secret, "environment", tine.KindInvalid},
		{"s3://bucket?session_token=" + secret + "&region=a", "environment", tine.KindInvalid},
		{"s3://bucket?endpoint=" + url.QueryEscape("https://id:"+secret+"@host"), "environment", tine.KindInvalid},
		{"gs://bucket?private_key=" + secret, "environment", tine.KindInvalid},
		{"azblob://container?account=a&sv=1&sig=" + secret, "environment", tine.KindInvalid},
		{"azblob://container?account=a&sas_token=" + secret, "environment", tine.KindInvalid},
		{"azblob://container?account=a&account_key=" + secret, "environment", tine.KindInvalid},
		{"azblob://container?account=a&endpoint=" + url.QueryEscape("https://a.example/?sig="+secret), "environment", tine.KindInvalid},
		{"sftp://id:" + secret + "@host/dir", "environment", tine.KindInvalid},
		{"://" + secret, "s3://BUCKET", tine.KindInvalid},
	} {
		d, err := open.Driver(t.Context(), c.url, open.Options{})
		if d != nil || tine.KindOf(err) != c.kind || !strings.Contains(tine.HintOf(err), c.hint) {
			t.Errorf("%q: %v, hint %q; want %v, %q", c.url, err, tine.HintOf(err), c.kind, c.hint)
		}
		blobtest.NoSecret(t, err)
	}
}

func TestGoodURLs(t *testing.T) {
	t.Setenv("AZURE_STORAGE_ACCOUNT", "fromenv")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	dir := t.TempDir()
	for text, name := range map[string]string{
		"s3://bucket":          "s3://bucket",
		"s3://bucket/":         "s3://bucket",
		"s3://bucket/pre/fix/": "s3://bucket/pre/fix",
		"s3://bucket/a%20b?region=eu-central-1&endpoint=http://127.0.0.1:1":  "s3://bucket/a b",
		"gs://bucket/pre?anonymous=true":                                     "gs://bucket/pre",
		"azblob://container/pre?account=acc":                                 "azblob://container/pre?account=acc",
		"azblob://container":                                                 "azblob://container?account=fromenv",
		"azblob://c?account=a&endpoint=https://a.blob.core.chinacloudapi.cn": "azblob://c?account=a",
		"file://" + dir: "file://" + dir,
	} {
		d, err := open.Driver(t.Context(), text, open.Options{})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := d.Traits().Name; got != name {
			t.Errorf("%s is called %s, want %s", text, got, name)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestCredentials: those of the options are what the store is asked with.
func TestCredentials(t *testing.T) {
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Authorization") + " " + r.URL.String()
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	endpoint := "endpoint=" + url.QueryEscape(server.URL)
	for text, c := range map[string]struct {
		opt  open.Options
		want string
	}{
		"s3://bucket/p?region=r&" + endpoint:           {open.Options{KeyID: "MYID", Key: blob.NewSecret(secret)}, "Credential=MYID/"},
		"azblob://container/p?account=acc&" + endpoint: {open.Options{Key: blob.NewSecret("a2V5")}, "SharedKey acc:"},
		"azblob://container/q?account=acc&" + endpoint: {open.Options{SAS: blob.NewSecret("sig=" + secret)}, "sig=" + secret},
		"gs://bucket/p?anonymous=true&" + endpoint:     {open.Options{}, " /bucket/p%2Fk"},
	} {
		d, err := open.Driver(t.Context(), text, c.opt)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = d.Get(t.Context(), "k", blob.GetOptions{})
		if tine.KindOf(err) != tine.KindAccess || !strings.Contains(asked, c.want) {
			t.Errorf("%s: asked with %q, want %q: %v", text, asked, c.want, err)
		}
		blobtest.NoSecret(t, err)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestAuthorities: the file of authorities and the proxy reach the driver.
func TestAuthorities(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"s3://bucket", "gs://bucket?anonymous=true", "azblob://c?account=a"} {
		for _, opt := range []open.Options{{CAFile: file}, {CAFile: file + ".none"}, {Proxy: blob.NewSecret("ftp://id:" + secret + "@host")}} {
			_, err := open.Driver(t.Context(), text, opt)
			if tine.KindOf(err) != tine.KindInvalid || tine.HintOf(err) == "" {
				t.Errorf("%s: %v, hint %q", text, err, tine.HintOf(err))
			}
			blobtest.NoSecret(t, err)
		}
	}
}

// TestDirectory: what is opened works.
func TestDirectory(t *testing.T) {
	d, err := open.Driver(t.Context(), "file://"+t.TempDir(), open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := blob.NewStore(d, blob.Options{})
	if err := blob.Probe(t.Context(), s, "probe"); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
