package mixed

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"

	"tine.dev/tine/test/ledger"
)

// databaseJob has several processes write to a database, whose acknowledged
// transactions must all be there after every crash.
type databaseJob struct {
	w    *world
	rnd  *rand.Rand
	dir  string // in which the database lies
	mode string
	db   *ledger.Database
}

// maxTransactions is when a database is large enough to begin anew.
const maxTransactions = 8000

func (j *databaseJob) prepare(ctx context.Context) error {
	at, err := j.w.disk(ctx, "sql-"+j.mode)
	if err != nil {
		return err
	}
	// A database in the root of the disk could be made where nothing is mounted.
	j.dir = filepath.Join(at, "db")
	if err := os.Mkdir(j.dir, 0o755); err != nil {
		return err
	}
	return j.anew(ctx)
}

func (j *databaseJob) anew(ctx context.Context) (err error) {
	j.db, err = ledger.Create(ctx, filepath.Join(j.dir, "test.db"), j.mode)
	if err != nil {
		j.db = nil // until it can be repeated
	}
	return err
}

// step lets the writers make some transactions, ends them at whatever they
// are doing, and checks.
func (j *databaseJob) step(ctx context.Context) error {
	if j.db == nil || j.db.Acked() > maxTransactions {
		return j.anew(ctx)
	}
	race := j.db.Begin(ctx, 20+j.rnd.IntN(150))
	var err error
	select {
	case <-race.Enough:
		race.Stop(0)
	case err = <-race.Ended:
		if err == nil {
			err = errors.New("a writer ended by itself")
		}
		race.Stop(1)
	}
	if err != nil {
		return err
	}
	return j.db.Check(ctx)
}

func (j *databaseJob) recover(ctx context.Context) error {
	if j.db == nil {
		return j.anew(ctx)
	}
	return j.db.Check(ctx)
}

func (j *databaseJob) finish(ctx context.Context) error { return j.recover(ctx) }
