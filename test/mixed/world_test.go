package mixed

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/api"
	"tine.dev/tine/test/rig"
)

var (
	long    = flag.Bool("long", false, "the long form: an hour, a kill every minute")
	lasting = flag.Duration("mixed.for", 0, "how long the workers work; 0: 15 s, or 1 h with -long")
	every   = flag.Duration("mixed.every", 0, "time from kill to kill, or from sample to sample; 0: a fifth of a short run, or 1 min with -long")
	kills   = flag.Bool("mixed.kills", true, "kill the server; without, one server lives the whole time")
	seed    = flag.Uint64("seed", 0, "seed of what is random; 0 takes one from the clock")
	binary  = flag.String("tine", "", "the tine under test; built from this module if empty")
)

func TestMain(m *testing.M) {
	flag.Parse()
	unix.Umask(umask)
	os.Exit(m.Run())
}

// umask is the one of the test and its tools; the model knows it.
const umask = 0o022

// world is one server and those who work on it.
type world struct {
	t    *testing.T
	ctx  context.Context
	rig  *rig.Rig
	api  *api.Client
	seed uint64
	gate gate

	every, length time.Duration
	workers       []*worker
}

// gate lets workers through while the server is up, and knows in which of its
// lives it is.
type gate struct {
	mu     sync.Mutex
	change sync.Cond
	life   int // grows when a server is ready
	up     bool
	closed bool
}

// enter waits until the server is up and returns its life; false when there is
// no more to do.
func (g *gate) enter() (life int, open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for !g.up && !g.closed {
		g.change.Wait()
	}
	return g.life, !g.closed
}

// ended reports whether a life is over, or about to be.
func (g *gate) ended(life int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.up || g.life != life
}

func (g *gate) set(up, closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if up && !g.up {
		g.life++
	}
	g.up, g.closed = up, closed
	g.change.Broadcast()
}

// job is what a worker does to its disks. Each call is made by one goroutine
// after the other.
type job interface {
	// prepare makes the disks. The server is not killed meanwhile.
	prepare(ctx context.Context) error
	// step does one thing. What it leaves undone when the server dies is seen
	// to by recover.
	step(ctx context.Context) error
	// recover checks what a crash has left and puts it right. The server may
	// die meanwhile; then it is called again.
	recover(ctx context.Context) error
	// finish checks everything that the job knows of.
	finish(ctx context.Context) error
}

// worker repeats one job.
type worker struct {
	name  string
	job   job
	steps int
	lives int            // that it has gone on from
	met   map[string]int // errors of a dead server, by what they say
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if err := rig.Usable(); err != nil {
		t.Skipf("needs to mount: %v", err)
	}
	for _, p := range []string{"git", "go", "sqlite3"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("needs the program %s: see .ci/setup", p)
		}
	}
	w := &world{t: t, ctx: t.Context(), seed: *seed, length: *lasting, every: *every}
	w.gate.change.L = &w.gate.mu
	if w.seed == 0 {
		w.seed = uint64(time.Now().UnixNano())
	}
	switch {
	case w.length == 0 && *long:
		w.length = time.Hour
	case w.length == 0:
		w.length = 15 * time.Second
	}
	switch {
	case w.every == 0 && *long:
		w.every = time.Minute
	case w.every == 0:
		w.every = w.length / 5
	}
	t.Logf("replay with: go test ./test/mixed -count=1 -run '^%s$' -seed=%d -mixed.for=%v -mixed.every=%v -mixed.kills=%v", t.Name(), w.seed, w.length, w.every, *kills)
	tine := *binary
	if tine == "" {
		tine = filepath.Join(t.TempDir(), "tine")
		must(t, rig.Build(w.ctx, tine))
	}
	dir, err := os.MkdirTemp("", "tine-")
	must(t, err)
	w.rig, err = rig.New(tine, dir)
	must(t, err)
	w.api = api.NewClient(filepath.Join(w.rig.Dir(), "tine.sock"), "mixed")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the server's log:\n%s", w.rig.LogEnd())
		}
		w.api.Close()
		if err := w.rig.Close(); err != nil {
			t.Error(err)
		}
		nothingLeft(t, dir)
	})
	w.start()
	return w
}

func (w *world) start() time.Duration {
	w.t.Helper()
	took, err := w.rig.Start(w.ctx)
	must(w.t, err)
	return took
}

// random is a source for one of several purposes.
func (w *world) random(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, purpose)) }

