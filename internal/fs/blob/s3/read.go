package s3

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/web"
	"tine.dev/tine/internal/tine"
)

// The names of what is kept beside an object.
const (
	metaCRC  = "tine-crc32c" // eight hexadecimal digits
	metaMark = "tine-mark"   // hexadecimal
)

func metadata(head blob.Head) map[string]string {
	return map[string]string{metaCRC: fmt.Sprintf("%08x", head.CRC32C), metaMark: hex.EncodeToString(head.Mark[:])}
}

// newInfo says what the store told of an object.
func newInfo(key blob.Key, size int64, etag *string, modified *time.Time, meta map[string]string) blob.Info {
	info := blob.Info{Key: key, Size: size, Version: blob.Version(aws.ToString(etag)), Modified: aws.ToTime(modified)}
	if sum, err := strconv.ParseUint(meta[metaCRC], 16, 32); err == nil {
		info.CRC32C, info.Checked = uint32(sum), true
	}
	if mark, err := hex.DecodeString(meta[metaMark]); err == nil && len(mark) == len(info.Mark) {
		info.Mark = blob.Mark(mark)
	}
	return info
}

// Get implements blob.Driver.
func (s *Store) Get(ctx context.Context, key blob.Key, opt blob.GetOptions) ([]byte, blob.Info, error) {
	cond := blob.Condition{Version: opt.Version}
	in := &sdk.GetObjectInput{Bucket: &s.bucket, Key: s.path(key)}
	if !opt.Range.Whole() {
		in.Range = aws.String(web.RangeHeader(opt.Range))
	}
	if opt.Version != "" {
		in.IfMatch = aws.String(string(opt.Version))
	}
	out, err := s.client.GetObject(ctx, in)
	if err != nil {
		return nil, blob.Info{}, s.failure(ctx, "get", string(key), cond, err)
	}
	defer out.Body.Close()
	length := int64(-1)
	if out.ContentLength != nil {
		length = *out.ContentLength
	}
	size, ok := web.FullSize(opt.Range, length, aws.ToString(out.ContentRange))
	if !ok {
		return nil, blob.Info{}, tine.Errorf(tine.KindUnsupported, "get %q in store %s: the answer does not say which bytes of how many it holds", key, s.name)
	}
	data, err := opt.Buffer(key, size)
	if err != nil {
		return nil, blob.Info{}, err
	}
	if _, err := io.ReadFull(out.Body, data); err != nil {
		return nil, blob.Info{}, s.failure(ctx, "get", string(key), cond, err)
	}
	return data, newInfo(key, size, out.ETag, out.LastModified, out.Metadata), nil
}

// Stat implements blob.Driver. The answer to a HEAD has no body, so "no such
// bucket" looks like "no such object": the bucket is asked for too.
func (s *Store) Stat(ctx context.Context, key blob.Key) (blob.Info, error) {
	out, err := s.client.HeadObject(ctx, &sdk.HeadObjectInput{Bucket: &s.bucket, Key: s.path(key)})
	if err == nil {
		if out.ContentLength == nil {
			return blob.Info{}, tine.Errorf(tine.KindUnsupported, "stat %q in store %s: the answer does not tell the size", key, s.name)
		}
		return newInfo(key, *out.ContentLength, out.ETag, out.LastModified, out.Metadata), nil
	}
	err = s.failure(ctx, "stat", string(key), blob.Condition{}, err)
	if tine.KindOf(err) != tine.KindNotFound {
		return blob.Info{}, err
	}
	if _, gone := s.client.HeadBucket(ctx, &sdk.HeadBucketInput{Bucket: &s.bucket}); gone != nil {
		gone = s.failure(ctx, "stat", string(key), blob.Condition{}, gone)
		if tine.KindOf(gone) == tine.KindNotFound {
			return blob.Info{}, blob.Answer{Op: "stat", Store: s.name, Key: string(key), Status: 404, Code: "NoSuchBucket"}.Err()
		}
		// Credentials may be good for objects and not for the bucket itself.
		if tine.KindOf(gone) != tine.KindAccess {
			return blob.Info{}, gone
		}
	}
	return blob.Info{}, err
}

// List implements blob.Driver.
func (s *Store) List(ctx context.Context, opt blob.ListOptions) (blob.Page, error) {
	in := &sdk.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(s.prefix + opt.Prefix)}
	if opt.Delimiter != "" {
		in.Delimiter = &opt.Delimiter
	}
	switch {
	case opt.Token != "":
		in.ContinuationToken = &opt.Token
	case opt.StartAfter != "":
		in.StartAfter = aws.String(s.prefix + opt.StartAfter)
	}
	if opt.Limit > 0 {
		in.MaxKeys = aws.Int32(int32(min(opt.Limit, 1000)))
	}
	out, err := s.client.ListObjectsV2(ctx, in)
	if err != nil {
		return blob.Page{}, s.failure(ctx, "list", opt.Prefix, blob.Condition{}, err)
	}
	var page blob.Page
	for _, o := range out.Contents {
		if key := strings.TrimPrefix(aws.ToString(o.Key), s.prefix); key > opt.StartAfter {
			page.Objects = append(page.Objects, blob.Entry{Key: blob.Key(key), Size: aws.ToInt64(o.Size), Modified: aws.ToTime(o.LastModified)})
		}
	}
	// A store lists a prefix again if StartAfter is the prefix itself or lies
	// below it.
	for _, p := range out.CommonPrefixes {
		if prefix := strings.TrimPrefix(aws.ToString(p.Prefix), s.prefix); prefix > opt.StartAfter {
			page.Prefixes = append(page.Prefixes, prefix)
		}
	}
	if aws.ToBool(out.IsTruncated) {
		if page.Next = aws.ToString(out.NextContinuationToken); page.Next == "" {
			return blob.Page{}, tine.Errorf(tine.KindUnavailable, "list %q in store %s: the listing breaks off", opt.Prefix, s.name)
		}
	}
	return page, nil
}
