package main

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"tine.dev/tine/api"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1: "1 B", 1023: "1023 B", 1024: "1.00 KiB", 1536: "1.50 KiB", 10 << 10: "10.0 KiB", 100 << 10: "100 KiB", 999 << 10: "999 KiB",
		1000 << 10: "0.98 MiB", 1 << 20: "1.00 MiB", 1<<40 + 1<<39: "1.50 TiB", 1<<63 - 1: "8.00 EiB",
	} {
		if got := size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestDrawForest(t *testing.T) {
	got := drawForest([]api.ForestNode{
		{Name: "work", Kind: "disk"},
		{Name: "work@v1", Kind: "checkpoint", Parent: "work"},
		{Name: "a", Kind: "disk", Parent: "work@v1"},
		{Name: "b", Kind: "disk", Parent: "work@v1"},
		{Name: "c", Kind: "disk", Parent: "work@removed"},
		{Name: "work@auto", Kind: "checkpoint", Parent: "work", Auto: true},
		{Name: "lone", Kind: "disk", Parent: "gone"},
		{Name: "self", Kind: "disk", Parent: "self"},
	})
	want := []string{"work", "├─ work@v1", "│  ├─ a", "│  └─ b", "├─ c", "└─ work@auto (automatic)", "lone", "self"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestPrintable(t *testing.T) {
	if got := oneLine("first\x1b[2J\nsecond"); got != "first?[2J ..." {
		t.Errorf("%q", got)
	}
	if got := oneLine("only\n"); got != "only" {
		t.Errorf("%q", got)
	}
}

// TestErrorsCommandNoTerminal: what a name holds is not sent to the terminal, nor does
// it make a line that looks like one of the program's.
func TestErrorsCommandNoTerminal(t *testing.T) {
	var out bytes.Buffer
	c := &cli{env: environment{stderr: &out}}
	c.report(&api.Error{Kind: "not_found", Message: "no /a\x1b[31m\ntine: all is well", Hint: "make /a\x1b[31m\n$ rm"})
	want := "tine: no /a?[31m\n      tine: all is well\n      make /a?[31m\n      $ rm\n"
	if got := out.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPlural(t *testing.T) {
	for want, got := range map[string]string{"1 file": plural(1, "file"), "0 files": plural(0, "file"), "2 directories": plural(2, "directory")} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestProgressIsOneLineOnATerminal(t *testing.T) {
	var out bytes.Buffer
	for _, terminal := range []bool{true, false} {
		out.Reset()
		p := &progress{cli: &cli{env: environment{stderr: &out, terminal: terminal}}, start: time.Now()}
		p.line(api.ImportLine{Progress: &api.ImportProgress{Files: 1, Directories: 2, Skipped: 3, Changed: 4}})
		p.line(api.ImportLine{Note: &api.ImportNote{Path: "/s", Note: "a socket"}})
		p.clear()
		want := "tine: /s: a socket\n"
		if terminal {
			want = "\r\x1b[K1 file, 2 directories, 0 B, 3 skipped, 4 changed meanwhile, 0 B/s\r\x1b[K" + want
		}
		if out.String() != want {
			t.Errorf("terminal %v: %q, want %q", terminal, out.String(), want)
		}
	}
}
