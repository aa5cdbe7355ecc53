// Package control is the control plane: everything between a person or
// program who asks for something and the file system that does it. It does
// nothing itself; its parts are packages of their own:
//
//	server     the life of `tine serve`: the lock on the data directory, the
//	           socket, readiness, signals, the order of starting and stopping
//	httpapi    the HTTP calls, their errors and their OpenAPI document
//	keeper     mounts that survive the server, in a durable record
//	importer   copies a directory into a new disk
//	config     flags, environment and file, and which of them wins
//	doctor     what the machine can do and what to do where it cannot
//	statefile  small durable JSON files
//	oserr      errors of the operating system as kinds of tine
//	buildinfo  which build this is
package control
