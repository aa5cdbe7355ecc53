package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"tine.dev/tine/internal/control/config"
	"tine.dev/tine/internal/control/keeper"
	"tine.dev/tine/internal/control/server"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// attachOnly mounts without a kernel: it attaches to the disk, so that the
// disk is in use.
type attachOnly struct{ host *volume.Host }

type attached struct {
	session *volume.Session
	done    chan struct{}
	once    sync.Once
}

func (a attachOnly) Mount(ctx context.Context, r keeper.Record) (keeper.Mounted, error) {
	fi, err := os.Stat(r.Dir)
	if err != nil || !fi.IsDir() {
		return nil, tine.Errorf(tine.KindNotFound, "the mount point %s does not exist", r.Dir).WithHint("mkdir -p %s", r.Dir)
	}
	who := volume.Caller{Tenant: tine.DefaultTenant, Author: r.Author, Principal: r.Principal}
	s, err := a.host.Attach(ctx, who, r.Ref(), volume.AttachOptions{Label: "mount " + r.Dir, ReadOnly: r.ReadOnly})
	if err != nil {
		return nil, err
	}
	return &attached{session: s, done: make(chan struct{})}, nil
}

func (attachOnly) CleanStale(string) error { return nil }

func (a *attached) Unmount(ctx context.Context) error {
	var err error
	a.once.Do(func() {
		err = a.session.Detach(ctx)
		close(a.done)
	})
	return err
}

func (a *attached) Remount(_ context.Context, r keeper.Record) error {
	a.session.SetReadOnly(r.ReadOnly)
	return nil
}

func (a *attached) ForceUnmount(ctx context.Context) error { return a.Unmount(ctx) }
func (a *attached) Done() <-chan struct{}                  { return a.done }
func (a *attached) Shown() bool                            { return true }

// world is a server and what its tests need.
type world struct {
	t         *testing.T
	cfg       config.Config
	dir       string
	env       map[string]string
	stdin     io.Reader
	stopServe func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, dir: dir, cfg: config.Config{Data: filepath.Join(dir, "data"), Socket: filepath.Join(dir, "t.sock"), StopTimeout: 20 * time.Second}}
	w.env = map[string]string{"TINE_SOCKET": w.cfg.Socket, "TINE_AUTHOR": "tester", "HOME": dir}
	w.serve()
	return w
}

// serve starts a server; it ends with the test or stopServe.
func (w *world) serve() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- server.Run(ctx, server.Options{
			Config: w.cfg, Log: slog.New(slog.DiscardHandler), Ready: func() { close(ready) },
			Mounter: func(h *volume.Host) keeper.Mounter { return attachOnly{h} }, OpenStore: openStore,
		})
	}()
	select {
	case <-ready:
	case err := <-done:
		cancel()
		w.t.Fatalf("the server did not start: %v", err)
	}
	w.stopServe = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("stop: %v", err)
		}
	})
	w.t.Cleanup(w.stopServe)
}

// run executes a command line; DIR in it is the test's directory.
func (w *world) run(line string) (code int, stdout, stderr string) {
	w.t.Helper()
	return w.runContext(w.t.Context(), line)
}

func (w *world) runContext(ctx context.Context, line string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	env := environment{stdin: w.stdin, stdout: &out, stderr: &errs, uid: os.Geteuid(), getenv: func(k string) string { return w.env[k] }}
	args := strings.Fields(strings.ReplaceAll(line, "DIR", w.dir))
	for i, a := range args {
		args[i] = strings.ReplaceAll(a, `""`, "")
	}
	code = run(ctx, env, args)
	return code, out.String(), errs.String()
}

// step is a command line and what it must do: the patterns are searched for
// in the output, "" stands for none at all.
type step struct {
	line           string
	code           int
	stdout, stderr string
}

func (w *world) steps(steps []step) {
	w.t.Helper()
	for _, s := range steps {
		code, stdout, stderr := w.run(s.line)
		if code != s.code || !matches(s.stdout, stdout) || !matches(s.stderr, stderr) {
			w.t.Errorf("tine %s\nexit %d, want %d\nstdout %q, want %q\nstderr %q, want %q", s.line, code, s.code, stdout, s.stdout, stderr, s.stderr)
		}
	}
}

func matches(pattern, got string) bool {
	if pattern == "" {
		return got == ""
	}
	return regexp.MustCompile(`(?s)` + pattern).MatchString(got)
}

func TestEveryKindHasAnExitCode(t *testing.T) {
	for k := range tine.ErrorKind(tine.NumKinds) {
		code := exitCode(k)
		if (code == exitInternal) != (k == tine.KindInternal) {
			t.Errorf("%s: %d; a kind that is missing in the table shows as 1", k, code)
		}
		if !regexp.MustCompile(`(?m)^ +` + regexp.QuoteMeta(itoa(code)) + `  `).MatchString(exitCodesHelp) {
			t.Errorf("the exit code %d is not documented", code)
		}
	}
}

