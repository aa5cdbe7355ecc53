package behaviours

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tine.dev/tine/test/rig"
	"tine.dev/tine/test/treesum"
)

// nobody is an ordinary user, and others are groups.
const (
	nobody     = 61234
	nobodys    = 61235
	othersOnes = 61236
)

func TestMain(m *testing.M) {
	if role := os.Getenv("BEHAVIOUR_ROLE"); role != "" {
		os.Exit(play(role, strings.Split(os.Getenv("BEHAVIOUR_ARGS"), "\x1f")))
	}
	os.Exit(m.Run())
}

// world is one server with one disk that is mounted twice, at a and at b.
type world struct {
	ctx  context.Context
	rig  *rig.Rig
	a, b string

	forks int // made so far
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if err := rig.Usable(); err != nil {
		t.Skipf("needs to mount: %v", err)
	}
	dir, err := os.MkdirTemp("", "tine-")
	must(t, err)
	must(t, os.Chmod(dir, 0o755))
	binary := filepath.Join(t.TempDir(), "tine")
	must(t, rig.Build(t.Context(), binary))
	r, err := rig.New(binary, dir)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the server's log:\n%s", r.LogEnd())
		}
		must(t, r.Close())
	})
	w := &world{ctx: t.Context(), rig: r}
	w.start(t)
	w.tine(t, "disk", "create", "work")
	w.a, w.b = r.At("work"), r.At("work-b")
	for _, dir := range []string{w.a, w.b} {
		must(t, os.MkdirAll(dir, 0o755))
		w.tine(t, "mount", "work", dir)
	}
	return w
}

func (w *world) start(t *testing.T) {
	t.Helper()
	_, err := w.rig.Start(w.ctx)
	must(t, err)
}

// crash kills the server and starts it again; the mounts come back.
func (w *world) crash(t *testing.T) {
	t.Helper()
	must(t, w.rig.Kill())
	w.start(t)
}

func (w *world) tine(t *testing.T, args ...string) string {
	t.Helper()
	out, err := w.rig.Tine(w.ctx, args...)
	must(t, err)
	return out
}

// fork makes a fork of the disk, mounts it and returns where; it goes with the
// test.
func (w *world) fork(t *testing.T) string {
	t.Helper()
	w.forks++
	name := fmt.Sprint("fork-", w.forks)
	w.tine(t, "fork", "work", name)
	at, err := w.rig.Mount(w.ctx, name)
	must(t, err)
	t.Cleanup(func() {
		_, err := w.rig.Tine(context.Background(), "umount", at)
		must(t, err)
		_, err = w.rig.Tine(context.Background(), "disk", "rm", name, "--purge")
		must(t, err)
	})
	return at
}

// dirs makes a directory for the test and returns its path on both mounts.
func (w *world) dirs(t *testing.T) (a, b string) {
	t.Helper()
	name := filepath.Base(t.Name())
	must(t, os.Mkdir(filepath.Join(w.a, name), 0o777))
	must(t, os.Chmod(filepath.Join(w.a, name), 0o777))
	return filepath.Join(w.a, name), filepath.Join(w.b, name)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErrno(t *testing.T, what string, err error, want syscall.Errno) {
	t.Helper()
	if !isErrno(err, want) {
		t.Errorf("%s: %v; want %v", what, err, want)
	}
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	must(t, os.WriteFile(path, content, 0o644))
}

func wantContent(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s has %d bytes (%x), %v; want %d (%x)", path, len(got), sha256.Sum256(got), err, len(want), sha256.Sum256(want))
	}
}

func stat(t *testing.T, path string) *syscall.Stat_t {
	t.Helper()
	var st syscall.Stat_t
	must(t, syscall.Lstat(path, &st))
	return &st
}

func absent(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s is there: %v", path, err)
	}
}

// noise is content that differs by its seed.
func noise(n int, seed byte) []byte {
	p := make([]byte, 0, n+sha256.Size)
	block := sha256.Sum256([]byte{seed})
	for len(p) < n {
		p = append(p, block[:]...)
		block = sha256.Sum256(block[:])
	}
	return p[:n]
}

// actor is another process: this program in a role.
type actor struct {
	t   *testing.T
	cmd *exec.Cmd
	out bytes.Buffer
}

