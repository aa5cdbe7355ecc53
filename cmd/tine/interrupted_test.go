package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"tine.dev/tine/internal/tine"
)

// endless gives a text, then does something, and then waits for the test's end.
type endless struct {
	text io.Reader
	once sync.Once
	then func()
	end  <-chan struct{}
}

func (r *endless) Read(p []byte) (int, error) {
	if n, err := r.text.Read(p); n > 0 || err != io.EOF {
		return n, err
	}
	r.once.Do(r.then)
	<-r.end
	return 0, io.ErrUnexpectedEOF
}

// partOfAnArchive is an archive of some files without its end.
func partOfAnArchive(t *testing.T, w *world) string {
	t.Helper()
	w.sourceTree("src")
	w.steps([]step{{"import source --from-dir DIR/src", 0, `.`, ""}})
	code, archive, stderr := w.run("export source --to-tar -")
	if code != 0 {
		t.Fatal(stderr)
	}
	return archive[:len(archive)/2]
}

// TestServerStopsDuringUpload: the user has not interrupted anything, and is told
// that the server has.
func TestServerStopsDuringUpload(t *testing.T) {
	// A server that answers before it has read everything closes the connection
	// behind its answer; who writes at that moment may meet the end before the answer.
	const broke = `|^tine: the connection to the server broke: [^\n]*\n +see the server's log`
	for _, c := range []struct{ line, says string }{
		{"import new --from-tar -", `^tine: the server is stopping: [^\n]*\n +start it, then try again\n$` + broke},
		{"import source --from-tar - --path /in", `^tine: the server is stopping: [^\n]*\n +start it[^\n]*\n +what was unpacked stays; .tine rollback source before-import-1.` + broke},
		{"cp - source:/f", `^tine: the server is stopping: ` + broke},
	} {
		w := newWorld(t)
		part := partOfAnArchive(t, w)
		w.stdin = &endless{text: strings.NewReader(part), then: func() { go w.stopServe() }, end: t.Context().Done()}
		w.steps([]step{{c.line, exitUnavailable, "", c.says}})
		w.stopServe()
		w.stdin = nil
		w.serve()
		w.steps([]step{{"disk ls", 0, `^NAME[^\n]*\nsource [^\n]*\n$`, ""}})
	}
}

// TestInterruptedImports says what is left, and leaves no more than that.
func TestInterruptedImports(t *testing.T) {
	w := newWorld(t)
	part := partOfAnArchive(t, w)
	w.steps([]step{{"disk create empty", 0, `.`, ""}})
	for _, c := range []struct{ line, says string }{
		{"import new --from-tar -", "no disk new is left"},
		{"import source --from-tar - --path /in", "what was unpacked stays; `tine rollback source before-import-1` takes it back"},
		{"import empty --from-tar -", "what was unpacked stays in the disk empty"},
		{"cp - empty:/f", "empty:/f is as it was before"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		then := func() {}
		if strings.HasPrefix(c.line, "cp") {
			then = cancel // it shows no progress
		}
		var stderr bytes.Buffer
		env := environment{stdin: &endless{text: strings.NewReader(part), then: then, end: t.Context().Done()}, stdout: io.Discard, uid: os.Geteuid(),
			getenv: func(k string) string { return w.env[k] }, terminal: true,
			stderr: writerFunc(func(p []byte) (int, error) {
				if bytes.Contains(p, []byte("/s")) { // progress: the server has begun
					cancel()
				}
				return stderr.Write(p)
			})}
		code := run(ctx, env, strings.Fields(c.line))
		if code != exitInterrupted || !strings.Contains(stderr.String(), "tine: interrupted\n      "+c.says) {
			t.Errorf("%s: %d, %q", c.line, code, stderr.String())
		}
		cancel()
	}
	w.steps([]step{
		{"disk ls", 0, `^NAME[^\n]*\nempty [^\n]*\nsource [^\n]*\n$`, ""},
		{"rollback source before-import-1", 0, `.`, ""},
	})
	// Too late: what is done is not undone, and not hidden.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &cli{env: environment{uid: os.Geteuid(), getenv: func(k string) string { return w.env[k] }}}
	interrupted := tine.Errorf(tine.KindInterrupted, "interrupted")
	err := c.whatIsLeft(ctx, interrupted, "source", false, &progress{})
	if tine.KindOf(err) != tine.KindInterrupted || !strings.Contains(tine.HintOf(err), "the disk source is complete; `tine disk rm source` removes it") {
		t.Errorf("%v: %s", err, tine.HintOf(err))
	}
	if err := c.whatIsLeft(t.Context(), interrupted, "source", false, &progress{}); err != error(interrupted) {
		t.Errorf("what nobody has interrupted: %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestDamagedStateFile: a flipped bit in the record of a mount is not believed.
// The server says where it is and what to do, and that works.
func TestDamagedStateFile(t *testing.T) {
	w := newWorld(t)
	for _, d := range []string{"m", "l"} { // one bit apart
		if err := os.Mkdir(filepath.Join(w.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.steps([]step{{"disk create work", 0, `work`, ""}, {"mount work DIR/m", 0, `mounted`, ""}})
	path := filepath.Join(w.cfg.Data, "mounts.json")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	hurt := bytes.Replace(whole, []byte(w.dir+`/m"`), []byte(w.dir+`/l"`), 1)
	if bytes.Equal(hurt, whole) {
		t.Fatalf("no directory in %s", whole)
	}
	if err := os.WriteFile(path, hurt, 0o600); err != nil {
		t.Fatal(err)
	}
	const found = `error F001  \S+/mounts.json is damaged: its checksum is [0-9a-f]{8} and not [0-9a-f]{8}, as the file says\n`
	w.steps([]step{{"fsck", exitDamaged, found, ""}})
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	w.steps([]step{{"fsck", 0, `nothing is wrong`, ""}})
	w.stopServe()
	if err := os.WriteFile(path, hurt, 0o600); err != nil {
		t.Fatal(err)
	}
	w.steps([]step{
		{"serve --data DIR/data", exitIO, "", `(?s)\S+/mounts.json is damaged: .*tine fsck --repair --data \S+/data. moves it`},
		{"fsck --data DIR/data", exitDamaged, found, ""},
		{"fsck --repair --data DIR/data", exitOK, `(?s)F001.*moved it to \S+/damaged/mounts.json.*nothing is wrong`, ""},
		{"fsck --data DIR/data", exitOK, `nothing is wrong`, ""},
	})
	if kept, err := os.ReadFile(filepath.Join(w.cfg.Data, "damaged", "mounts.json")); err != nil || !bytes.Equal(kept, hurt) {
		t.Errorf("what was moved away is not what was there: %v", err)
	}
	w.serve()
	w.steps([]step{{"mounts", 0, `^[^\n]*\n$`, ""}, {"mount work DIR/m", 0, `mounted`, ""}})
}

// TestDumpSegmentNames: what is not there is not found, and is not damage.
func TestDumpSegmentNames(t *testing.T) {
	w := newWorld(t)
	w.steps([]step{
		{"dump segment DIR/none", exitNotFound, "", `none`},
		{"dump segment seg_01k0000000000000000000000w --data DIR/data", exitNotFound, "", `no file of segment`},
		{"dump segment DIR/data", exitUsage, "", `is not a file\n.*segments/`},
	})
}
