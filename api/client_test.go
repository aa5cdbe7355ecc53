package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// serve answers every request on a socket with the handler.
func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "t.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	c := NewClient(socket, "a b")
	t.Cleanup(func() {
		c.Close()
		_ = s.Close()
	})
	return c
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func kindOf(err error) string {
	var e *Error
	if !errors.As(err, &e) {
		return "not an *Error"
	}
	return e.Kind
}

func TestErrorsHaveAKind(t *testing.T) {
	cases := []struct {
		name, kind string
		h          http.HandlerFunc
	}{
		{"tine's own", "in_use", answer(409, `{"kind":"in_use","message":"m","hint":"h"}`)},
		{"not tine's", "internal", answer(502, "<html>")},
		{"a redirect", "internal", answer(301, "")},
		{"cut off", "unavailable", answer(200, `{"disks":[`)},
		{"not JSON", "unavailable", answer(200, `hello`)},
		{"dropped", "unavailable", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := serve(t, c.h).Disks(t.Context(), false)
			if kindOf(err) != c.kind || c.kind != "in_use" && err.(*Error).Hint == "" {
				t.Errorf("%v (%s)", err, kindOf(err))
			}
		})
	}
}

func TestStreamsMustEnd(t *testing.T) {
	cases := []struct{ name, body, kind string }{
		{"complete", `{"change":{"path":"/a","kind":"added"}}` + "\n" + `{"done":{"changes":1}}` + "\n", ""},
		{"without an end", `{"change":{"path":"/a","kind":"added"}}` + "\n", "unavailable"},
		{"empty", "", "unavailable"},
		{"half a line", `{"change":{"pa`, "unavailable"},
		{"failed on the way", `{"error":{"kind":"corrupt","message":"m"}}` + "\n", "corrupt"},
		{"a line without an end", `"` + strings.Repeat("x", maxLineBytes+1), "unavailable"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := 0
			_, err := serve(t, answer(200, c.body)).Diff(t.Context(), "a", "b", func(Change) error { n++; return nil })
			if c.kind == "" {
				if err != nil || n != 1 {
					t.Errorf("%d changes, %v", n, err)
				}
			} else if kindOf(err) != c.kind {
				t.Errorf("%v (%s)", err, kindOf(err))
			}
		})
	}
	stop := errors.New("stop")
	c := serve(t, answer(200, cases[0].body))
	if _, err := c.Diff(t.Context(), "a", "b", func(Change) error { return stop }); err != stop {
		t.Errorf("the callback's error: %v", err)
	}
}

func TestNamesThatAPathWouldSwallow(t *testing.T) {
	c := serve(t, answer(200, `{}`))
	for _, name := range []string{"", ".", "..", "\xff"} {
		if _, err := c.Disk(t.Context(), name); kindOf(err) != "invalid" {
			t.Errorf("%q: %v", name, err)
		}
	}
	var path, author string
	c = serve(t, func(w http.ResponseWriter, r *http.Request) {
		path, author = r.URL.EscapedPath(), r.Header.Get("Tine-Author")
		_, _ = io.WriteString(w, `{}`)
	})
	if _, err := c.Disk(t.Context(), "a/b ?#%"); err != nil || path != "/v1/disks/a%2Fb%20%3F%23%25" || author != "a+b" {
		t.Errorf("%q, %q, %v", path, author, err)
	}
}

func TestNoServer(t *testing.T) {
	dir := t.TempDir()
	for name, socket := range map[string]string{
		"missing": filepath.Join(dir, "t.sock"), "too long": filepath.Join(dir, strings.Repeat("x", 200)), "in a file": "/etc/hostname/x",
	} {
		_, err := NewClient(socket, "").Server(t.Context())
		if k := kindOf(err); k != "unavailable" && k != "invalid" || err.(*Error).Hint == "" {
			t.Errorf("%s: %v (%s)", name, err, k)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewClient(filepath.Join(dir, "t.sock"), "").Server(ctx); kindOf(err) != "interrupted" {
		t.Errorf("cancelled: %v", err)
	}
}
