// Package importer copies a directory of the machine into a new disk: files
// with their holes, directories, symbolic and hard links, fifos and devices,
// with modes, owners, times in nanoseconds and extended attributes.
//
// One goroutine walks the tree and makes the names; several copy the data of
// files. Only the walker changes directories, so a directory's times can be
// set as soon as the walker leaves it, while its files are still being
// filled. Everything is opened relative to its parent's descriptor and never
// through a symbolic link: depth is not bounded by the length of a path, and
// a tree that changes during the walk cannot lead out of itself.
//
// A disk gets its name only when the whole import is durable: until then it
// has a name of its own that is noted in a file first, and what the note names
// is purged when the import fails or when the next server starts.
package importer
