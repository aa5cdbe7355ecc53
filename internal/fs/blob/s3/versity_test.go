package s3_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/blobtest"
	"tine.dev/tine/internal/fs/blob/faultproxy"
	"tine.dev/tine/internal/fs/blob/s3"
	"tine.dev/tine/internal/fs/blob/servers"
	"tine.dev/tine/internal/fs/blob/web"
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
func maker(opt s3.Options, name string) blobtest.Maker {
	return blobtest.Prefixes(name, func(t testing.TB, prefix string) blob.Driver {
		opt := opt
		opt.Prefix = prefix
		return open(t, opt)
	})
}

func TestVersity(t *testing.T) {
	opt := bucket(t)
	mk := maker(opt, "place")
	t.Run("Contract", func(t *testing.T) { blobtest.Run(t, mk, blob.Options{}) })
	t.Run("Driver", func(t *testing.T) { blobtest.RunDriver(t, mk) })
	proxy := faultproxy.Start(t, opt.Endpoint, faultproxy.S3())
	behind := opt
	behind.Endpoint = proxy.URL
	t.Run("Faults", func(t *testing.T) { blobtest.RunFaults(t, proxy, maker(behind, "faults")) })
	t.Run("Reach", func(t *testing.T) {
		blobtest.RunReach(t, opt.Endpoint, func(t testing.TB, endpoint string, web web.Options) (blob.Driver, error) {
			opt := opt
			opt.Endpoint, opt.Web = endpoint, web
			return s3.Open(t.Context(), opt)
		})
	})
	t.Run("NoBucket", func(t *testing.T) {
		opt := opt
		opt.Bucket = "not-there"
		blobtest.EveryCall(t, open(t, opt), "", tine.KindUnavailable)
	})
	t.Run("WrongSecret", func(t *testing.T) {
		opt := opt
		opt.Credentials = credentials.NewStaticCredentialsProvider("test-access", blobtest.Secret, "")
		blobtest.EveryCall(t, open(t, opt), "", tine.KindAccess)
	})
	t.Run("UnknownKey", func(t *testing.T) {
		opt := opt
		opt.Credentials = credentials.NewStaticCredentialsProvider("nobody", blobtest.Secret, "")
		// It says 404, and in the answer to a HEAD not of what.
		blobtest.EveryCall(t, open(t, opt), "", tine.KindAccess, tine.KindUnavailable)
	})
	t.Run("NoCredentials", func(t *testing.T) {
		opt := opt
		opt.Credentials = failing{}
		blobtest.EveryCall(t, open(t, opt), "", tine.KindAccess)
	})
}
