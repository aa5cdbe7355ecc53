package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tine.dev/tine/api"
)

func TestPolicy(t *testing.T) {
	w := newWorld(t)
	w.steps([]step{
		{"disk create work", 0, `work`, ""},
		{"policy work", 0, `^work has no policy\n$`, ""},
		{"policy work --checkpoint-every 10m", 0, `disk: +work\ncheckpoints: +every 10m, kept for 24h\nthere are: +0\nnext: +20`, ""},
		{"policy work --keep 100", 0, `every 10m, the last 100 kept`, ""},
		{"policy work --keep 7d --ttl 2h", 0, `every 10m, kept for 7d\n.*removed at: +20`, ""},
		{"policy work --json", 0, `"every_seconds": 600,\n +"keep_seconds": 604800,\n +"expires": "20`, ""},
		{"disk show work", 0, `checkpoints: +every 10m, kept for 7d\nremoved at: +20`, ""},
		{"disk ls", 0, `^NAME .* REMOVED AT\nwork .* - +20\d\d-\S+\n$`, ""},
		{"policy work --keep all --ttl none", 0, `every 10m, all kept\n`, ""},
		{"disk ls", 0, `MOUNTED ON\n`, ""},
		{"disk rename work play", 0, `play`, ""},
	})
	// It is the disk's, and outlives the server.
	w.stopServe()
	w.serve()
	w.steps([]step{
		{"policy play", 0, `every 10m, all kept`, ""},
		{"fork play try --ttl 90m", 0, `^forked play to try\n$`, ""},
		{"policy try", 0, `^disk: +try\nremoved at: +20`, ""}, // and not its parent's
		{"policy play --none", 0, `^play has no policy\n$`, ""},
		{"policy play --keep 5", exitUsage, "", `nothing makes the checkpoints.*--checkpoint-every`},
		{"policy play --checkpoint-every 10", exitUsage, "", `--checkpoint-every: "10" is not a time`},
		{"policy play --checkpoint-every 1ms --keep soon", exitUsage, "", `--keep: "soon"`},
		{"policy play --none --ttl 2h", exitUsage, "", `none`},
		{"policy nothing", exitNotFound, "", `nothing`},
		{"fork play other --ttl -3h", exitUsage, "", `--ttl: "-3h"`},
		{"disk show other", exitNotFound, "", `other`},
	})
}

