package crash_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/api"
	"tine.dev/tine/test/crash/recorder"
	"tine.dev/tine/test/rig"
)

var (
	long   = flag.Bool("long", false, "many seeds, every flush, torn writes too")
	seed   = flag.Uint64("seed", 1, "the first seed")
	rounds = flag.Int("rounds", 0, "recordings, one a seed; 0: 2, or 50 with -long")
	steps  = flag.Int("steps", 0, "steps of each of the two clients; 0: 150, or 250 with -long")
	cuts   = flag.Int("cuts", 0, "at most this many power cuts a recording, evenly spread; 0: 400, or all with -long")
	proper = flag.Int("real", 0, "of those, how many the real program recovers; 0: 2, or 10 with -long")
)

func choose(flag, short, longer int) int {
	switch {
	case flag > 0:
		return flag
	case *long:
		return longer
	}
	return short
}

// recorderEnv makes the test binary the recorder: see recorder.Serve.
const recorderEnv = "TINE_CRASH_RECORDER"

func TestMain(m *testing.M) {
	if os.Getenv(recorderEnv) == "" {
		os.Exit(m.Run())
	}
	if err := recorder.Serve(os.Args[1], os.Args[2], os.Args[3], os.Stdout, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "recorder:", err)
		os.Exit(1)
	}
}

func needMounts(t *testing.T) {
	t.Helper()
	if err := rig.Usable(); err != nil {
		t.Skip(err)
	}
}

// build compiles the program once.
func build(t *testing.T, ctx context.Context) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "tine")
	if err := rig.Build(ctx, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// record mounts a recorder on a directory; its end is the test's.
func record(t *testing.T, dir, backing, log string) (stop func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", dir, backing, log)
	cmd.Env = append(os.Environ(), recorderEnv+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatalf("the recorder did not start: %v", errors.Join(err, cmd.Wait()))
	}
	return func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the recorder: %v", err)
		}
	}
}

// recording is a run of the program that was recorded.
type recording struct {
	events  []recorder.Event
	clients []*client
}

