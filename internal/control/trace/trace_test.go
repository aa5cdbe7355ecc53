package trace

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

func env(m map[string]string) func(string) string { return func(k string) string { return m[k] } }

func TestNoCollectorNoTracer(t *testing.T) {
	tr, err := Open(env(nil), "v1", slog.New(slog.DiscardHandler))
	if tr != nil || err != nil {
		t.Fatal(tr, err)
	}
	ctx, ended := tr.Call(t.Context(), "x")
	ended(nil)
	tr.Slow(tine.DiskID{}, volume.OpRead, time.Now(), time.Second, nil)
	if ctx != t.Context() || tr.Close(ctx) != nil {
		t.Error("a nil tracer does something")
	}
	for _, bad := range []string{"127.0.0.1:4318", "grpc://x"} {
		if _, err := Open(env(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": bad}), "v1", slog.Default()); tine.KindOf(err) != tine.KindInvalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// collector keeps what it is sent.
type collector struct {
	mu     sync.Mutex
	status int
	paths  []string
	keys   []string
	spans  []otlpSpan
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, _ := io.ReadAll(r.Body)
	var req otlpRequest
	if err := json.Unmarshal(b, &req); err != nil {
		c.status = http.StatusBadRequest
	}
	c.paths, c.keys = append(c.paths, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type")), append(c.keys, r.Header.Get("Key"))
	for _, rs := range req.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			c.spans = append(c.spans, ss.Spans...)
		}
	}
	w.WriteHeader(c.status)
}

func TestSpansReachTheCollector(t *testing.T) {
	c := &collector{status: 200}
	s := httptest.NewServer(c)
	defer s.Close()
	tr, err := Open(env(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": s.URL + "/", "OTEL_EXPORTER_OTLP_HEADERS": "key=a%20b, x"}), "v1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	h := tr.Parents(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, ended := tr.Call(r.Context(), "fork")
		ended(tine.Errorf(tine.KindConflict, "moved"))
	}))
	r := httptest.NewRequest("POST", "/", nil)
	r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	h.ServeHTTP(httptest.NewRecorder(), r)
	start := time.Unix(1000, 5)
	disk := tine.NewID[tine.DiskID](start)
	tr.Slow(disk, volume.OpWrite, start, 3*time.Second, nil)
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(c.spans) != 2 || c.paths[0] != "POST /v1/traces application/json" || c.keys[0] != "a b" {
		t.Fatalf("%+v, %q, %q", c.spans, c.paths, c.keys)
	}
	call, slow := c.spans[0], c.spans[1]
	if call.Name != "fork" || call.TraceID != "0af7651916cd43dd8448eb211c80319c" || call.ParentID != "b7ad6b7169203331" || call.Kind != 2 ||
		call.Status == nil || call.Status.Code != 2 || call.Status.Message != "moved" {
		t.Errorf("%+v", call)
	}
	if slow.Name != "fs.write" || slow.Start != "1000000000005" || slow.End != "1003000000005" || len(slow.TraceID) != 32 || slow.Status != nil ||
		slow.Attributes[0].Value["stringValue"] != disk.String() {
		t.Errorf("%+v", slow)
	}
}

// TestABrokenCollectorIsNoProblem: nothing fails, and the log says it once.
func TestABrokenCollectorIsNoProblem(t *testing.T) {
	c := &collector{status: 503}
	s := httptest.NewServer(c)
	defer s.Close()
	var out strings.Builder
	tr, err := Open(env(map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": s.URL + "/t"}), "v1", slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, ended := tr.Call(context.Background(), "x")
		ended(nil)
		if err := tr.provider.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := tr.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := strings.Count(out.String(), "could not be sent"); n != 1 || len(c.paths) != 3 || c.paths[0] != "POST /t application/json" {
		t.Errorf("%d complaints, %q", n, c.paths)
	}
}
