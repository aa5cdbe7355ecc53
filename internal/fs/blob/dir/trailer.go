package dir

import (
	"encoding/binary"
	"encoding/hex"
	"io"
	"os"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

// A file is the object's bytes and then a trailer, so that bytes lie in the
// file where they lie in the object:
//
//	magic    8 bytes, with the format's version
//	size     8 bytes, big endian: of the object
//	crc32c   4 bytes: of the object
//	version 16 bytes
//	mark    16 bytes
//	crc32c   4 bytes: of the trailer up to here
const (
	magic        = "tineobj\x01"
	trailerBytes = 8 + 8 + 4 + 16 + 16 + 4
)

type trailer struct {
	size    int64
	crc32c  uint32
	version [16]byte
	mark    blob.Mark
}

func (t trailer) encode() []byte {
	b := make([]byte, 0, trailerBytes)
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint64(b, uint64(t.size))
	b = binary.BigEndian.AppendUint32(b, t.crc32c)
	b = append(b, t.version[:]...)
	b = append(b, t.mark[:]...)
	return binary.BigEndian.AppendUint32(b, blob.Checksum(b))
}

// decodeTrailer reads the end of a file of fileSize bytes.
func decodeTrailer(b []byte, fileSize int64) (t trailer, err error) {
	body := b[:trailerBytes-4]
	switch {
	case blob.Checksum(body) != binary.BigEndian.Uint32(b[len(body):]):
		return t, tine.Errorf(tine.KindCorrupt, "the trailer does not match its checksum")
	case string(b[:8]) != magic:
		return t, tine.Errorf(tine.KindVersion, "the file has an unknown format %q", b[:8])
	}
	t.size = int64(binary.BigEndian.Uint64(b[8:]))
	t.crc32c = binary.BigEndian.Uint32(b[16:])
	copy(t.version[:], b[20:])
	copy(t.mark[:], b[36:])
	if t.size != fileSize-trailerBytes {
		return t, tine.Errorf(tine.KindCorrupt, "the file holds %d bytes of an object of %d", fileSize-trailerBytes, t.size)
	}
	return t, nil
}

func (t trailer) token() blob.Version { return blob.Version(hex.EncodeToString(t.version[:])) }

// open opens an object and reads its trailer. The caller closes the file.
func (s *Store) open(op string, key blob.Key) (*os.File, blob.Info, error) {
	f, err := s.root.Open(toPath(string(key)))
	if err != nil {
		return nil, blob.Info{}, s.missing(op, key, err)
	}
	info, err := s.inspect(op, key, f)
	if err != nil {
		_ = f.Close()
		return nil, blob.Info{}, err
	}
	return f, info, nil
}

// inspect reads the trailer of an open object.
func (s *Store) inspect(op string, key blob.Key, f *os.File) (blob.Info, error) {
	st, err := f.Stat()
	switch {
	case err != nil:
		return blob.Info{}, failure(op, key, err)
	case st.IsDir():
		return blob.Info{}, tine.Errorf(tine.KindNotFound, "%s %q in store %s: there is no such object", op, key, s.name)
	case st.Size() < trailerBytes:
		return blob.Info{}, tine.Errorf(tine.KindCorrupt, "%s %q in store %s: a file of %d bytes is no object", op, key, s.name, st.Size())
	}
	b := make([]byte, trailerBytes)
	if _, err := f.ReadAt(b, st.Size()-trailerBytes); err != nil && err != io.EOF {
		return blob.Info{}, failure(op, key, err)
	}
	t, err := decodeTrailer(b, st.Size())
	if err != nil {
		return blob.Info{}, tine.Errorf(tine.KindOf(err), "%s %q in store %s: %w", op, key, s.name, err)
	}
	return blob.Info{Key: key, Size: t.size, Version: t.token(), Modified: st.ModTime(), CRC32C: t.crc32c, Checked: true, Mark: t.mark}, nil
}
