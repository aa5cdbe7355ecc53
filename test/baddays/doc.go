// Package baddays proves what tine does when the machine fails it, on the real
// program, with real mounts and devices that fail at a chosen moment.
//
//   - Full device (TestFullDevice...): the data directory lies on a small tmpfs,
//     which can be made larger and smaller while it is mounted. So space ends at
//     an exact point of a workload, slowly or all at once, and comes back at
//     another. Callers get ENOSPC and nothing else; what was acknowledged stays;
//     reading and deleting go on; with room everything goes on by itself.
//   - Failing device (TestDevice...): the data directory lies on package faultfs,
//     which passes everything on until it is told to fail certain operations on
//     certain files. Every handle hears of a failed flush, for good; a read that
//     fails is a matter of the file that was read.
//   - Damage (TestDamage...): one byte of one file is changed while no server
//     runs. Whatever is read afterwards is right or an error, the checker finds
//     it, and repairing it leaves a directory that is clean or says what is not.
//   - Silent server (TestSilent...): the server is stopped or killed while
//     programs wait for it. They can be killed, mounts can be taken away, and no
//     command waits for ever.
//
// The short form runs with all other tests; -long takes many more places and
// moments (make prove-baddays). Random tests print their seed.
package baddays
