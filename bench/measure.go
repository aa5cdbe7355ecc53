package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// The units of results. Of a rate more is better, of a time less.
const (
	perSecond = "op/s"
	mibPerSec = "MiB/s"
	millis    = "ms"
	seconds   = "s"
)

func moreIsBetter(unit string) bool { return unit == perSecond || unit == mibPerSec }

// benchCase is one thing that is measured.
type benchCase struct {
	name, what, unit string
	// on names the places that it is run at; empty is all.
	on []string
	// missing returns why it cannot be run here, or "".
	missing func(*bench) string
	// prepare is run before every measurement and not timed.
	prepare func(context.Context, *turn) error
	// run does the work and returns the result in the case's unit.
	run func(context.Context, *turn) (float64, error)
}

// turn is one measurement of one case at one place.
type turn struct {
	*bench
	at    *place
	dir   string // a new directory at the place
	undo  []func() error
	round int
}

// after has f run when the turn is over, the last first.
func (t *turn) after(f func() error) { t.undo = append(t.undo, f) }

func (t *turn) path(name string) string { return filepath.Join(t.dir, name) }

// sizes say how much work the cases do.
type sizes struct {
	rounds   int
	files    int   // small files in a directory
	fileSize int64 // bytes of a large file
	reads    int   // random reads or writes of it
	fsyncs   int
	commits  int // SQLite transactions
	forks    int // forks, checkpoints and rollbacks in one turn
	forked   int // files in a large disk that is forked
	chain    int // forks on top of each other
	tree     string
}

func sizesOf(o options) sizes {
	s := sizes{rounds: 7, files: 4000, fileSize: 128 << 20, reads: 4000, fsyncs: 500, commits: 300, forks: 20, forked: 10000, chain: 100, tree: "src"}
	if o.quick {
		s = sizes{rounds: 3, files: 1000, fileSize: 32 << 20, reads: 1000, fsyncs: 100, commits: 60, forks: 5, forked: 2000, chain: 100, tree: "src/internal"}
	}
	if o.rounds > 0 {
		s.rounds = o.rounds
	}
	return s
}

// measure runs the cases. A case that fails ends the run: a figure of
// something that does not work is worth nothing.
func (b *bench) measure(ctx context.Context, cases []benchCase) (*report, error) {
	r := b.newReport()
	for _, c := range cases {
		start := time.Now()
		res, err := b.results(ctx, c)
		if err != nil {
			return nil, err
		}
		r.Results = append(r.Results, res)
		took := time.Since(start).Round(100 * time.Millisecond).String()
		if res.Skipped != "" {
			took = "skipped: " + res.Skipped
		}
		fmt.Fprintf(b.progress, "%-16s %s\n", c.name, took)
	}
	r.PeakMiB = b.peakMiB()
	return r, nil
}

// results runs one case in all rounds.
func (b *bench) results(ctx context.Context, c benchCase) (*result, error) {
	res := &result{Name: c.name, What: c.what, Unit: c.unit, Samples: map[string][]float64{}}
	if c.missing != nil {
		if res.Skipped = c.missing(b); res.Skipped != "" {
			return res, nil
		}
	}
	places := b.placesOf(c)
	for round := range b.size.rounds {
		for i := range places {
			p := places[(i+round)%len(places)]
			v, err := b.turn(ctx, c, p, round)
			if err != nil {
				return nil, fmt.Errorf("%s at %s: %w", c.name, p.name, err)
			}
			res.Samples[p.name] = append(res.Samples[p.name], v)
		}
	}
	return res, nil
}

func (b *bench) placesOf(c benchCase) []*place {
	if len(c.on) == 0 {
		return b.places
	}
	var ps []*place
	for _, name := range c.on {
		for _, p := range b.places {
			if p.name == name {
				ps = append(ps, p)
			}
		}
	}
	return ps
}

// turn measures one case at one place once, in a directory of its own.
func (b *bench) turn(ctx context.Context, c benchCase, p *place, round int) (v float64, err error) {
	dir := filepath.Join(p.dir, fmt.Sprintf("%s-%d", c.name, round))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return 0, err
	}
	t := &turn{bench: b, at: p, dir: dir, round: round}
	t.after(func() error { return os.RemoveAll(dir) })
	defer func() {
		for i := len(t.undo) - 1; i >= 0; i-- {
			if e := t.undo[i](); err == nil {
				err = e
			}
		}
	}()
	if c.prepare != nil {
		if err := c.prepare(ctx, t); err != nil {
			return 0, fmt.Errorf("preparing: %w", err)
		}
	}
	if err := p.settle(ctx); err != nil {
		return 0, fmt.Errorf("settling: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return c.run(ctx, t)
}

// rate times f and returns n a second.
func rate(n int, f func() error) (float64, error) {
	start := time.Now()
	err := f()
	return float64(n) / time.Since(start).Seconds(), err
}

// throughput times f and returns MiB a second.
func throughput(bytes int64, f func() error) (float64, error) {
	v, err := rate(1, f)
	return v * float64(bytes) / (1 << 20), err
}

// duration times f and returns seconds.
func duration(f func() error) (float64, error) {
	start := time.Now()
	err := f()
	return time.Since(start).Seconds(), err
}

// each times every call of f by itself, undoing each untimed, and returns the
// median in milliseconds.
func each(n int, f, undo func(i int) error) (float64, error) {
	var ms []float64
	for i := range n {
		s, err := duration(func() error { return f(i) })
		if err == nil && undo != nil {
			err = undo(i)
		}
		if err != nil {
			return 0, err
		}
		ms = append(ms, s*1000)
	}
	return median(ms), nil
}