// disk makes a disk and mounts it.
func (w *world) disk(ctx context.Context, name string) (at string, err error) {
	if _, err := w.api.CreateDisk(ctx, name); err != nil {
		return "", err
	}
	return w.mount(ctx, name)
}

func (w *world) mount(ctx context.Context, ref string) (string, error) {
	at := w.rig.At(ref)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return "", err
	}
	_, err := w.api.Mount(ctx, api.NewMount{Ref: ref, Dir: at})
	return at, err
}

// unmount takes a mount away. A process that this one is about to start may
// hold its files open until it has become another program: the server then
// says, rightly, that the mount is in use.
func (w *world) unmount(ctx context.Context, at string) error {
	for {
		err := w.api.Unmount(ctx, at, false)
		var a *api.Error
		if err == nil || ctx.Err() != nil || !errors.As(err, &a) || a.Kind != "in_use" {
			return err
		}
	}
}

// tool runs a program in a directory on a disk.
func (w *world) tool(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := rig.Command(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(rig.Environment(), env...)
	out, err := rig.Output(cmd)
	return strings.TrimSpace(out), err
}

// stepLimit is after how long a step hangs, for all that steps do.
const stepLimit = 10 * time.Minute

// run repeats the job until the gate closes; an error is one that nobody may
// meet.
func (w *world) run(k *worker) error {
	seen := 1
	for {
		life, open := w.gate.enter()
		if !open {
			return nil
		}
		ctx, cancel := context.WithTimeout(w.ctx, stepLimit)
		what, call := "recover", k.job.recover
		if life == seen {
			what, call = "step", k.job.step
		}
		err := call(ctx)
		cancel()
		switch {
		case err == nil && life == seen:
			k.steps++
		case err == nil:
			seen = life
			k.lives++
		default:
			kind := deadServer(err)
			if kind == "" || !w.gate.ended(life) {
				return fmt.Errorf("%s, step %d, life %d: %s: %w", k.name, k.steps, life, what, err)
			}
			k.met[kind]++
			if kind == ownWords {
				w.t.Logf("%s, as the server died: %v", k.name, err)
			}
		}
	}
}

const ownWords = "a program that failed, in words of its own"

// deadServer tells which of the errors that a dead server causes err is; "" if
// it is none.
func deadServer(err error) string {
	var a *api.Error
	if errors.As(err, &a) && a.Kind == "unavailable" {
		return "the API is not there"
	}
	for _, errno := range []unix.Errno{unix.ENOTCONN, unix.ECONNABORTED, unix.EIO} {
		if errors.Is(err, errno) || strings.Contains(strings.ToLower(err.Error()), errno.Error()) {
			return errno.Error()
		}
	}
	// As SQLite says it of a file that it cannot read or lock. A page of a mapped
	// file that cannot be read is a bus error.
	for _, text := range []string{"disk I/O error", "locking protocol", "bus error"} {
		if strings.Contains(err.Error(), text) {
			return text
		}
	}
	if errors.Is(err, errBare) || strings.Contains(err.Error(), "No such file or directory") || errors.Is(err, unix.ENOENT) {
		return "the mount is not back yet"
	}
	// Git in particular takes what it cannot read for what is not there.
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return ownWords
	}
	return ""
}

// errBare is what a worker says that finds nothing mounted.
var errBare = errors.New("nothing is mounted there")

// kill ends a life of the server and begins the next.
func (w *world) kill() (down time.Duration) {
	w.t.Helper()
	w.gate.set(false, false)
	must(w.t, w.rig.Kill())
	down = w.start()
	w.gate.set(true, false)
	return down
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// nothingLeft checks that no mount and no process has to do with a directory
// any more. The guard of a server that was killed ends by itself, when it has
// looked at all mounts and processes of the machine.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if strings.Contains(string(mounts), dir) {
		t.Errorf("a mount below %s is left", dir)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	left := processes(t, dir)
	for limit := time.After(2 * time.Minute); len(left) > 0; left = processes(t, dir) {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("processes are left: %q", left)
		}
	}
}

// processes returns the command lines of all whose arguments, environment or
// working directory name a directory.
func processes(t *testing.T, dir string) (lines []string) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
	for _, proc := range found { // any may end meanwhile
		line, _ := os.ReadFile(proc + "/cmdline")
		environment, _ := os.ReadFile(proc + "/environ")
		cwd, _ := os.Readlink(proc + "/cwd")
		if strings.Contains(string(line)+string(environment)+cwd, dir) {
			lines = append(lines, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return lines
}
