package crash_test

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// tree is the state of a disk: what each path is. Two paths with one file are
// hard links.
type tree map[string]*file

type file struct {
	dir  bool
	data []byte
	sum  string // of data; "" when not known
}

func (f *file) digest() string {
	if f.sum == "" {
		s := sha256.Sum256(f.data)
		f.sum = fmt.Sprintf("%d:%x", len(f.data), s[:8])
	}
	return f.sum
}

func (f *file) set(data []byte) { f.data, f.sum = data, "" }

// put is a write.
func (f *file) put(p []byte, off int) {
	data := slices.Clone(f.data)
	if grow := off + len(p) - len(data); grow > 0 {
		data = append(data, make([]byte, grow)...)
	}
	copy(data[off:], p)
	f.set(data)
}

// clone copies a tree so that changes of one do not show in the other.
func (t tree) clone() tree {
	c, seen := tree{}, map[*file]*file{}
	for p, f := range t {
		if seen[f] == nil {
			seen[f] = &file{f.dir, slices.Clone(f.data), f.sum}
		}
		c[p] = seen[f]
	}
	return c
}

// lines is a text that two trees have in common only if they are equal.
func (t tree) lines() string {
	links := map[*file]int{}
	for _, f := range t {
		links[f]++
	}
	var b strings.Builder
	for _, p := range sortedKeys(t) {
		if f := t[p]; f.dir {
			fmt.Fprintf(&b, "%s/\n", p)
		} else {
			fmt.Fprintf(&b, "%s %s links %d\n", p, f.digest(), links[f])
		}
	}
	return b.String()
}

// never is a position that no recording reaches.
const never = math.MaxInt64

// version is one state of a disk.
type version struct {
	text string // the tree's lines
	what string // the call that made it
	from int64  // the position when the call began
}

// mark says that from a position on the disk is at version at or a later one.
type mark struct {
	pos int64
	at  int
}

// disk is a disk and its history.
type disk struct {
	name     string
	now      tree
	versions []version
	durable  []mark

	// Of a fork: what it was made from, in which version of that, and when.
	parent   *disk
	parentAt int
	began    int64 // the position when the call that makes it began
	sure     int64 // from here on it is there
	// When it goes: between the two positions it may be there or not.
	leaving, gone int64
	promoted      int // with it comes this version of the parent; 0: none
}

func newDisk(name string, now tree, from int64, what string) *disk {
	d := &disk{name: name, now: now, began: from, sure: never, leaving: never, gone: never}
	d.step(what, from)
	return d
}

// step adds the present state as a version.
func (d *disk) step(what string, from int64) {
	d.versions = append(d.versions, version{d.now.lines(), what, from})
}

func (d *disk) at() int { return len(d.versions) - 1 }

// acknowledge notes that all that the disk shows is durable, and with it that
// the disk is there, and what its parents showed when they were forked.
func (d *disk) acknowledge(pos int64) {
	d.acknowledgeAt(pos, d.at())
}

func (d *disk) acknowledgeAt(pos int64, at int) {
	d.durable = append(d.durable, mark{pos, at})
	d.sure = min(d.sure, pos)
	if d.parent != nil {
		d.parent.acknowledgeAt(pos, d.parentAt)
	}
}

// span returns which versions the disk may show when the recording ends at a
// position.
func (d *disk) span(pos int64) (least, most int) {
	for _, m := range d.durable {
		if m.pos <= pos {
			least = max(least, m.at)
		}
	}
	most, _ = slices.BinarySearchFunc(d.versions, pos, func(v version, pos int64) int {
		if v.from <= pos {
			return -1
		}
		return 1
	})
	return least, most - 1
}

// match returns the versions that the text may be at the position.
func (d *disk) match(text string, pos int64) (first, last int, err error) {
	least, most := d.span(pos)
	first = -1
	for k := least; k <= most; k++ {
		if d.versions[k].text == text {
			if first < 0 {
				first = k
			}
			last = k
		}
	}
	if first >= 0 {
		return first, last, nil
	}
	for k := range d.versions {
		if d.versions[k].text == text {
			return 0, 0, fmt.Errorf("disk %s shows version %d (%s), but must show one of %d (%s) to %d (%s)", d.name,
				k, d.versions[k].what, least, d.versions[least].what, most, d.versions[most].what)
		}
	}
	return 0, 0, fmt.Errorf("disk %s shows no state of its history; against version %d (%s):\n%s\nagainst version %d (%s):\n%s", d.name,
		least, d.versions[least].what, difference(d.versions[least].text, text),
		most, d.versions[most].what, difference(d.versions[most].text, text))
}

// difference lists the lines that only one of two texts has.
func difference(want, got string) string {
	in := map[string]int{}
	for l := range strings.Lines(want) {
		in[l]++
	}
	for l := range strings.Lines(got) {
		in[l]--
	}
	var b strings.Builder
	for _, l := range sortedKeys(in) {
		if n := in[l]; n > 0 {
			b.WriteString("  missing " + l)
		} else if n < 0 {
			b.WriteString("  instead " + l)
		}
	}
	return b.String()
}

// checkpoint is a checkpoint of a disk.
type checkpoint struct {
	disk  *disk
	name  string
	at    int
	tree  tree
	text  string // the tree's lines
	began int64
	sure  int64
	// Of one that is removed: see disk.
	leaving, gone int64
}
