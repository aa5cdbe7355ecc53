package workloads

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// writers is the number of processes that write to one database.
const writers = 4

// TestSQLite kills the server while four processes write to one database, and
// looks for every transaction that was acknowledged.
func TestSQLite(t *testing.T) {
	for _, mode := range []string{"wal", "delete", "truncate", "persist"} {
		if !*long && mode != "wal" && mode != "delete" {
			continue
		}
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t, "sqlite3")
			rng := rand.New(rand.NewPCG(w.random(), 2))
			db := &database{world: w, path: filepath.Join(w.work, "test.db"), mode: mode}
			got := w.do(w.work, "sqlite3", db.path, "PRAGMA journal_mode="+mode,
				"CREATE TABLE t(writer INTEGER, seq INTEGER, payload TEXT, PRIMARY KEY(writer, seq)); CREATE INDEX p ON t(payload)")
			if got != mode {
				t.Fatalf("the journal mode is %q, not %q", got, mode)
			}
			rounds := 2
			if *long {
				rounds = 50
			}
			for range rounds {
				db.crash(200 + rng.IntN(200))
			}
		})
	}
}

// database is one database on the disk and what it has acknowledged.
type database struct {
	*world
	path, mode string
	acked      [writers]int // transactions of each writer; they are numbered from 1
}

// crash lets all writers write, kills the server once they have that many
// acknowledged transactions together, starts it again and checks the database.
func (d *database) crash(after int) {
	d.Helper()
	r := &race{acked: d.acked, begin: d.acked, enough: make(chan struct{}), after: after}
	r.turn.L = &r.mu
	ended := make(chan error, writers)
	for i := range writers {
		go func() { ended <- d.write(i, r) }()
	}
	select {
	case <-r.enough:
	case err := <-ended:
		d.Fatalf("a writer ended before the crash: %v", err)
	}
	err := d.rig.Kill()
	r.stop()
	if err != nil {
		d.Fatal(err)
	}
	for range writers {
		if err := <-ended; err == nil {
			d.Error("a writer did not notice that the disk is gone")
		}
	}
	d.Logf("killed the server after %d transactions", after)
	d.acked = r.acked
	d.start()
	d.check()
}

// maxLead is how many transactions a writer may be ahead of the slowest.
// SQLite's lock is unfair: without a bound one writer has it nearly always.
const maxLead = 25

// race counts transactions while the writers write.
type race struct {
	mu      sync.Mutex
	turn    sync.Cond
	begin   [writers]int // at the start
	acked   [writers]int // acknowledged so far
	after   int          // how many make enough
	stopped bool
	enough  chan struct{} // closed when there are
}

// done counts a transaction of writer i, and waits until the others have
// nearly as many.
func (r *race) done(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked[i]++
	if r.after--; r.after == 0 {
		close(r.enough)
	}
	r.turn.Broadcast()
	for !r.stopped && r.lead(i) > maxLead {
		r.turn.Wait()
	}
}

// lead is how far writer i is ahead of the slowest in this round.
func (r *race) lead(i int) int {
	most := 0
	for k := range writers {
		most = max(most, r.acked[i]-r.begin[i]-r.acked[k]+r.begin[k])
	}
	return most
}

// stop lets the writers that wait go on, since the others may never catch up.
func (r *race) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.turn.Broadcast()
}

// payload is what writer i stores in its transaction n: from a few bytes to a
// few pages.
func payload(i, n int) string {
	return strings.Repeat(fmt.Sprintf("%d-%d.", i, n), 1+(n*7919+i)%900)
}

// write runs transactions in a process of its own, one after the other, and
// tells of each that was acknowledged, until the process ends.
func (d *database) write(i int, r *race) error {
	cmd := d.command(d.dir, "sqlite3", "-batch", "-bail", d.path)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		return err
	}
	// With FULL, SQLite lets a power failure take the last transaction back if it
	// commits by removing a journal: it does not sync the directory. EXTRA does.
	// In the other modes the two are the same.
	fmt.Fprintln(in, ".timeout 60000\nPRAGMA synchronous=EXTRA;\nPRAGMA wal_autocheckpoint=100;")
	// A write to a process that has ended fails, and its output ends too: that
	// is what the loop looks at.
	lines := bufio.NewScanner(out)
	next := d.acked[i] + 1
	ask := func() {
		fmt.Fprintf(in, "BEGIN IMMEDIATE; INSERT INTO t VALUES(%d, %d, '%s'); COMMIT; SELECT 'ack %d';\n", i, next, payload(i, next), next)
	}
	ask()
	for lines.Scan() {
		if lines.Text() != fmt.Sprintf("ack %d", next) {
			continue
		}
		next++
		r.done(i)
		ask()
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, complaints.String())
	}
	return nil
}

// check requires that the database is whole and holds, of each writer, every
// acknowledged transaction, at most the one more that was under way, and
// nothing else.
func (d *database) check() {
	d.Helper()
	if got := d.do(d.dir, "sqlite3", d.path, "PRAGMA integrity_check"); got != "ok" {
		d.Fatalf("integrity_check: %s", got)
	}
	if got := d.do(d.dir, "sqlite3", d.path, "PRAGMA journal_mode"); (got == "wal") != (d.mode == "wal") {
		d.Fatalf("the journal mode was %s and is now %s", d.mode, got)
	}
	var found [writers]int
	for line := range strings.Lines(d.do(d.dir, "sqlite3", d.path, "SELECT * FROM t ORDER BY writer, seq")) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 3 {
			d.Fatalf("a row is %q", line)
		}
		i, err1 := strconv.Atoi(f[0])
		n, err2 := strconv.Atoi(f[1])
		if err1 != nil || err2 != nil || i < 0 || i >= writers {
			d.Fatalf("a row is %q", line)
		}
		if found[i]++; n != found[i] {
			d.Fatalf("writer %d: transaction %d is missing", i, found[i])
		}
		if f[2] != payload(i, n) {
			d.Fatalf("writer %d: transaction %d holds %q", i, n, f[2])
		}
	}
	for i := range writers {
		if found[i] != d.acked[i] && found[i] != d.acked[i]+1 {
			d.Fatalf("writer %d: %d transactions were acknowledged, %d are there", i, d.acked[i], found[i])
		}
	}
	d.Logf("acknowledged %v, found %v", d.acked, found)
	d.acked = found
}
