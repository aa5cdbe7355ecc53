// Package web is the one place where the drivers of stores on a network get
// their HTTP from: connections, proxy, trusted authorities, and the few headers
// that all such stores share.
//
// Each store has connections of its own, made when it is opened; nothing here
// is kept for the process. Redirections are not followed: a store that sends
// elsewhere would be sent the credentials in the headers of its protocol.
package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"golang.org/x/net/http/httpproxy"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

// Direct, as a proxy, means none.
const Direct = "direct"

// idlePerHost is how many idle connections are kept: a store's work comes in
// bursts, and a new connection costs several round trips.
const idlePerHost = 64

// Options say how a store is reached. The zero value goes through the proxy
// that the environment names, and trusts the system's authorities.
type Options struct {
	// Proxy is the URL of a proxy (http, https, socks5 or socks5h), or Direct.
	// Empty: what HTTPS_PROXY, HTTP_PROXY and NO_PROXY say when the store is
	// opened. It may hold a password.
	Proxy blob.Secret
	// RootCAs, in PEM, are trusted besides the system's authorities.
	RootCAs []byte
}

// Prepare checks the options and returns what sets up a transport by them.
// Errors are of kind tine.KindInvalid and hold nothing of the proxy's URL.
func (o Options) Prepare() (func(*http.Transport), error) {
	proxy, err := o.proxy()
	if err != nil {
		return nil, err
	}
	var pool *x509.CertPool
	if len(o.RootCAs) > 0 {
		pool, err = x509.SystemCertPool()
		if err != nil || !pool.AppendCertsFromPEM(o.RootCAs) {
			return nil, tine.Errorf(tine.KindInvalid, "the store's own certificate authorities are not in PEM, or there are none").
				WithHint("give a file that holds -----BEGIN CERTIFICATE----- for each authority")
		}
	}
	return func(t *http.Transport) {
		t.Proxy = proxy
		t.OnProxyConnectResponse = proxyAnswer
		t.MaxIdleConnsPerHost = idlePerHost
		t.DisableCompression = true // objects come as they were stored
		if pool == nil {
			return
		}
		if t.TLSClientConfig == nil {
			t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		t.TLSClientConfig.RootCAs = pool.Clone()
	}, nil
}

// proxy returns what finds the proxy for a request.
func (o Options) proxy() (func(*http.Request) (*url.URL, error), error) {
	text := o.Proxy.Reveal()
	switch text {
	case Direct:
		return nil, nil
	case "":
		env := httpproxy.FromEnvironment()
		for _, text := range []string{env.HTTPProxy, env.HTTPSProxy} {
			// What it cannot read it takes for none: a store that is to be
			// reached through a proxy only would be asked directly.
			alone := httpproxy.Config{HTTPSProxy: text}
			if u, err := alone.ProxyFunc()(&url.URL{Scheme: "https", Host: "store.invalid"}); text != "" && (u == nil || err != nil) {
				return nil, badProxy("in the environment")
			}
		}
		find := env.ProxyFunc()
		return func(r *http.Request) (*url.URL, error) { return find(r.URL) }, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) {
		return nil, badProxy("of the store")
	}
	return http.ProxyURL(u), nil
}

func badProxy(where string) error {
	return tine.Errorf(tine.KindInvalid, "the proxy %s is not an URL of one", where).
		WithHint("write it as http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT, or %s for none", Direct)
}

// proxyAnswer keeps what a proxy says from the errors of net/http, which quote
// its words.
func proxyAnswer(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode != http.StatusOK {
		return blob.ProxyRefusal(answer.StatusCode)
	}
	return nil
}

// Client returns a client over the transport that does not follow redirections.
func Client(t *http.Transport) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// New returns a client with connections of its own, by the options.
func New(o Options) (*http.Client, error) {
	setUp, err := o.Prepare()
	if err != nil {
		return nil, err
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	setUp(t)
	return Client(t), nil
}

// RetryAfter returns how long the store asks to wait; 0 if it does not say.
func RetryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// RangeHeader writes a range as the header Range does; "" for all of the object.
func RangeHeader(r blob.Range) string {
	switch {
	case r.Whole():
		return ""
	case r.Length == 0:
		return fmt.Sprintf("bytes=%d-", r.Offset)
	}
	return fmt.Sprintf("bytes=%d-%d", r.Offset, r.Offset+r.Length-1)
}

// FullSize returns the size of the whole object from the headers Content-Length
// (-1 if there was none) and Content-Range of an answer to the range. ok is
// false if the answer does not tell it, or is not of the range that was asked
// for: a store or proxy that knows no ranges sends the object from its start.
func FullSize(r blob.Range, contentLength int64, contentRange string) (size int64, ok bool) {
	if r.Whole() {
		return contentLength, contentLength >= 0
	}
	var first, last int64
	n, err := fmt.Sscanf(contentRange, "bytes %d-%d/%d", &first, &last, &size)
	return size, n == 3 && err == nil && first == r.Offset
}
