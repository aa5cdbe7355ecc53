package posix

import "tine.dev/tine/internal/tine"

// Fallocate modes, as fallocate(2).
const (
	KeepSize  = 0x01
	PunchHole = 0x02
	ZeroRange = 0x10
)

// Read returns the bytes of [off, off+length) of a regular file.
func (fs *FS) Read(ino tine.Ino, off, length int64) ([]byte, error) {
	n, err := fs.file(ino)
	if err != nil {
		return nil, err
	}
	return n.Content.Read(off, length), nil
}

func (fs *FS) setContent(ino tine.Ino, c Content) {
	fs.touch(ino, true, func(n *Node) { n.Content = c })
}

// Write puts data at off.
func (fs *FS) Write(ino tine.Ino, off int64, data []byte) error {
	n, err := fs.file(ino)
	switch {
	case err != nil:
		return err
	case off < 0:
		return tine.ErrInvalid
	case off > tine.MaxFileBytes-int64(len(data)):
		return tine.ErrTooBig
	case len(data) == 0:
		return nil
	}
	fs.setContent(ino, n.Content.Write(off, data))
	return nil
}

// Append puts data at the end and returns where that was.
func (fs *FS) Append(ino tine.Ino, data []byte) (int64, error) {
	n, err := fs.file(ino)
	if err != nil {
		return 0, err
	}
	return n.Content.Size, fs.Write(ino, n.Content.Size, data)
}

// Truncate sets the size.
func (fs *FS) Truncate(ino tine.Ino, size int64) error {
	n, err := fs.file(ino)
	switch {
	case err != nil:
		return err
	case size < 0:
		return tine.ErrInvalid
	case size > tine.MaxFileBytes:
		return tine.ErrTooBig
	}
	fs.setContent(ino, n.Content.Resize(size))
	return nil
}

// Allocate is fallocate(2) in the modes that reach a file system in user
// space. Room is never short here, so only sizes and holes change.
func (fs *FS) Allocate(ino tine.Ino, mode uint32, off, length int64) error {
	n, err := fs.file(ino)
	switch {
	case err != nil:
		return err
	case off < 0 || length <= 0:
		return tine.ErrInvalid
	case off > tine.MaxFileBytes-length:
		return tine.ErrTooBig
	case mode&^(KeepSize|PunchHole|ZeroRange) != 0,
		mode&PunchHole != 0 && mode != PunchHole|KeepSize:
		return tine.ErrUnsupported
	}
	c := n.Content
	if mode&(PunchHole|ZeroRange) != 0 {
		c = c.Punch(off, off+length)
	}
	if mode&KeepSize == 0 {
		c.Size = max(c.Size, off+length)
	}
	fs.setContent(ino, c)
	return nil
}

// Copy is copy_file_range(2): it copies what the source has of
// [offIn, offIn+length), holes as holes, and returns how much that was.
func (fs *FS) Copy(in tine.Ino, offIn int64, out tine.Ino, offOut, length int64) (int64, error) {
	src, err := fs.file(in)
	if err != nil {
		return 0, err
	}
	dst, err := fs.file(out)
	switch {
	case err != nil:
		return 0, err
	case offIn < 0 || offOut < 0 || length < 0:
		return 0, tine.ErrInvalid
	}
	length = max(0, min(length, src.Content.Size-offIn))
	switch {
	case length == 0:
		return 0, nil
	case offOut > tine.MaxFileBytes-length:
		return 0, tine.ErrTooBig
	case in == out && offIn < offOut+length && offOut < offIn+length:
		return 0, tine.ErrInvalid
	}
	c := dst.Content.put(&src.Content, offIn, offIn+length, offOut)
	fs.setContent(out, c)
	return length, nil
}
