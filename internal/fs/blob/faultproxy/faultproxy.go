// Package faultproxy is an HTTP proxy that stands before a store in tests and
// makes requests fail as networks and services do on bad days: where package
// faulty fails calls of a driver, this shows what the driver and its SDK make of
// the same on the wire.
package faultproxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// What says how a request goes wrong.
type What uint8

// The ways to go wrong.
const (
	Busy        What = iota // 503, not done
	Throttled               // 429 with Retry-After: 1, not done
	Expired                 // 403, not done
	Slow                    // not done, and no answer until the caller gives up
	Truncated               // done, and half of the answer comes
	Cut                     // done, and the connection ends before the answer
	WrongBytes              // done, and one bit in the middle of the answer's body is another
	WrongUpload             // one bit in the middle of the request's body is another
)

// Fault makes the first Times requests that Only returns true for go wrong.
type Fault struct {
	What  What
	Only  func(*http.Request) bool
	Times int
}

// Dialect is how a store speaks.
type Dialect struct {
	// Refuse writes a refusal with the status in the store's own words.
	Refuse func(w http.ResponseWriter, status int)
	// Completes reports whether a request makes the object of an upload's parts.
	Completes func(*http.Request) bool
}

// Reads reports whether a request reads; Writes whether it writes, but does not
// delete.
func Reads(r *http.Request) bool { return r.Method == http.MethodGet }

// Writes is described at Reads.
func Writes(r *http.Request) bool { return r.Method == http.MethodPut || r.Method == http.MethodPost }

// All is for faults that meet every request.
func All(*http.Request) bool { return true }

// Proxy is a proxy that runs. Safe for concurrent use.
type Proxy struct {
	URL     string
	Dialect Dialect
	forward *httputil.ReverseProxy

	mu       sync.Mutex // guards what follows
	fault    Fault
	injected int
	requests int
}

// Start starts a proxy before the store at target, an URL. It ends with the
// test.
func Start(t testing.TB, target string, d Dialect) *Proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Dialect: d, forward: Forward(u)}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.URL = server.URL
	return p
}

// Forward returns a handler that passes requests on unchanged, with the name
// of the host that the client asked: signatures are over it.
func Forward(target *url.URL) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
	}}
}

// Set replaces the fault and starts counting anew.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.injected, p.requests = f, 0, 0
}

// Counts returns how many requests there were since Set, and how many of them
// went wrong.
func (p *Proxy) Counts() (requests, injected int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests, p.injected
}

// pick counts a request and returns whether it goes wrong, and how.
func (p *Proxy) pick(r *http.Request) (What, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	if p.injected >= p.fault.Times || !p.fault.Only(r) {
		return 0, false
	}
	p.injected++
	return p.fault.What, true
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	what, wrong := p.pick(r)
	if wrong {
		switch what {
		case Busy:
			p.Dialect.Refuse(w, http.StatusServiceUnavailable)
			return
		case Throttled:
			w.Header().Set("Retry-After", "1")
			p.Dialect.Refuse(w, http.StatusTooManyRequests)
			return
		case Expired:
			p.Dialect.Refuse(w, http.StatusForbidden)
			return
		case Slow:
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		case WrongUpload:
			flip(body)
		}
	}
	r.Header.Del("Expect") // the body is here
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	p.forward.ServeHTTP(answer, r)
	data := answer.Body.Bytes()
	if wrong && what == Cut {
		panic(http.ErrAbortHandler)
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	if r.Method != http.MethodHead && answer.Code != http.StatusNoContent {
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	}
	w.WriteHeader(answer.Code)
	if wrong && what == WrongBytes {
		flip(data)
	}
	if wrong && what == Truncated {
		_, _ = w.Write(data[:len(data)/2])
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(data)
}

// flip changes one bit.
func flip(p []byte) {
	if len(p) > 0 {
		p[len(p)/2] ^= 1
	}
}

// refuse writes a refusal.
func refuse(w http.ResponseWriter, status int, contentType, format string, args ...any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	fmt.Fprintf(w, format, args...)
}

// S3 is how Amazon S3 and its likes speak.
func S3() Dialect {
	words := map[int]string{503: "SlowDown", 429: "TooManyRequests", 403: "ExpiredToken"}
	return Dialect{
		Refuse: func(w http.ResponseWriter, status int) {
			refuse(w, status, "application/xml", `<?xml version="1.0"?><Error><Code>%s</Code><Message>injected</Message></Error>`, words[status])
		},
		Completes: func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Query().Has("uploadId") },
	}
}

// GCS is how Google Cloud Storage speaks.
func GCS() Dialect {
	words := map[int]string{503: "backendError", 429: "rateLimitExceeded", 403: "forbidden"}
	return Dialect{
		Refuse: func(w http.ResponseWriter, status int) {
			refuse(w, status, "application/json", `{"error":{"code":%d,"message":"injected","errors":[{"reason":%q}]}}`, status, words[status])
		},
		Completes: func(r *http.Request) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/compose")
		},
	}
}

// Azure is how Azure Blob Storage speaks.
func Azure() Dialect {
	words := map[int]string{503: "ServerBusy", 429: "TooManyRequests", 403: "AuthenticationFailed"}
	return Dialect{
		Refuse: func(w http.ResponseWriter, status int) {
			w.Header().Set("X-Ms-Error-Code", words[status])
			refuse(w, status, "application/xml", `<?xml version="1.0"?><Error><Code>%s</Code><Message>injected</Message></Error>`, words[status])
		},
		Completes: func(r *http.Request) bool {
			return r.Method == http.MethodPut && r.URL.Query().Get("comp") == "blocklist"
		},
	}
}
