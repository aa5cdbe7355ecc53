package azure_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/azure"
	"tine.dev/tine/internal/fs/blob/blobtest"
	"tine.dev/tine/internal/fs/blob/faultproxy"
	"tine.dev/tine/internal/fs/blob/servers"
	"tine.dev/tine/internal/fs/blob/web"
	"tine.dev/tine/internal/tine"
)

func open(t testing.TB, opt azure.Options) *azure.Store {
	t.Helper()
	s, err := azure.Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// storage starts a server with one container, and returns how to reach it and
// the URL of the server.
func storage(t testing.TB) (azure.Options, string) {
	t.Helper()
	server := servers.Azurite(t)
	opt := azure.Options{Account: server.AccessKey, Container: "container", Endpoint: server.Endpoint + "/" + server.AccessKey, Key: blob.NewSecret(server.SecretKey)}
	key, err := container.NewSharedKeyCredential(opt.Account, server.SecretKey)
	if err != nil {
		t.Fatal(err)
	}
	client, err := container.NewClientWithSharedKeyCredential(opt.Endpoint+"/"+opt.Container, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return opt, server.Endpoint
}

// maker makes places that are prefixes in one bucket.
func maker(opt azure.Options, name string) blobtest.Maker {
	return blobtest.Prefixes(name, func(t testing.TB, prefix string) blob.Driver {
		opt := opt
		opt.Prefix = prefix
		return open(t, opt)
	})
}

func TestAzurite(t *testing.T) {
	opt, server := storage(t)
	mk := maker(opt, "place")
	t.Run("Contract", func(t *testing.T) { blobtest.Run(t, mk, blob.Options{}) })
	t.Run("Driver", func(t *testing.T) { blobtest.RunDriver(t, mk) })
	proxy := faultproxy.Start(t, server, faultproxy.Azure())
	behind := opt
	behind.Endpoint = proxy.URL + "/" + opt.Account
	t.Run("Faults", func(t *testing.T) { blobtest.RunFaults(t, proxy, maker(behind, "faults")) })
	t.Run("Reach", func(t *testing.T) {
		blobtest.RunReach(t, server, func(_ testing.TB, endpoint string, web web.Options) (blob.Driver, error) {
			opt := opt
			opt.Endpoint, opt.Web = endpoint+"/"+opt.Account, web
			return azure.Open(opt)
		})
	})
	t.Run("Environment", func(t *testing.T) {
		opt := opt
		t.Setenv("AZURE_STORAGE_KEY", opt.Key.Reveal())
		opt.Key, opt.Prefix = blob.Secret{}, "environment"
		t.Setenv("AZURE_STORAGE_ACCOUNT", opt.Account)
		d := open(t, opt)
		defer d.Close()
		if page, err := d.List(t.Context(), blob.ListOptions{}); err != nil || len(page.Objects) > 0 {
			t.Errorf("%+v, %v", page, err)
		}
	})
	t.Run("Signature", func(t *testing.T) { signature(t, opt) })
	t.Run("Carried", func(t *testing.T) { carried(t, mk(t)(t).(*azure.Store)) })
	t.Run("NoContainer", func(t *testing.T) {
		opt := opt
		opt.Container = "not-there"
		blobtest.EveryCall(t, open(t, opt), "upload sweep", tine.KindUnavailable)
	})
	t.Run("WrongKey", func(t *testing.T) {
		opt := opt
		opt.Key = blob.NewSecret("TWFya2VyU2VjcmV0MDEyMzQ1Njc4OQ==")
		blobtest.EveryCall(t, open(t, opt), "upload sweep", tine.KindAccess)
	})
}

// signature: with a shared access signature alone all works, copying too, and
// with a wrong one nothing does and none of it is told.
func signature(t *testing.T, opt azure.Options) {
	key, err := container.NewSharedKeyCredential(opt.Account, opt.Key.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	client, err := container.NewClientWithSharedKeyCredential(opt.Endpoint+"/"+opt.Container, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := sas.ContainerPermissions{Read: true, Write: true, Create: true, Delete: true, List: true}
	signed, err := client.GetSASURL(all, time.Now().Add(time.Hour), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, query, _ := strings.Cut(signed, "?")
	opt.Key, opt.SAS, opt.Prefix = blob.Secret{}, blob.NewSecret(query), "signature"
	s := blob.NewStore(open(t, opt), blob.Options{})
	defer s.Close()
	if _, err := s.Put(t.Context(), "k", strings.NewReader("text"), blob.Condition{Absent: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Copy(t.Context(), "k", "l"); err != nil {
		t.Fatal(err)
	}
	if got, _, err := s.Get(t.Context(), "l", blob.Range{}, ""); err != nil || string(got) != "text" {
		t.Errorf("%q, %v", got, err)
	}
	opt.SAS = blob.NewSecret(regexp.MustCompile("sig=[^&]*").ReplaceAllString(query, "sig="+blobtest.Secret))
	blobtest.EveryCall(t, open(t, opt), "upload sweep", tine.KindAccess)
}

// carried: an object that is too large for the service to copy goes through
// the driver, with all that is kept beside it.
func carried(t *testing.T, d *azure.Store) {
	d.SetCopyBytes(1000)
	s := blob.NewStore(d, blob.Options{})
	defer s.Close()
	for _, size := range []int{1000, 1001, 3500} {
		body := strings.Repeat("0123456789", size/10+1)[:size]
		from, err := s.Put(t.Context(), "from", strings.NewReader(body), blob.Condition{})
		if err != nil {
			t.Fatal(err)
		}
		to, err := s.Copy(t.Context(), "from", "to")
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := s.Get(t.Context(), "to", blob.Range{}, ""); err != nil || string(got) != body || to.Mark != from.Mark {
			t.Errorf("%d bytes: %d came, %+v of %+v, %v", size, len(got), to, from, err)
		}
	}
}
