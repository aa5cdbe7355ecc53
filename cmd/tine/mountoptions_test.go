package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMountOptions: what a mount was asked for is shown, and is still so after
// a restart.
func TestMountOptions(t *testing.T) {
	w := newWorld(t)
	for _, d := range []string{"m", "n", "p"} {
		if err := os.Mkdir(filepath.Join(w.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const table = `work +\S+/m +rw,noexec,cache=none,allow_other +mounted\nwork +\S+/n +ro,writeback,without acl locks +mounted\nwork +\S+/p +rw +mounted\n`
	w.steps([]step{
		{"disk create work", 0, `work`, ""},
		{"mount --cache none --allow-other --no-exec work DIR/m", 0, `mounted`, ""},
		{"mount --writeback --read-only --disable acl,locks work DIR/n", 0, `mounted`, ""},
		{"mount --cache normal work DIR/p", 0, `mounted`, ""},
		{"mounts", 0, table, ""},
		{"mount --cache some work DIR/m", exitUsage, "", `cache`},
	})
	w.stopServe()
	w.serve()
	w.steps([]step{
		{"mounts", 0, table, ""},
		{"mounts --json", 0, `"cache": *"none"`, ""},
	})
}

// TestTrustedMounts: what lets a disk's content bring rights along is for root.
func TestTrustedMounts(t *testing.T) {
	w := newWorld(t)
	if err := os.Mkdir(filepath.Join(w.dir, "m"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.steps([]step{{"disk create work", 0, `work`, ""}})
	if os.Geteuid() != 0 {
		for _, flag := range []string{"--allow-suid", "--allow-dev"} {
			w.steps([]step{{"mount " + flag + " work DIR/m", exitDenied, "", `only root`}})
		}
		return
	}
	w.steps([]step{
		{"mount --allow-suid --allow-dev work DIR/m", 0, `mounted`, ""},
		{"mounts", 0, `work +\S+/m +rw,suid,dev +mounted\n$`, ""},
		{"mounts --json", 0, `"allow_suid": true`, ""},
	})
}
