// Package usage works out what a disk takes up: what its head shows, what
// removing it would free, and what of it others hold as well.
//
// With forks, bytes belong to many at once, so "how large is it" has no single
// answer, and no counter kept along the way could give the useful one: what a
// removal would free changes whenever anybody else forks, checkpoints or
// removes. It is computed when asked, by playing the removal through on paper:
//
//  1. timeline copies the structure that the removal would meet, in one moment,
//     with the tree's lock held: lines with their pins, heads and children.
//  2. whatIf follows, on the copy, which lines would go whole, which pins would
//     lose their last holder, and which lines would become one.
//  3. Of the lines that lose something, timeline makes readers: their sealed
//     layers and one snapshot. From here on no lock is held.
//  4. tally reads those rows that were born between the neighbours of a lost pin,
//     as a drop would, and asks the rules of reclaim what would go.
//
// Lines that would become one are a chain: their epochs stand behind one
// another on one axis, on which the rules see one line.
package usage
