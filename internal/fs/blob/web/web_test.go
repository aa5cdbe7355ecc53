package web_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/web"
	"tine.dev/tine/internal/tine"
)

const secret = "MarkerSecret0123456789"

// proxyOf returns the proxy that the options choose for a request.
func proxyOf(t *testing.T, opt web.Options, address string) string {
	t.Helper()
	client, err := web.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	find := client.Transport.(*http.Transport).Proxy
	if find == nil {
		return ""
	}
	u, err := find(httptest.NewRequest(http.MethodGet, address, nil))
	if err != nil {
		t.Fatal(err)
	}
	if u == nil {
		return ""
	}
	return u.String()
}

func TestProxy(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://environment:1")
	t.Setenv("HTTP_PROXY", "http://environment:2")
	t.Setenv("NO_PROXY", "inside.example")
	for _, c := range [][3]string{
		{"", "https://store.example/", "http://environment:1"},
		{"", "http://store.example/", "http://environment:2"},
		{"", "https://inside.example/", ""},
		{"direct", "https://store.example/", ""},
		{"http://explicit:3", "https://store.example/", "http://explicit:3"},
		{"http://explicit:3", "https://inside.example/", "http://explicit:3"},
		{"socks5://u:p@explicit:3", "https://store.example/", "socks5://u:p@explicit:3"},
	} {
		if got := proxyOf(t, web.Options{Proxy: blob.NewSecret(c[0])}, c[1]); got != c[2] {
			t.Errorf("proxy %q for %s: %q, want %q", c[0], c[1], got, c[2])
		}
	}
}

func TestBadOptions(t *testing.T) {
	refused := func(opt web.Options) {
		t.Helper()
		_, err := web.New(opt)
		if tine.KindOf(err) != tine.KindInvalid || tine.HintOf(err) == "" || strings.Contains(fmt.Sprintf("%+v %#v", err, err)+tine.HintOf(err), secret) {
			t.Errorf("%v, hint %q", err, tine.HintOf(err))
		}
	}
	for _, p := range []string{secret, "ftp://u:" + secret + "@host", "http://", "http://u:" + secret + "@host:port:port", "http://%zz" + secret} {
		refused(web.Options{Proxy: blob.NewSecret(p)})
	}
	refused(web.Options{RootCAs: []byte(secret)})
	t.Setenv("HTTPS_PROXY", "http://u:"+secret+"@%zz")
	refused(web.Options{})
}

// TestNoRedirection: a store that sends elsewhere is not followed.
func TestNoRedirection(t *testing.T) {
	server := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:1/", http.StatusFound))
	defer server.Close()
	client, err := web.New(web.Options{})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusFound {
		t.Errorf("status %d", answer.StatusCode)
	}
}

func TestRetryAfter(t *testing.T) {
	for text, want := range map[string][2]time.Duration{
		"": {0, 0}, "0": {0, 0}, "3": {3 * time.Second, 3 * time.Second}, "-1": {0, 0}, "soon": {0, 0}, "99999999999999": {0, 0},
		time.Now().Add(time.Minute).UTC().Format(http.TimeFormat): {50 * time.Second, time.Minute},
		"Mon, 02 Jan 2006 15:04:05 GMT":                           {0, 0},
	} {
		if got := web.RetryAfter(http.Header{"Retry-After": {text}}); got < want[0] || got > want[1] {
			t.Errorf("Retry-After %q: %v, want %v", text, got, want)
		}
	}
}

func TestRanges(t *testing.T) {
	for r, want := range map[blob.Range]string{{}: "", {Offset: 5}: "bytes=5-", {Offset: 5, Length: 3}: "bytes=5-7", {Length: 1}: "bytes=0-0"} {
		if got := web.RangeHeader(r); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
	ten := blob.Range{Offset: 10, Length: 10}
	for _, c := range []struct {
		r      blob.Range
		length int64
		header string
		size   int64
		ok     bool
	}{
		{blob.Range{}, 7, "", 7, true}, {blob.Range{}, 0, "", 0, true}, {blob.Range{}, -1, "", -1, false},
		{ten, 10, "bytes 10-19/100", 100, true}, {ten, 10, "bytes 0-9/100", 100, false}, {ten, 10, "bytes 10-19/*", 0, false}, {ten, 10, "", 0, false},
	} {
		if size, ok := web.FullSize(c.r, c.length, c.header); ok != c.ok || ok && size != c.size {
			t.Errorf("%+v of %q: %d, %v", c.r, c.header, size, ok)
		}
	}
}

// TestProxyRefusal: what a proxy says does not get into an error.
func TestProxyRefusal(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusProxyAuthRequired)
		fmt.Fprint(w, secret)
	}))
	defer proxy.Close()
	client, err := web.New(web.Options{Proxy: blob.NewSecret(proxy.URL)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Get("https://store.invalid/")
	var refusal blob.ProxyRefusal
	if !errors.As(err, &refusal) || refusal != http.StatusProxyAuthRequired {
		t.Fatalf("%v", err)
	}
	told := blob.Answer{Op: "get", Store: "s"}.Transport(t.Context(), err)
	if !strings.Contains(told.Error(), "proxy") || !strings.Contains(told.Error(), "407") || strings.Contains(told.Error(), secret) {
		t.Errorf("%v", told)
	}
}
