// Package object keeps sealed segments as objects in a store, and reads them
// from there, frame by frame.
//
// A segment becomes one object. Its payload is cut into frames of up to
// 256 KiB, each compressed on its own, with an index at the end; format.go
// documents it. So a read costs the frames that it touches, not the segment.
//
// # Writing
//
// An object is created, never replaced: its key names the segment and its
// generation, whose payload never changes. A writer that finds the key taken
// compares what it would have written with the index that is there, and is
// content if the payload is the same. So an upload that a crash cut off is
// simply begun anew, by whatever version of the program.
//
// # Reading
//
// A Reader has the index, which came with one ranged request for the end of the
// object, and asks the cache for frames. What the cache holds are payloads,
// checked and unpacked, because a frame is read in several bites and unpacking it for
// each would cost more than anything else; local segment files are not
// compressed either. Missing frames that lie together come with one request, others at the same
// time. Who reads on where he stopped is read ahead for: one frame, then two,
// four and so on up to 8 MiB, in several requests at once, for a store answers
// late but much. Who reads here and there gets what he asked for and no more.
//
// Bytes are checked twice, as they come and unpacked, and asked for again before
// they are called damaged: on the way they are hurt far more often than at rest.
package object
