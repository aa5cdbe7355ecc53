// Package depot is the side of a tree that lies in an object store: it ships
// what is committed, and takes trees up from there.
//
// # What lies in the store
//
// Below the store's prefix, for a tree of the id T:
//
//	trees/T/journal/N            commits, in order: see package journal; N has 20 digits
//	trees/T/manifest             which runs there are, and where the journal is to be replayed from: manifest.go
//	trees/T/runs/R/N             the tables of run R: see package run
//	servers/S                    what server S says of itself: lease.go
//	segments/S/SEG.G             file data: see package object; S is the id's last two characters, G the generation
//
// # Shipping
//
// A Tree reads the entries of its outbox in order, makes journal objects of
// them, and removes those that have arrived. An object is created only after the segments
// that its rows name are in the store, so that whoever replays the journal finds
// them (J1). What it carries is one step: it is there as a whole or not at all. So only
// what the rows name at its end must be there; a segment that was written and
// dropped within it never travels. If the file of a segment that the rows name has gone
// meanwhile, a later entry says so, and the object takes in the entries up to that.
//
// An open segment has no object. Up to TailBytes of it ride in the journal, as
// tail rows; when more is missing the engine is asked to seal it, which makes it an
// object of its own.
//
// # Ownership
//
// Journal numbers have no gap, and each object is created only if there is
// none (J2). A server that takes a tree up writes the next number, with a higher
// term, before it serves; the one that had it is refused at its next number, knows
// by that that it has lost the tree (J3), and says so: Lost. What it
// had acknowledged and not shipped is not part of the tree any more.
//
// # Locks
//
// Tree.mu is a leaf: no call is made with it held. One goroutine of each Tree
// ships; callers only wait for it.
package depot