// makeRecording has two clients work on a recorded server.
func makeRecording(t *testing.T, ctx context.Context, binary string, seed uint64, steps int) *recording {
	t.Helper()
	backing, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	r, err := rig.New(binary, t.TempDir(), "--commit-interval", "50ms")
	if err != nil {
		t.Fatal(err)
	}
	stop := record(t, r.Data(), backing, log)
	defer func() {
		stop()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := r.Start(ctx); err != nil {
		t.Fatal(err)
	}
	rec := &recording{}
	a := api.NewClient(filepath.Join(r.Dir(), "tine.sock"), "crash")
	defer a.Close()
	done := make(chan error)
	for i := range 2 {
		c, err := newClient(ctx, r, a, log, fmt.Sprintf("disk-%d", i), rand.New(rand.NewPCG(seed, uint64(i))))
		if err != nil {
			t.Fatal(err)
		}
		rec.clients = append(rec.clients, c)
		go func() { done <- c.run(steps) }()
	}
	for range rec.clients {
		if err := <-done; err != nil {
			t.Errorf("a client: %v\n%s", err, r.LogEnd())
		}
	}
	// Half of the recordings end in the middle, half with a clean stop.
	if seed%2 == 0 {
		err = r.Kill()
	} else if err = r.Stop(ctx); err == nil {
		pos, perr := recorder.Position(log)
		if perr != nil {
			t.Fatal(perr)
		}
		for _, c := range rec.clients {
			for _, d := range append(c.forks, c.main) {
				d.acknowledge(pos)
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if rec.events, err = recorder.Read(log); err != nil {
		t.Fatal(err)
	}
	return rec
}

// flushes returns after which events power is cut: n of all flushes, and the
// end.
func (r *recording) flushes(n int) map[int]bool {
	var all []int
	for i, e := range r.events {
		if e.Op.IsFlush() {
			all = append(all, i)
		}
	}
	at := map[int]bool{len(r.events) - 1: true}
	if n <= 0 || n > len(all) {
		n = len(all)
	}
	for i := range n {
		at[all[i*len(all)/n]] = true
	}
	return at
}

// replay cuts power at the given events and calls cut with what is left. skip
// says which events never happen; nil: none.
func (r *recording) replay(at map[int]bool, skip func(recorder.Event) bool, cut func(d *device, pos int64) error) error {
	d := newDevice()
	for i, e := range r.events {
		if skip == nil || !skip(e) {
			if err := d.apply(e); err != nil {
				return fmt.Errorf("event %d: %v: %w", i, e, err)
			}
		}
		if !at[i] {
			continue
		}
		if err := cut(d, e.End); err != nil {
			return fmt.Errorf("after event %d of %d: %v: %w", i, len(r.events), e, err)
		}
	}
	return nil
}

// recover opens what is left in this process and checks it, as it is and, if
// thorough, again after all background work and a restart.
func (r *recording) recover(ctx context.Context, fs *vfs.MemFS, pos int64, thorough bool) error {
	o, err := openMem(ctx, fs)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	err = check(o, r.clients, pos)
	if err == nil && thorough {
		if err = o.host.ReclaimIdle(ctx); err == nil {
			err = check(o, r.clients, pos)
		}
		if err != nil {
			err = fmt.Errorf("after background work: %w", err)
		}
	}
	err = errors.Join(err, o.host.Close(ctx))
	if err != nil || !thorough {
		return err
	}
	if o, err = openMem(ctx, fs); err != nil {
		return fmt.Errorf("open again: %w", err)
	}
	if err = check(o, r.clients, pos); err != nil {
		err = fmt.Errorf("after opening again: %w", err)
	}
	return errors.Join(err, o.host.Close(ctx))
}

func TestPowerCuts(t *testing.T) {
	needMounts(t)
	ctx := t.Context()
	binary := build(t, ctx)
	models := []model{exact, dropped}
	if *long {
		models = append(models, torn)
	}
	for s := *seed; s < *seed+uint64(choose(*rounds, 2, 50)); s++ {
		t.Run(fmt.Sprintf("seed=%d", s), func(t *testing.T) {
			t.Logf("again: go test ./test/crash -count=1 -run 'TestPowerCuts$' -seed=%d -rounds=1 -steps=%d -long=%v -cuts=%d", s, choose(*steps, 150, 250), *long, *cuts)
			start := time.Now()
			rec := makeRecording(t, ctx, binary, s, choose(*steps, 150, 250))
			made := time.Since(start)
			at := rec.flushes(choose(*cuts, 400, 0))
			rnd := rand.New(rand.NewPCG(s, 99))
			opened, tried := 0, 0
			every := max(1, len(at)/choose(*proper, 2, 10))
			p := newPool()
			err := rec.replay(at, nil, func(d *device, pos int64) error {
				tried++
				for _, m := range models {
					fs, err := d.after(m, rnd)
					if err != nil {
						return err
					}
					if tried%every == every/2 && m == dropped {
						if err := rec.recoverReal(t, binary, fs, pos); err != nil {
							return fmt.Errorf("%v, by the real program: %w", m, err)
						}
					}
					opened++
					cut, thorough := tried, opened%16 == 0
					p.run(func() error {
						if err := rec.recover(ctx, fs, pos, thorough); err != nil {
							return fmt.Errorf("power cut %d, %v: %w", cut, m, err)
						}
						return nil
					})
				}
				return p.failed()
			})
			if err = errors.Join(err, p.wait()); err != nil {
				t.Error(err)
			}
			t.Logf("%d events, recorded in %v; %d power cuts, %d recoveries, in %v", len(rec.events), made.Round(time.Millisecond),
				tried, opened, (time.Since(start) - made).Round(time.Millisecond))
		})
	}
}

// TestItFires leaves out flushes that the program has made, as a program would
// that forgets them, and expects the check to see it.
func TestItFires(t *testing.T) {
	needMounts(t)
	ctx := t.Context()
	rec := makeRecording(t, ctx, build(t, ctx), *seed, 60)
	inode := map[uint64]string{}
	for _, e := range rec.events {
		if e.Op == recorder.Create {
			inode[e.Ino] = e.Path
		}
	}
	for name, skip := range map[string]func(recorder.Event) bool{
		"the rows' log is not flushed": func(e recorder.Event) bool { return e.Op == recorder.Fsync && filepath.Ext(inode[e.Ino]) == ".log" },
		"segments are not flushed": func(e recorder.Event) bool {
			return e.Op == recorder.Fsync && strings.HasPrefix(inode[e.Ino], "segments/")
		},
		"directories are not flushed": func(e recorder.Event) bool { return e.Op == recorder.FsyncDir },
	} {
		cut := func(d *device, pos int64) error {
			fs, err := d.after(dropped, nil)
			if err != nil {
				t.Fatal(err)
			}
			return rec.recover(ctx, fs, pos, false)
		}
		if err := rec.replay(rec.flushes(100), skip, cut); err == nil {
			t.Errorf("%s, and nothing notices", name)
		} else {
			t.Logf("%s: %.300s", name, err.Error())
		}
	}
}
