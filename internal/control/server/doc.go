// Package server is the life of `tine serve`.
//
// Starting takes the lock on the data directory, then the socket, then opens
// the disks, removes what a crash left half done, brings the mounts back, and
// only then says that it is ready: in the log, to systemd (sd_notify) and at
// /readyz. From the moment the socket exists /healthz answers, and every other
// call waits some seconds and is then told that the server is starting, so that
// a client never mistakes a long recovery for a missing server.
//
// Stopping goes the other way: no new calls, running ones get some time,
// imports are cancelled, mounts are taken away (also where they are in use;
// their records stay, so the next start brings them back), and last the disks
// are closed, which makes all that has reached the server durable.
package server
