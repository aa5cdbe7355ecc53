package main

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

// TestNoTwoCommandsShareAName: cobra runs or completes whichever of two it
// meets first, and the order changes when help has been printed.
func TestNoTwoCommandsShareAName(t *testing.T) {
	c := &cli{env: environment{stdout: io.Discard, stderr: io.Discard, getenv: func(string) string { return "" }}}
	seen := 0
	var look func(*cobra.Command)
	look = func(parent *cobra.Command) {
		owner := map[string]string{}
		for _, cmd := range parent.Commands() {
			for _, name := range append([]string{cmd.Name()}, cmd.Aliases...) {
				seen++
				if other, taken := owner[name]; taken {
					t.Errorf("%s %s means both %s and %s", parent.CommandPath(), name, other, cmd.Name())
				}
				owner[name] = cmd.Name()
			}
			look(cmd)
		}
	}
	look(c.root())
	if seen < 30 {
		t.Fatalf("only %d names looked at", seen)
	}
}

// full is a device without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestUnwrittenOutputIsAnError: whoever reads the output of a command that has
// ended well has all of it.
func TestUnwrittenOutputIsAnError(t *testing.T) {
	w := newWorld(t)
	w.steps([]step{{line: "disk create work", stdout: "created"}})
	for _, line := range []string{
		"disk ls", "disk show work", "mounts", "checkpoint create work cp", "checkpoint ls work", "fork work try", "log work", "du", "tree",
		"quota work", "policy work", "events", "top --once", "version", "doctor", "fsck", "completion bash", "completion zsh", "exit-codes", "help", "disk",
		"export work --to-tar -",
	} {
		for _, flags := range []string{"", " --json"} {
			var errs strings.Builder
			env := environment{stdin: w.stdin, stdout: full{}, stderr: &errs, uid: os.Geteuid(), getenv: func(k string) string { return w.env[k] }}
			args := strings.Fields(line + flags)
			if flags != "" && (strings.HasPrefix(line, "checkpoint create") || strings.HasPrefix(line, "fork")) {
				continue // done already
			}
			if code := run(t.Context(), env, args); code == exitOK || errs.Len() == 0 {
				t.Errorf("%s: exit code %d, %q", line+flags, code, errs.String())
			}
		}
	}
}

// TestBadCommandLinesAnswerInJSON: who asks for JSON gets it also for a command
// line that ends before its --json is read.
func TestBadCommandLinesAnswerInJSON(t *testing.T) {
	w := newWorld(t)
	for _, line := range []string{
		"--foo --json", "--json --foo", "disk ls -x --json", "nothing --json", "policy work --none --ttl 1h --json", "mount --json", "sync --json=true",
		"quota work --bytes -1 --json", "cp work@:/x --json DIR/x", "cp --json DIR/x work@:/",
	} {
		code, stdout, stderr := w.run(line)
		var e struct {
			Error struct{ Kind, Message string }
		}
		if err := json.Unmarshal([]byte(stderr), &e); err != nil || e.Error.Kind != "invalid" || code != exitUsage || stdout != "" {
			t.Errorf("%s: exit code %d, %q, %q", line, code, stdout, stderr)
		}
	}
	if _, _, stderr := w.run("disk create -- --json"); !strings.HasPrefix(stderr, "tine: ") {
		t.Errorf("an argument was taken for the flag: %q", stderr)
	}
}

// TestCellsStayCells: a path with a line break or a tab makes no row or column.
func TestCellsStayCells(t *testing.T) {
	var out strings.Builder
	c := &cli{env: environment{stdout: &out}}
	c.table([]string{"A", "B"}, [][]string{{"x\ny\tz", "\x1b[31m"}})
	c.fields("a", "x\ny")
	if got := out.String(); got != "A      B\nx?y?z  ?[31m\na:  x?y\n" {
		t.Errorf("%q", got)
	}
}
