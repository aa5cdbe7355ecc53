package recorder

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Serve mounts a recording of the directory backing on dir and writes the log
// to logPath, a new file that lies in neither. It writes a line to ready when
// the mount answers, and returns when it is unmounted or until has ended.
//
// It is meant to be a process of its own, with until a pipe from whoever
// started it: programs that wait for the mount must not be able to keep the
// process alive that should answer them.
func Serve(dir, backing, logPath string, ready io.Writer, until io.Reader) error {
	l, err := newLog(logPath)
	if err != nil {
		return err
	}
	defer l.file.Close()
	var st syscall.Stat_t
	if err := syscall.Stat(backing, &st); err != nil {
		return &os.PathError{Op: "stat", Path: backing, Err: err}
	}
	data := &fs.LoopbackRoot{Path: backing, Dev: uint64(st.Dev)}
	root := &node{LoopbackNode: fs.LoopbackNode{RootData: data}, log: l}
	data.RootNode = root
	forever := time.Hour // nobody else changes the backing directory
	server, err := fs.Mount(dir, root, &fs.Options{
		EntryTimeout: &forever, AttrTimeout: &forever,
		MountOptions: fuse.MountOptions{DirectMount: true, FsName: "recorder", Name: "recorder"},
	})
	if err != nil {
		return fmt.Errorf("mount the recorder on %s: %w", dir, err)
	}
	if _, err := fmt.Fprintln(ready, "ready"); err != nil {
		return errors.Join(err, server.Unmount())
	}
	gone := make(chan struct{})
	go func() {
		server.Wait()
		close(gone)
	}()
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, until) // an error ends it as the end does
		close(ended)
	}()
	select {
	case <-gone:
		return nil
	case <-ended:
		return syscall.Unmount(dir, syscall.MNT_FORCE|syscall.MNT_DETACH)
	}
}
