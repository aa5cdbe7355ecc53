package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/config"
	"tine.dev/tine/internal/control/keeper"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// noMounts is for servers whose tests mount nothing.
func noMounts(*volume.Host) keeper.Mounter { return nil }

func options(t *testing.T) Options {
	t.Helper()
	dir := t.TempDir()
	return Options{
		Config:  config.Config{Data: filepath.Join(dir, "data"), Socket: filepath.Join(dir, "run", "t.sock"), StopTimeout: 20 * time.Second},
		Log:     slog.New(slog.DiscardHandler),
		Mounter: noMounts,
	}
}

// start runs a server until the returned function is called, which gives the
// error of Run.
func start(t *testing.T, o Options) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	o.Ready = func() { close(ready) }
	go func() { done <- Run(ctx, o) }()
	select {
	case <-ready:
	case err := <-done:
		cancel()
		t.Fatalf("the server did not start: %v", err)
	}
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return stop
}

func TestDisksSurviveARestart(t *testing.T) {
	o := options(t)
	stop := start(t, o)
	c := api.NewClient(o.Config.Socket, "me")
	if _, err := c.CreateDisk(t.Context(), "work"); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(o.Config.Socket); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", fi, err)
	}
	c.Close()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(o.Config.Socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
	if _, err := c.Disks(t.Context(), false); err == nil || err.(*api.Error).Kind != "unavailable" || err.(*api.Error).Hint == "" {
		t.Errorf("a call to a stopped server: %v", err)
	}
	start(t, o)
	ds, err := c.Disks(t.Context(), false)
	if err != nil || len(ds) != 1 || ds[0].Name != "work" {
		t.Errorf("after the restart: %+v, %v", ds, err)
	}
}

func TestOneServerForEachDirectoryAndSocket(t *testing.T) {
	o := options(t)
	start(t, o)
	other := options(t)
	for name, c := range map[string]struct {
		data, socket, says string
	}{
		"data":   {o.Config.Data, other.Config.Socket, "is in use by a server, process "},
		"socket": {other.Config.Data, o.Config.Socket, "listens on " + o.Config.Socket + " already"},
	} {
		t.Run(name, func(t *testing.T) {
			second := other
			second.Config.Data, second.Config.Socket = c.data, c.socket
			err := Run(t.Context(), second)
			if tine.KindOf(err) != tine.KindBusy || !strings.Contains(err.Error(), c.says) || tine.HintOf(err) == "" {
				t.Errorf("%v (%s)", err, tine.KindOf(err))
			}
		})
	}
}

func TestPlacesThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(dir, "good")
	cases := []struct {
		name, data, socket string
		kind               tine.ErrorKind
	}{
		{"the data directory is a file", file, filepath.Join(dir, "s1"), tine.KindNotDir},
		{"the data directory lies in a file", file + "/x", filepath.Join(dir, "s2"), tine.KindNotDir},
		{"the data directory cannot be made", "/proc/tine", filepath.Join(dir, "s3"), tine.KindNotFound},
		{"the socket's path is long", good, filepath.Join(dir, strings.Repeat("x", 200)), tine.KindInvalid},
		{"the socket's path is a file", good, file, tine.KindExists},
		{"the socket's directory is a file", good, filepath.Join(file, "t.sock"), tine.KindNotDir},
		{"others can write where the socket is", good, filepath.Join(open, "t.sock"), tine.KindAccess},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := options(t)
			o.Config.Data, o.Config.Socket = c.data, c.socket
			err := Run(t.Context(), o)
			if tine.KindOf(err) != c.kind || tine.HintOf(err) == "" && c.kind != tine.KindNotDir {
				t.Errorf("%v (%s), hint %q; want %s", err, tine.KindOf(err), tine.HintOf(err), c.kind)
			}
		})
	}
}

func TestDataDirectoriesOfOthers(t *testing.T) {
	cases := []struct {
		name, file, content, says string
		kind                      tine.ErrorKind
	}{
		{"a newer format", "format", "999\n", "format 999", tine.KindVersion},
		{"not a format", "format", "hello\n", "does not hold a format number", tine.KindCorrupt},
		{"another program's", "letter.txt", "hello", "not empty", tine.KindInvalid},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := options(t)
			if err := os.MkdirAll(o.Config.Data, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(o.Config.Data, c.file), []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			err := Run(t.Context(), o)
			if tine.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) || tine.HintOf(err) == "" {
				t.Errorf("%v (%s), hint %q", err, tine.KindOf(err), tine.HintOf(err))
			}
			left, err := os.ReadDir(o.Config.Data)
			if err != nil || c.kind == tine.KindInvalid && len(left) != 1 {
				t.Errorf("left in a directory of others: %v, %v", left, err)
			}
		})
	}
}

