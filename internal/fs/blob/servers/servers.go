// Package servers starts real object stores for tests, on the loopback
// interface only. Each is installed once, into a cache that outlives the
// tests, at a fixed version; a test is skipped only where the registry that has
// it cannot be reached.
package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	versityModule  = "github.com/versity/versitygw"
	versityVersion = "v1.8.0"
	fakeGCSModule  = "github.com/fsouza/fake-gcs-server"
	fakeGCSVersion = "v1.56.1"
	azuriteVersion = "3.37.0"
	startTimeout   = time.Minute
	startTries     = 3
)

// Server is a store that runs.
type Server struct {
	Endpoint  string // URL
	AccessKey string
	SecretKey string
	Dir       string // what the server keeps its buckets in, each a folder
}

// Versity starts versitygw, an S3 gateway over a directory. It ends with the
// test.
func Versity(t testing.TB) Server {
	t.Helper()
	binary := install(t, versityModule, "/cmd/versitygw", versityVersion)
	s := Server{AccessKey: "test-access", SecretKey: "test-secret", Dir: t.TempDir()}
	s.Endpoint = "http://" + launch(t, func(address string) *exec.Cmd {
		cmd := exec.Command(binary, "--port", address, "posix", s.Dir)
		cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.AccessKey, "ROOT_SECRET_KEY="+s.SecretKey)
		return cmd
	})
	return s
}

// launch starts a server that listens on an address of its own, which it
// returns.
func launch(t testing.TB, command func(address string) *exec.Cmd) string {
	t.Helper()
	for try := 1; ; try++ {
		address := freeAddress(t)
		err := start(t, command(address), address)
		if err == nil {
			return address
		}
		if try == startTries {
			t.Fatal(err)
		}
	}
}

// freeAddress returns an address nobody listened on a moment ago.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start runs a server until the test ends, and returns when it listens.
func start(t testing.TB, cmd *exec.Cmd, address string) error {
	t.Helper()
	var out output
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(startTimeout)
	for {
		c, err := net.Dial("tcp", address)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ended:
			return fmt.Errorf("%s ended: %s", cmd.Path, out.String())
		case <-late:
			return fmt.Errorf("%s does not listen after %v: %s", cmd.Path, startTimeout, out.String())
		case <-tick.C:
		}
	}
}

// output collects what a server says.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// install returns the program of a Go package, built if it is not cached.
func install(t testing.TB, module, pkg, version string) string {
	t.Helper()
	name := filepath.Base(module + pkg)
	return cached(t, name+"-"+version, name, func(tmp string) {
		t.Logf("building %s %s: this takes minutes, once", name, version)
		if out, err := goCommand(t.Context(), tmp, "install", "-trimpath", "-ldflags=-s -w", module+pkg+"@"+version); err != nil {
			if _, unreachable := goCommand(t.Context(), tmp, "list", "-m", module+"@"+version); unreachable != nil {
				t.Skipf("%s is not cached and the module registry cannot be reached: %v", name, unreachable)
			}
			t.Fatalf("building %s: %v\n%s", name, err, out)
		}
	})
}

// cached returns the path of a file in a folder of the cache. If it is not
// there, fill makes the whole folder, under another name.
func cached(t testing.TB, folder, file string, fill func(tmp string)) string {
	t.Helper()
	dir := filepath.Join(cache(t), "tools", folder)
	path := filepath.Join(dir, file)
	unlock := lock(t, dir+".lock")
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path
	}
	tmp := dir + ".new"
	for _, half := range []string{tmp, dir} {
		if err := os.RemoveAll(half); err != nil {
			t.Fatal(err)
		}
	}
	fill(tmp)
	if err := os.Rename(tmp, dir); err != nil {
		t.Fatal(err)
	}
	return path
}

// goCommand runs the go tool at the lowest priority, outside this module.
func goCommand(ctx context.Context, bin string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", "19", "go"}, args...)...)
	cmd.Dir = os.TempDir()
	cmd.Env = append(os.Environ(), "GOBIN="+bin, "GOFLAGS=", "CGO_ENABLED=0")
	return cmd.CombinedOutput()
}

// cache is a directory that outlives the tests.
func cache(t testing.TB) string {
	t.Helper()
	root := os.Getenv("TINE_CACHE")
	if root == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		root = filepath.Join(user, "tine")
	}
	if err := os.MkdirAll(filepath.Join(root, "tools"), 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// lock keeps other test processes from building the same.
func lock(t testing.TB, path string) (unlock func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = f.Close() }
}
