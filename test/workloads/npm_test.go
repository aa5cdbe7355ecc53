package workloads

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tine.dev/tine/test/rig"
	"tine.dev/tine/test/treesum"
)

// minPackages is how many packages the project must install at least.
const minPackages = 100

// TestNpm installs a project with many packages on the disk, compares it with
// the same install on the native file system, and runs its tests there, in a
// fork, and again after the server was killed.
func TestNpm(t *testing.T) {
	w := newWorld(t, "node", "npm")
	rounds := 1
	if *long {
		rounds = 10
	}
	native := filepath.Join(w.dir, "native")
	w.install(native)
	want, err := treesum.Read(w.ctx, native)
	w.must(err)
	if n := w.installed(native); n < minPackages {
		t.Fatalf("only %d packages are installed, want at least %d", n, minPackages)
	}
	w.npmTest(native)

	project := filepath.Join(w.work, "project")
	for range rounds {
		w.must(os.RemoveAll(project))
		w.install(project)
		w.holds("npm ci on the disk", project, want)
		w.npmTest(project)
	}
	w.Logf("%d packages, %d files, %d MiB", w.installed(project), want.Files, want.Bytes>>20)

	// A fork in which the project is broken, and the parent that is not.
	w.tine("fork", "work", "broken")
	broken := filepath.Join(w.mount("broken"), "project")
	w.holds("the fork", broken, want)
	source := filepath.Join(broken, "src", "ledger.js")
	text, err := os.ReadFile(source)
	w.must(err)
	w.must(os.WriteFile(source, []byte(strings.Replace(string(text), "?? 0", "?? 1", 1)), 0o644))
	if out, err := rig.Output(w.command(broken, "npm", "test")); err == nil {
		t.Errorf("the tests pass although the source is wrong:\n%s", out)
	}
	w.npmTest(project)

	w.tine("sync", "work")
	w.must(w.rig.Kill())
	w.start()
	w.holds("the disk after the crash", project, want)
	w.npmTest(project)
}

// install copies the project to dir and installs its packages there.
func (w *world) install(dir string) {
	w.Helper()
	w.must(os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "npm"))))
	w.must(os.RemoveAll(filepath.Join(dir, "node_modules"))) // of someone who worked on the project in place
	w.do(dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--cache", w.cache("npm"))
}

// installed returns the number of packages that npm says it has installed.
func (w *world) installed(dir string) int {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "node_modules", ".package-lock.json"))
	w.must(err)
	var lock struct {
		Packages map[string]json.RawMessage `json:"packages"`
	}
	w.must(json.Unmarshal(text, &lock))
	return len(lock.Packages)
}

// npmTest runs the project's tests, which must run and pass.
func (w *world) npmTest(dir string) {
	w.Helper()
	out := w.do(dir, "npm", "test")
	if !regexp.MustCompile(`\b6 passing\b`).MatchString(out) || strings.Contains(out, "failing") {
		w.Fatalf("npm test in %s says:\n%s", dir, out)
	}
}

// holds checks that dir is the tree want.
func (w *world) holds(what, dir string, want treesum.Tree) {
	w.Helper()
	got, err := treesum.Read(w.ctx, dir)
	w.must(err)
	if err := treesum.Same(what, got, want); err != nil {
		w.Fatal(err)
	}
}
