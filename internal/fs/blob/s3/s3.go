// Package s3 keeps objects in a bucket of Amazon S3 or of a store that speaks
// its protocol, over the raw SDK.
//
// The SDK's own retries are off, since blob.Store has the one place for them,
// and so are its own checksums where the protocol does not ask for them:
// stores other than Amazon's refuse some. This driver sends the CRC32C of each
// request's bytes, which the store checks, and keeps that of the whole object
// in the object's metadata, where every store gives it back with the bytes.
//
// The version of an object is its ETag. Equal bytes may have an equal ETag.
package s3

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/web"
	"tine.dev/tine/internal/tine"
)

// The limits of the protocol.
const (
	minPartBytes   = 5 << 20
	maxSingleBytes = 5 << 30
	maxParts       = 10000
	deleteBatch    = 1000
)

// Options say where the bucket is and who asks.
type Options struct {
	Bucket   string
	Prefix   string // in front of all keys, without a "/" at the end; may be empty
	Region   string // "" takes the SDK's default
	Endpoint string // URL of a store that is not Amazon's; such stores are asked by path
	Profile  string // of the SDK's configuration files; "" takes the default chain
	// KeyID and Key are an access key and its secret; they go before Profile
	// and the default chain, if Key is not empty.
	KeyID string
	Key   blob.Secret
	// Credentials go before all others, if not nil.
	Credentials aws.CredentialsProvider
	Web         web.Options
}

// Store is a blob.Driver. Safe for concurrent use.
type Store struct {
	client    *sdk.Client
	transport *http.Transport
	bucket    string
	prefix    string // with a "/" at the end, or ""
	name      string
	region    string
}

// Open returns a store. It makes no request to the bucket: whether it can be
// reached and what the credentials may do shows with the first one. ctx is for
// what the SDK's default chain does to find credentials.
func Open(ctx context.Context, opt Options) (*Store, error) {
	if err := blob.CheckPrefix(opt.Prefix); err != nil {
		return nil, err
	}
	setUp, err := opt.Web.Prepare()
	if err != nil {
		return nil, err
	}
	load := []func(*config.LoadOptions) error{
		// Also for what the chain asks to find credentials.
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(setUp)),
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
		config.WithRequestChecksumCalculation(aws.RequestChecksumCalculationWhenRequired),
		config.WithResponseChecksumValidation(aws.ResponseChecksumValidationWhenRequired),
		// What the SDK logs may quote requests.
		config.WithClientLogMode(0),
	}
	if opt.Region != "" {
		load = append(load, config.WithRegion(opt.Region))
	}
	if opt.Profile != "" {
		load = append(load, config.WithSharedConfigProfile(opt.Profile))
	}
	switch {
	case opt.Credentials != nil:
		load = append(load, config.WithCredentialsProvider(opt.Credentials))
	case !opt.Key.Empty():
		load = append(load, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(opt.KeyID, opt.Key.Reveal(), "")))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		// The SDK's text may quote the files.
		return nil, tine.Errorf(tine.KindInvalid, "store s3://%s: the SDK's configuration for profile %q cannot be loaded", opt.Bucket, opt.Profile).
			WithHint("check the AWS configuration and credentials files and environment of this server")
	}
	// The SDK's configuration may name authorities too, and adds them.
	built, ok := cfg.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		return nil, tine.Errorf(tine.KindInternal, "store s3://%s: the SDK takes another HTTP client", opt.Bucket)
	}
	transport := built.GetTransport()
	cfg.HTTPClient = web.Client(transport)
	if cfg.Credentials != nil {
		cfg.Credentials = provider{cfg.Credentials}
	}
	s := &Store{transport: transport, bucket: opt.Bucket, name: "s3://" + opt.Bucket, region: cfg.Region}
	if opt.Prefix != "" {
		s.prefix, s.name = opt.Prefix+"/", s.name+"/"+opt.Prefix
	}
	s.client = sdk.NewFromConfig(cfg, func(o *sdk.Options) {
		if opt.Endpoint != "" {
			o.BaseEndpoint = aws.String(opt.Endpoint)
			o.UsePathStyle = true
		}
	})
	return s, nil
}

// provider marks the errors of credentials, so that they can be told from
// those of the connection.
type provider struct{ aws.CredentialsProvider }

// noCredentials is the error of a provider, without its text: the text may
// quote what the provider was told.
type noCredentials struct{}

func (noCredentials) Error() string { return "there are no credentials for the store" }

// Retrieve implements aws.CredentialsProvider.
func (p provider) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c, err := p.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		return aws.Credentials{}, noCredentials{}
	}
	return c, nil
}

// Traits implements blob.Driver.
func (s *Store) Traits() blob.Traits {
	return blob.Traits{Name: s.name, Region: s.region, MinPartBytes: minPartBytes, MaxSingleBytes: maxSingleBytes, MaxParts: maxParts, DeleteBatch: deleteBatch}
}

// Close implements blob.Driver.
func (s *Store) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}

// path is the name of a key in the bucket.
func (s *Store) path(key blob.Key) *string { return aws.String(s.prefix + string(key)) }

// failure returns the error for what the SDK said.
func (s *Store) failure(ctx context.Context, op, key string, cond blob.Condition, err error) error {
	answer := blob.Answer{Op: op, Store: s.name, Key: key, If: cond}
	if ctx.Err() != nil {
		return answer.Transport(ctx, err)
	}
	var missing noCredentials
	if errors.As(err, &missing) {
		return tine.Errorf(tine.KindAccess, "%s %q in store %s: %w", op, key, s.name, missing).
			WithHint("give this server credentials for the store: in its environment, or as a named profile")
	}
	var response *smithyhttp.ResponseError
	if !errors.As(err, &response) {
		return answer.Transport(ctx, err)
	}
	answer.Status = response.HTTPStatusCode()
	if response.Response != nil {
		answer.Wait = web.RetryAfter(response.Response.Header)
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		answer.Code = api.ErrorCode()
	}
	if answer.Code == "NotFound" && op != "stat" {
		// The SDK's word for a 404 without one of the store's. Only the answer
		// to a HEAD has none; this is somebody else, before the store.
		answer.Code = "Unknown"
	}
	if answer.Status < 300 && answer.Code == "" {
		return answer.Transport(ctx, err) // the answer began well and broke off
	}
	return answer.Err()
}

// copySource names an object as the protocol wants it in a header.
func (s *Store) copySource(key blob.Key) *string {
	var b strings.Builder
	for _, c := range []byte(s.bucket + "/" + *s.path(key)) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("/-_.~", c) >= 0:
			b.WriteByte(c)
		default:
			const digits = "0123456789ABCDEF"
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return aws.String(b.String())
}
