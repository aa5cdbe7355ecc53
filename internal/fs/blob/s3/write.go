package s3

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

// checksum writes a CRC32C as the protocol does.
func checksum(crc uint32) *string {
	return aws.String(base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc)))
}

// conditions writes a condition as the protocol's two headers.
func conditions(c blob.Condition) (ifNoneMatch, ifMatch *string) {
	if c.Absent {
		ifNoneMatch = aws.String("*")
	}
	if c.Version != "" {
		ifMatch = aws.String(string(c.Version))
	}
	return ifNoneMatch, ifMatch
}

// Put implements blob.Driver.
func (s *Store) Put(ctx context.Context, key blob.Key, data []byte, head blob.Head) (blob.Info, error) {
	in := &sdk.PutObjectInput{Bucket: &s.bucket, Key: s.path(key), Body: bytes.NewReader(data), ContentLength: aws.Int64(head.Size),
		ChecksumCRC32C: checksum(head.CRC32C), Metadata: metadata(head)}
	in.IfNoneMatch, in.IfMatch = conditions(head.If)
	out, err := s.client.PutObject(ctx, in)
	if err != nil {
		return blob.Info{}, s.failure(ctx, "put", string(key), head.If, err)
	}
	if out.ChecksumCRC32C != nil && *out.ChecksumCRC32C != *in.ChecksumCRC32C {
		return blob.Info{}, tine.Errorf(tine.KindCorrupt, "put %q in store %s: the store has other bytes than were sent", key, s.name)
	}
	return newInfo(key, head.Size, out.ETag, nil, in.Metadata), nil
}

// upload is a write in parts.
type upload struct {
	s    *Store
	key  blob.Key
	head blob.Head
	id   *string

	mu    sync.Mutex
	parts map[int]types.CompletedPart // guarded by mu
}

// Upload implements blob.Driver.
func (s *Store) Upload(ctx context.Context, key blob.Key, head blob.Head) (blob.Upload, error) {
	out, err := s.client.CreateMultipartUpload(ctx, &sdk.CreateMultipartUploadInput{Bucket: &s.bucket, Key: s.path(key),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c, Metadata: metadata(head)})
	if err != nil {
		return nil, s.failure(ctx, "put", string(key), blob.Condition{}, err)
	}
	return &upload{s: s, key: key, head: head, id: out.UploadId, parts: map[int]types.CompletedPart{}}, nil
}

// Part implements blob.Upload.
func (u *upload) Part(ctx context.Context, number int, offset int64, data []byte, crc32c uint32) error {
	in := &sdk.UploadPartInput{Bucket: &u.s.bucket, Key: u.s.path(u.key), UploadId: u.id, PartNumber: aws.Int32(int32(number)),
		Body: bytes.NewReader(data), ContentLength: aws.Int64(int64(len(data))), ChecksumCRC32C: checksum(crc32c)}
	out, err := u.s.client.UploadPart(ctx, in)
	if err != nil {
		return u.s.failure(ctx, "put", string(u.key), blob.Condition{}, err)
	}
	if out.ChecksumCRC32C != nil && *out.ChecksumCRC32C != *in.ChecksumCRC32C {
		return tine.Errorf(tine.KindCorrupt, "put %q in store %s: part %d has other bytes than were sent", u.key, u.s.name, number)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts[number] = types.CompletedPart{PartNumber: in.PartNumber, ETag: out.ETag, ChecksumCRC32C: in.ChecksumCRC32C}
	return nil
}

// Complete implements blob.Upload.
func (u *upload) Complete(ctx context.Context) (blob.Info, error) {
	u.mu.Lock()
	var list []types.CompletedPart
	for _, p := range u.parts {
		list = append(list, p)
	}
	u.mu.Unlock()
	slices.SortFunc(list, func(a, b types.CompletedPart) int { return int(*a.PartNumber - *b.PartNumber) })
	in := &sdk.CompleteMultipartUploadInput{Bucket: &u.s.bucket, Key: u.s.path(u.key), UploadId: u.id,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: list}}
	in.IfNoneMatch, in.IfMatch = conditions(u.head.If)
	out, err := u.s.client.CompleteMultipartUpload(ctx, in)
	if err != nil {
		return blob.Info{}, u.s.failure(ctx, "put", string(u.key), u.head.If, err)
	}
	return newInfo(u.key, u.head.Size, out.ETag, nil, metadata(u.head)), nil
}

// Abort implements blob.Upload.
func (u *upload) Abort(ctx context.Context) error {
	_, err := u.s.client.AbortMultipartUpload(ctx, &sdk.AbortMultipartUploadInput{Bucket: &u.s.bucket, Key: u.s.path(u.key), UploadId: u.id})
	if err != nil {
		err = u.s.failure(ctx, "put", string(u.key), blob.Condition{}, err)
		if tine.KindOf(err) == tine.KindStale {
			return nil
		}
	}
	return err
}

// Delete implements blob.Driver.
func (s *Store) Delete(ctx context.Context, keys []blob.Key) ([]blob.KeyError, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	list := make([]types.ObjectIdentifier, 0, len(keys))
	for _, k := range keys {
		list = append(list, types.ObjectIdentifier{Key: s.path(k)})
	}
	out, err := s.client.DeleteObjects(ctx, &sdk.DeleteObjectsInput{Bucket: &s.bucket, Delete: &types.Delete{Objects: list, Quiet: aws.Bool(true)}})
	if err != nil {
		return nil, s.failure(ctx, "delete", string(keys[0]), blob.Condition{}, err)
	}
	var failed []blob.KeyError
	for _, e := range out.Errors {
		key := strings.TrimPrefix(aws.ToString(e.Key), s.prefix)
		err := blob.Answer{Op: "delete", Store: s.name, Key: key, Code: aws.ToString(e.Code)}.Err()
		if err.Kind != tine.KindNotFound {
			failed = append(failed, blob.KeyError{Key: blob.Key(key), Err: err})
		}
	}
	return failed, nil
}

// Copy implements blob.Driver. The protocol takes up to 5 GiB in one request;
// tine's own objects are far smaller.
func (s *Store) Copy(ctx context.Context, src, dst blob.Key) error {
	_, err := s.client.CopyObject(ctx, &sdk.CopyObjectInput{Bucket: &s.bucket, Key: s.path(dst), CopySource: s.copySource(src)})
	if err != nil {
		return s.failure(ctx, "copy", string(src), blob.Condition{}, err)
	}
	return nil
}

// Sweep implements blob.Driver.
func (s *Store) Sweep(ctx context.Context, before time.Time) (int, error) {
	in := &sdk.ListMultipartUploadsInput{Bucket: &s.bucket, Prefix: &s.prefix}
	n := 0
	for {
		out, err := s.client.ListMultipartUploads(ctx, in)
		if err != nil {
			return n, s.failure(ctx, "sweep", "", blob.Condition{}, err)
		}
		for _, up := range out.Uploads {
			if up.Initiated == nil || !up.Initiated.Before(before) {
				continue
			}
			_, err := s.client.AbortMultipartUpload(ctx, &sdk.AbortMultipartUploadInput{Bucket: &s.bucket, Key: up.Key, UploadId: up.UploadId})
			if err != nil {
				if err = s.failure(ctx, "sweep", aws.ToString(up.Key), blob.Condition{}, err); tine.KindOf(err) != tine.KindStale {
					return n, err
				}
				continue
			}
			n++
		}
		if !aws.ToBool(out.IsTruncated) {
			return n, nil
		}
		in.KeyMarker, in.UploadIdMarker = out.NextKeyMarker, out.NextUploadIdMarker
	}
}
