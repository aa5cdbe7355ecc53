package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"tine.dev/tine/api"
)

// The names of the places.
const (
	native = "native"
	onTine = "tine"
	memfs  = "memfs"
)

// place is a directory in which cases are run.
type place struct {
	name string
	dir  string
	// settle brings what was written to the device.
	settle func(context.Context) error
	// backing is where the bytes of its files lie; pages are dropped there too.
	backing string
}

// bench is one run: the places, and what was started for them.
type bench struct {
	size     sizes
	quick    bool
	work     string // the temporary directory
	module   string // root directory of this module
	goroot   string
	root     bool // whether the kernel's caches can be dropped
	places   []*place
	client   *api.Client
	server   *process
	progress io.Writer
	undo     []func() error
}

// disk is the name of the disk at the place "tine".
const disk = "bench"

// setUp builds and starts what the cases need. On an error nothing is left.
func setUp(ctx context.Context, o options, progress io.Writer) (*bench, error) {
	b := &bench{size: sizesOf(o), quick: o.quick, root: os.Geteuid() == 0, progress: progress}
	if err := b.start(ctx, o); err != nil {
		return nil, errors.Join(err, b.tearDown())
	}
	return b, nil
}

func (b *bench) start(ctx context.Context, o options) (err error) {
	if b.module, err = output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", "tine.dev/tine"); err != nil {
		return fmt.Errorf("run it inside the source tree: %w", err)
	}
	if b.goroot, err = output(ctx, "", "go", "env", "GOROOT"); err != nil {
		return err
	}
	parent, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	if b.work, err = os.MkdirTemp(parent, "tine-bench-"); err != nil {
		return err
	}
	b.after(func() error { return os.RemoveAll(b.work) })
	for _, dir := range []string{"native", "mnt", "memfs", "data", "forks"} {
		if err := os.Mkdir(b.at(dir), 0o755); err != nil {
			return err
		}
	}
	program := o.tine
	if program == "" {
		program = b.at("tine")
		if err := b.build(ctx, program, "./cmd/tine"); err != nil {
			return err
		}
	}
	if err := b.build(ctx, b.at("memfs-program"), "./bench/memfs"); err != nil {
		return err
	}
	if err := b.startServer(ctx, program); err != nil {
		return err
	}
	if err := b.startMemfs(ctx); err != nil {
		return err
	}
	b.places = []*place{
		{name: native, dir: b.at("native"), settle: func(context.Context) error { return syncfs(b.at("native")) }},
		{name: onTine, dir: b.at("mnt"), settle: b.settleTine, backing: b.at("data")},
		{name: memfs, dir: b.at("memfs"), settle: func(context.Context) error { return nil }},
	}
	return nil
}

func (b *bench) at(name string) string { return filepath.Join(b.work, name) }

func (b *bench) after(f func() error) { b.undo = append(b.undo, f) }

// tearDown stops and removes everything, the last first.
func (b *bench) tearDown() error {
	var errs []error
	for i := len(b.undo) - 1; i >= 0; i-- {
		errs = append(errs, b.undo[i]())
	}
	b.undo = nil
	return errors.Join(errs...)
}

func (b *bench) build(ctx context.Context, to, pkg string) error {
	fmt.Fprintf(b.progress, "building %s\n", pkg)
	_, err := output(ctx, b.module, "go", "build", "-o", to, pkg)
	return err
}

// settleTine makes all of the disk durable, and then what the server wrote to
// do so, so that no write-back runs into what is measured next.
func (b *bench) settleTine(ctx context.Context) error {
	if err := syncfs(b.at("mnt")); err != nil {
		return err
	}
	if err := b.client.SyncDisk(ctx, disk); err != nil {
		return err
	}
	return syncfs(b.at("data"))
}

func syncfs(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// needsRoot is the missing of cases that drop the kernel's caches.
func needsRoot(b *bench) string {
	if b.root {
		return ""
	}
	return "only root may drop the kernel's cache of names"
}

// dropNames empties the kernel's cache of names and inodes, of every file
// system of the machine; the server and memfs are told to forget theirs.
func dropNames() error {
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0)
}

// dropPages drops the cached pages of a file and of what lies behind it.
func (t *turn) dropPages(name string) error {
	if err := adviseGone(name); err != nil {
		return err
	}
	if t.at.backing == "" {
		return nil
	}
	return filepath.WalkDir(t.at.backing, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && d.Type().IsRegular() {
			err = adviseGone(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the server has removed it meanwhile
		}
		return err
	})
}

func adviseGone(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// output runs a program and returns what it prints; the error has what it
// complains of.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// needs is the missing of cases that run a program.
func needs(program string) func(*bench) string {
	return func(*bench) string {
		if _, err := exec.LookPath(program); err != nil {
			return "the program " + program + " is not installed"
		}
		return ""
	}
}