func TestLifeOfADisk(t *testing.T) {
	w := newWorld(t)
	w.steps([]step{
		{"disk ls", 0, `^NAME +CREATED +FORKED FROM +MOUNTED ON\n$`, ""},
		{"disk create work", 0, `^created the disk work\n$`, ""},
		{"disk create work", exitExists, "", `work`},
		{"disk show work", 0, `name: +work\nid: +dsk_.*files: +1 inode\n`, ""},
		{"disk show --json work", 0, `"name": "work",.*"usage": \{\s+"disk": "work"`, ""},
		{"checkpoint create work before -m why", 0, `^created the checkpoint work@before\n$`, ""},
		{"checkpoint create --wait runnable work fast --author someone", 0, `work@fast`, ""},
		{"checkpoint create work before", exitExists, "", `before`},
		{"checkpoint ls work", 0, `before +\S+ +tester +why\nfast +\S+ +someone +\n`, ""},
		{"checkpoint ls work --json", 0, `"author": "tester",\s+"caller": "uid:`, ""},
		{"fork work@before try-1 try-2", 0, `^forked work@before to try-1\nforked work@before to try-2\n$`, ""},
		{"fork work try-3 try-1", exitExists, "", `try-1`},
		{"disk show try-3", exitNotFound, "", `try-3`},
		{"disk create try-4 --from work", 0, `^forked work to try-4\n$`, ""},
		{"rollback work before", 0, `^rolled work back to before; `, ""},
		{"rollback work none", exitNotFound, "", `none`},
		{"disk rename try-4 four", 0, `^renamed try-4 to four\n$`, ""},
		{"disk rename four work", exitExists, "", `work`},
		{"log work", 0, `create +tester +uid:\d+`, ""},
		{"tree", 0, `work\n.*try-1`, ""},
		{"du", 0, `DISK.*\nfour .*\ntry-1 .*\ntry-2 .*\nwork `, ""},
		{"du work --json", 0, `"logical_bytes": 0`, ""},
		{"sync work", 0, `durable`, ""},
		{"diff work try-1", 0, "", ""},
		{"disk rm four", 0, `to the trash; bring it back with: tine disk undelete four`, ""},
		{"disk ls", 0, `try-1`, ""},
		{"disk ls --deleted", 0, `^NAME.*\nfour `, ""},
		{"disk undelete four", 0, `^brought back the disk four\n$`, ""},
		{"disk rm --purge four", 0, `^removed the disk four for good\n$`, ""},
		{"disk undelete four", exitNotFound, "", `four`},
		{"checkpoint rm work fast", 0, `^removed the checkpoint work@fast\n$`, ""},
		{"checkpoint rm work fast", exitNotFound, "", `fast`},
	})
}

