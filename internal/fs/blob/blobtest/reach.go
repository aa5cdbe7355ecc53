package blobtest

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/faultproxy"
	"tine.dev/tine/internal/fs/blob/servers"
	"tine.dev/tine/internal/fs/blob/web"
	"tine.dev/tine/internal/tine"
)

// Secret is what tests give for a credential, to look for it afterwards.
const Secret = "MarkerSecret0123456789"

// NoSecret looks for Secret at every error in the chain, in every form it can
// be printed.
func NoSecret(t testing.TB, err error) {
	t.Helper()
	for e := err; e != nil; e = errors.Unwrap(e) {
		if s := fmt.Sprintf("%v %+v %#v", e, e, e); strings.Contains(s, Secret) {
			t.Errorf("an error tells the secret: %s", s)
		}
	}
	if strings.Contains(tine.HintOf(err), Secret) {
		t.Errorf("the hint tells the secret: %s", tine.HintOf(err))
	}
}

// EveryCall makes each request of a driver once, wants it to fail with one of
// the kinds, a hint and no secret, and closes the driver. Calls that make no
// request of their own are named in except.
func EveryCall(t *testing.T, d blob.Driver, except string, kinds ...tine.ErrorKind) {
	t.Helper()
	defer d.Close()
	ctx := t.Context()
	head := blob.Head{Size: 4, CRC32C: blob.Checksum([]byte("text"))}
	for what, call := range map[string]func() error{
		"get":    func() error { _, _, err := d.Get(ctx, "k", blob.GetOptions{}); return err },
		"put":    func() error { _, err := d.Put(ctx, "k", []byte("text"), head); return err },
		"upload": func() error { _, err := d.Upload(ctx, "k", head); return err },
		"part": func() error {
			up, err := d.Upload(ctx, "k", head)
			if err != nil {
				return err
			}
			return up.Part(ctx, 1, 0, []byte("text"), head.CRC32C)
		},
		"stat":   func() error { _, err := d.Stat(ctx, "k"); return err },
		"list":   func() error { _, err := d.List(ctx, blob.ListOptions{}); return err },
		"delete": func() error { _, err := d.Delete(ctx, []blob.Key{"k"}); return err },
		"copy":   func() error { return d.Copy(ctx, "k", "l") },
		"sweep":  func() error { _, err := d.Sweep(ctx, time.Now()); return err },
	} {
		if slices.Contains(strings.Fields(except), what) {
			continue
		}
		err := call()
		if err == nil || !slices.Contains(kinds, tine.KindOf(err)) || tine.HintOf(err) == "" {
			t.Errorf("%s: want %v, got %v: %v, hint %q", what, kinds, tine.KindOf(err), err, tine.HintOf(err))
		}
		NoSecret(t, err)
	}
}

// RunReach shows that a driver is reached through a proxy and over TLS with an
// authority of one's own. target is the URL of the store; mk makes drivers for
// an endpoint, an URL without a path.
func RunReach(t *testing.T, target string, mk func(t testing.TB, endpoint string, opt web.Options) (blob.Driver, error)) {
	const host = "store.test"
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	address, authority := servers.TLS(t, host, faultproxy.Forward(u))
	routes := map[string]string{host + ":443": address}
	proxy := servers.ConnectProxy(t, routes, "")
	guarded := servers.ConnectProxy(t, routes, Secret)
	works := func(t *testing.T, opt web.Options) {
		t.Helper()
		d, err := mk(t, "https://"+host, opt)
		if err != nil {
			t.Fatal(err)
		}
		w := &world{T: t, Store: blob.NewStore(d, blob.Options{})}
		defer w.Close()
		w.must1(w.put("reached/here", t.Name(), blob.Condition{}))
		w.have("reached/here", t.Name())
	}
	fails := func(t *testing.T, opt web.Options, words string) {
		t.Helper()
		d, err := mk(t, "https://"+host, opt)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		_, _, err = d.Get(t.Context(), "k", blob.GetOptions{})
		if tine.KindOf(err) != tine.KindUnavailable || !strings.Contains(err.Error(), words) {
			t.Errorf("want %q, got %v", words, err)
		}
		NoSecret(t, err)
	}
	t.Run("Explicit", func(t *testing.T) {
		before := proxy.Tunnels.Load()
		works(t, web.Options{Proxy: blob.NewSecret("http://" + proxy.Address), RootCAs: authority})
		if proxy.Tunnels.Load() == before {
			t.Error("no tunnel was made")
		}
	})
	t.Run("Environment", func(t *testing.T) {
		t.Setenv("HTTPS_PROXY", "http://"+proxy.Address)
		before := proxy.Tunnels.Load()
		works(t, web.Options{RootCAs: authority})
		if proxy.Tunnels.Load() == before {
			t.Error("no tunnel was made")
		}
	})
	t.Run("Password", func(t *testing.T) {
		works(t, web.Options{Proxy: blob.NewSecret("http://user:" + Secret + "@" + guarded.Address), RootCAs: authority})
		fails(t, web.Options{Proxy: blob.NewSecret("http://user:not" + Secret + "@" + guarded.Address), RootCAs: authority}, "proxy refuses with status 407")
	})
	t.Run("UnknownAuthority", func(t *testing.T) {
		fails(t, web.Options{Proxy: blob.NewSecret("http://" + proxy.Address)}, "authority that is not known")
	})
	t.Run("NoProxy", func(t *testing.T) {
		gone := servers.ConnectProxy(t, nil, "")
		fails(t, web.Options{Proxy: blob.NewSecret("http://" + gone.Address), RootCAs: authority}, "proxy refuses with status 403")
		fails(t, web.Options{Proxy: blob.NewSecret("http://user:" + Secret + "@127.0.0.1:1"), RootCAs: authority}, "proxy is not reached: connection refused")
	})
}
