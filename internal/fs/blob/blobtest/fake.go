package blobtest

import (
	"bytes"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/faultproxy"
	"tine.dev/tine/internal/tine"
)

// RunFake holds a driver to what no real store does when asked: answers that
// quote what was sent, that are not those of the service, and connections that
// break. mk makes drivers for an endpoint, an URL without a path, with Secret
// in their credentials; calls in except make no request.
func RunFake(t *testing.T, dialect faultproxy.Dialect, except string, mk func(t testing.TB, endpoint string) blob.Driver) {
	serve := func(t *testing.T, answer http.HandlerFunc) blob.Driver {
		server := httptest.NewServer(answer)
		t.Cleanup(server.Close)
		return mk(t, server.URL)
	}
	t.Run("Secrets", func(t *testing.T) {
		logged := capture(t)
		for status, kind := range map[int]tine.ErrorKind{403: tine.KindAccess, 429: tine.KindUnavailable, 503: tine.KindUnavailable} {
			d := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Request-Id", r.Header.Get("Authorization")+r.URL.RawQuery)
				dialect.Refuse(w, status)
				_, _ = io.WriteString(w, r.Header.Get("Authorization")+r.URL.RawQuery)
			})
			EveryCall(t, d, except, kind)
		}
		if strings.Contains(logged.String(), Secret) {
			t.Errorf("the log tells the secret: %s", logged.String())
		}
	})
	t.Run("NotTheService", func(t *testing.T) {
		d := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) })
		// That an object is not there is never believed of somebody else.
		EveryCall(t, d, except, tine.KindUnavailable)
	})
	t.Run("Broken", func(t *testing.T) {
		EveryCall(t, serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), except, tine.KindUnavailable)
		EveryCall(t, mk(t, "http://user:"+Secret+"@127.0.0.1:1"), except, tine.KindUnavailable)
	})
	t.Run("Redirection", func(t *testing.T) {
		followed := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirection was followed") }))
		defer followed.Close()
		EveryCall(t, serve(t, http.RedirectHandler(followed.URL, http.StatusMovedPermanently).ServeHTTP), except, tine.KindInvalid)
	})
	t.Run("OneRequest", func(t *testing.T) {
		var requests atomic.Int64
		d := serve(t, func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
			dialect.Refuse(w, http.StatusServiceUnavailable)
		})
		EveryCall(t, d, except, tine.KindUnavailable)
		if n, want := requests.Load(), int64(9-len(strings.Fields(except))); n != want {
			t.Errorf("%d requests for %d attempts: the store's budget does not count them all", n, want)
		}
	})
	t.Run("Ranges", func(t *testing.T) { otherRanges(t, serve) })
}

// otherRanges: a store that answers with other bytes than those asked for, or
// does not say which, is found out.
func otherRanges(t *testing.T, serve func(*testing.T, http.HandlerFunc) blob.Driver) {
	for what, contentRange := range map[string]string{"no range": "", "another": "bytes 0-9/100", "no size": "bytes 10-19/*"} {
		d := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			told(w)
			if contentRange != "" {
				w.Header().Set("Content-Range", contentRange)
				w.WriteHeader(http.StatusPartialContent)
			}
			_, _ = w.Write(make([]byte, 10))
		})
		data, _, err := d.Get(t.Context(), "k", blob.GetOptions{Range: blob.Range{Offset: 10, Length: 10}})
		if tine.KindOf(err) != tine.KindUnsupported || data != nil {
			t.Errorf("%s: %d bytes, %v", what, len(data), err)
		}
	}
	chunked := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		told(w)
		_, _ = io.WriteString(w, "some")
		w.(http.Flusher).Flush()
	})
	if data, _, err := chunked.Get(t.Context(), "k", blob.GetOptions{}); tine.KindOf(err) != tine.KindUnsupported || data != nil {
		t.Errorf("an object of unknown size: %q, %v", data, err)
	}
	half := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		told(w)
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write(make([]byte, 50))
	})
	if data, _, err := half.Get(t.Context(), "k", blob.GetOptions{}); tine.KindOf(err) != tine.KindUnavailable || data != nil {
		t.Errorf("half an object: %d bytes, %v", len(data), err)
	}
}

// told writes what services tell of an object's version.
func told(w http.ResponseWriter) {
	w.Header().Set("ETag", `"0x8D"`)
	w.Header().Set("X-Goog-Generation", "7")
}

// capture collects what is logged by the default loggers until the test ends.
func capture(t *testing.T) *bytes.Buffer {
	var logged bytes.Buffer
	before := slog.Default()
	log.SetOutput(&logged)
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})))
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(os.Stderr)
	})
	return &logged
}
