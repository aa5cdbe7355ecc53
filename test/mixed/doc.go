// Package mixed has no code, only a test of everything at once: what a machine
// full of agents does to one server, with the server killed every minute.
//
// Workers work on disks of their own, all at the same time: git with commits,
// merges and garbage collection; Go builds with the build cache on the disk;
// SQLite in two journal modes; random operations told to a model as well; and
// forks, checkpoints, rollbacks and promotes, with a hash of every state kept
// beside. Each knows the truth about its disk from elsewhere, and after every
// kill says whether what is left is the state that the disk had at some moment,
// no earlier than the last one that was durable.
//
// While the server is dead its mounts answer ENOTCONN, and calls under way
// ECONNABORTED or EIO. A worker may meet these errors, once, when the server's
// life has ended since it began what it does. What programs make of them is
// logged, for some have words of their own. Any other error, and any of these at
// another time, fails the test.
//
// Before each kill the server's memory, descriptors and goroutines and the space
// on the device are noted; over the whole run they must not grow. The descriptors of
// segment files are a cache of 512: each kill leaves some segments that are sealed
// before they are full, so it fills, and must stay within its bound. With
// -mixed.kills=false one server lives the whole time, so that a slow leak has it
// too.
//
//	go test ./test/mixed                    15 s, a kill every 3
//	make prove-mixed                        an hour, a kill every minute
//	go test ./test/mixed -mixed.for=10m -mixed.every=20s -timeout 1h
//	make prove-mixed PROVE_FLAGS=-mixed.kills=false
package mixed