func TestMounts(t *testing.T) {
	w := newWorld(t)
	for _, d := range []string{"m", "n"} {
		if err := os.Mkdir(filepath.Join(w.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.steps([]step{
		{"disk create work", 0, `work`, ""},
		{"checkpoint create work before", 0, `before`, ""},
		{"mount work DIR/m", 0, `^mounted work on \S+/m\n$`, ""},
		{"mount work DIR/m", exitInUse, "", `mounted on \S+/m already\n +choose another directory, or unmount it first: tine umount \S+/m\n`},
		{"mount work@before DIR/n", 0, `^mounted work@before on \S+/n\n$`, ""},
		{"mount work DIR/none", exitNotFound, "", `mkdir -p`},
		{"mount none DIR/m", exitNotFound, "", `none`},
		{"mount work@ DIR/m", exitUsage, "", `checkpoint name is empty`},
		{"mounts", 0, `work +\S+/m +rw +mounted\nwork@before +\S+/n +ro +mounted\n`, ""},
		{"disk ls", 0, `work .* \S+/m, \S+/n\n`, ""},
		{"disk rm work", exitInUse, "", `is mounted on \S+/m and \S+/n\n +unmount it first: tine umount \S+/m; tine umount \S+/n\n`},
		{"disk rename work play", 0, `play`, ""},
		{"umount DIR/n", 0, `^unmounted \S+/n\n$`, ""},
		{"umount DIR/n", exitNotFound, "", "`tine mounts` lists the mounts"},
	})
	w.stopServe()
	w.serve()
	w.steps([]step{
		{"mounts", 0, `^DISK.*\nplay +\S+/m +rw +mounted\n$`, ""},
		{"umount DIR/m", 0, `unmounted`, ""},
		{"disk rm play", 0, `trash`, ""},
	})
}

func TestBadInput(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("x", 129)
	const seeHelp = "see `tine.* --help`\n$"
	w.steps([]step{
		{"disk create work", 0, `work`, ""},
		{"bogus", exitUsage, "", "no command `tine bogus`"},
		{"disk bogus", exitUsage, "", seeHelp},
		{"dis", exitUsage, "", "do you mean disk"},
		{"disk create", exitUsage, "", `usage: tine disk create NAME\n`},
		{"disk create a b", exitUsage, "", seeHelp},
		{"disk create a --bogus", exitUsage, "", seeHelp},
		{"disk create a --from work --from-dir DIR", exitUsage, "", `from`},
		{`disk create ""`, exitUsage, "", `name is empty`},
		{"disk create a/b", exitUsage, "", `"a/b" is not allowed`},
		{"disk create -- -a", exitUsage, "", `"-a" is not allowed`},
		{"disk create " + long, exitUsage, "", `129 bytes; at most 128`},
		{"disk create \xff", exitUsage, "", `not UTF-8`},
		{"disk show \xff", exitUsage, "", `not allowed`},
		{"disk show .", exitUsage, "", `not allowed`},
		{"disk show ..", exitUsage, "", `not allowed`},
		{"disk show a/b", exitUsage, "", `not allowed`},
		{"disk show none", exitNotFound, "", `none`},
		{"disk create a --from none", exitNotFound, "", `none`},
		{"disk create a --from work@none", exitNotFound, "", `none`},
		{"disk create a --from-dir DIR/none", exitNotFound, "", `DIR|none`},
		{"fork work@ a", exitUsage, "", `empty`},
		{"fork work a a", exitExists, "", `a`},
		{"fork work a --wait forever", exitUsage, "", `durable or runnable`},
		{"checkpoint create none a", exitNotFound, "", `none`},
		{"checkpoint create work a/b", exitUsage, "", `not allowed`},
		{"checkpoint create work a -m " + strings.Repeat("y", tine.MaxMessageBytes+1), exitUsage, "", `4096`},
		{"checkpoint create work a --author " + strings.Repeat("y", 257), exitUsage, "", `author`},
		{"checkpoint rm work none", exitNotFound, "", `none`},
		{"rollback none a", exitNotFound, "", `none`},
		{"promote work", exitUsage, "", `--onto DISK`},
		{"promote none --onto work", exitNotFound, "", `none`},
		{"promote work --onto none", exitNotFound, "", `none`},
		{"undo none", exitNotFound, "", `none`},
		{"undo work", exitNotFound, "", `.`},
		{"log none", exitNotFound, "", `none`},
		{"du none", exitNotFound, "", `none`},
		{"sync none", exitNotFound, "", `none`},
		{"diff work none", exitNotFound, "", `none`},
		{"diff work@ work", exitUsage, "", `empty`},
		{"umount /", exitNotFound, "", `no tine disk is mounted on /`},
		{"completion tcsh", exitUsage, "", `bash, zsh, fish or powershell`},
		{"--json disk show none", exitNotFound, "", `^\{"error":\{"kind":"not_found","message":".*none`},
		{"--json disk create", exitUsage, "", `^\{"error":\{"kind":"invalid"`},
	})
}

func TestImportForkPromote(t *testing.T) {
	w := newWorld(t)
	w.steps([]step{
		{"disk create work", 0, `work`, ""},
		{"fork work try", 0, `try`, ""},
		{"disk create base --from-dir DIR/src", exitNotFound, "", `src`},
	})
	if err := os.MkdirAll(filepath.Join(w.dir, "src", "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a": "1", "sub/b": "22"} {
		if err := os.WriteFile(filepath.Join(w.dir, "src", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.steps([]step{
		{"disk create base --from-dir DIR/src", 0, `^created the disk base from \S+/src: 2 files, 1 directory, 3 B\n$`, ""},
		{"disk create base --from-dir DIR/src", exitExists, "", `base`},
		{"fork base one two", 0, `one`, ""},
		{"diff base one", 0, "", ""},
		{"diff work base", 0, "A a\nA sub/\nA sub/b\n", ""}, // of two trees that have nothing in common
		{"promote one --onto base", 0, `^base is now what one was; `, ""},
		{"promote one --onto base", exitNotFound, "", `one`},
		{"undo base", 0, `took back`, ""},
	})
}

func TestImportNotesGoToStandardError(t *testing.T) {
	w := newWorld(t)
	src := filepath.Join(w.dir, "src")
	if err := os.Mkdir(src, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(src, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w.steps([]step{
		{"disk create base --from-dir DIR/src --json", 0, `"skipped": 1`, `^tine: \S+/socket: a socket; skipped`},
		{"disk ls", 0, `base`, ""},
	})
}

func TestWithoutAServer(t *testing.T) {
	w := newWorld(t)
	w.stopServe()
	w.env["TINE_DATA"] = w.cfg.Data
	w.steps([]step{
		{"disk ls", exitUnavailable, "", "no server listens on .*\n +start one with `tine serve`"},
		{"disk ls --socket DIR/other", exitUnavailable, "", `DIR|other`},
		{"umount DIR", exitNotFound, "", `no server runs`},
		{"version", 0, `tine: +\S+\n`, ""},
		{"version --json", 0, `"go": "go1`, ""},
		{"exit-codes", 0, `130  interrupted`, ""},
		{"serve --data DIR/file/x --log-level loud", exitUsage, "", `--log-level`},
		{"serve --config DIR/none.toml", exitNotFound, "", `none.toml`},
		{"serve extra", exitUsage, "", `usage: tine serve`},
	})
	if err := os.WriteFile(filepath.Join(w.dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.steps([]step{{"serve --data DIR/file", exitUsage, "", `data directory`}})
}

func TestInterrupted(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code, _, stderr := w.runContext(ctx, "disk ls"); code != exitInterrupted || stderr != "tine: interrupted\n" {
		t.Errorf("%d, %q", code, stderr)
	}
}

func TestHelp(t *testing.T) {
	w := newWorld(t)
	var walk func(path []string)
	seen := 0
	c := &cli{env: environment{getenv: func(string) string { return "" }}}
	root := c.root()
	walk = func(path []string) {
		cmd, _, err := root.Find(path)
		if err != nil {
			t.Fatal(err)
		}
		seen++
		if cmd.Short == "" || (cmd.RunE != nil && !cmd.HasSubCommands() && cmd.Example == "") {
			t.Errorf("`tine %s` has no summary or no example", strings.Join(path, " "))
		}
		if code, stdout, _ := w.run(strings.Join(append(path, "--help"), " ")); code != 0 || stdout == "" {
			t.Errorf("`tine %s --help`: %d", strings.Join(path, " "), code)
		}
		for _, sub := range cmd.Commands() {
			walk(append(path[:len(path):len(path)], sub.Name()))
		}
	}
	walk(nil)
	if seen < 25 {
		t.Errorf("only %d commands", seen)
	}
}

func TestCompletion(t *testing.T) {
	w := newWorld(t)
	w.steps([]step{
		{"disk create work", 0, `work`, ""},
		{"disk create play", 0, `play`, ""},
		{"checkpoint create work one", 0, `one`, ""},
		{"checkpoint create work two", 0, `two`, ""},
		{"__complete disk show w", 0, `^work\n:4\n`, `.`},
		{"__complete mount work@", 0, `^work@one\nwork@two\n:4\n`, `.`},
		{"__complete rollback work t", 0, `^two\n:4\n`, `.`},
		{"__complete promote play --onto w", 0, `^work\n:4\n`, `.`},
		{"__complete fork work x", 0, `^:4\n`, `.`},
		{"__complete checkpoint create work x --wait d", 0, `^durable\n:4\n`, `.`},
		{"__complete disk show w --socket DIR/none", 0, `:`, `.`},
		{"completion bash", 0, `complete -F _tine tine\n$`, ""},
		{"completion zsh", 0, `#compdef tine`, ""},
		{"completion fish", 0, `fish`, ""},
		{"completion powershell", 0, `Register-ArgumentCompleter`, ""},
	})
}

func TestBashCompletion(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash here")
	}
	w := newWorld(t)
	w.steps([]step{
		{"disk create work", 0, `work`, ""},
		{"checkpoint create work one", 0, `one`, ""},
		{"checkpoint create work other", 0, `other`, ""},
	})
	if err := os.Mkdir(filepath.Join(w.dir, "a directory"), 0o755); err != nil {
		t.Fatal(err)
	}
	const script = `
tine() { TINE_TEST_RUN=1 "$TINE_TEST_BINARY" "$@"; }
COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDBREAKS=$2
_tine
printf '%s\n' "${COMPREPLY[@]}"`
	for _, c := range []struct{ line, breaks, want string }{
		{"tine disk show w", "@=:", "work\n"},
		{"tine disk show ", "@=:", "work\n"},
		{"tine mount work@o", "@=:", "@one\n@other\n"},
		{"tine mount work@", "=:", "work@one\nwork@other\n"},
		{"tine rollback work on", "@=:", "one\n"},
		{"tine promote x --onto=w", "@=:", "work\n"},
		{"tine mount work " + w.dir + "/a", "@=:", w.dir + "/a directory\n"},
		{"tine rollb", "@=:", "rollback\n"},
		{"tine disk show none", "@=:", "\n"},
	} {
		cmd := exec.CommandContext(t.Context(), bash, "-c", bashCompletion+script, "bash", c.line, c.breaks)
		cmd.Env = append(os.Environ(), "TINE_TEST_BINARY="+os.Args[0], "TINE_SOCKET="+w.cfg.Socket)
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != c.want {
			t.Errorf("%q: %q, %v; want %q", c.line, out, err, c.want)
		}
	}
}
