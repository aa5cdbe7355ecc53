package azure

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/crc64"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

// polynomial is that of the service's CRC64, with the lowest power first.
const polynomial = 0x9A6C9329AC4BC9B5

// checked returns the checksum by which the service checks data, if data is
// what crc is the checksum of.
func (s *Store) checked(key blob.Key, data []byte, crc uint32) (sdk.TransferValidationTypeCRC64, error) {
	if blob.Checksum(data) != crc {
		return 0, blob.Answer{Op: "put", Store: s.name, Key: string(key), Status: http.StatusBadRequest, Code: "BadDigest"}.Err()
	}
	// Package crc64 keeps the tables for a polynomial once it has made them.
	return sdk.TransferValidationTypeCRC64(crc64.Checksum(data, crc64.MakeTable(polynomial))), nil
}

// Put implements blob.Driver.
func (s *Store) Put(ctx context.Context, key blob.Key, data []byte, head blob.Head) (blob.Info, error) {
	sum, err := s.checked(key, data, head.CRC32C)
	if err != nil {
		return blob.Info{}, err
	}
	meta := metadata(head)
	out, err := s.client.NewBlockBlobClient(s.path(key)).Upload(ctx, streaming.NopCloser(bytes.NewReader(data)),
		&blockblob.UploadOptions{Metadata: meta, TransactionalValidation: sum, AccessConditions: conditions(head.If)})
	if err != nil {
		return blob.Info{}, s.failure(ctx, "put", string(key), head.If, err)
	}
	return newInfo(key, head.Size, out.ETag, out.LastModified, meta), nil
}

// upload is a write in parts.
type upload struct {
	s      *Store
	key    blob.Key
	head   blob.Head
	client *blockblob.Client
	begun  int64 // tells apart two uploads with one mark, which only tests make
	over   atomic.Bool

	mu    sync.Mutex
	parts map[int]string // names of blocks; guarded by mu
}

// Upload implements blob.Driver. It makes no request.
func (s *Store) Upload(ctx context.Context, key blob.Key, head blob.Head) (blob.Upload, error) {
	if err := blob.Interrupted(ctx, "put", key); err != nil {
		return nil, err
	}
	return &upload{s: s, key: key, head: head, client: s.client.NewBlockBlobClient(s.path(key)), begun: time.Now().UnixNano(), parts: map[int]string{}}, nil
}

// block is the name of a part. The names of all blocks under a key must be of
// one length.
func (u *upload) block(number int) string {
	id := binary.BigEndian.AppendUint64(slices.Clone(u.head.Mark[:]), uint64(u.begun))
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(id, uint32(number)))
}

// stale is the error of an upload that is over.
func (u *upload) stale() error {
	return blob.Answer{Op: "put", Store: u.s.name, Key: string(u.key), Status: http.StatusNotFound, Code: "NoSuchUpload"}.Err()
}

