// Package open makes a driver of the URL of a store, so that one line in a
// configuration says where objects are kept:
//
//	s3://BUCKET/PREFIX?region=REGION&endpoint=URL&profile=NAME
//	gs://BUCKET/PREFIX?endpoint=URL&credentials=FILE&anonymous=true
//	azblob://CONTAINER/PREFIX?account=NAME&endpoint=URL
//	file:///DIRECTORY
//
// Prefix and parameters may be left out, but for the account of Azure, which
// AZURE_STORAGE_ACCOUNT may name instead. An endpoint is for a store that is
// not the service itself: for Azure it is the URL of the account.
//
// A URL is shown, logged and copied, so it must not hold a credential, and one
// that does is refused, in words that do not quote it. Credentials come from
// Options, a named profile or file, or the default chain of each SDK.
package open

import (
	"context"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/azure"
	"tine.dev/tine/internal/fs/blob/dir"
	"tine.dev/tine/internal/fs/blob/gcs"
	"tine.dev/tine/internal/fs/blob/s3"
	"tine.dev/tine/internal/fs/blob/web"
	"tine.dev/tine/internal/tine"
)

// Options are what a URL must or need not say. The zero value takes credentials
// from the default chains and the proxy from the environment.
type Options struct {
	// KeyID and Key are an access key and its secret for s3; Key alone is an
	// account key for azblob. gs takes a file, which the URL may name.
	KeyID string
	Key   blob.Secret
	SAS   blob.Secret // a shared access signature, for azblob
	Proxy blob.Secret // as in web.Options
	// CAFile is a file in PEM with authorities that are trusted besides the
	// system's; "" for none.
	CAFile string
}

// forms tell how the URL of each scheme is written.
const forms = "write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, azblob://CONTAINER/PREFIX?account=NAME or file:///DIRECTORY"

// Driver returns a driver for the store at a URL. It makes no request to the
// store; ctx is for finding credentials. Errors are of kind tine.KindInvalid for
// a URL that is wrong, tine.KindAccess for credentials, and those of dir.Open;
// their hints tell the next step.
func Driver(ctx context.Context, text string, opt Options) (blob.Driver, error) {
	u, err := url.Parse(text)
	if err != nil {
		// The cause quotes the text.
		return nil, tine.Errorf(tine.KindInvalid, "the URL of the store cannot be read").WithHint("%s; write %% as %%25", forms)
	}
	query, err := parameters(u)
	if err != nil {
		return nil, err
	}
	through := web.Options{Proxy: opt.Proxy}
	if opt.CAFile != "" {
		if through.RootCAs, err = os.ReadFile(opt.CAFile); err != nil {
			return nil, tine.Errorf(tine.KindInvalid, "store %s://%s: the file of authorities cannot be read: %w", u.Scheme, u.Host, err).
				WithHint("give a file in PEM that this server may read")
		}
	}
	place := strings.TrimSuffix(strings.TrimPrefix(u.Path, "/"), "/")
	switch u.Scheme {
	case "s3":
		return driver(s3.Open(ctx, s3.Options{Bucket: u.Host, Prefix: place, Region: query["region"], Endpoint: query["endpoint"],
			Profile: query["profile"], KeyID: opt.KeyID, Key: opt.Key, Web: through}))
	case "gs":
		return driver(gcs.Open(gcs.Options{Bucket: u.Host, Prefix: place, Endpoint: query["endpoint"], CredentialsFile: query["credentials"],
			Anonymous: query["anonymous"] == "true", Web: through}))
	case "azblob":
		account := query["account"]
		if account == "" {
			account = os.Getenv("AZURE_STORAGE_ACCOUNT")
		}
		if account == "" {
			return nil, tine.Errorf(tine.KindInvalid, "store azblob://%s: the URL does not name the account", u.Host).
				WithHint("add ?account=NAME, or set AZURE_STORAGE_ACCOUNT")
		}
		return driver(azure.Open(azure.Options{Account: account, Container: u.Host, Prefix: place, Endpoint: query["endpoint"], Key: opt.Key, SAS: opt.SAS, Web: through}))
	}
	return driver(dir.Open(u.Path, dir.Options{}))
}

// driver is for what a driver's Open returns: a nil *Store in an interface
// would not be nil.
func driver[D blob.Driver](d D, err error) (blob.Driver, error) {
	if err != nil {
		return nil, err
	}
	return d, nil
}