// TestAForkGoesWhenItsTimeIsOver uses the server's real clock: the least time
// that a fork can be given is a second.
func TestAForkGoesWhenItsTimeIsOver(t *testing.T) {
	w := newWorld(t)
	if err := os.Mkdir(filepath.Join(w.dir, "m"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.steps([]step{
		{"disk create work", 0, `work`, ""},
		{"fork work try --ttl 1s", 0, `try`, ""},
		{"mount try DIR/m", 0, `mounted`, ""},
		{"fork work short --ttl 1s", 0, `short`, ""},
	})
	// The events tell when: first the one that is not in use.
	expired := make(chan string)
	ctx := t.Context()
	go func() {
		c := api.NewClient(w.cfg.Socket, "")
		defer c.Close()
		_, err := c.Events(ctx, api.EventQuery{Follow: true}, func(l api.EventLine) error {
			if l.Event != nil && l.Event.Kind == "disk-expire" {
				expired <- l.Event.Disk + " " + l.Event.Caller
			}
			return nil
		})
		if err != nil && ctx.Err() == nil {
			t.Errorf("the events: %v", err)
		}
	}()
	next := func() string {
		select {
		case s := <-expired:
			return s
		case <-time.After(60 * time.Second):
			return "nothing"
		}
	}
	if got := next(); got != "short policy" {
		t.Fatalf("%s has expired", got)
	}
	w.steps([]step{
		{"disk show try", 0, `try`, ""},
		{"umount DIR/m", 0, `unmounted`, ""},
	})
	if got := next(); got != "try policy" {
		t.Fatalf("%s has expired", got)
	}
	w.steps([]step{
		{"disk ls --deleted", 0, `short.*try`, ""},
		{"disk undelete try", 0, `try`, ""},
		{"policy try", 0, `has no policy`, ""},
		{"log try", 0, `remove +tine +policy`, ""},
	})
}

func TestParseSpan(t *testing.T) {
	for s, want := range map[string]time.Duration{"none": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "2w": 14 * 24 * time.Hour} {
		if got, err := parseSpan(s); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "0", "10", "-1h", "0d", "1.5d", "d", "99999999d", "300000000h"} {
		if got, err := parseSpan(s); err == nil {
			t.Errorf("%q: %v", s, got)
		}
	}
	for n, want := range map[int64]string{600: "10m", 86400: "24h", 172800: "2d", 5400: "1h30m", 90: "1m30s", 604800: "7d"} {
		if got := span(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestEvents(t *testing.T) {
	w := newWorld(t)
	if err := os.Mkdir(filepath.Join(w.dir, "m"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"disk create work", "checkpoint create work one", "fork work@one try other", "rollback work one", "undo work",
		"mount work DIR/m", "umount DIR/m", "promote try --onto work --force", "checkpoint rm work one", "disk rename other another",
		"policy another --ttl 2h", "disk rm another", "disk undelete another", "disk rm --purge another"} {
		if code, _, stderr := w.run(line); code != 0 {
			t.Fatalf("%s: %s", line, stderr)
		}
	}
	w.steps([]step{
		{"disk create a/b", exitUsage, "", `not allowed`},
		{"events", 0, `^\S+ server-start +- version \S+\n` +
			`\S+ disk-create +work \[tester\]\n\S+ checkpoint +work one \[tester\]\n\S+ fork +try from work@one \[tester\]\n\S+ fork +other from work@one \[tester\]\n` +
			`\S+ rollback +work to one \[tester\]\n\S+ undo +work \[tester\]\n\S+ mount +work \S+/m \[tester\]\n\S+ unmount +work \S+/m \[tester\]\n` +
			`\S+ promote +work of try \[tester\]\n\S+ checkpoint-remove +work one \[tester\]\n\S+ disk-rename +another from other \[tester\]\n` +
			`\S+ policy +another removed at \S+ \[tester\]\n\S+ disk-remove +another \[tester\]\n\S+ disk-undelete +another \[tester\]\n\S+ disk-purge +another \[tester\]\n$`, ""},
		{"events --disk try", 0, `^\S+ fork +try from work@one \[tester\]\n$`, ""},
		{"events --since 14", 0, `^\S+ disk-undelete .*\n\S+ disk-purge .*\n$`, ""},
		{"events --since 1h --disk another", 0, `disk-purge`, ""},
		{"events --json --since 15", 0, `^\{"start":\{"run":"[0-9a-f]{16}","oldest":1,"newest":16,"restarted":false\}\}\n` +
			`\{"event":\{"seq":16,"time":"\S+","kind":"disk-purge","disk":"another","author":"tester","caller":"uid:\d+"\}\}\n$`, ""},
		{"events --since yesterday", exitUsage, "", `--since: "yesterday"`},
	})
	// What the ring no longer has, the disks' logs have.
	w.stopServe()
	w.serve()
	w.steps([]step{
		{"events", 0, `^\S+ server-start[^\n]*\n$`, ""},
		{"events --since 1h", 0, `disk-create +work \[tester\]\n.*rollback +work to one.*server-start`, ""},
		{"events --since 1h --disk work --json", 0, `"event":\{"time":"\S+","kind":"disk-create","disk":"work","disk_id":"dsk_`, ""},
	})
}

// TestFollowingOutlivesTheServer follows, restarts the server, and sees what
// happens after it.
func TestFollowingOutlivesTheServer(t *testing.T) {
	w := newWorld(t)
	lines := make(chan string, 100)
	c := &cli{env: environment{stdout: lineWriter(lines), stderr: lineWriter(lines), getenv: func(k string) string { return w.env[k] }}}
	ended := make(chan error, 1)
	go func() { ended <- c.follow(t.Context(), api.EventQuery{Follow: true}) }()
	next := func(pattern string) {
		t.Helper()
		for {
			select {
			case l := <-lines:
				if matches(pattern, l) {
					return
				}
			case err := <-ended:
				t.Fatalf("ended: %v", err)
			case <-time.After(30 * time.Second):
				t.Fatalf("nothing like %q came", pattern)
			}
		}
	}
	next(`server-start`)
	w.steps([]step{{"disk create work", 0, `work`, ""}})
	next(`disk-create +work`)
	w.stopServe()
	next(`the server is away`)
	w.serve()
	next(`there again`)
	next(`was started again`)
	next(`server-start`)
	w.steps([]step{{"disk create more", 0, `more`, ""}})
	next(`disk-create +more`)
}

type lineWriter chan string

func (l lineWriter) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func TestTop(t *testing.T) {
	w := newWorld(t)
	if err := os.Mkdir(filepath.Join(w.dir, "m"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.steps([]step{
		{"top --once --every 10ms", 0, `0 disks in use, 0 mounts`, ""},
		{"disk create work", 0, `work`, ""},
		{"mount work DIR/m", 0, `mounted`, ""},
		{"top --once --every 10ms", 0, `1 disk in use, 1 mount;.*OP/S .*DISK\n +0 +0 B +0 B +- +- +- +- +.*work \(\S+/m\)\n$`, ""},
		{"top --every never", exitUsage, "", `--every`},
	})
	code, out, _ := w.run("top --once --every 10ms --json")
	var l load
	if err := json.Unmarshal([]byte(out), &l); err != nil || code != 0 || len(l.Disks) != 1 || l.Disks[0].Disk != "work" {
		t.Errorf("%d, %v, %s", code, err, out)
	}
}

func TestRates(t *testing.T) {
	bounds := []int64{1e6, 2e6, 4e6}
	a := api.Activity{Run: "r", Time: time.Unix(10, 0), Bounds: bounds, Disks: []api.DiskActivity{{ID: "1", Disk: "one", Counts: api.OpCounts{
		Ops: map[string]uint64{"read": 10}, Latencies: []uint64{10, 0, 0, 0}, ReadBytes: 100}}}}
	b := api.Activity{Run: "r", Time: time.Unix(12, 0), Bounds: bounds, Disks: []api.DiskActivity{
		{ID: "1", Disk: "one", Counts: api.OpCounts{Ops: map[string]uint64{"read": 20, "write": 10, "fsync": 2}, Latencies: []uint64{10, 18, 1, 1},
			Fsyncs: []uint64{0, 0, 2, 0}, ReadBytes: 300, WrittenBytes: 50}},
		{ID: "2", Disk: "two", Counts: api.OpCounts{Ops: map[string]uint64{"read": 100}, Latencies: []uint64{100, 0, 0, 0}}},
	}}
	l := between(a, b)
	if len(l.Disks) != 2 || l.Disks[0].Disk != "two" || l.Disks[0].Ops != 50 {
		t.Fatalf("%+v", l.Disks)
	}
	one := l.Disks[1]
	if one.Ops != 11 || one.Kinds["write"] != 5 || one.Read != 100 || one.Written != 25 {
		t.Errorf("%+v", one)
	}
	if one.P50 < 1 || one.P50 > 2 || one.P99 < 4 || one.Fsync50 < 2 || one.Fsync50 > 4 {
		t.Errorf("p50 %v, p99 %v, fsync %v", one.P50, one.P99, one.Fsync50)
	}
	// A disk that was let go of and taken again, and another run of the server.
	b.Disks[0].Counts.Ops["read"] = 4
	b.Disks[0].Counts.ReadBytes = 40
	if x := between(a, b).Disks[1]; x.Kinds["read"] != 2 {
		t.Errorf("taken again: %+v", x)
	}
	b.Run, b.Disks[0].Counts.Ops["read"] = "s", 30
	if x := between(a, b).Disks[1]; x.Kinds["read"] != 15 {
		t.Errorf("another run: %+v", x)
	}
	if cut("a\nb\nc\n", 2) != "a\nb\n" || cut("a\n", 5) != "a\n" {
		t.Error("cut")
	}
}
