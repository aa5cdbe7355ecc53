package server

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"tine.dev/tine/api"
)

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func get(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: %s, %v", url, resp.Status, err)
	}
	return string(b)
}

func TestMetricsOnTheSocketAndOnTCP(t *testing.T) {
	o := options(t)
	var log logBuffer
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	o.Config.Metrics = ":0"
	start(t, o)
	c := api.NewClient(o.Config.Socket, "")
	defer c.Close()
	if _, err := c.CreateDisk(t.Context(), "work"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Disk(t.Context(), "none"); err == nil {
		t.Fatal("a disk that does not exist")
	}
	socket := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", o.Config.Socket)
	}}}
	defer socket.CloseIdleConnections()
	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+/metrics`).FindString(log.String())
	if url == "" {
		t.Fatalf("the log does not say where: %s", log.String())
	}
	for where, text := range map[string]string{"socket": get(t, socket, "http://tine/metrics"), "TCP": get(t, http.DefaultClient, url)} {
		for _, want := range []string{`tine_api_call_duration_seconds_count{call="createDisk"} 1`, `tine_api_errors_total{call="getDisk",kind="not_found"} 1`, `tine_disks 1`} {
			if !strings.Contains(text, "\n"+want+"\n") {
				t.Errorf("%s: there is no %s", where, want)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestAnAddressThatIsTakenIsSaid(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := options(t)
	o.Config.Metrics = l.Addr().String()
	if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("%v", err)
	}
}

// TestStoppingEndsThoseWhoFollow: the stop does not wait for streams to end by
// themselves.
func TestStoppingEndsThoseWhoFollow(t *testing.T) {
	o := options(t)
	stop := start(t, o)
	c := api.NewClient(o.Config.Socket, "")
	defer c.Close()
	started, ended := make(chan struct{}), make(chan error, 1)
	var done api.EventsDone
	go func() {
		var err error
		done, err = c.Events(t.Context(), api.EventQuery{Follow: true}, func(l api.EventLine) error {
			if l.Event != nil && l.Event.Kind == "server-start" {
				close(started)
			}
			return nil
		})
		ended <- err
	}()
	<-started
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || !done.Stopping {
		t.Errorf("%+v, %v", done, err)
	}
}
