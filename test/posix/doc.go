// Package posix has no code, only tests: what Linux promises about a directory,
// one case for each behaviour and for each error that a manual page (section 2)
// lists.
//
// The suite takes any directory:
//
//	go test ./test/posix                        the machine's own file system, then tine
//	go test ./test/posix -run Dir -dir=/mnt/x   the directory /mnt/x
//	go test ./test/posix -long                  tine in more variants too
//
// A case is a function that works in a fresh directory of its own, which is its
// working directory. It runs on a thread of its own, and what a thread can have
// for itself on Linux it has: working directory, umask, user, mount namespace.
// So a case can be another user, or mount something over its directory, without
// a process of its own and without a trace. What belongs to a process, such as
// record locks and limits, is done by a peer: a second process that makes the
// system calls it is told to.
//
// A case changes files through one path and looks at the result through
// another (kase.there). Usually both are the same directory. On a disk that is
// mounted twice they are the two mounts, so every case also shows that what is
// done through one is seen through the other.
//
// The table errnos says for each call and each error of its manual page which
// case shows it, or why nothing can. The table known lists the cases that fail
// on tine today: such a failure does not fail the run, but a known case that
// passes does.
package posix
