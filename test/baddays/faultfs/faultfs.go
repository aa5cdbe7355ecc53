// Package faultfs is a file system that fails on request. It passes everything on
// to a backing directory, except for what a rule names: then the caller gets the
// rule's error and nothing is done.
//
// It is served by a process of its own (Serve), which takes its orders from
// standard input, one a line, and answers each with a line:
//
//	fail OP ERRNO PATTERN   from now on OP on files whose path matches fails
//	short N ERRNO PATTERN   after N more bytes, writes to such files fail
//	heal                    no rule is left; the answer is "ok HITS"
//
// OP is open, read, write, fsync, create, truncate, rename, unlink or change, which is
// all of these but open and read. PATTERN is a regular expression for the path from the
// root, without a leading slash. ERRNO is a number.
//
// Files are opened for direct input and output, so that every read of the
// program comes here and none is answered from the kernel's pages.
package faultfs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"tine.dev/tine/test/loopback"
)

// rule is one order to fail.
type rule struct {
	op    string
	errno syscall.Errno
	files *regexp.Regexp
	left  int64 // bytes that still pass; only for op "short"
}

// rules is what is to fail now.
type rules struct {
	mu   sync.Mutex // a leaf
	all  []*rule
	hits int
}

// check returns the error that an operation is to fail with, 0 for none.
func (r *rules) check(op, file string, n int64) syscall.Errno {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.all {
		switch {
		case !f.files.MatchString(file):
			continue
		case f.op == op, f.op == "change" && op != "read" && op != "open":
		case f.op == "short" && op == "write":
			if f.left -= n; f.left >= 0 {
				continue
			}
		default:
			continue
		}
		r.hits++
		return f.errno
	}
	return 0
}

// order carries out one line.
func (r *rules) order(line string) string {
	words := strings.SplitN(line, " ", 4)
	r.mu.Lock()
	defer r.mu.Unlock()
	if words[0] == "heal" {
		said := fmt.Sprintf("ok %d", r.hits)
		r.all, r.hits = nil, 0
		return said
	}
	if len(words) != 4 {
		return "bad order: " + line
	}
	errno, err := strconv.Atoi(words[2])
	if err != nil {
		return err.Error()
	}
	files, err := regexp.Compile(words[3])
	if err != nil {
		return err.Error()
	}
	f := &rule{op: words[1], errno: syscall.Errno(errno), files: files}
	if words[0] == "short" {
		f.op = "short"
		if f.left, err = strconv.ParseInt(words[1], 10, 64); err != nil {
			return err.Error()
		}
	}
	r.all = append(r.all, f)
	return "ok"
}

// Serve mounts the file system for the directory backing on dir, writes a line
// to said when it answers, and carries out the orders until they end; then it
// unmounts.
func Serve(dir, backing string, orders io.Reader, said io.Writer) error {
	var st syscall.Stat_t
	if err := syscall.Stat(backing, &st); err != nil {
		return fmt.Errorf("stat %s: %w", backing, err)
	}
	data := &fs.LoopbackRoot{Path: backing, Dev: uint64(st.Dev)}
	root := &node{LoopbackNode: fs.LoopbackNode{RootData: data}, rules: &rules{}}
	data.RootNode = root
	forever := time.Hour // nobody else changes the backing directory
	server, err := fs.Mount(dir, root, &fs.Options{
		EntryTimeout: &forever, AttrTimeout: &forever,
		MountOptions: fuse.MountOptions{DirectMount: true, FsName: "faultfs", Name: "faultfs"},
	})
	if err != nil {
		return fmt.Errorf("mount on %s: %w", dir, err)
	}
	fmt.Fprintln(said, "ready")
	for in := bufio.NewScanner(orders); in.Scan(); {
		fmt.Fprintln(said, root.rules.order(in.Text()))
	}
	// EINVAL: whoever has made the directory has taken the mount away.
	if err := syscall.Unmount(dir, syscall.MNT_FORCE|syscall.MNT_DETACH); err != nil && err != syscall.EINVAL {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	server.Wait()
	return nil
}

// node is a file or directory.
type node struct {
	fs.LoopbackNode
	rules *rules
}

func (n *node) path() string { return n.Path(n.Root()) }

func (n *node) child(name string) string { return path.Join(n.path(), name) }

// WrapChild makes what the loopback finds or makes one of ours.
func (n *node) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	if _, ok := ops.(*fs.LoopbackNode); !ok {
		return ops
	}
	return &node{LoopbackNode: fs.LoopbackNode{RootData: n.RootData}, rules: n.rules}
}

