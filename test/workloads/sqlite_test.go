package workloads

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"tine.dev/tine/test/ledger"
)

// TestSQLite kills the server while several processes write to one database,
// and looks for every transaction that was acknowledged.
func TestSQLite(t *testing.T) {
	for _, mode := range []string{"wal", "delete", "truncate", "persist"} {
		if !*long && mode != "wal" && mode != "delete" {
			continue
		}
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t, "sqlite3")
			rng := rand.New(rand.NewPCG(w.random(), 2))
			db, err := ledger.Create(w.ctx, filepath.Join(w.work, "test.db"), mode)
			if err != nil {
				t.Fatal(err)
			}
			rounds := 2
			if *long {
				rounds = 50
			}
			for range rounds {
				w.crash(db, 200+rng.IntN(200))
			}
		})
	}
}

// crash lets all writers write, kills the server once they have that many
// acknowledged transactions together, starts it again and checks the database.
func (w *world) crash(db *ledger.Database, after int) {
	w.Helper()
	race := db.Begin(w.ctx, after)
	select {
	case <-race.Enough:
	case err := <-race.Ended:
		race.Stop(1)
		w.Fatalf("a writer ended before the crash: %v", err)
	}
	err := w.rig.Kill()
	race.Abandon()
	for range ledger.Writers {
		if err := <-race.Ended; err == nil {
			w.Error("a writer did not notice that the disk is gone")
		}
	}
	race.Stop(ledger.Writers)
	if err != nil {
		w.Fatal(err)
	}
	acked := db.Acked()
	w.Logf("killed the server after %d transactions, %d in all", after, acked)
	w.start()
	if err := db.Check(w.ctx); err != nil {
		w.Fatal(err)
	}
	w.Logf("%d acknowledged, %d found", acked, db.Acked())
}
