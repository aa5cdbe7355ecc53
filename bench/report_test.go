package main

import (
	"bytes"
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := median(c.in); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.in, got, c.want)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("the median of nothing is a number")
	}
}

// TestSpeedIsPaired has a neighbour slow one round down for both sides: the
// ratio must not see it, though the medians of the sides would.
func TestSpeedIsPaired(t *testing.T) {
	r := &result{Unit: perSecond, Samples: map[string][]float64{onTine: {50, 5, 40}, native: {100, 10, 80}}}
	if got := r.speed(native); got != 0.5 {
		t.Errorf("speed = %v, want 0.5", got)
	}
	r.Unit = millis
	if got := r.speed(native); got != 2 {
		t.Errorf("of a time, speed = %v, want 2", got)
	}
	if !math.IsNaN(r.speed(memfs)) {
		t.Error("there is a ratio to what was not measured")
	}
}

func TestChoose(t *testing.T) {
	all := []benchCase{{name: "fork-small"}, {name: "fork-large"}, {name: "rm"}}
	for only, want := range map[string]int{"": 3, "fork": 2, "rm, fork-l": 2} {
		got, err := choose(all, only)
		if err != nil || len(got) != want {
			t.Errorf("choose(%q) = %d cases, %v; want %d", only, len(got), err, want)
		}
	}
	if _, err := choose(all, "rm,nothing"); err == nil {
		t.Error("a name that no case has is taken")
	}
}

// TestCasesAreDistinct keeps names apart, by which results are found.
func TestCasesAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range allCases() {
		if seen[c.name] {
			t.Errorf("two cases are called %s", c.name)
		}
		seen[c.name] = true
		if c.what == "" || c.unit == "" || c.run == nil {
			t.Errorf("case %s is not complete", c.name)
		}
	}
}

// TestReport writes a report, reads it back and prints it both ways.
func TestReport(t *testing.T) {
	r := &report{Rounds: 1, Results: []*result{
		{Name: "one", What: "first", Unit: perSecond, Samples: map[string][]float64{native: {1000}, onTine: {250}, memfs: {500}}},
		{Name: "two", What: "second", Unit: millis, Skipped: "no such program"},
	}}
	file := filepath.Join(t.TempDir(), "r.json")
	if err := r.write(file); err != nil {
		t.Fatal(err)
	}
	back, err := readReport(file)
	if err != nil {
		t.Fatal(err)
	}
	for spec, want := range map[bool][]string{
		false: {"one", "1000", "0.25", "0.50", "skipped: no such program"},
		true:  {"| one | first | op/s | 1000 | 250 | 500 | 0.25 | 0.50 |", "skipped: no such program"},
	} {
		var out bytes.Buffer
		if err := back.print(&out, spec); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("spec %v: %q is not in:\n%s", spec, w, out.String())
			}
		}
	}
}

// TestPlacesTakeTurns runs a case of nothing in three rounds at three
// directories: each place must be first, second and last once.
func TestPlacesTakeTurns(t *testing.T) {
	b := &bench{size: sizes{rounds: 3}, progress: &bytes.Buffer{}}
	for _, name := range []string{native, onTine, memfs} {
		b.places = append(b.places, &place{name: name, dir: t.TempDir(), settle: nothing})
	}
	var order []string
	c := benchCase{name: "nothing", unit: perSecond, run: recordTurns(&order)}
	if _, err := b.results(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		seen := map[string]bool{order[i]: true, order[i+3]: true, order[i+6]: true}
		if len(seen) != 3 {
			t.Errorf("position %d of the rounds is taken by %v only: %v", i, seen, order)
		}
	}
}

func nothing(context.Context) error { return nil }

func recordTurns(order *[]string) func(context.Context, *turn) (float64, error) {
	return func(_ context.Context, t *turn) (float64, error) {
		*order = append(*order, t.at.name)
		return 1, nil
	}
}
