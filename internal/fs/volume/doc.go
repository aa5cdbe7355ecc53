// Package volume is the facade of the file system: all that front ends (the
// kernel mount, the S3 gateway, the HTTP API) see of it.
//
// A Host is one open data directory. It knows disks by name and does what is
// done to whole disks: create, fork, checkpoint, roll back, promote, remove.
// Attach gives a Session: one attachment of a client to one disk (or to a
// frozen checkpoint), through which files are read and written. Several
// sessions may be attached to one disk; each learns from its invalidation
// queue what the others have changed.
//
// Inode numbers alone do not name a file for ever: rollback, promote and undo
// put another history under the same name. A Node is an inode number and the
// generation it was learnt in; an operation on a node of an old generation
// fails with tine.KindStale.
package volume
