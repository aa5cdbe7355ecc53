package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// fillDisk writes a file to a disk of a stopped server.
func (w *world) fillDisk(disk, name string, n int) {
	w.t.Helper()
	ctx := w.t.Context()
	h, err := volume.Open(ctx, volume.Options{Dir: w.cfg.Data})
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() {
		if err := h.Close(ctx); err != nil {
			w.t.Fatal(err)
		}
	}()
	s, err := h.Attach(ctx, volume.Caller{Tenant: tine.DefaultTenant}, volume.Ref{Disk: disk}, volume.AttachOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	f, _, _, err := s.Create(volume.Cred{}, volume.Root, name, 0o644, true)
	if err == nil {
		_, err = f.WriteAt(volume.Cred{}, []byte(strings.Repeat("0123456789abcdef", n/16)), 0)
	}
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = s.Detach(ctx)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) segmentFile() string {
	w.t.Helper()
	found, err := filepath.Glob(filepath.Join(w.cfg.Data, "segments", "*", "*"))
	if err != nil || len(found) != 1 {
		w.t.Fatalf("%v, %v", found, err)
	}
	return found[0]
}

// TestFsck checks a directory below a running server, without one, damaged, and
// repaired.
func TestFsck(t *testing.T) {
	w := newWorld(t)
	w.steps([]step{
		{"disk create work", exitOK, `created`, ""},
		{"checkpoint create work one", exitOK, `created`, ""},
		{"fsck", exitOK, `(?s)checked 1 disk, 1 checkpoint, .*nothing is wrong`, ""},
		{"fsck none", exitNotFound, "", `none`},
		{"fsck --repair --data DIR/data", exitInUse, "", `in use by a server`},
		{"dump rows --data DIR/data", exitInUse, "", `in use by a server`},
	})
	w.stopServe()
	w.fillDisk("work", "large", 1<<20)
	w.steps([]step{
		{"fsck --data DIR/data --read-data", exitOK, `(?s)1\.00 MiB read and verified.*nothing is wrong`, ""},
		{"fsck --data DIR/elsewhere", exitNotFound, "", `not a data directory`},
		{"fsck", exitNotFound, "", `not a data directory`},
		{"dump rows --data DIR/data --disk work --table dentry", exitOK, `str_\w+ dentry 1 "large" e2 \{"Ino":2`, ""},
		{"dump rows --data DIR/data --table nonsense", exitUsage, "", `the tables are: `},
		{"dump rows --data DIR/data --prefix zz", exitUsage, "", `hexadecimal`},
		{"dump rows --data DIR/data --disk none", exitNotFound, "", `none`},
		{"dump commits work --data DIR/data", exitOK, `(?s)log: create.*at head  head of work.*pin of 1 holders: work@one`, ""},
		{"dump segment " + w.segmentFile(), exitOK, `(?s)header .*run +blocks 0 to 63.*footer +payload of 1048576 bytes`, ""},
	})
	id, _, _ := strings.Cut(filepath.Base(w.segmentFile()), ".")
	w.steps([]step{{"dump segment --data DIR/data " + id, exitOK, `footer`, ""}})

	b, err := os.ReadFile(w.segmentFile())
	if err != nil {
		t.Fatal(err)
	}
	b[50000] ^= 1
	if err := os.WriteFile(w.segmentFile(), b, 0o600); err != nil {
		t.Fatal(err)
	}
	w.steps([]step{
		{"fsck --data DIR/data", exitOK, `nothing is wrong`, ""},
		{"fsck --data DIR/data --read-data", exitDamaged, `(?s)error D007  work:/large  .*D007 \(1 times\).*EIO.*1 error`, ""},
		{"dump segment " + w.segmentFile(), exitIO, `(?s)header .*damaged`, `damaged blocks`},
		{"fsck --data DIR/data --read-data --repair", exitOK, `repaired  D007 .*marked 16384 bytes as lost`, ""},
		{"fsck --data DIR/data", exitOK, `(?s)note  D009  work:/large  16384 bytes at 49152.*0 errors|D009`, ""},
	})
	code, out, _ := w.run("fsck --json --data DIR/data")
	var got fsckResult
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK || len(got.Findings) != 1 || got.Findings[0].Code != "D009" ||
		got.Findings[0].Effect == "" || got.Counts["D009"] != 1 || got.Disks != 1 {
		t.Errorf("exit %d, %v: %s", code, err, out)
	}
	if !regexp.MustCompile(`(?m)^ +14  `).MatchString(exitCodesHelp) {
		t.Error("the exit code 14 is not documented")
	}
}
