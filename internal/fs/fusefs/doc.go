// Package fusefs mounts a disk into the kernel's file tree.
//
// The kernel speaks the FUSE protocol over /dev/fuse: one request for every
// operation that it cannot answer from its own caches. This package turns each
// request into one call of a volume.Session and each error kind into one
// errno; it keeps no file-system state of its own. What it does add is
// everything about caches, because a request costs some 20 microseconds and
// the fastest request is the one that is never sent:
//
//   - While a disk has one session the kernel may keep names and attributes
//     for an hour: nobody else changes them. As soon as there are more, it
//     keeps them for at most 100 milliseconds, and what other sessions change
//     is invalidated precisely and at once (invalidate.go).
//   - A node id is a generation (16 bits) and an inode number (48 bits). A
//     rollback starts a new generation, so whatever the kernel still holds of
//     the old one, dirty pages included, can only meet ESTALE (nodeid.go).
//   - Page caches stay across open and close. The kernel is told never to
//     guess that a page has changed; it is told when one has.
//
// Requests are served by a few goroutines that each read, handle and answer;
// a handler that blocks (a lock, a device flush) blocks no other. The kernel
// checks permissions (default_permissions). An INTERRUPT cancels waits for
// locks and nothing else: the Go runtime preempts its goroutines by signal, so
// every busy Go program interrupts its own requests all the time.
//
// The package opens /dev/fuse and calls mount(2) itself, and hands the
// descriptor to the protocol library. That keeps a duplicate of it for the
// notifications that the library cannot send.
//
// Lock order: none. No lock of this package is held while it calls the volume
// or writes a notification, except Mount.pathMu around the system calls that
// name the mount point, which take no other lock of ours.
package fusefs
