package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/events"
	"tine.dev/tine/internal/control/exporter"
	"tine.dev/tine/internal/control/importer"
	"tine.dev/tine/internal/control/keeper"
	"tine.dev/tine/internal/control/policy"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// serve runs the calls on a real host and a real socket.
func serve(t *testing.T) *http.Client {
	t.Helper()
	data, log := t.TempDir(), slog.New(slog.DiscardHandler)
	host, err := volume.Open(t.Context(), volume.Options{Dir: data, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	k, err := keeper.Open(data, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	im, err := importer.Open(host, data, log)
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Open(policy.Options{Host: host, Clock: policy.SystemClock{}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	x, err := exporter.Open(host, data, log)
	if err != nil {
		t.Fatal(err)
	}
	h, err := New(Deps{Exporter: x, Host: host, Keeper: k, Importer: im, Policies: p, Events: events.New(time.Now), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "t.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: OnlyPeers(uint32(os.Geteuid()), h), ConnContext: WithPeer}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
}

func ask(t *testing.T, c *http.Client, method, path, body string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://tine"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

func TestCalls(t *testing.T) {
	c := serve(t)
	for _, x := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/v1/disks", `{"name":"work"}`, 201, `"name":"work"`},
		{"POST", "/v1/disks", `{"name":"work"}`, 409, `"kind":"exists"`},
		{"GET", "/v1/disks", "", 200, `"sessions":[],"mounts":[]`},
		{"GET", "/v1/disks/work", "", 200, `"name":"work"`},
		{"GET", "/v1/disks/none", "", 404, `"kind":"not_found"`},
		{"GET", "/v1/disks/a%2Fb", "", 422, `"kind":"invalid"`},
		{"GET", "/v1/disks/%FF", "", 422, `"kind":"invalid"`},
		{"GET", "/v1/disks?deleted=perhaps", "", 422, `"kind":"invalid"`},
		{"GET", "/v1/disks?delted=true", "", 422, `"kind":"invalid"`},
		{"POST", "/v1/disks", `{"name":`, 400, `"kind":"invalid"`},
		{"POST", "/v1/disks", `{"nome":"x"}`, 422, `"kind":"invalid"`},
		{"POST", "/v1/disks", `{"name":7}`, 422, `"kind":"invalid"`},
		{"POST", "/v1/disks", `{"name":"a/b"}`, 422, `"kind":"invalid"`},
		{"POST", "/v1/disks", "", 400, `"kind":"invalid"`},
		{"POST", "/v1/disks", `{"name":"` + strings.Repeat("x", 2<<20) + `"}`, 413, `"kind":"too_large"`},
		{"PATCH", "/v1/disks", `{}`, 404, `"kind":"not_found"`},
		{"GET", "/v2/disks", "", 404, `"kind":"not_found"`},
		{"POST", "/v1/disks/work/checkpoints", `{"name":"one","wait":"never"}`, 422, `"kind":"invalid"`},
		{"POST", "/v1/disks/work/checkpoints", `{"name":"one"}`, 201, `"caller":"uid:`},
		{"GET", "/v1/disks/work/checkpoints", "", 200, `"name":"one"`},
		{"POST", "/v1/disks/work/forks", `{"names":[]}`, 422, `"kind":"invalid"`},
		{"POST", "/v1/disks/work/forks", `{"names":["a","b"],"checkpoint":"one","wait":"runnable"}`, 201, `"name":"b"`},
		{"POST", "/v1/disks/work/rollback", `{"checkpoint":"one"}`, 200, `"undo":"`},
		{"POST", "/v1/disks/work/promote", `{"onto":"work"}`, 422, `"kind":"invalid"`},
		{"POST", "/v1/disks/work/sync", "", 204, ""},
		{"GET", "/v1/disks/work/log", "", 200, `"op":"create"`},
		{"GET", "/v1/disks/work/usage", "", 200, `"disk":"work"`},
		{"GET", "/v1/forest", "", 200, `"name":"work@one","kind":"checkpoint","parent":"work"`},
		{"GET", "/v1/mounts", "", 200, `{"mounts":[]}`},
		{"POST", "/v1/mounts", `{"ref":"none","dir":"/m"}`, 404, `"kind":"not_found"`},
		{"POST", "/v1/mounts", `{"ref":"work","dir":"m"}`, 422, `"kind":"invalid"`},
		{"DELETE", "/v1/mounts?dir=/m", "", 404, `"kind":"not_found"`},
		{"DELETE", "/v1/mounts?dir=m", "", 422, `"kind":"invalid"`},
		{"DELETE", "/v1/mounts", "", 422, `"kind":"invalid"`},
		{"DELETE", "/v1/disks/work/checkpoints/one", "", 204, ""},
		{"DELETE", "/v1/disks/work", "", 200, `"deleted":"`},
		{"POST", "/v1/disks/work/undelete", "", 200, `"name":"work"`},
		{"GET", "/v1/stats", "", 200, `"Disks":`},
		{"GET", "/openapi.json", "", 200, `"openapi": "3.1.0"`},
	} {
		status, got, header := ask(t, c, x.method, x.path, x.body)
		if status != x.status || !strings.Contains(got, x.says) {
			t.Errorf("%s %s %.100s: %d %s; want %d and %q", x.method, x.path, x.body, status, got, x.status, x.says)
		}
		if status < 400 {
			continue
		}
		var e api.Error
		if err := json.Unmarshal([]byte(got), &e); err != nil || e.Message == "" || header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %s %s is not the one shape of errors", x.method, x.path, header.Get("Content-Type"), got)
		}
	}
}

func TestStreams(t *testing.T) {
	c := serve(t)
	src := t.TempDir()
	if err := os.WriteFile(filepath.Join(src, "not utf-8 \xff"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, got, header := ask(t, c, "POST", "/v1/disks/work/import-dir", `{"dir":"`+src+`"}`)
	if status != 200 || header.Get("Content-Type") != "application/x-ndjson" || !strings.Contains(last(got), `{"done":{"disk":{`) {
		t.Fatalf("import: %d %s", status, got)
	}
	if status, got, _ := ask(t, c, "POST", "/v1/disks/work/import-dir", `{"dir":"`+src+`"}`); status != 409 || !strings.Contains(got, `"exists"`) {
		t.Errorf("a second import: %d %s", status, got)
	}
	if status, got, _ := ask(t, c, "POST", "/v1/disks/work/forks", `{"names":["a"]}`); status != 201 {
		t.Fatalf("fork: %d %s", status, got)
	}
	if status, got, _ := ask(t, c, "GET", "/v1/diff?a=work&b=a", ""); status != 200 || got != `{"done":{"changes":0}}`+"\n" {
		t.Errorf("diff of equals: %d %s", status, got)
	}
	for query, want := range map[string]int{"a=work&b=none": 404, "a=work": 422, "a=work@&b=a": 422} {
		if status, got, _ := ask(t, c, "GET", "/v1/diff?"+query, ""); status != want || !strings.HasPrefix(got, `{"kind":`) {
			t.Errorf("diff %s: %d %s", query, status, got)
		}
	}
}

func last(s string) string {
	line := ""
	for sc := bufio.NewScanner(strings.NewReader(s)); sc.Scan(); {
		line = sc.Text()
	}
	return line
}

func TestPathsThatAreNotText(t *testing.T) {
	ch := change(volume.Change{Path: []byte("a\xff"), Kind: volume.Removed, Type: 8})
	if ch.Path != `"a\xff"` || string(ch.PathBytes) != "a\xff" || ch.Kind != "removed" || ch.Type != "file" {
		t.Errorf("%+v", ch)
	}
}

func TestOnlyRootAndTheServersUser(t *testing.T) {
	h := OnlyPeers(1000, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for _, c := range []struct {
		peer *Peer
		want int
	}{{&Peer{0}, 204}, {&Peer{1000}, 204}, {&Peer{1001}, 403}, {nil, 403}} {
		r := httptest.NewRequest("GET", "/", nil)
		if c.peer != nil {
			r = r.WithContext(context.WithValue(r.Context(), peerKey{}, *c.peer))
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%v: %d, want %d", c.peer, w.Code, c.want)
		}
	}
	if _, err := (By{}).caller(t.Context()); tine.KindOf(err) != tine.KindAccess {
		t.Errorf("a call without a peer: %v", err)
	}
}

func TestPanicIsOneFailedCall(t *testing.T) {
	h := recoverPanics(slog.New(slog.DiscardHandler), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("bug") }))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != 500 || !strings.Contains(w.Body.String(), `"kind":"internal"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
