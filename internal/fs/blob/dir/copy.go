package dir

import (
	"context"
	"os"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

// copyBytes is how much a copy holds in memory.
const copyBytes = 1 << 20

// fill copies the bytes of an object and checks them against its checksum.
func (u *upload) fill(ctx context.Context, f *os.File, info blob.Info) error {
	sum := blob.NewDigest()
	buf := make([]byte, min(copyBytes, info.Size))
	for off := int64(0); off < info.Size; off += copyBytes {
		if err := blob.Interrupted(ctx, "copy", info.Key); err != nil {
			return err
		}
		p := buf[:min(copyBytes, info.Size-off)]
		if _, err := f.ReadAt(p, off); err != nil {
			return failure("copy", info.Key, err)
		}
		_, _ = sum.Write(p)
		if _, err := u.file.WriteAt(p, off); err != nil {
			return failure("copy", u.key, err)
		}
	}
	if sum.Sum32() != info.CRC32C {
		return tine.Errorf(tine.KindCorrupt, "copy %q in store %s: the bytes do not match their checksum", info.Key, u.s.name)
	}
	return nil
}
