package mixed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// buildJob changes a Go module, builds it with the build cache on the disk too,
// and has the program say what its packages hold.
type buildJob struct {
	w      *world
	rnd    *rand.Rand
	at     string
	values [buildPackages]int   // what the newest sources say
	since  [buildPackages][]int // what each may say after a crash: all since the last sync
	builds int
}

const (
	buildPackages = 6
	// cleanAfter is after how many builds the cache is emptied: each leaves
	// something in it.
	cleanAfter = 400
)

func (j *buildJob) prepare(ctx context.Context) error {
	at, err := j.w.disk(ctx, "builds")
	if err != nil {
		return err
	}
	j.at = at
	for _, dir := range []string{"src", "cache", "tmp"} {
		if err := os.Mkdir(filepath.Join(at, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(j.src("go.mod"), []byte("module example.com/sum\n\ngo 1.24\n"), 0o644); err != nil {
		return err
	}
	var imports, calls strings.Builder
	for i := range buildPackages {
		if err := os.Mkdir(j.src(fmt.Sprint("p", i)), 0o755); err != nil {
			return err
		}
		if err := j.set(i, 0); err != nil {
			return err
		}
		fmt.Fprintf(&imports, "import \"example.com/sum/p%d\"\n", i)
		fmt.Fprintf(&calls, "\tprintln(p%d.Value())\n", i)
	}
	text := "package main\n\n" + imports.String() + "\nfunc main() {\n" + calls.String() + "}\n"
	if err := os.WriteFile(j.src("main.go"), []byte(text), 0o644); err != nil {
		return err
	}
	if err := j.build(ctx); err != nil {
		return err
	}
	return j.sync(ctx)
}

func (j *buildJob) src(path string) string { return filepath.Join(j.at, "src", path) }

func (j *buildJob) source(i int) string { return j.src(fmt.Sprintf("p%d/value.go", i)) }

// set writes the source of a package, by a rename as editors do. The rest of
// the file is something for the compiler to do.
func (j *buildJob) set(i, value int) error {
	text := fmt.Sprintf("package p%d\n\nconst value = %d\n\n// Value is the one of this package.\nfunc Value() int { return table[len(table)-1] }\n\nvar table = [...]int{%svalue}\n",
		i, value, strings.Repeat("0, 1, ", 500))
	j.values[i] = value
	j.since[i] = append(j.since[i], value)
	if err := os.WriteFile(j.source(i)+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(j.source(i)+".new", j.source(i))
}

func (j *buildJob) tool(ctx context.Context, name string, args ...string) (string, error) {
	return j.w.tool(ctx, filepath.Join(j.at, "src"), []string{"GOCACHE=" + filepath.Join(j.at, "cache"), "GOTMPDIR=" + filepath.Join(j.at, "tmp"),
		"GOENV=off", "GOFLAGS=", "GOWORK=off", "GOPROXY=off", "GOTOOLCHAIN=local", "CGO_ENABLED=0"}, name, args...)
}

// build builds the program, runs it from the disk, and checks what it says.
func (j *buildJob) build(ctx context.Context) error {
	if out, err := j.tool(ctx, "go", "build", "-p", "1", "-o", "../sum", "."); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	out, err := j.tool(ctx, "../sum")
	if err != nil {
		return err
	}
	var want []string
	for _, v := range j.values {
		want = append(want, strconv.Itoa(v))
	}
	if got := strings.Fields(out); !slices.Equal(got, want) {
		return fmt.Errorf("the program that was built says %q, want %q", got, want)
	}
	return nil
}

func (j *buildJob) sync(ctx context.Context) error {
	if err := j.w.api.SyncDisk(ctx, "builds"); err != nil {
		return err
	}
	for i := range j.since {
		j.since[i] = []int{j.values[i]}
	}
	return nil
}

func (j *buildJob) step(ctx context.Context) error {
	j.builds++
	switch {
	case j.builds%cleanAfter == 0:
		_, err := j.tool(ctx, "go", "clean", "-cache")
		return err
	case j.rnd.IntN(8) == 0:
		return j.sync(ctx)
	}
	for range 1 + j.rnd.IntN(2) {
		if err := j.set(j.rnd.IntN(buildPackages), int(j.rnd.Uint32())); err != nil {
			return err
		}
	}
	return j.build(ctx)
}

// recover checks that each source is one of those since the last sync, and
// that the cache is of use as it is.
func (j *buildJob) recover(ctx context.Context) error {
	for i := range j.values {
		text, err := os.ReadFile(j.source(i))
		if err != nil {
			return err
		}
		_, after, _ := strings.Cut(string(text), "const value = ")
		line, _, _ := strings.Cut(after, "\n")
		value, err := strconv.Atoi(line)
		if err != nil || !slices.Contains(j.since[i], value) {
			return fmt.Errorf("after a crash package p%d has the value %q; those since the last sync are %v", i, line, j.since[i])
		}
		j.values[i] = value
	}
	left, err := filepath.Glob(filepath.Join(j.at, "tmp", "*")) // of a build that was cut off
	for _, path := range left {
		if err == nil {
			err = os.RemoveAll(path)
		}
	}
	if err != nil {
		return err
	}
	if err := j.build(ctx); err != nil {
		return err
	}
	return j.sync(ctx)
}

func (j *buildJob) finish(ctx context.Context) error { return j.build(ctx) }
