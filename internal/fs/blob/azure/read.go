package azure

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/web"
	"tine.dev/tine/internal/tine"
)

// The names of what is kept beside an object. They must be names as programs
// have them, and come back with other capitals.
const (
	metaCRC  = "tinecrc32c" // eight hexadecimal digits
	metaMark = "tinemark"   // hexadecimal
)

func metadata(head blob.Head) map[string]*string {
	return map[string]*string{metaCRC: to.Ptr(fmt.Sprintf("%08x", head.CRC32C)), metaMark: to.Ptr(hex.EncodeToString(head.Mark[:]))}
}

// newInfo says what the store told of an object.
func newInfo(key blob.Key, size int64, etag *azcore.ETag, modified *time.Time, meta map[string]*string) blob.Info {
	info := blob.Info{Key: key, Size: size}
	if etag != nil {
		info.Version = blob.Version(*etag)
	}
	if modified != nil {
		info.Modified = *modified
	}
	for name, value := range meta {
		if value == nil {
			continue
		}
		switch strings.ToLower(name) {
		case metaCRC:
			if sum, err := strconv.ParseUint(*value, 16, 32); err == nil {
				info.CRC32C, info.Checked = uint32(sum), true
			}
		case metaMark:
			if mark, err := hex.DecodeString(*value); err == nil && len(mark) == len(info.Mark) {
				info.Mark = blob.Mark(mark)
			}
		}
	}
	return info
}

// conditions writes a condition as the SDK does; nil for none.
func conditions(c blob.Condition) *sdk.AccessConditions {
	var m sdk.ModifiedAccessConditions
	switch {
	case c.Absent:
		m.IfNoneMatch = to.Ptr(azcore.ETagAny)
	case c.Version != "":
		m.IfMatch = to.Ptr(azcore.ETag(c.Version))
	default:
		return nil
	}
	return &sdk.AccessConditions{ModifiedAccessConditions: &m}
}

// Get implements blob.Driver.
func (s *Store) Get(ctx context.Context, key blob.Key, opt blob.GetOptions) ([]byte, blob.Info, error) {
	cond := blob.Condition{Version: opt.Version}
	out, err := s.client.NewBlobClient(s.path(key)).DownloadStream(ctx, &sdk.DownloadStreamOptions{
		Range: sdk.HTTPRange{Offset: opt.Range.Offset, Count: opt.Range.Length}, AccessConditions: conditions(cond)})
	if err != nil {
		return nil, blob.Info{}, s.failure(ctx, "get", string(key), cond, err)
	}
	if out.Body == nil {
		return nil, blob.Info{}, s.failure(ctx, "get", string(key), cond, io.ErrUnexpectedEOF)
	}
	defer out.Body.Close()
	length, contentRange := int64(-1), ""
	if out.ContentLength != nil {
		length = *out.ContentLength
	}
	if out.ContentRange != nil {
		contentRange = *out.ContentRange
	}
	size, ok := web.FullSize(opt.Range, length, contentRange)
	if !ok || out.ETag == nil {
		return nil, blob.Info{}, tine.Errorf(tine.KindUnsupported, "get %q in store %s: the answer does not say which bytes of how many it holds, of which version", key, s.name)
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

// Stat implements blob.Driver.
func (s *Store) Stat(ctx context.Context, key blob.Key) (blob.Info, error) {
	out, err := s.client.NewBlobClient(s.path(key)).GetProperties(ctx, nil)
	if err != nil {
		return blob.Info{}, s.failure(ctx, "stat", string(key), blob.Condition{}, err)
	}
	if out.ContentLength == nil || out.ETag == nil {
		return blob.Info{}, tine.Errorf(tine.KindUnsupported, "stat %q in store %s: the answer does not tell size and version", key, s.name)
	}
	return newInfo(key, *out.ContentLength, out.ETag, out.LastModified, out.Metadata), nil
}

// pageEntries is how many entries a page of a listing has at most.
const pageEntries = 1000

// List implements blob.Driver.
func (s *Store) List(ctx context.Context, opt blob.ListOptions) (blob.Page, error) {
	limit := int32(pageEntries)
	if opt.Limit > 0 {
		limit = int32(min(pageEntries, opt.Limit))
	}
	found, err := s.page(ctx, opt, limit)
	if err != nil {
		return blob.Page{}, s.failure(ctx, "list", opt.Prefix, blob.Condition{}, err)
	}
	var page blob.Page
	if found.marker != nil {
		page.Next = *found.marker
	}
	// The service is asked to start at StartAfter, but a prefix that is told
	// again, or a service that does not know how to, must not show.
	for _, b := range found.items {
		if b == nil || b.Name == nil || b.Properties == nil {
			continue
		}
		name := strings.TrimPrefix(*b.Name, s.prefix)
		if name <= opt.StartAfter {
			continue
		}
		e := blob.Entry{Key: blob.Key(name)}
		if b.Properties.ContentLength != nil {
			e.Size = *b.Properties.ContentLength
		}
		if b.Properties.LastModified != nil {
			e.Modified = *b.Properties.LastModified
		}
		page.Objects = append(page.Objects, e)
	}
	for _, p := range found.prefixes {
		if p == nil || p.Name == nil {
			continue
		}
		if name := strings.TrimPrefix(*p.Name, s.prefix); name > opt.StartAfter {
			page.Prefixes = append(page.Prefixes, name)
		}
	}
	return page, nil
}

// entries are what a page of either kind of listing holds.
type entries struct {
	items    []*container.BlobItem
	prefixes []*container.BlobPrefix
	marker   *string
}

// page asks for one page.
func (s *Store) page(ctx context.Context, opt blob.ListOptions, limit int32) (entries, error) {
	prefix := s.prefix + opt.Prefix
	var marker, start *string
	if opt.Token != "" {
		marker = &opt.Token
	}
	if from := startFrom(opt); from != "" {
		start = to.Ptr(s.prefix + from)
	}
	if opt.Delimiter == "" {
		out, err := s.client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix, Marker: marker, StartFrom: start, MaxResults: &limit}).NextPage(ctx)
		if err != nil || out.Segment == nil {
			return entries{marker: out.NextMarker}, err
		}
		return entries{items: out.Segment.BlobItems, marker: out.NextMarker}, nil
	}
	out, err := s.client.NewListBlobsHierarchyPager(opt.Delimiter,
		&container.ListBlobsHierarchyOptions{Prefix: &prefix, Marker: marker, StartFrom: start, MaxResults: &limit}).NextPage(ctx)
	if err != nil || out.Segment == nil {
		return entries{marker: out.NextMarker}, err
	}
	return entries{items: out.Segment.BlobItems, prefixes: out.Segment.BlobPrefixes, marker: out.NextMarker}, nil
}

// startFrom is where the service is to start, which is told too; "" for the
// prefix itself. A listing that folds starts at one of its own entries.
func startFrom(opt blob.ListOptions) string {
	rest, ok := strings.CutPrefix(opt.StartAfter, opt.Prefix)
	if !ok || rest == "" {
		return ""
	}
	if opt.Delimiter != "" {
		rest, _, _ = strings.Cut(rest, opt.Delimiter)
		if rest == "" {
			return ""
		}
	}
	return opt.Prefix + rest
}
