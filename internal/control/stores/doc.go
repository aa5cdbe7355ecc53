// Package stores keeps which object stores a server knows, over restarts, and
// takes up what lies in them.
//
// A store is known by a name that people give it. What is kept of it is its URL,
// with region, endpoint, profile and file of authorities as parameters, and the id
// that the store itself has given: so its disks can be served also while it does
// not answer. A credential is never kept; whoever opens a store finds it in the
// environment of the server. That a URL holds one is refused before it is written.
//
// Stores given on the command line or in the configuration are remembered like
// those that were added by a call. A URL that differs from the remembered one is
// believed only when the store there has said the same id.
//
// # Taking up
//
// A server that starts without a disk, with a store that it was given, takes up
// the trees in that store, in the background and until it has all of them: a tree
// whose server lives is asked for again until that one has stopped, or has not been
// heard of for its lease. That this goes on is remembered too. Everything else
// is left to a call, for two servers with disks of their own may share a bucket.
package stores