// Create makes a file.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	if errno := n.rules.check("create", n.child(name), 0); errno != 0 {
		return nil, nil, 0, errno
	}
	ch, fh, fuseFlags, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	if errno != 0 {
		return ch, fh, fuseFlags, errno
	}
	return ch, &file{fh.(*fs.LoopbackFile), n.rules, n.child(name)}, fuseFlags | fuse.FOPEN_DIRECT_IO, 0
}

// Open opens a file.
func (n *node) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if errno := n.rules.check("open", n.path(), 0); errno != 0 {
		return nil, 0, errno
	}
	fh, fuseFlags, errno := n.LoopbackNode.Open(ctx, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	return &file{fh.(*fs.LoopbackFile), n.rules, n.path()}, fuseFlags | fuse.FOPEN_DIRECT_IO, 0
}

// Mkdir makes a directory.
func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.rules.check("create", n.child(name), 0); errno != 0 {
		return nil, errno
	}
	return n.LoopbackNode.Mkdir(ctx, name, mode, out)
}

// Link gives a file another name.
func (n *node) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.rules.check("create", n.child(name), 0); errno != 0 {
		return nil, errno
	}
	return n.LoopbackNode.Link(ctx, target, name, out)
}

// Rename moves a name; the rule is looked up for the new one.
func (n *node) Rename(ctx context.Context, name string, parent fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if to, ok := parent.(*node); ok {
		if errno := n.rules.check("rename", to.child(newName), 0); errno != 0 {
			return errno
		}
	}
	return n.LoopbackNode.Rename(ctx, name, parent, newName, flags)
}

// Unlink removes a name.
func (n *node) Unlink(ctx context.Context, name string) syscall.Errno {
	if errno := n.rules.check("unlink", n.child(name), 0); errno != 0 {
		return errno
	}
	return n.LoopbackNode.Unlink(ctx, name)
}

// Setattr sets attributes; a rule can fail a new length.
func (n *node) Setattr(ctx context.Context, fh fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if f, ok := fh.(*file); ok {
		fh = f.LoopbackFile
	}
	if _, ok := in.GetSize(); ok {
		if errno := n.rules.check("truncate", n.path(), 0); errno != 0 {
			return errno
		}
	}
	return n.LoopbackNode.Setattr(ctx, fh, in, out)
}

// Getattr hands the loopback its own kind of handle.
func (n *node) Getattr(ctx context.Context, fh fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if f, ok := fh.(*file); ok {
		fh = f.LoopbackFile
	}
	return n.LoopbackNode.Getattr(ctx, fh, out)
}

// OpendirHandle opens a directory for reading and for fsync, which flushes nothing:
// what lies here need not outlive the machine.
func (n *node) OpendirHandle(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	fh, fuseFlags, errno := n.LoopbackNode.OpendirHandle(ctx, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	return loopback.Dir(fh, func() syscall.Errno { return n.rules.check("fsync", n.path()+"/", 0) }), fuseFlags, 0
}

// file is an open file.
type file struct {
	*fs.LoopbackFile
	rules *rules
	name  string
}

// PassthroughFd refuses to let the kernel pass by.
func (f *file) PassthroughFd() (int, bool) { return 0, false }

// Read reads.
func (f *file) Read(ctx context.Context, p []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if errno := f.rules.check("read", f.name, 0); errno != 0 {
		return nil, errno
	}
	return f.LoopbackFile.Read(ctx, p, off)
}

// Write writes.
func (f *file) Write(ctx context.Context, p []byte, off int64) (uint32, syscall.Errno) {
	if errno := f.rules.check("write", f.name, int64(len(p))); errno != 0 {
		return 0, errno
	}
	return f.LoopbackFile.Write(ctx, p, off)
}

// Fsync flushes nothing, as Fsyncdir.
func (f *file) Fsync(context.Context, uint32) syscall.Errno {
	return f.rules.check("fsync", f.name, 0)
}

// Allocate sets space aside.
func (f *file) Allocate(ctx context.Context, off, length uint64, mode uint32) syscall.Errno {
	if errno := f.rules.check("write", f.name, 0); errno != 0 {
		return errno
	}
	return f.LoopbackFile.Allocate(ctx, off, length, mode)
}
