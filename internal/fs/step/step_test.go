package step

import (
	"errors"
	"testing"

	"tine.dev/tine/internal/tine"
)

// TestStepWaitsForItsDependencies: a step is told of a failure before it.
func TestStepWaitsForItsDependencies(t *testing.T) {
	first := New()
	second := New(first)
	got := make(chan error)
	go func() { got <- second.AwaitDeps() }()
	select {
	case <-got:
		t.Fatal("it did not wait")
	default:
	}
	first.Finish(tine.ErrNoSpace)
	if err := <-got; !errors.Is(err, tine.ErrNoSpace) {
		t.Errorf("the failure of what it depends on is told as %v", err)
	}
	done := New()
	done.Finish(nil)
	if s := New(done, nil); len(s.deps) != 0 {
		t.Errorf("a step that is done is still waited for")
	}
}