// known returns the parameters of a scheme.
func known(scheme string) []string {
	switch scheme {
	case "s3":
		return []string{"region", "endpoint", "profile"}
	case "gs":
		return []string{"endpoint", "credentials", "anonymous"}
	case "azblob":
		return []string{"account", "endpoint"}
	}
	return nil
}

// others are schemes of other programs for the same stores.
func others(scheme string) string {
	switch scheme {
	case "gcs", "googlecloud":
		return "gs"
	case "az", "azure", "abfs", "abfss", "wasb", "wasbs":
		return "azblob"
	case "s3a", "s3n", "minio", "b2":
		return "s3"
	case "local", "dir":
		return "file"
	}
	return ""
}

// parameters checks all of a URL that does not depend on its store, and returns
// what stands after the "?".
func parameters(u *url.URL) (map[string]string, error) {
	bad := func(format string, args ...any) *tine.Error { return tine.Errorf(tine.KindInvalid, format, args...) }
	if u.User != nil {
		return nil, bad("the URL of the store holds a user or password").WithHint("%s", elsewhere)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, bad("what stands after the ? in the URL of the store cannot be read").WithHint("separate parameters with & and write %% as %%25")
	}
	for name := range query {
		if secretive(name) {
			return nil, bad("the URL of the store holds a credential").WithHint("%s", elsewhere)
		}
	}
	switch scheme := u.Scheme; {
	case scheme == "":
		return nil, bad("the URL of the store has no scheme").WithHint("%s; a directory is file:// and its path from /", forms)
	case others(scheme) != "":
		return nil, bad("the scheme %q is not known here", scheme).WithHint("write it as %s://", others(scheme))
	case scheme != "file" && known(scheme) == nil:
		return nil, bad("the scheme %q of the store's URL is not known", scheme).WithHint("%s", forms)
	case u.Opaque != "":
		return nil, bad("after %s: two slashes must follow", scheme).WithHint("%s", forms)
	case u.Fragment != "":
		return nil, bad("the URL of the store has a #").WithHint("write # as %%23")
	case scheme == "file" && (u.Host != "" || !strings.HasPrefix(u.Path, "/")):
		return nil, bad("a directory's URL must hold its path from /").WithHint("write file:///DIRECTORY, with three slashes")
	case scheme != "file" && (u.Host == "" || u.Port() != ""):
		return nil, bad("the URL of the store does not begin with its bucket").WithHint("%s; a server goes into ?endpoint=URL", forms)
	}
	return values(u.Scheme, query)
}

// values checks the parameters of a scheme.
func values(scheme string, query url.Values) (map[string]string, error) {
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(known(scheme), name) {
			err := tine.Errorf(tine.KindInvalid, "the URL of a store %s:// has no parameter %q", scheme, name)
			if len(known(scheme)) == 0 {
				return nil, err.WithHint("leave it out: it has none")
			}
			return nil, err.WithHint("it has %s", strings.Join(known(scheme), ", "))
		}
		if len(query[name]) != 1 || query[name][0] == "" {
			return nil, tine.Errorf(tine.KindInvalid, "the parameter %s of the store's URL must be there once, with a value", name).WithHint("write %s=VALUE, or leave it out", name)
		}
		out[name] = query[name][0]
	}
	if e, ok := out["endpoint"]; ok {
		u, err := url.Parse(e)
		switch {
		case err == nil && (u.User != nil || u.RawQuery != ""):
			return nil, tine.Errorf(tine.KindInvalid, "the endpoint in the store's URL holds a credential or a query").WithHint("%s", elsewhere)
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			return nil, tine.Errorf(tine.KindInvalid, "the endpoint in the store's URL is not an URL itself").WithHint("write endpoint=https://HOST:PORT")
		}
	}
	if a, ok := out["anonymous"]; ok && a != "true" && a != "false" {
		return nil, tine.Errorf(tine.KindInvalid, "anonymous in the store's URL must be true or false").WithHint("write anonymous=true for a server that wants no credentials")
	}
	return out, nil
}

const elsewhere = "take it out of the URL, which is shown and logged, change it if others may have seen it, and give it in the environment, as a named profile or as a file"

// secretive reports whether a parameter of that name holds a credential in
// other programs.
func secretive(name string) bool {
	name = strings.ToLower(name)
	for _, part := range []string{"secret", "password", "passwd", "token", "key", "sig", "sas", "credential_json"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return slices.Contains([]string{"se", "sp", "sv", "sr", "st", "skoid", "user"}, name)
}
