package volume

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

const serverFile = "server"

// serverID returns the id of the data directory's server, which it makes when
// there is none.
func serverID(fs vfs.FS, dir string, now time.Time) (id tine.ServerID, err error) {
	path := filepath.Join(dir, serverFile)
	f, err := fs.Open(path)
	if err == nil {
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, 64))
		if err == nil {
			err = id.Parse(strings.TrimSpace(string(b)))
		}
		if err != nil {
			return id, tine.Errorf(tine.KindCorrupt, "%s does not hold the id of a server: %w", path, err).
				WithHint("if it is lost, remove the file: the disks in stores are then taken up as those of another server")
		}
		return id, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return id, tine.Errorf(tine.KindIO, "%s cannot be read: %w", path, err)
	}
	id = tine.NewID[tine.ServerID](now)
	if err := writeFile(fs, dir, serverFile, id.String()+"\n"); err != nil {
		return id, tine.Errorf(tine.KindIO, "%s cannot be made: %w", path, err)
	}
	return id, nil
}

// storeKey is the object that says which store this is.
const storeKey = blob.Key("tine/store")

// storeID returns the id that a store has: whatever it is called, it is the same
// store on every machine. A store that has none is given one, after a look whether
// it can be used at all. One that was known before must have the id that it had.
// Errors: KindUnsupported as of blob.Probe; KindConflict if it is another store;
// those of blob.Store.
func storeID(ctx context.Context, b *blob.Store, now time.Time, known tine.StoreID) (id tine.StoreID, err error) {
	if !known.IsZero() {
		id, err = readStoreID(ctx, b)
		if err == nil && id == known {
			return id, nil
		}
		if err != nil && tine.KindOf(err) != tine.KindNotFound {
			return id, err
		}
		return id, tine.Errorf(tine.KindConflict, "what lies at %s is not the store %s that it was", b.Name(), known).
			WithHint("give the URL that it has now: tine serve --store NAME=URL")
	}
	if id, err = readStoreID(ctx, b); err == nil || tine.KindOf(err) != tine.KindNotFound {
		return id, err
	}
	id = tine.NewID[tine.StoreID](now)
	if err := blob.Probe(ctx, b, blob.Key("tine/probe-"+id.String())); err != nil {
		return id, err
	}
	_, err = b.Put(ctx, storeKey, bytes.NewReader([]byte("1 "+id.String()+"\n")), blob.Condition{Absent: true})
	if err == nil || tine.KindOf(err) != tine.KindExists {
		return id, err
	}
	return readStoreID(ctx, b) // another machine was quicker
}

func readStoreID(ctx context.Context, b *blob.Store) (id tine.StoreID, err error) {
	text, _, err := b.Get(ctx, storeKey, blob.Range{}, "")
	if err != nil {
		return id, err
	}
	format, rest, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if format != "1" {
		return id, tine.Errorf(tine.KindVersion, "store %s has format %q; this program knows 1", b.Name(), format).WithHint("run a newer tine on it")
	}
	return id, id.Parse(rest)
}
