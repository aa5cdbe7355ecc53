package workloads

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tine.dev/tine/test/rig"
)

var (
	long   = flag.Bool("long", false, "the long form: more checkouts, more crashes")
	seed   = flag.Uint64("seed", 0, "seed of what is random; 0 takes one from the clock")
	binary = flag.String("tine", "", "the tine under test; built from this module if empty")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

// run builds the tine that all tests share, if they can run at all.
func run(m *testing.M) int {
	if rig.Usable() != nil {
		return m.Run() // each test is skipped and says why
	}
	if *binary != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "tine-workloads-")
	if err == nil {
		defer os.RemoveAll(dir)
		*binary = filepath.Join(dir, "tine")
		err = rig.Build(context.Background(), *binary)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// world is one server with one mounted disk, "work".
type world struct {
	*testing.T
	ctx  context.Context
	rig  *rig.Rig
	work string // where the disk is mounted
	dir  string // on the native file system
}

// newWorld skips the test if the machine cannot mount or lacks a program.
func newWorld(t *testing.T, programs ...string) *world {
	t.Helper()
	if err := rig.Usable(); err != nil {
		t.Skipf("needs to mount: %v", err)
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("needs the program %s: see .ci/setup", p)
		}
	}
	dir, err := os.MkdirTemp("", "tine-")
	if err != nil {
		t.Fatal(err)
	}
	r, err := rig.New(*binary, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the server's log:\n%s", r.LogEnd())
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{T: t, ctx: t.Context(), rig: r, dir: t.TempDir()}
	w.start()
	w.tine("disk", "create", "work")
	w.work = w.mount("work")
	return w
}

func (w *world) start() {
	w.Helper()
	took, err := w.rig.Start(w.ctx)
	if err != nil {
		w.Fatal(err)
	}
	w.Logf("the server is ready after %v", took.Round(time.Millisecond))
}

func (w *world) tine(args ...string) string {
	w.Helper()
	out, err := w.rig.Tine(w.ctx, args...)
	if err != nil {
		w.Fatal(err)
	}
	return out
}

func (w *world) mount(ref string) string {
	w.Helper()
	dir, err := w.rig.Mount(w.ctx, ref)
	if err != nil {
		w.Fatal(err)
	}
	return dir
}

// command returns a command in dir, in an environment that is the same on every
// machine.
func (w *world) command(dir, name string, args ...string) *exec.Cmd {
	cmd := rig.Command(w.ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = rig.Environment()
	return cmd
}

// do runs a command in dir, which must succeed, and returns its output.
func (w *world) do(dir, name string, args ...string) string {
	w.Helper()
	out, err := rig.Output(w.command(dir, name, args...))
	if err != nil {
		w.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// cache is a directory that outlives the test, for downloads.
func (w *world) cache(name string) string {
	w.Helper()
	root := os.Getenv("TINE_CACHE")
	if root == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			w.Fatal(err)
		}
		root = filepath.Join(user, "tine")
	}
	dir := filepath.Join(root, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.Fatal(err)
	}
	return dir
}

// random returns the seed to use, and logs how to use it again.
func (w *world) random() uint64 {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	w.Logf("replay with: go test ./test/workloads -count=1 -run '^%s$' -seed=%d", w.Name(), s)
	return s
}
