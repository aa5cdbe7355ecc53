// Package rig runs a real tine server as a process of its own, as an operator
// would, and can kill it as a failing machine would. Suites and the demo stand
// on it.
//
// A rig owns one directory. The server's data, its socket, its log and all
// mount points are below it, so that cleaning up needs no bookkeeping: end the
// server, take away whatever the kernel says is mounted below the directory,
// remove the directory.
//
// Nothing here waits for a length of time. The server tells when it is ready
// in the way that it tells systemd, over NOTIFY_SOCKET.
package rig
