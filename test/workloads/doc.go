// Package workloads has no code, only tests: what people do all day with a
// disk, done by the tools they do it with, on a real mount of a real server.
//
// Each test compares with the truth that the tool or another file system
// knows: git's releases with the module cache, an npm install with the same
// one on the native file system, a database with the transactions that it
// acknowledged. The short form is for every change; -long does the same for
// longer, with more of everything.
package workloads
