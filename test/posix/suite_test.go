package posix

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/test/rig"
)

var (
	long     = flag.Bool("long", false, "tine in more variants: kernel features off, no caches, write-back cache, mapped ids")
	dirFlag  = flag.String("dir", "", "for TestDir: the directory to examine")
	tineFlag = flag.String("tine", "", "the tine under test; built from this module if empty")
	strict   = flag.Bool("strict", false, "known failures fail too")
)

// caseLimit is how long a case may take before it is said to hang.
const caseLimit = 30 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(peerEnv) != "" {
		servePeer()
		return
	}
	if os.Getenv(serverEnv) != "" {
		serveVariant()
		return
	}
	flag.Parse()
	os.Exit(run(m))
}

// run builds the tine that all tests share, if they can run at all.
func run(m *testing.M) int {
	if *tineFlag != "" || os.Geteuid() != 0 || rig.Usable() != nil {
		return m.Run() // the tests that need it are skipped and say why
	}
	dir, err := os.MkdirTemp("", "tine-posix-")
	if err == nil {
		defer os.RemoveAll(dir)
		*tineFlag = filepath.Join(dir, "tine")
		err = rig.Build(context.Background(), *tineFlag)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// behaviour is one case: a call and what is said of it.
type behaviour struct {
	call  string
	errno syscall.Errno // the error that do must return; 0: none
	what  string
	do    func(c *kase) error
}

// refuse is a case in which the call, made last by do, fails with errno.
func refuse(call string, errno syscall.Errno, what string, do func(c *kase) error) behaviour {
	return behaviour{call, errno, what, do}
}

// works is a case in which do itself finds out whether all is right.
func works(call, what string, do func(c *kase)) behaviour {
	return behaviour{call, 0, what, func(c *kase) error { do(c); return nil }}
}

// title is the name of a case within its call.
func (b behaviour) title() string {
	if b.errno == 0 {
		return b.what
	}
	return unix.ErrnoName(b.errno) + " " + b.what
}

// name is the name of a case, as the tables known and errnos have it.
func (b behaviour) name() string { return b.call + "/" + b.title() }

// behaviours are all cases, ordered by call.
func behaviours() []behaviour {
	all := slices.Concat(pathCases(), faultCases(), readOnlyCases(), openCases, tmpfileCases, readCases, writeCases, vectorCases, seekCases,
		truncateCases, allocateCases, syncCases, linkCases, unlinkCases, renameCases, renameFlagCases, mkdirCases, symlinkCases,
		mknodCases, chmodCases, chownCases, killCases, sgidKillCases(), sgidCases, utimeCases, timeRuleCases(), accessCases, statCases, statfsCases,
		listCases, xattrCases, xattrRuleCases, aclCases, aclRuleCases, flockCases, recordLockCases, ofdLockCases, leaseCases, mmapCases, copyCases,
		copyRuleCases, handleCases, directCases, sendfileCases, spliceCases, stickyCases, nameCases, bigCases, togetherCases, openFileCases, fcntlCases)
	slices.SortStableFunc(all, func(a, b behaviour) int { return strings.Compare(a.call, b.call) })
	return all
}

// place is where the cases run: a directory, seen through two paths.
type place struct {
	here, there string // absolute; equal unless a disk is mounted twice
	variant     string // of tine; "" for any other file system
}

// caseDir is the name of the directory of the i-th case.
func caseDir(i int) string { return fmt.Sprintf("case-%04d", i) }

// prepare makes the directories of all cases.
func prepare(t *testing.T, dir string) {
	t.Helper()
	for i := range behaviours() {
		d := filepath.Join(dir, caseDir(i))
		if err := errors.Join(os.Mkdir(d, 0o755), os.Chmod(d, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
}

// examine runs all cases in a place that was prepared.
func examine(t *testing.T, p place) {
	t.Helper()
	all := behaviours()
	for i := 0; i < len(all); {
		n := i + 1
		for n < len(all) && all[n].call == all[i].call {
			n++
		}
		t.Run(all[i].call, func(t *testing.T) {
			for j := i; j < n; j++ {
				t.Run(all[j].title(), func(t *testing.T) { examineOne(t, p, all[j], caseDir(j)) })
			}
		})
		i = n
	}
}

func examineOne(t *testing.T, p place, b behaviour, dir string) {
	c := newCase(p, dir)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(b)
	}()
	select {
	case <-done:
	case <-time.After(caseLimit):
		t.Fatalf("%s hangs: not done after %v", b.name(), caseLimit)
	}
	if c.skipped != "" {
		t.Skip(c.skipped)
	}
	f, isKnown := knownFlaw(b.name(), p.variant)
	switch {
	case isKnown && len(c.failures) > 0:
		t.Skipf("known (%s): %s", f.what, c.failures[0])
	case isKnown && !f.sometimes:
		t.Errorf("%q passes: take it off the table known", b.name())
	default:
		for _, f := range c.failures {
			t.Errorf("%s: %s", b.name(), f)
		}
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: most rules are about who may do what")
	}
}

// TestNative runs the suite on the machine's own file system, which shows that
// the cases expect nothing odd.
func TestNative(t *testing.T) {
	needRoot(t)
	dir := nativeDir(t)
	prepare(t, dir)
	examine(t, place{here: dir, there: dir})
}

// TestDir runs the suite in the directory that -dir names.
func TestDir(t *testing.T) {
	if *dirFlag == "" {
		t.Skip("no -dir")
	}
	needRoot(t)
	base, err := filepath.Abs(*dirFlag)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(base, "posix-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	prepare(t, dir)
	examine(t, place{here: dir, there: dir})
}

// TestNamesAreUnique holds for the tables: a name stands for one case.
func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, b := range slices.Concat(behaviours(), fullCases) {
		if seen[b.name()] {
			t.Errorf("two cases are named %q", b.name())
		}
		seen[b.name()] = true
	}
	t.Logf("%d cases", len(seen))
}
