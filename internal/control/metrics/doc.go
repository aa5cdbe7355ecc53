// Package metrics shows the server's figures in the form that Prometheus
// reads, on the API's socket and, if asked for, on a TCP address of its own.
//
// File operations are counted where they happen, by the volume, with two atomic
// additions each; nothing of Prometheus is on their way. A scrape copies those
// counts and asks the engine for the rest. Calls of the API are counted here, for
// they are few.
//
// No figure is told by disk: there may be a hundred thousand, and most live for
// minutes. `tine top` shows single disks. How far stores are behind is told by tree,
// under the name of its oldest disk, for it is that which somebody must act on.
package metrics
