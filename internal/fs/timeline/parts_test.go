package timeline

import (
	"testing"

	"tine.dev/tine/internal/tine"
)

// TestStepWaitsForItsDependencies: a step is told of a failure before it.
func TestStepWaitsForItsDependencies(t *testing.T) {
	first := newStep()
	second := newStep(first)
	got := make(chan error)
	go func() { got <- second.awaitDeps() }()
	select {
	case err := <-got:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	first.finish(tine.ErrNoSpace)
	if err := <-got; tine.KindOf(err) != tine.KindNoSpace {
		t.Errorf("the failure before it is %v", err)
	}
	done := newStep()
	done.finish(nil)
	if s := newStep(done, nil); len(s.deps) != 0 {
		t.Errorf("a step that is done is still waited for")
	}
}
