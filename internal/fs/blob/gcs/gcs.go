// Package gcs keeps objects in a bucket of Google Cloud Storage.
//
// It speaks the service's HTTP interface by itself and takes only the finding
// of credentials from Google's libraries (cloud.google.com/go/auth). The client
// library for storage (cloud.google.com/go/storage) would do too, but links
// gRPC, Envoy's and a monitoring service's messages and the detection of
// clouds: a program with this driver alone has 8 MB, with the library 34, and
// registers its messages for 5 ms each time any command of tine starts. What is
// asked here are eight kinds of requests, all of them documented and stable.
//
// Reads go to the XML interface, the only one that gives an object's bytes,
// metadata, checksum and generation in one answer, and that tells a bucket that
// is not there from an object that is not. All else goes to the JSON interface.
//
// The version of an object is its generation, which never repeats. The service
// has no conditional upload in parts that can be sent side by side, so an
// upload writes its parts as objects of their own, under a name that no key
// has, and composes them under the condition; listings leave them out.
package gcs

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/web"
	"tine.dev/tine/internal/tine"
)

// The limits of the service, and of what a request here does.
const (
	service        = "https://storage.googleapis.com"
	scope          = "https://www.googleapis.com/auth/devstorage.read_write"
	composeMax     = 32 // objects that one request composes
	maxSingleBytes = 5 << 40
	deleteBatch    = 100 // keys, each a request of its own
	deleteParallel = 8
	partsFolder    = ".parts/" // below the store's prefix; keys do not start with a dot
)

// Options say where the bucket is and who asks.
type Options struct {
	Bucket   string
	Prefix   string // in front of all keys, without a "/" at the end; may be empty
	Endpoint string // URL of the service by another way, or of a stand-in; "" is the public one
	// CredentialsFile is a file of credentials as gcloud or the console makes
	// them; "" takes the default chain: the file that
	// GOOGLE_APPLICATION_CREDENTIALS names, gcloud's, the machine's own.
	CredentialsFile string
	// Anonymous sends no credentials, for stand-ins of the service.
	Anonymous bool
	Web       web.Options
}

// Store is a blob.Driver. Safe for concurrent use.
type Store struct {
	client *http.Client
	tokens auth.TokenProvider // nil: anonymous
	base   string             // URL of the service, without a "/" at the end
	bucket string
	prefix string // with a "/" at the end, or ""
	name   string
}

// Open returns a store. It makes no request to the bucket: whether it can be
// reached and what the credentials may do shows with the first one. The default
// chain may ask whether this machine is one of Google's cloud.
func Open(opt Options) (*Store, error) {
	if err := blob.CheckPrefix(opt.Prefix); err != nil {
		return nil, err
	}
	client, err := web.New(opt.Web)
	if err != nil {
		return nil, err
	}
	s := &Store{client: client, base: service, bucket: opt.Bucket, name: "gs://" + opt.Bucket}
	if opt.Endpoint != "" {
		u, err := url.Parse(opt.Endpoint)
		if err != nil || u.Host == "" {
			return nil, tine.Errorf(tine.KindInvalid, "store gs://%s: the endpoint is not an URL", opt.Bucket).WithHint("write it as https://HOST")
		}
		s.base = strings.TrimSuffix(strings.TrimSuffix(opt.Endpoint, "/"), "/storage/v1")
	}
	if opt.Prefix != "" {
		s.prefix, s.name = opt.Prefix+"/", s.name+"/"+opt.Prefix
	}
	if !opt.Anonymous {
		if s.tokens, err = findTokens(opt.CredentialsFile, client); err != nil {
			// The text of the cause may quote the file.
			return nil, tine.Errorf(tine.KindAccess, "store gs://%s: there are no credentials, or they cannot be read", opt.Bucket).WithHint("%s", credentialsHint)
		}
	}
	return s, nil
}

const credentialsHint = "give this server credentials for the store: a file that GOOGLE_APPLICATION_CREDENTIALS names, or a service account of the machine"

// findTokens returns what makes tokens, from the file or by the default chain.
func findTokens(file string, client *http.Client) (auth.TokenProvider, error) {
	opt := &credentials.DetectOptions{Scopes: []string{scope}, Client: client,
		// What the library logs if the environment says so quotes tokens.
		Logger: slog.New(slog.DiscardHandler)}
	if file == "" {
		return credentials.DetectDefault(opt)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var kind struct {
		Type credentials.CredType `json:"type"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		return nil, err
	}
	return credentials.NewCredentialsFromJSON(kind.Type, text, opt)
}

// Traits implements blob.Driver.
func (s *Store) Traits() blob.Traits {
	return blob.Traits{Name: s.name, MinPartBytes: 1, MaxSingleBytes: maxSingleBytes, MaxParts: composeMax * composeMax, DeleteBatch: deleteBatch}
}

// Close implements blob.Driver.
func (s *Store) Close() error {
	s.client.CloseIdleConnections()
	return nil
}

// authorize adds a token to a request.
func (s *Store) authorize(ctx context.Context, r *http.Request, answer blob.Answer) error {
	if s.tokens == nil {
		return nil
	}
	token, err := s.tokens.Token(ctx)
	if err == nil {
		r.Header.Set("Authorization", "Bearer "+token.Value)
		return nil
	}
	var refused *auth.Error
	var connection *url.Error
	switch {
	case ctx.Err() != nil, errors.As(err, &connection):
		return answer.Transport(ctx, err)
	case errors.As(err, &refused) && refused.Response != nil && (refused.Response.StatusCode >= 500 || refused.Response.StatusCode == http.StatusTooManyRequests):
		answer.Status, answer.Wait = refused.Response.StatusCode, web.RetryAfter(refused.Response.Header)
		return answer.Err()
	}
	return tine.Errorf(tine.KindAccess, "%s %q in store %s: there is no token for the store", answer.Op, answer.Key, s.name).WithHint("%s", credentialsHint)
}
