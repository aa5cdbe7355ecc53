package posix

import (
	"slices"
	"strings"
	"testing"
)

// flaw is what is wrong with tine in some cases. Variants are those of the
// place that have it; none means all, but those excepted. A flaw that shows only
// sometimes, because it takes a race, may let its cases pass.
type flaw struct {
	what      string
	variants  []string
	except    []string
	sometimes bool
	cases     []string
}

// known are the cases that fail on tine today. A case that passes must leave
// the table, so the table says how far tine is from a local file system.
var known = []flaw{
	{
		what:  "F_GETLK tells the process of an OFD lock: the protocol does not tell the two kinds apart",
		cases: []string{"fcntl/OFD locks: F_GETLK tells that no process has it"},
	},
	{
		what:      "a file that is looked up and loses its name before the server notes that the kernel holds it: open is ESTALE",
		sometimes: true,
		cases:     []string{"rename/at once: a name that is replaced again and again is never absent"},
	},
	{
		what:     "with a write-back cache the kernel alone knows where data is, how much of it and up to where it may be",
		variants: []string{"write-back"},
		cases: []string{
			"fallocate/PUNCH_HOLE frees blocks", "stat/blocks are as many as the content takes, about",
			"lseek/SEEK_DATA and SEEK_HOLE find data and holes", "lseek/SEEK_HOLE sees a hole that was punched",
			"write/EFBIG at the largest file size", "write/what passes the largest size is cut short",
		},
	},
	{
		what:     "with a write-back cache a truncation to the same size leaves the times",
		variants: []string{"write-back"},
		cases:    []string{"truncate/times: to the same size marks the file"},
	},
	{
		what:     "a kernel without kill-privileges clears set-group-ID itself, and only where the group may execute",
		variants: []string{"features-off"},
		cases: []string{
			"write/by another clears set-group-ID of a file that its group may not execute",
			"truncate/by another clears set-group-ID of a file that its group may not execute",
			"truncate/of a descriptor by another clears set-group-ID of a file that its group may not execute",
			"open/O_TRUNC by another clears set-group-ID of a file that its group may not execute",
			"creat/by another clears set-group-ID of a file that its group may not execute",
			"fallocate/by another clears set-group-ID of a file that its group may not execute",
			"fallocate/PUNCH_HOLE by another clears set-group-ID of a file that its group may not execute",
			"fallocate/ZERO_RANGE by another clears set-group-ID of a file that its group may not execute",
			"copy_file_range/by another clears set-group-ID of a file that its group may not execute",
		},
	},
}

func knownFlaw(name, variant string) (flaw, bool) {
	if variant == "" || *strict {
		return flaw{}, false
	}
	for _, f := range known {
		in := (len(f.variants) == 0 || slices.Contains(f.variants, variant)) && !slices.Contains(f.except, variant)
		if in && slices.Contains(f.cases, name) {
			return f, true
		}
	}
	return flaw{}, false
}

// TestKnown holds for the table: what it names are cases.
func TestKnown(t *testing.T) {
	var names []string
	for _, b := range slices.Concat(behaviours(), fullCases) {
		names = append(names, b.name())
	}
	for _, f := range known {
		for _, name := range f.cases {
			if !slices.Contains(names, name) {
				t.Errorf("%s: there is no case %q", f.what, name)
			}
		}
		if strings.TrimSpace(f.what) == "" {
			t.Errorf("it is not said what is wrong with %q", f.cases)
		}
	}
}