func TestDataDirectoryOnAReadOnlyDevice(t *testing.T) {
	o := options(t)
	if err := os.MkdirAll(o.Config.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", o.Config.Data, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Skipf("cannot mount a read-only device: %v", err)
	}
	defer func() {
		if err := unix.Unmount(o.Config.Data, 0); err != nil {
			t.Error(err)
		}
	}()
	if err := Run(t.Context(), o); tine.KindOf(err) != tine.KindReadOnly || tine.HintOf(err) == "" {
		t.Errorf("%v (%s)", err, tine.KindOf(err))
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	o := options(t)
	if err := os.MkdirAll(filepath.Dir(o.Config.Socket), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", o.Config.Socket)
	if err != nil {
		t.Fatal(err)
	}
	err = Run(t.Context(), o)
	if tine.KindOf(err) != tine.KindBusy {
		t.Errorf("somebody listens: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	start(t, o)
	if _, err := api.NewClient(o.Config.Socket, "").Server(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestServiceManagerIsTold(t *testing.T) {
	o := options(t)
	o.NotifySocket = filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: o.NotifySocket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stop := start(t, o)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	for _, want := range []string{"READY=1", "STOPPING=1"} {
		n, err := conn.Read(buf)
		if err != nil || string(buf[:n]) != want {
			t.Errorf("got %q, %v; want %q", buf[:n], err, want)
		}
	}
}

func TestGate(t *testing.T) {
	g := newGate(0)
	ask := func(path string) (int, string) {
		w := &recorder{header: http.Header{}}
		r, err := http.NewRequest(http.MethodGet, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		g.ServeHTTP(w, r)
		return w.status, w.body.String()
	}
	check := func(path string, status int, says string) {
		t.Helper()
		if s, b := ask(path); s != status || !strings.Contains(b, says) {
			t.Errorf("%s: %d %s; want %d and %q", path, s, b, status, says)
		}
	}
	check("/healthz", 200, "starting")
	check("/readyz", 503, "starting")
	check("/v1/disks", 503, `"kind":"unavailable"`)
	g.set(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") }), "ready")
	check("/readyz", 200, "ready")
	check("/v1/disks", 0, "served")
	g.set(nil, "stopping")
	check("/healthz", 200, "stopping")
	check("/v1/disks", 503, "stopping")
}

func TestCallsWaitForAServerThatStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(time.Minute)
		ask := func() <-chan *recorder {
			r, err := http.NewRequest(http.MethodGet, "/v1/disks", nil)
			if err != nil {
				t.Fatal(err)
			}
			answer := make(chan *recorder, 1)
			go func() {
				w := &recorder{header: http.Header{}}
				g.ServeHTTP(w, r)
				answer <- w
			}()
			synctest.Wait()
			return answer
		}
		answer := ask()
		if len(answer) > 0 {
			t.Fatal("answered while the server was starting")
		}
		if w := <-answer; w.status != 503 { // the bubble's clock goes on to its end
			t.Errorf("after its patience: %d %s; want 503", w.status, w.body.String())
		}
		answer = ask()
		g.set(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") }), "ready")
		if w := <-answer; w.body.String() != "served" {
			t.Errorf("once ready: %d %s", w.status, w.body.String())
		}
	})
}

type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

func TestUnmountOffline(t *testing.T) {
	o := options(t)
	if err := UnmountOffline(o.Config.Data, "/m/a"); tine.KindOf(err) != tine.KindNotFound || tine.HintOf(err) == "" {
		t.Errorf("without a data directory: %v", err)
	}
	stop := start(t, o)
	if err := UnmountOffline(o.Config.Data, "/m/a"); tine.KindOf(err) != tine.KindBusy || !strings.Contains(err.Error(), o.Config.Socket) {
		t.Errorf("while a server runs: %v", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	record := `{"format":1,"mounts":[{"disk":"a","dir":"/m/a","principal":"uid:0"}]}`
	if err := os.WriteFile(filepath.Join(o.Config.Data, "mounts.json"), []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := UnmountOffline(o.Config.Data, "/m/a"); err != nil {
		t.Errorf("a recorded mount: %v", err)
	}
	b, err := os.ReadFile(filepath.Join(o.Config.Data, "mounts.json"))
	if err != nil || strings.Contains(string(b), "/m/a") {
		t.Errorf("%s, %v", b, err)
	}
}
