// Package keeper keeps mounts alive across the life of a server.
//
// Every mount has a record in a small durable file. The record is written
// before the kernel is asked to mount and removed after it was asked to
// unmount, so a crash at any moment leaves a record for every mount that may
// exist. At start the keeper takes away what a crashed server left behind (a
// directory that answers "transport endpoint is not connected") and mounts
// everything that is recorded. Stopping the server unmounts and keeps the
// records: a mount is gone for good only when someone asked for that with
// `tine umount`, or when its disk is removed. An unmount that was asked for and
// does not end in time, because programs or the kernel hold on to the mount, is
// "unmounting": forgotten already, and told of when it ends.
//
// A mount that is unmounted from outside, with umount(8), is "down": it stays
// recorded and comes back at the next start. The keeper cannot tell a person
// who wants it gone from a machine that is shutting down, and the second must
// not lose mounts.
package keeper
