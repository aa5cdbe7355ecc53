package sim

import (
	"testing"

	"tine.dev/tine/internal/fs/timeline"
)

// TestMutationsAreCaught runs the simulator against engines with a deliberate
// fault each. A simulator that finds nothing wrong with one of them would find
// nothing wrong with a real fault of the same kind.
func TestMutationsAreCaught(t *testing.T) {
	for name, m := range map[string]timeline.Mutation{
		"extents freed without regard to the line that wrote them": timeline.MutateFreeForeign,
		"a neighbouring version ignored":                           timeline.MutateIgnoreNeighbours,
		"lines never absorbed":                                     timeline.MutateNeverAbsorb,
	} {
		t.Run(name, func(t *testing.T) {
			const seeds = 20
			for seed := uint64(1); seed <= seeds; seed++ {
				if _, f := run(Config{Seed: seed, Steps: 800, Drain: true, Mutation: m}); f != nil {
					t.Logf("caught with seed %d, at step %d: %v", seed, f.Step, f.Err)
					return
				}
			}
			t.Fatalf("not caught with seeds 1 to %d", seeds)
		})
	}
}
