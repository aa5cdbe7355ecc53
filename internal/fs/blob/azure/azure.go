// Package azure keeps objects in a container of Azure Blob Storage, as block
// blobs, over the raw SDK.
//
// Credentials are, in this order: an account key or a shared access signature
// that is given; those of the variables AZURE_STORAGE_KEY and
// AZURE_STORAGE_SAS_TOKEN, unless AZURE_STORAGE_ACCOUNT names another account;
// the SDK's default chain (azidentity): a service principal in the environment,
// workload identity, managed identity, the az command. The chain costs 2 MB of
// program and nothing until it is asked, and without it a server in Azure would
// need a long-lived key; so it is linked.
//
// The SDK's own retries are off, since blob.Store has the one place for them.
// The version of an object is its ETag, which is another one after every write.
//
// Checksums: the service does not know CRC32C. This driver checks a request's
// bytes against theirs, and sends the CRC64 of the same bytes, which the service
// checks. The CRC32C of the whole object is in its metadata.
//
// An upload in parts stages blocks under the key itself, which nobody sees until
// they are committed, and commits them under the condition. Nothing but a commit
// can drop staged blocks; the service does within a week (SweepsItself). Who
// writes an object drops the blocks of all others that stage under the same key:
// a conditional upload that meets this is told that its condition does not
// hold; one without a condition gets tine.KindStale and can start again.
//
// Accounts with a hierarchical namespace list in another order; do not use them.
package azure

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/web"
	"tine.dev/tine/internal/tine"
)

// The limits of the service, and of what a request here does.
const (
	maxSingleBytes = 5000 << 20
	maxParts       = 50000
	maxCopyBytes   = 256 << 20
	deleteBatch    = 100 // keys, each a request of its own
	deleteParallel = 8
	tokenScope     = "https://storage.azure.com/.default"
)

// Options say where the container is and who asks.
type Options struct {
	Account   string
	Container string
	Prefix    string // in front of all keys, without a "/" at the end; may be empty
	Endpoint  string // URL of the account's blob service; "" is https://ACCOUNT.blob.core.windows.net
	Key       blob.Secret
	SAS       blob.Secret // a shared access signature, with or without the "?"
	// Credential goes before all others, if not nil. The SDK sends its tokens
	// over TLS only.
	Credential azcore.TokenCredential
	Web        web.Options
}

// Store is a blob.Driver. Safe for concurrent use.
type Store struct {
	client    *container.Client
	web       *http.Client
	tokens    azcore.TokenCredential // nil with a key or signature
	signs     bool                   // there is an account key: it can make signatures
	prefix    string                 // with a "/" at the end, or ""
	name      string
	copyBytes int64 // that the service copies in one request
}

// Open returns a store. It makes no request to the container: whether it can be
// reached and what the credentials may do shows with the first one.
func Open(opt Options) (*Store, error) {
	if err := blob.CheckPrefix(opt.Prefix); err != nil {
		return nil, err
	}
	opt.fill()
	client, err := web.New(opt.Web)
	if err != nil {
		return nil, err
	}
	s := &Store{web: client, name: "azblob://" + opt.Container, copyBytes: maxCopyBytes}
	if opt.Prefix != "" {
		s.prefix, s.name = opt.Prefix+"/", s.name+"/"+opt.Prefix
	}
	s.name += "?account=" + opt.Account
	base, err := url.Parse(opt.Endpoint)
	if err != nil || base.Host == "" || base.RawQuery != "" {
		return nil, tine.Errorf(tine.KindInvalid, "store %s: the endpoint is not an URL of an account", s.name).
			WithHint("write it as https://ACCOUNT.blob.core.windows.net; a signature goes into AZURE_STORAGE_SAS_TOKEN")
	}
	if err := s.connect(opt, strings.TrimSuffix(opt.Endpoint, "/")+"/"+url.PathEscape(opt.Container)); err != nil {
		return nil, err
	}
	return s, nil
}

// fill adds what the environment and the service's own names say.
func (o *Options) fill() {
	if o.Credential == nil && o.Key.Empty() && o.SAS.Empty() {
		if account := os.Getenv("AZURE_STORAGE_ACCOUNT"); account == "" || account == o.Account {
			o.Key, o.SAS = blob.NewSecret(os.Getenv("AZURE_STORAGE_KEY")), blob.NewSecret(os.Getenv("AZURE_STORAGE_SAS_TOKEN"))
		}
	}
	if o.Endpoint == "" {
		o.Endpoint = "https://" + o.Account + ".blob.core.windows.net"
	}
}

