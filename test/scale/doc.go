// Package scale measures what is promised to stay the same however large a
// disk or however long its history is: the cost of fork, checkpoint and
// rollback (F1), of a fork that nobody writes to, of thousands of rounds of
// work that is kept or taken back, of a look-up in a fork of forks (F7), and of
// a diff. And it goes where sizes themselves are the test: a directory of a
// million names, a sparse file of a terabyte, ten thousand forks that are all
// written, an old state that is held while all of it is rewritten.
//
// The promises are ratios, so each test measures a small and a large case in
// turn, in one process, and compares medians: what else the machine does then
// falls on both. The short form, `go test ./test/scale`, looks for growth with
// bounds that a busy machine keeps; `go test ./test/scale -long -timeout 3h`
// holds the promised numbers at the promised sizes. Every test logs what it
// measured (-v), whether it passes or not.
//
// Millions of files are made through a volume.Session; what is measured goes
// through a kernel mount wherever the promise is made for mounts.
package scale
