// Package ledger drives an SQLite database with several writers at once and
// keeps, outside of it, how many transactions each writer was told are
// committed. Whatever happens to the file system below, the database must
// afterwards hold every acknowledged transaction, at most the one more of each
// writer that was under way, and nothing else.
//
// The writers are sqlite3 processes, so the file locks, the shared memory and
// the journals are the real ones.
package ledger

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"tine.dev/tine/test/rig"
)

// Writers is the number of processes that write to one database.
const Writers = 4

// maxLead is how many transactions a writer may be ahead of the slowest.
// SQLite's lock is unfair: without a bound one writer has it nearly always.
const maxLead = 25

// Database is one database and what it has acknowledged. Not safe for
// concurrent use.
type Database struct {
	Path, Mode string       // the file, and SQLite's name of the journal mode
	acked      [Writers]int // transactions of each writer; they are numbered from 1
}

// Create makes a database in the journal mode, in place of one that may be
// there. It is durable when Create returns; one that was cut off can be
// repeated.
func Create(ctx context.Context, path, mode string) (*Database, error) {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(path + suffix); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
	}
	d := &Database{Path: path, Mode: mode}
	got, err := d.ask(ctx, "PRAGMA synchronous=EXTRA", "PRAGMA journal_mode="+mode,
		"CREATE TABLE t(writer INTEGER, seq INTEGER, payload TEXT, PRIMARY KEY(writer, seq)); CREATE INDEX p ON t(payload)")
	if err == nil && got != mode {
		err = fmt.Errorf("the journal mode is %q, not %q", got, mode)
	}
	return d, err
}

// Acked returns how many transactions are acknowledged.
func (d *Database) Acked() (sum int) {
	for _, n := range d.acked {
		sum += n
	}
	return sum
}

func (d *Database) ask(ctx context.Context, statements ...string) (string, error) {
	cmd := rig.Command(ctx, "sqlite3", append([]string{d.Path}, statements...)...)
	cmd.Dir, cmd.Env = filepath.Dir(d.Path), rig.Environment()
	out, err := rig.Output(cmd)
	return strings.TrimSpace(out), err
}

// Race is one run of all writers.
type Race struct {
	// Enough is closed when there are as many transactions as were asked for;
	// the writers go on.
	Enough chan struct{}
	// Ended receives what each writer that ends has to say. One that was not
	// stopped ends only because it failed.
	Ended chan error

	db   *Database
	kill context.CancelFunc

	mu      sync.Mutex
	turn    sync.Cond
	begin   [Writers]int // at the start
	acked   [Writers]int // acknowledged so far
	after   int          // how many make enough
	stopped bool
}

// Begin lets all writers write until Stop.
func (d *Database) Begin(ctx context.Context, after int) *Race {
	ctx, kill := context.WithCancel(ctx)
	r := &Race{Enough: make(chan struct{}), Ended: make(chan error, Writers), db: d, kill: kill, acked: d.acked, begin: d.acked, after: after}
	r.turn.L = &r.mu
	for i := range Writers {
		go func() { r.Ended <- r.write(ctx, i) }()
	}
	return r
}

// Abandon lets those writers go on that wait for slower ones, since the slower
// ones may never catch up: each then meets what has become of the file system.
func (r *Race) Abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.turn.Broadcast()
}

// Stop kills the writers that are left, waits for all whose end was not yet
// received, and notes what they were told.
func (r *Race) Stop(received int) {
	r.kill()
	r.Abandon()
	for range Writers - received {
		<-r.Ended
	}
	r.db.acked = r.acked
}

// done counts a transaction of writer i, and waits until the others have
// nearly as many.
func (r *Race) done(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked[i]++
	if r.after--; r.after == 0 {
		close(r.Enough)
	}
	r.turn.Broadcast()
	for !r.stopped && r.lead(i) > maxLead {
		r.turn.Wait()
	}
}

// lead is how far writer i is ahead of the slowest in this race.
func (r *Race) lead(i int) int {
	most := 0
	for k := range Writers {
		most = max(most, r.acked[i]-r.begin[i]-r.acked[k]+r.begin[k])
	}
	return most
}

// payload is what writer i stores in its transaction n: from a few bytes to a
// few pages.
func payload(i, n int) string {
	return strings.Repeat(fmt.Sprintf("%d-%d.", i, n), 1+(n*7919+i)%900)
}

// write runs transactions in a process of its own, one after the other, and
// tells of each that was acknowledged, until the process ends.
func (r *Race) write(ctx context.Context, i int) error {
	cmd := rig.Command(ctx, "sqlite3", "-batch", "-bail", r.db.Path)
	cmd.Env = rig.Environment()
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
	next := r.begin[i] + 1
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

// Check requires that the database is whole and holds, of each writer, every
// acknowledged transaction, at most the one more that was under way, and
// nothing else. What it finds counts as acknowledged from then on.
func (d *Database) Check(ctx context.Context) error {
	got, err := d.ask(ctx, "PRAGMA integrity_check")
	if err == nil && got != "ok" {
		err = fmt.Errorf("integrity_check: %s", got)
	}
	if err != nil {
		return err
	}
	got, err = d.ask(ctx, "PRAGMA journal_mode")
	if err == nil && (got == "wal") != (d.Mode == "wal") {
		err = fmt.Errorf("the journal mode was %s and is now %s", d.Mode, got)
	}
	if err != nil {
		return err
	}
	rows, err := d.ask(ctx, "SELECT * FROM t ORDER BY writer, seq")
	if err != nil {
		return err
	}
	var found [Writers]int
	for line := range strings.Lines(rows) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 3 {
			return fmt.Errorf("a row is %q", line)
		}
		i, err1 := strconv.Atoi(f[0])
		n, err2 := strconv.Atoi(f[1])
		if err1 != nil || err2 != nil || i < 0 || i >= Writers {
			return fmt.Errorf("a row is %q", line)
		}
		if found[i]++; n != found[i] {
			return fmt.Errorf("writer %d: transaction %d is missing", i, found[i])
		}
		if f[2] != payload(i, n) {
			return fmt.Errorf("writer %d: transaction %d holds %q", i, n, f[2])
		}
	}
	for i := range Writers {
		if found[i] != d.acked[i] && found[i] != d.acked[i]+1 {
			return fmt.Errorf("writer %d: %d transactions were acknowledged, %d are there", i, d.acked[i], found[i])
		}
	}
	d.acked = found
	return nil
}
