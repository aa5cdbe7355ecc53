package baddays

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/api"
	"tine.dev/tine/test/baddays/faultfs"
	"tine.dev/tine/test/rig"
)

var (
	long       = flag.Bool("long", false, "the long form: more moments, more places")
	seed       = flag.Uint64("seed", 0, "the seed of random places; 0: another one each time")
	tineFlag   = flag.String("tine", "", "the tine under test; built from this module if empty")
	pointsFlag = flag.Int("points", 0, "moments at which the device is full, for each way of filling it; 0: a few, or all with -long")
	flipsFlag  = flag.Int("flips", 0, "bytes that are damaged, for each kind of file; 0: 1, or 40 with -long")
)

// faultsEnv makes the test binary the process that serves a faultfs.
const faultsEnv = "TINE_BADDAYS_FAULTS"

func TestMain(m *testing.M) {
	if os.Getenv(faultsEnv) != "" {
		if err := faultfs.Serve(os.Args[1], os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "faultfs:", err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if err := os.RemoveAll(binDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// callLimit is how long any one call may take on a bad day before it counts as
// a hang.
const callLimit = 40 * time.Second

// binDir is where the program is compiled to.
var binDir = filepath.Join(os.TempDir(), fmt.Sprintf("tine-baddays-bin-%d", os.Getpid()))

// build compiles the program once for all tests of a run.
var build = sync.OnceValues(func() (string, error) {
	if *tineFlag != "" {
		return filepath.Abs(*tineFlag)
	}
	out := filepath.Join(binDir, "tine")
	return out, rig.Build(context.Background(), out)
})

// world is a server in a directory of its own, with whatever the test puts
// under its data directory.
type world struct {
	t   *testing.T
	rig *rig.Rig
	api *api.Client
}

// newWorld prepares a server; below makes the file system under its data
// directory, nil for the machine's. Nothing runs yet.
func newWorld(t *testing.T, below func(data string), flags ...string) *world {
	t.Helper()
	if err := rig.Usable(); err != nil {
		t.Skip(err)
	}
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "tine-baddays-")
	if err != nil {
		t.Fatal(err)
	}
	r, err := rig.New(bin, dir, flags...)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, rig: r, api: api.NewClient(filepath.Join(r.Dir(), "tine.sock"), "baddays")}
	t.Cleanup(func() {
		w.api.Close()
		if t.Failed() {
			t.Logf("the end of the server's log:\n%s", r.LogEnd())
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if below != nil {
		below(r.Data())
	}
	return w
}

func (w *world) start() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), callLimit)
	defer cancel()
	if _, err := w.rig.Start(ctx); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) kill() {
	w.t.Helper()
	if err := w.rig.Kill(); err != nil {
		w.t.Fatal(err)
	}
}

// tine runs a command that must succeed.
func (w *world) tine(args ...string) string {
	w.t.Helper()
	out, err := w.rig.Tine(w.t.Context(), args...)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

func (w *world) mount(ref string) string {
	w.t.Helper()
	at, err := w.rig.Mount(w.t.Context(), ref)
	if err != nil {
		w.t.Fatal(err)
	}
	return at
}

// log returns all that the server has logged.
func (w *world) log() string {
	b, err := os.ReadFile(w.rig.LogFile())
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// clean checks that the checker finds nothing wrong; no server runs.
func (w *world) clean() {
	w.t.Helper()
	if out, code := w.run("fsck", "--read-data", "--data", w.rig.Data()); code != 0 {
		w.t.Errorf("tine fsck ends with %d:\n%s", code, out)
	}
}

// run runs a command and returns what it says and its exit code.
func (w *world) run(args ...string) (string, int) {
	w.t.Helper()
	out, err := w.rig.Tine(w.t.Context(), args...)
	if err == nil {
		return out, 0
	}
	code, ok := asExit(err)
	if !ok {
		w.t.Fatal(err)
	}
	return out, code
}

// within runs a call that may hang on a bad day, and fails the test if it does.
func (w *world) within(what string, call func() error) error {
	w.t.Helper()
	done := make(chan error, 1)
	go func() { done <- call() }()
	limit := time.NewTimer(callLimit)
	defer limit.Stop()
	select {
	case err := <-done:
		return err
	case <-limit.C:
		w.t.Fatalf("%s hangs", what)
		return nil
	}
}

// eventually tries until it succeeds or the time is over, and returns how long
// that took. What it waits for has no other way to tell.
func eventually(limit time.Duration, try func() error) (time.Duration, error) {
	began := time.Now()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := try()
		if err == nil || time.Since(began) > limit {
			return time.Since(began), err
		}
		<-again.C
	}
}

// smallDevice mounts a tmpfs of that size; resize changes it.
func smallDevice(t *testing.T, bytes int64) func(data string) {
	return func(data string) {
		if err := unix.Mount("tine-baddays", data, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
			t.Skipf("cannot mount a tmpfs: %v", err)
		}
	}
}

// usage is what a device holds and what it could hold, in bytes.
func usage(t *testing.T, dir string) (used, total int64) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize, int64(st.Blocks) * st.Bsize
}

// leave makes a tmpfs so small that just so much is free. The server goes on
// meanwhile, so what is free may be less at once, and is never more.
func leave(t *testing.T, dir string, free int64) {
	t.Helper()
	for {
		used, _ := usage(t, dir)
		err := unix.Mount("", dir, "", unix.MS_REMOUNT, fmt.Sprintf("size=%d", used+free))
		if err == nil {
			return
		}
		if err != unix.EINVAL { // EINVAL: it has grown since
			t.Fatal(err)
		}
	}
}

func resize(t *testing.T, dir string, bytes int64) {
	t.Helper()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Fatal(err)
	}
}

// faults is a faultfs that can be given orders.
type faults struct {
	t  *testing.T
	in io.Writer
	sc *bufio.Scanner
}

// serveFaults mounts a faultfs on the data directory.
func (f *faults) serve(data string) {
	f.t.Helper()
	backing := f.t.TempDir()
	cmd := exec.Command("/proc/self/exe", data, backing)
	cmd.Env = append(os.Environ(), faultsEnv+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	// It ends when the world has taken all mounts away, or at the end of the
	// orders, whichever comes first: the directory is the world's to clear.
	f.t.Cleanup(func() {
		_ = stdin.Close()
		_ = syscall.Unmount(data, syscall.MNT_FORCE|syscall.MNT_DETACH)
		_ = cmd.Wait()
	})
	f.in, f.sc = stdin, bufio.NewScanner(stdout)
	if !f.sc.Scan() {
		f.t.Fatal("faultfs did not start")
	}
}

func (f *faults) order(format string, args ...any) string {
	f.t.Helper()
	if _, err := fmt.Fprintf(f.in, format+"\n", args...); err != nil {
		f.t.Fatal(err)
	}
	if !f.sc.Scan() || !strings.HasPrefix(f.sc.Text(), "ok") {
		f.t.Fatalf("faultfs: %q", f.sc.Text())
	}
	return f.sc.Text()
}

// fail has an operation on files fail with EIO.
func (f *faults) fail(op, pattern string) {
	f.t.Helper()
	f.order("fail %s %d %s", op, syscall.EIO, pattern)
}

// heal ends all failing and returns how often something has failed.
func (f *faults) heal() (hits int) {
	f.t.Helper()
	if _, err := fmt.Sscanf(f.order("heal"), "ok %d", &hits); err != nil {
		f.t.Fatal(err)
	}
	return hits
}

// random returns a source for the test and prints its seed.
func random(t *testing.T) *rand.Rand {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("again: go test ./test/baddays -count=1 -run '^%s$' -seed=%d", t.Name(), s)
	return rand.New(rand.NewPCG(s, 1))
}

// bytesOf returns n bytes that nothing compresses, the same for the same key.
func bytesOf(key string, n int) []byte {
	var k [32]byte
	copy(k[:], key)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(k).Read(b) // never fails
	return b
}

// asExit returns the exit code of a command that has run.
func asExit(err error) (code int, ok bool) {
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return ended.ExitCode(), true
	}
	return 0, false
}
