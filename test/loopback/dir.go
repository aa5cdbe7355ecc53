// Package loopback has what go-fuse's loopback file system lacks for those of the
// tests that stand on it: they want to hear of a directory's fsync.
package loopback

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
)

// reader is what the loopback's directory handle can do that matters here.
type reader interface {
	fs.FileReaddirenter
	fs.FileSeekdirer
	fs.FileReleasedirer
}

// dir is an open directory.
type dir struct {
	reader
	fsync func() syscall.Errno
}

// Dir returns the loopback's handle of a directory with another fsync(2), in
// place of none. It may be called by several requests at once.
func Dir(handle fs.FileHandle, fsync func() syscall.Errno) fs.FileHandle {
	return &dir{handle.(reader), fsync}
}

// Fsyncdir is fsync(2) of the directory.
func (d *dir) Fsyncdir(context.Context, uint32) syscall.Errno { return d.fsync() }
