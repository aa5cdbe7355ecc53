package sim

import (
	"strings"
	"time"
	"unicode"
)

// Shrink leaves out steps of a failing run as long as it fails in the same
// way, and returns the shortest run that it found in the given time.
func Shrink(f *Failure, budget time.Duration) *Failure {
	deadline := time.Now().Add(budget)
	best := f
	best.Config.Steps = min(f.Step, f.Config.Steps)
	for part := max(1, best.Config.Steps/2); part > 0 && time.Now().Before(deadline); {
		shorter := false
		kept := best.steps()
		for lo := 0; lo < len(kept) && time.Now().Before(deadline); lo += part {
			if next := best.without(kept[lo:min(lo+part, len(kept))]); next != nil {
				best, shorter = next, true
			}
		}
		if !shorter || part > len(best.steps()) {
			part /= 2
		}
	}
	return best
}

// steps returns the numbers of the steps that the run takes.
func (f *Failure) steps() []int {
	var kept []int
	for i := 1; i <= f.Config.Steps; i++ {
		if !f.Config.Skip[i] {
			kept = append(kept, i)
		}
	}
	return kept
}

// without runs again without the given steps and returns how that fails, or
// nil if it does not.
func (f *Failure) without(steps []int) *Failure {
	cfg := f.Config
	cfg.Skip = map[int]bool{}
	for i := range f.Config.Skip {
		cfg.Skip[i] = true
	}
	for _, i := range steps {
		cfg.Skip[i] = true
	}
	next := Run(cfg)
	if next == nil || next.way() != f.way() {
		return nil
	}
	next.Config.Steps = min(next.Step, cfg.Steps)
	return next
}

// way is the start of the error without its figures and ids, which are what has
// a digit in it: two failures with the same way are taken for the same.
func (f *Failure) way() string {
	var words []string
	for _, w := range strings.Fields(f.Err.Error()) {
		if !strings.ContainsFunc(w, unicode.IsDigit) {
			words = append(words, w)
		}
	}
	s := strings.Join(words, " ")
	return s[:min(90, len(s))]
}
