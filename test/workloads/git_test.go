package workloads

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module is a module with many files and many releases.
const module = "golang.org/x/tools"

// releases are those that become the history, oldest first.
func releases() []string {
	var all []string
	for minor := 20; minor <= 41; minor++ {
		all = append(all, fmt.Sprintf("v0.%d.0", minor))
	}
	return all
}

// TestGit makes a history of releases on the disk and does with it what people
// do with a history.
func TestGit(t *testing.T) {
	w := newWorld(t, "git", "go", "diff")
	rng := rand.New(rand.NewPCG(w.random(), 1))
	truth := w.download()
	repo := filepath.Join(w.work, "repo")
	w.do(w.work, "git", "init", "-q", "-b", "main", "repo")
	before := ""
	for _, v := range releases() {
		w.replace(repo, before, truth[v])
		before = truth[v]
		w.do(repo, "git", "add", "-A", "-f")
		w.do(repo, "git", "commit", "-q", "-m", v)
		w.do(repo, "git", "tag", v)
	}
	w.Logf("%d releases committed", len(releases()))

	checkouts := 6
	if *long {
		checkouts = 200
	}
	w.checkouts(repo, truth, rng, checkouts)

	w.do(repo, "git", "checkout", "-q", "main") // a clone gets the branch that is checked out
	history := w.do(repo, "git", "log", "--format=%H %T %s", "main")
	clone := filepath.Join(w.work, "clone") // with hard links to the objects of repo
	w.do(w.work, "git", "clone", "-q", "repo", "clone")
	w.do(repo, "git", "repack", "-q", "-a", "-d", "-f")
	w.do(clone, "git", "gc", "-q", "--prune=now")
	w.intact(repo, history)
	w.intact(clone, history)
	w.checkouts(clone, truth, rng, checkouts/3)

	if err := w.rig.Stop(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.intact(repo, history)
	w.intact(clone, history)
	w.checkouts(repo, truth, rng, 1)
}

// download returns where the go command keeps each release.
func (w *world) download() map[string]string {
	w.Helper()
	args := []string{"mod", "download", "-json"}
	for _, v := range releases() {
		args = append(args, module+"@"+v)
	}
	cmd := w.command(w.dir, "go", args...)
	cmd.Env = append(cmd.Env, "GOFLAGS=", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		w.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	dirs := map[string]string{}
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var m struct{ Version, Dir string }
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			w.Fatal(err)
		}
		dirs[m.Version] = m.Dir
	}
	for _, v := range releases() {
		if dirs[v] == "" {
			w.Fatalf("the go command did not say where %s is", v)
		}
	}
	return dirs
}

// replace turns the work tree at repo, which holds the files of the directory
// old ("" for none), into one with those of new, touching only what differs.
func (w *world) replace(repo, old, new string) {
	w.Helper()
	was, is := w.files(old), w.files(new)
	for name := range was {
		if _, stays := is[name]; !stays {
			w.must(os.Remove(filepath.Join(repo, name)))
			// Git knows no empty directories. The last one up holds .git.
			for dir := filepath.Dir(name); os.Remove(filepath.Join(repo, dir)) == nil; {
				dir = filepath.Dir(dir)
			}
		}
	}
	for name, text := range is {
		if had, ok := was[name]; ok && bytes.Equal(had, text) {
			continue
		}
		path := filepath.Join(repo, name)
		w.must(os.MkdirAll(filepath.Dir(path), 0o755))
		w.must(os.WriteFile(path, text, 0o644))
	}
}

// files reads all files below dir.
func (w *world) files(dir string) map[string][]byte {
	w.Helper()
	all := map[string][]byte{}
	if dir == "" {
		return all
	}
	w.must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all[path[len(dir)+1:]] = text
		return err
	}))
	return all
}

// checkouts jumps between releases and compares each with the module cache.
func (w *world) checkouts(repo string, truth map[string]string, rng *rand.Rand, n int) {
	w.Helper()
	for range n {
		v := releases()[rng.IntN(len(releases()))]
		w.do(repo, "git", "checkout", "-q", v)
		w.do(repo, "diff", "-r", "--exclude=.git", truth[v], ".")
		if changed := w.do(repo, "git", "status", "--porcelain"); changed != "" {
			w.Fatalf("%s: right after a checkout of %s, git sees changes:\n%s", repo, v, changed)
		}
	}
}

// intact checks a repository and its history.
func (w *world) intact(repo, history string) {
	w.Helper()
	if out := w.do(repo, "git", "fsck", "--full", "--strict", "--no-dangling"); out != "" {
		w.Errorf("git fsck says:\n%s", out)
	}
	if got := w.do(repo, "git", "log", "--format=%H %T %s", "main"); got != history {
		w.Errorf("%s has another history:\n%s\nwant:\n%s", repo, got, history)
	}
	if got := len(strings.Fields(w.do(repo, "git", "tag"))); got != len(releases()) {
		w.Errorf("%s has %d tags, want %d", repo, got, len(releases()))
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}
