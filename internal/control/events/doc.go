// Package events is the stream of what happened: disks made and removed,
// forks, checkpoints, mounts, policies, and faults.
//
// Events stand in a ring in memory. Each has a sequence number that grows by
// one; a reader keeps only the number it has come to, and asks for what follows.
// So a reader costs nothing while it does not read, a slow one holds nobody up,
// and one that is overtaken is told by how many. The numbers belong to one run of
// the server, which has a name: after a restart they start again, and a reader
// that names the run before learns that there was a restart.
//
// Nothing here is written to the device: a flush for every event would cost more
// than what it tells of. What must outlive the server is in the disks' logs
// already, and Replay reads it from there.
//
// Faults come from two sides: from file operations, through the volume's
// observer, and from the log, where the engine reports what nobody asked for.
// Both can come in floods, so equal ones are held back for a while and counted.
package events
