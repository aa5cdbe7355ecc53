// Package stores runs whole servers on object stores, as their operators would,
// and loses them: the machine that had a disk is killed and its data directory
// removed, or it is frozen for so long that another one takes its disks, and then
// goes on as if nothing had been.
//
// The stores are a directory and a real S3 server on the loopback interface, with
// a lease of two seconds instead of twenty. No secret of a store may be seen in
// anything that a server writes or answers.
package stores
