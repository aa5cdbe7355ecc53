package importer

import (
	"context"
	"crypto/rand"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// File says where a file's content goes, and what a new file is like.
type File struct {
	Disk, Path     string
	Mode, UID, GID uint32
	Interrupt      func() // as Tar.Interrupt
}

// Put writes a file's content from a stream. The file is replaced in one
// moment, once all has come; one that exists keeps its mode and owner, and its
// other names keep the old content. It is durable on return.
func (im *Importer) Put(ctx context.Context, c volume.Caller, to File, from io.Reader) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(im.life, cancel)()
	defer context.AfterFunc(ctx, to.Interrupt)()
	s, err := im.host.Attach(ctx, c, volume.Ref{Disk: to.Disk}, volume.AttachOptions{Label: "copy"})
	if err != nil {
		return 0, err
	}
	n, err := put(ctx, s, to, from)
	err = im.stopped(err)
	if err == nil {
		err = s.FsyncNode(volume.Root)
	}
	clean, cancelClean := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancelClean()
	if derr := s.Detach(clean); err == nil {
		err = derr
	}
	return n, err
}

func put(ctx context.Context, s *volume.Session, to File, from io.Reader) (int64, error) {
	a, old, err := s.Resolve(to.Path, true)
	switch {
	case err == nil && a.Mode&unix.S_IFMT == unix.S_IFDIR:
		return 0, tine.Errorf(tine.KindIsDir, "%q in the disk is a directory", to.Path).WithHint("name the file: %s/NAME", strings.TrimRight(to.Path, "/"))
	case err == nil && a.Mode&unix.S_IFMT != unix.S_IFREG:
		return 0, tine.Errorf(tine.KindInvalid, "%q in the disk is no regular file", to.Path)
	case err == nil:
		to.Mode, to.UID, to.GID = a.Mode&0o7777, a.UID, a.GID
	case tine.KindOf(err) != tine.KindNotFound:
		return 0, err
	}
	i := strings.LastIndexByte(to.Path, '/')
	parent, name := to.Path[:i+1], to.Path[i+1:]
	if name == "" || name == "." || name == ".." {
		return 0, tine.Errorf(tine.KindInvalid, "the path %q does not name a file", to.Path)
	}
	_, in, err := s.Resolve(parent, true)
	if err != nil {
		return 0, err
	}
	if err := checkTarget(s, in, name, old); err != nil {
		return 0, err
	}
	return replace(ctx, s, to, from, in, name)
}

// checkTarget refuses to replace a symbolic link by the content that is meant
// for what it names.
func checkTarget(s *volume.Session, in volume.Node, name string, file volume.Node) error {
	_, n, err := s.Lookup(in, name)
	if tine.KindOf(err) == tine.KindNotFound || err == nil && n.Ino == file.Ino {
		return nil
	}
	if err != nil {
		return err
	}
	return tine.Errorf(tine.KindLoop, "%q in the disk is a symbolic link", name).WithHint("name the file that it leads to")
}

// replace fills a file that has no name yet and puts it in the place of the
// name.
func replace(ctx context.Context, s *volume.Session, to File, from io.Reader, in volume.Node, name string) (int64, error) {
	f, _, n, err := s.Tmpfile(root, in, 0o600)
	if err != nil {
		return 0, made(err, to.Path)
	}
	defer f.Close()
	buf := make([]byte, copyBytes)
	var off int64
	for {
		got, err := io.ReadFull(from, buf)
		if ctx.Err() != nil {
			return off, cancelled()
		}
		if got > 0 {
			if _, werr := f.WriteAt(root, buf[:got], off); werr != nil {
				return off, made(werr, to.Path)
			}
			off += int64(got)
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF && got < len(buf) {
			break
		}
		if err != nil {
			return off, oserr.Wrap(err, "read what is to be copied")
		}
	}
	if _, err := s.SetAttr(root, n, volume.SetAttr{UID: &to.UID, GID: &to.GID}); err != nil {
		return off, made(err, to.Path)
	}
	if _, err := s.SetAttr(root, n, volume.SetAttr{Mode: &to.Mode}); err != nil {
		return off, made(err, to.Path)
	}
	temp := ".tine-" + rand.Text()
	if _, err := s.Link(root, n, in, temp); err != nil {
		return off, made(err, to.Path)
	}
	if err := s.Rename(root, in, temp, in, name, 0); err != nil {
		_ = s.Unlink(root, in, temp)
		return off, made(err, to.Path)
	}
	return off, nil
}
