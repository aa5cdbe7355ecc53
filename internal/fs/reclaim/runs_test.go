package reclaim

import (
	"slices"
	"testing"
)

func countRuns(versions []bool) int64 {
	n, last := int64(0), false
	for _, v := range versions {
		if v && !last {
			n++
		}
		last = v
	}
	return n
}

func at(versions []bool, i int) bool { return i >= 0 && i < len(versions) && versions[i] }

// TestRunsAgainstCounting tries every sequence of up to seven versions and
// every place in it.
func TestRunsAgainstCounting(t *testing.T) {
	for length := range 8 {
		for bits := range 1 << length {
			versions := make([]bool, length)
			for i := range versions {
				versions[i] = bits&(1<<i) != 0
			}
			before := countRuns(versions)
			for i, self := range versions {
				rest := slices.Delete(slices.Clone(versions), i, i+1)
				if got, want := RunsOnFree(at(versions, i-1), self, at(versions, i+1)), countRuns(rest)-before; got != want {
					t.Fatalf("%v without version %d: %d, want %d", versions, i, got, want)
				}
			}
			for _, v := range []bool{false, true} {
				more := append(slices.Clone(versions), v)
				if got, want := RunsOnAdd(at(versions, length-1), v), countRuns(more)-before; got != want {
					t.Fatalf("%v and then %v: %d, want %d", versions, v, got, want)
				}
				if length == 0 {
					continue
				}
				more = append(slices.Clone(versions[:length-1]), v)
				if got, want := RunsOnReplace(at(versions, length-2), versions[length-1], v), countRuns(more)-before; got != want {
					t.Fatalf("%v with its newest replaced by %v: %d, want %d", versions, v, got, want)
				}
			}
		}
	}
}
