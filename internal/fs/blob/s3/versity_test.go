package s3_test

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/blobtest"
	"tine.dev/tine/internal/fs/blob/faulty"
	"tine.dev/tine/internal/fs/blob/s3"
	"tine.dev/tine/internal/fs/blob/servers"
	"tine.dev/tine/internal/tine"
)

func open(t testing.TB, opt s3.Options) *s3.Store {
	t.Helper()
	s, err := s3.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bucket starts a server with one bucket, and returns how to reach it.
func bucket(t testing.TB) s3.Options {
	t.Helper()
	server := servers.Versity(t)
	opt := s3.Options{Bucket: "bucket", Region: "us-east-1", Endpoint: server.Endpoint,
		Credentials: credentials.NewStaticCredentialsProvider(server.AccessKey, server.SecretKey, "")}
	client := sdk.New(sdk.Options{Region: opt.Region, BaseEndpoint: &opt.Endpoint, UsePathStyle: true, Credentials: opt.Credentials})
	if _, err := client.CreateBucket(t.Context(), &sdk.CreateBucketInput{Bucket: aws.String(opt.Bucket)}); err != nil {
		t.Fatal(err)
	}
	return opt
}

// maker makes places that are prefixes in one bucket.
func maker(opt s3.Options) blobtest.Maker {
	var made atomic.Int64
	return func(testing.TB) blobtest.Place {
		opt := opt
		opt.Prefix = fmt.Sprintf("place/%d", made.Add(1))
		return func(t testing.TB) blob.Driver { return open(t, opt) }
	}
}

func TestVersity(t *testing.T) {
	opt := bucket(t)
	mk := maker(opt)
	t.Run("Contract", func(t *testing.T) { blobtest.Run(t, mk, blob.Options{}) })
	t.Run("Driver", func(t *testing.T) { blobtest.RunDriver(t, mk) })
	t.Run("LostAnswers", func(t *testing.T) { lostAnswers(t, mk(t)) })
	t.Run("NoBucket", func(t *testing.T) {
		opt := opt
		opt.Bucket = "not-there"
		everyCall(t, opt, tine.KindUnavailable)
	})
	t.Run("WrongSecret", func(t *testing.T) {
		opt := opt
		opt.Credentials = credentials.NewStaticCredentialsProvider("test-access", secret, "")
		everyCall(t, opt, tine.KindAccess)
	})
	t.Run("UnknownKey", func(t *testing.T) {
		opt := opt
		opt.Credentials = credentials.NewStaticCredentialsProvider("nobody", secret, "")
		// It says 404, and in the answer to a HEAD not of what.
		everyCall(t, opt, tine.KindAccess, tine.KindUnavailable)
	})
	t.Run("NoCredentials", func(t *testing.T) {
		opt := opt
		opt.Credentials = failing{}
		everyCall(t, opt, tine.KindAccess)
	})
}

// lostAnswers: conditional writes whose first answer is lost find their own
// object by its mark, in one request and in parts.
func lostAnswers(t *testing.T, place blobtest.Place) {
	plan := faulty.Plan{Faults: []faulty.Fault{{Ops: faulty.Put | faulty.Complete, What: faulty.LostAck, At: 1}}}
	d := faulty.Wrap(place(t), plan)
	s := blob.NewStore(d, blob.Options{PartBytes: 5 << 20, Retry: blob.Policy{First: time.Millisecond}})
	defer s.Close()
	var last blob.Info
	for i, size := range []int{10, 20, 6 << 20, 7 << 20} {
		cond := blob.Condition{Version: last.Version, Absent: i == 0}
		d.SetPlan(plan)
		info, err := s.Put(t.Context(), "k", bytes.NewReader(make([]byte, size)), cond)
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		stat, err := s.Stat(t.Context(), "k")
		if err != nil || stat.Version != info.Version || stat.Size != int64(size) {
			t.Fatalf("put told of %+v, there is %+v, %v", info, stat, err)
		}
		last = info
	}
	if d.Injected() != 4 {
		t.Errorf("%d answers were lost", d.Injected())
	}
}

// everyCall makes each request once and wants it to fail with one of the kinds.
func everyCall(t *testing.T, opt s3.Options, kinds ...tine.ErrorKind) {
	t.Helper()
	d := open(t, opt)
	defer d.Close()
	ctx := t.Context()
	head := blob.Head{Size: 4, CRC32C: blob.Checksum([]byte("text"))}
	for what, call := range map[string]func() error{
		"get":    func() error { _, _, err := d.Get(ctx, "k", blob.GetOptions{}); return err },
		"put":    func() error { _, err := d.Put(ctx, "k", []byte("text"), head); return err },
		"upload": func() error { _, err := d.Upload(ctx, "k", head); return err },
		"stat":   func() error { _, err := d.Stat(ctx, "k"); return err },
		"list":   func() error { _, err := d.List(ctx, blob.ListOptions{}); return err },
		"delete": func() error { _, err := d.Delete(ctx, []blob.Key{"k"}); return err },
		"copy":   func() error { return d.Copy(ctx, "k", "l") },
		"sweep":  func() error { _, err := d.Sweep(ctx, time.Now()); return err },
	} {
		err := call()
		if err == nil || !slices.Contains(kinds, tine.KindOf(err)) || tine.HintOf(err) == "" {
			t.Errorf("%s: want %v, got %v: %v, hint %q", what, kinds, tine.KindOf(err), err, tine.HintOf(err))
		}
		noSecret(t, err)
	}
}
