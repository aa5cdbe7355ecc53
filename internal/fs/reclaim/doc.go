// Package reclaim holds the rules that say what may be freed. It is pure: it
// looks at versions, pins and extents that it is given, and touches nothing.
//
// A line of writes keeps, for each key, its versions in the order of their
// births. A pin is an epoch at which somebody still looks: a checkpoint, the
// branch point of a child, or the head, which looks from after every birth.
// Three rules follow.
//
// A version is needed while a pin stands in [its birth, the birth of the next
// newer version): Needed.
//
// When a pin goes, only versions born between its two neighbours can have
// been kept by it alone: DropInterval. So the work is proportional to what
// was written there, not to the size of the disk.
//
// When a version goes, the bytes that it names go with it, except those that
// a neighbouring version of the same key names too: Released. The neighbours
// are enough, because bytes enter a key once, when they are written, and
// later versions can only keep or lose them: the versions that name one byte
// are a run without gaps.
//
// A reflink breaks that last argument, for it names the same bytes under a
// second key, or under the same key a second time. Reflinked bytes are
// therefore counted: a piece knows the number of runs, over all keys of the
// line, of neighbouring versions that name any byte of it, and is freed as a
// whole when the number is zero. RunsOnFree, RunsOnAdd and RunsOnReplace say
// how the number changes. Counting runs rather than versions means that a
// version which only carries on what the one before it named costs no change.
package reclaim