// connect makes the SDK's client. Of the SDK's errors nothing is told: they may
// quote what they were given.
func (s *Store) connect(opt Options, at string) (err error) {
	with := policy.ClientOptions{Transport: s.web, Retry: policy.RetryOptions{MaxRetries: -1}, Telemetry: policy.TelemetryOptions{ApplicationID: "tine"}}
	switch {
	case opt.Credential != nil:
		s.tokens = opt.Credential
	case !opt.Key.Empty():
		key, err := container.NewSharedKeyCredential(opt.Account, opt.Key.Reveal())
		if err == nil {
			s.signs = true
			s.client, err = container.NewClientWithSharedKeyCredential(at, key, &container.ClientOptions{ClientOptions: with})
		}
		if err != nil {
			return tine.Errorf(tine.KindAccess, "store %s: the account key is not one", s.name).WithHint("give the key as the portal shows it, in base64")
		}
		return nil
	case !opt.SAS.Empty():
		s.client, err = container.NewClientWithNoCredential(at+"?"+strings.TrimPrefix(opt.SAS.Reveal(), "?"), &container.ClientOptions{ClientOptions: with})
		if err != nil {
			return tine.Errorf(tine.KindAccess, "store %s: the shared access signature is not one", s.name).WithHint("give it as the portal shows it: sv=...&sig=...")
		}
		return nil
	default:
		chain, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: with})
		if err != nil {
			return tine.Errorf(tine.KindAccess, "store %s: there are no credentials", s.name).WithHint("%s", credentialsHint)
		}
		s.tokens = chain
	}
	s.tokens = credential{s.tokens}
	s.client, err = container.NewClient(at, s.tokens, &container.ClientOptions{ClientOptions: with})
	if err != nil {
		return tine.Errorf(tine.KindInvalid, "store %s: the SDK does not take the endpoint", s.name).WithHint("write it as https://ACCOUNT.blob.core.windows.net")
	}
	return nil
}

const credentialsHint = "give this server credentials for the store: AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, a service principal, or an identity of the machine or workload"

// credential marks the errors of credentials, so that they can be told from
// those of the connection.
type credential struct{ azcore.TokenCredential }

// noToken is why there is no token, without the text of the cause, which may
// quote what was sent.
type noToken struct {
	status int // of who gives tokens, if it could not answer for now
	cause  error
}

func (*noToken) Error() string { return "there is no token for the store" }

// GetToken implements azcore.TokenCredential.
func (c credential) GetToken(ctx context.Context, opt policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := c.TokenCredential.GetToken(ctx, opt)
	if err == nil {
		return token, nil
	}
	missing := &noToken{}
	var refused *azidentity.AuthenticationFailedError
	var connection *url.Error
	switch {
	case errors.As(err, &refused) && refused.RawResponse != nil:
		if code := refused.RawResponse.StatusCode; code >= 500 || code == http.StatusTooManyRequests {
			missing.status = code
		}
	case errors.As(err, &connection):
		missing.cause = connection.Err
	}
	return azcore.AccessToken{}, missing
}

// Traits implements blob.Driver.
func (s *Store) Traits() blob.Traits {
	return blob.Traits{Name: s.name, MinPartBytes: 1, MaxSingleBytes: maxSingleBytes, MaxParts: maxParts, DeleteBatch: deleteBatch, SweepsItself: true}
}

// Close implements blob.Driver.
func (s *Store) Close() error {
	s.web.CloseIdleConnections()
	return nil
}

// path is the name of a key in the container.
func (s *Store) path(key blob.Key) string { return s.prefix + string(key) }

// failure returns the error for what the SDK said.
func (s *Store) failure(ctx context.Context, op, key string, cond blob.Condition, err error) error {
	answer := blob.Answer{Op: op, Store: s.name, Key: key, If: cond}
	var missing *noToken
	var said *azcore.ResponseError
	switch {
	case ctx.Err() != nil:
		return answer.Transport(ctx, err)
	case errors.As(err, &missing) && missing.cause != nil:
		return answer.Transport(ctx, missing.cause)
	case errors.As(err, &missing) && missing.status != 0:
		answer.Status = missing.status
		return answer.Err()
	case errors.As(err, &missing):
		return tine.Errorf(tine.KindAccess, "%s %q in store %s: there is no token for the store", op, key, s.name).WithHint("%s", credentialsHint)
	case !errors.As(err, &said):
		return answer.Transport(ctx, err)
	}
	answer.Status, answer.Code = said.StatusCode, said.ErrorCode
	if said.RawResponse != nil {
		answer.Wait = web.RetryAfter(said.RawResponse.Header)
	}
	if answer.Status == http.StatusNotFound && answer.Code == "" {
		// The service always says what is not there: this is somebody else.
		answer.Code = "Unknown"
	}
	return answer.Err()
}