// act starts a process in a role, as root or as nobody with some groups.
func act(t *testing.T, asNobody bool, groups []uint32, role string, args ...string) *actor {
	t.Helper()
	a := &actor{t: t, cmd: exec.CommandContext(t.Context(), "/proc/self/exe")}
	a.cmd.Env = append(os.Environ(), "BEHAVIOUR_ROLE="+role, "BEHAVIOUR_ARGS="+strings.Join(args, "\x1f"))
	a.cmd.Stdout, a.cmd.Stderr = &a.out, &a.out
	if asNobody {
		a.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobodys, Groups: groups}}
	}
	must(t, a.cmd.Start())
	return a
}

// wait waits until it has ended well and returns what it printed.
func (a *actor) wait() string {
	a.t.Helper()
	if err := a.cmd.Wait(); err != nil {
		a.t.Fatalf("%v: %v\n%s", a.cmd.Env[len(a.cmd.Env)-2:], err, a.out.String())
	}
	return a.out.String()
}

func sum(t *testing.T, dir string) string {
	t.Helper()
	tree, err := treesum.Read(t.Context(), dir)
	must(t, err)
	return tree.Sum()
}

// within fails the test if fn takes longer than it may: what would be a hang
// is then a failure.
func within(t *testing.T, limit time.Duration, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("not done after %v", limit)
	}
}

// soon waits until ok is true. What other clients' kernels know follows within
// 100 ms; the machine is given more.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > 5*time.Second {
			t.Fatalf("not seen by the other side after 5 s: %s", what)
		}
		runtime.Gosched()
	}
}

func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2]
}

// TestBehaviours runs the test of every line of BEHAVIOURS.md, and fails if a
// line has none or a test has no line.
func TestBehaviours(t *testing.T) {
	text, err := os.ReadFile("BEHAVIOURS.md")
	must(t, err)
	var lines []int
	for _, m := range regexp.MustCompile(`(?m)^- B(\d+)\. `).FindAllSubmatch(text, -1) {
		n, err := strconv.Atoi(string(m[1]))
		must(t, err)
		lines = append(lines, n)
	}
	tests := behaviours()
	if len(lines) != len(tests) {
		t.Errorf("BEHAVIOURS.md has %d lines; there are %d tests", len(lines), len(tests))
	}
	w := newWorld(t)
	for i, b := range tests {
		if i >= len(lines) || lines[i] != i+1 {
			t.Errorf("line %d of BEHAVIOURS.md is not B%d", i+1, i+1)
		}
		t.Run(fmt.Sprintf("B%d-%s", i+1, b.name), func(t *testing.T) { b.test(t, w) })
	}
}

// behaviour is a line's test.
type behaviour struct {
	name string
	test func(*testing.T, *world)
}

func behaviours() []behaviour {
	return []behaviour{
		{"many-small-files", manySmallFiles},
		{"lock-file-again-at-once", lockFileAgain},
		{"gone-stays-gone", goneStaysGone},
		{"mapping-stays-coherent", mappingCoherent},
		{"interrupted-calls", interruptedCalls},
		{"eight-appenders", eightAppenders},
		{"symbolic-links", symbolicLinks},
		{"execute-bit", executeBit},
		{"hard-links", hardLinks},
		{"background-work-hides-nothing", backgroundHidesNothing},
		{"descriptors-agree", descriptorsAgree},
		{"fork-stands-still", forkStandsStill},
		{"times-survive", timesSurvive},
		{"chown-and-truncate", chownAndTruncate},
		{"cost-by-change", costByChange},
		{"shared-memory-and-locks", sharedMemoryAndLocks},
		{"checksums", checksums},
		{"copy-past-4-gib", copyPast4GiB},
		{"fsync-directory", fsyncDirectory},
		{"rename-of-one-inode", renameOfOneInode},
		{"directory-link-counts", directoryLinkCounts},
		{"rename-over-open", renameOverOpen},
		{"rename-large-directory", renameLargeDirectory},
		{"close-after-rmdir", closeAfterRmdir},
		{"forget-and-open", forgetAndOpen},
		{"unlinked-open", unlinkedOpen},
		{"two-removers", twoRemovers},
		{"directory-sizes", directorySizes},
		{"removing-while-reading", removingWhileReading},
		{"directory-entries", directoryEntries},
		{"names-are-bytes", namesAreBytes},
		{"set-group-id", setGroupID},
		{"links-attributes", linksAttributes},
		{"odd-objects", oddObjects},
		{"ids-at-once", idsAtOnce},
		{"record-lock-waiters", recordLockWaiters},
		{"one-holder", oneHolder},
		{"append-seen-by-other", appendSeenByOther},
		{"one-directory-two-sides", oneDirectoryTwoSides},
		{"inode-numbers", inodeNumbers},
	}
}
