package metrics

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

var me = volume.Caller{Tenant: tine.DefaultTenant, Principal: "uid:0"}

func open(t *testing.T) (*volume.Host, *Registry) {
	t.Helper()
	h, err := volume.Open(t.Context(), volume.Options{Dir: "/data", FS: vfs.NewMem(), CommitInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h, New(h, func() map[string]int { return map[string]int{"mounted": 3} }, api.Version{Version: "v1"}, slog.New(slog.DiscardHandler))
}

func scrape(t *testing.T, r *Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestScrape(t *testing.T) {
	h, r := open(t)
	if _, err := h.CreateDisk(t.Context(), me, "work"); err != nil {
		t.Fatal(err)
	}
	s, err := h.Attach(t.Context(), me, volume.Ref{Disk: "work"}, volume.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f, _, _, err := s.Create(volume.Cred{}, volume.Root, "f", 0o644, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(volume.Cred{}, bytes.Repeat([]byte("x"), 100_000), 0); err != nil {
		t.Fatal(err)
	}
	r.Call("fork")(nil)
	r.Call("fork")(tine.ErrExists)
	dirty := regexp.MustCompile(`(?m)^tine_dirty_bytes 10\d{4}$`)
	before := scrape(t, r)
	if !dirty.MatchString(before) {
		t.Error("the written bytes are not dirty")
	}
	if err := f.Fsync(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	text := scrape(t, r)
	for _, want := range []string{
		`tine_file_operation_duration_seconds_count{op="write"} 1`, `tine_file_operation_duration_seconds_count{op="fsync"} 1`,
		`tine_file_operation_duration_seconds_count{op="rename"} 0`, `tine_written_bytes_total 100000`, `tine_sessions 1`, `tine_disks_in_use 1`,
		`tine_mounts{state="mounted"} 3`, `tine_api_call_duration_seconds_count{call="fork"} 2`, `tine_api_errors_total{call="fork",kind="exists"} 1`,
		`tine_api_calls_running 0`, `tine_dirty_bytes 0`, `tine_layers_waiting 0`, `tine_segments 1`, `tine_disks 1`, `tine_build_info{commit="",go="",version="v1"} 1`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("there is no %s", want)
		}
	}
	for _, want := range []string{`tine_commit_duration_seconds_count [1-9]`, `tine_commit_bytes_total [1-9]`, `go_goroutines [1-9]`,
		`process_resident_memory_bytes [1-9]`, `process_open_fds [1-9]`, `tine_rows_memory_bytes [1-9]`, `tine_rows_cache_hits_total \d`,
		`tine_file_operation_duration_seconds_bucket\{op="write",le="\+Inf"\} 1`} {
		if !regexp.MustCompile(`(?m)^` + want).MatchString(text) {
			t.Errorf("there is no %s", want)
		}
	}
	if _, err := r.registry.Gather(); err != nil {
		t.Error(err)
	}
	if err := s.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := scrape(t, r); !strings.Contains(text, "\ntine_written_bytes_total 100000\n") || !strings.Contains(text, "\ntine_sessions 0\n") {
		t.Error("counts went back when the session ended")
	}
}

func TestServe(t *testing.T) {
	_, r := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	addr, err := r.Serve(ctx, ":0")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(addr.String(), "127.0.0.1:") {
		t.Fatalf("an address without a host is %s", addr)
	}
	for path, want := range map[string]int{"/metrics": 200, "/": 404, "/v1/disks": 404} {
		resp, err := http.Get("http://" + addr.String() + path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	if _, err := r.Serve(ctx, addr.String()); err == nil {
		t.Error("an address that is taken")
	}
	if _, err := r.Serve(ctx, "9464"); tine.KindOf(err) != tine.KindInvalid {
		t.Errorf("an address without a port: %v", err)
	}
	cancel()
	http.DefaultClient.CloseIdleConnections()
}