// Part implements blob.Upload.
func (u *upload) Part(ctx context.Context, number int, _ int64, data []byte, crc32c uint32) error {
	if u.over.Load() {
		return u.stale()
	}
	sum, err := u.s.checked(u.key, data, crc32c)
	if err != nil {
		return err
	}
	name := u.block(number)
	_, err = u.client.StageBlock(ctx, name, streaming.NopCloser(bytes.NewReader(data)), &blockblob.StageBlockOptions{TransactionalValidation: sum})
	if err != nil {
		return u.s.failure(ctx, "put", string(u.key), blob.Condition{}, err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts[number] = name
	return nil
}

// Complete implements blob.Upload.
func (u *upload) Complete(ctx context.Context) (blob.Info, error) {
	if u.over.Load() {
		return blob.Info{}, u.stale()
	}
	u.mu.Lock()
	var names []string
	for number := range len(u.parts) {
		names = append(names, u.parts[number+1])
	}
	u.mu.Unlock()
	meta := metadata(u.head)
	out, err := u.client.CommitBlockList(ctx, names, &blockblob.CommitBlockListOptions{Metadata: meta, AccessConditions: conditions(u.head.If)})
	if err == nil {
		return newInfo(u.key, u.head.Size, out.ETag, out.LastModified, meta), nil
	}
	err = u.s.failure(ctx, "put", string(u.key), u.head.If, err)
	if tine.KindOf(err) == tine.KindStale {
		return blob.Info{}, u.dropped(ctx, err)
	}
	return blob.Info{}, err
}

// dropped returns the error for an upload whose blocks are gone: another write
// dropped them, and if it broke the condition, that is what the caller is told.
func (u *upload) dropped(ctx context.Context, err error) error {
	if u.head.If == (blob.Condition{}) {
		return err
	}
	now, asked := u.s.Stat(ctx, u.key)
	there := asked == nil
	if !there && tine.KindOf(asked) != tine.KindNotFound {
		return asked
	}
	if u.head.If.Absent && !there || !u.head.If.Absent && there && now.Version == u.head.If.Version {
		return err // it holds, and yet the blocks are gone
	}
	return blob.Answer{Op: "put", Store: u.s.name, Key: string(u.key), If: u.head.If, Status: http.StatusPreconditionFailed}.Err()
}

// Abort implements blob.Upload: the service drops what was staged.
func (u *upload) Abort(context.Context) error {
	u.over.Store(true)
	return nil
}

// Sweep implements blob.Driver: there is nothing that it could remove.
func (s *Store) Sweep(ctx context.Context, _ time.Time) (int, error) {
	return 0, blob.Interrupted(ctx, "sweep", "")
}

// Delete implements blob.Driver.
func (s *Store) Delete(ctx context.Context, keys []blob.Key) ([]blob.KeyError, error) {
	return blob.EachKey(ctx, keys, deleteParallel, func(ctx context.Context, key blob.Key) error {
		// Snapshots that others made of it would keep it there.
		_, err := s.client.NewBlobClient(s.path(key)).Delete(ctx, &sdk.DeleteOptions{DeleteSnapshots: to.Ptr(sdk.DeleteSnapshotsOptionTypeInclude)})
		if err == nil {
			return nil
		}
		err = s.failure(ctx, "delete", string(key), blob.Condition{}, err)
		if tine.KindOf(err) == tine.KindNotFound {
			return nil
		}
		return err
	})
}

// signedFor is how long a signature for a copy is good.
const signedFor = time.Hour

// Copy implements blob.Driver. The service reads the source with rights of its
// own, which the request must bring along; it takes so many bytes in one
// request, and more go through this process.
func (s *Store) Copy(ctx context.Context, src, dst blob.Key) error {
	info, err := s.Stat(ctx, src)
	if err != nil {
		return err
	}
	if info.Size > s.copyBytes {
		return s.carry(ctx, info, dst)
	}
	from := s.client.NewBlobClient(s.path(src))
	source := from.URL()
	opt := sdk.CopyFromURLOptions{SourceModifiedAccessConditions: &sdk.SourceModifiedAccessConditions{SourceIfMatch: to.Ptr(azcore.ETag(info.Version))}}
	switch {
	case s.signs:
		source, err = from.GetSASURL(sas.BlobPermissions{Read: true}, time.Now().Add(signedFor), nil)
		if err != nil {
			return tine.Errorf(tine.KindInternal, "copy %q in store %s: the source cannot be signed", src, s.name)
		}
	case s.tokens != nil:
		token, err := s.tokens.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{tokenScope}})
		if err != nil {
			return s.failure(ctx, "copy", string(src), blob.Condition{}, err)
		}
		opt.CopySourceAuthorization = to.Ptr("Bearer " + token.Token)
	}
	if _, err := s.client.NewBlobClient(s.path(dst)).CopyFromURL(ctx, source, &opt); err != nil {
		return s.failure(ctx, "copy", string(src), blob.Condition{}, err)
	}
	return nil
}

// carryBytes is how much of an object that is carried is in memory.
const carryBytes = 32 << 20

// carry copies an object by reading and writing it.
func (s *Store) carry(ctx context.Context, from blob.Info, dst blob.Key) error {
	up, err := s.Upload(ctx, dst, blob.Head{Size: from.Size, CRC32C: from.CRC32C, Mark: from.Mark})
	if err != nil {
		return err
	}
	step := min(carryBytes, s.copyBytes)
	for number, off := 1, int64(0); off < from.Size; number, off = number+1, off+step {
		r := blob.Range{Offset: off, Length: min(step, from.Size-off)}
		data, _, err := s.Get(ctx, from.Key, blob.GetOptions{Range: r, Version: from.Version})
		if err != nil {
			return err
		}
		if err := up.Part(ctx, number, off, data, blob.Checksum(data)); err != nil {
			return err
		}
	}
	_, err = up.Complete(ctx)
	return err
}
