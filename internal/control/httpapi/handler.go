package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/events"
	"tine.dev/tine/internal/control/exporter"
	"tine.dev/tine/internal/control/importer"
	"tine.dev/tine/internal/control/keeper"
	"tine.dev/tine/internal/control/policy"
	"tine.dev/tine/internal/control/stores"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// maxAuthorBytes bounds a declared author.
const maxAuthorBytes = 256

// Deps is what the calls act on.
type Deps struct {
	Host     *volume.Host
	Keeper   *keeper.Keeper
	Importer *importer.Importer
	Exporter *exporter.Exporter
	Policies *policy.Manager
	Stores   *stores.Manager
	Events   *events.Log
	Server   api.Server // what the server says about itself
	Log      *slog.Logger
	// Watch, if set, is told of every call, and told of its end by what it
	// returns: nil, or the error that the client gets. The call goes on with its
	// context.
	Watch func(ctx context.Context, id string) (context.Context, func(error))
	// Metrics, if set, answers /metrics.
	Metrics http.Handler
}

// New returns the handler of all calls under /v1 and of /openapi.json. Its
// requests carry a peer (see WithPeer).
func New(d Deps) (http.Handler, error) {
	mux := http.NewServeMux()
	doc, err := register(mux, &calls{d})
	if err != nil {
		return nil, err
	}
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.oai.openapi+json")
		_, _ = w.Write(doc)
	})
	if d.Metrics != nil {
		mux.Handle("GET /metrics", d.Metrics)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, tine.Errorf(tine.KindNotFound, "there is no call %s %s", r.Method, r.URL.Path).
			WithHint("GET /openapi.json describes the calls"))
	})
	return recoverPanics(d.Log, mux), nil
}

// Document returns the OpenAPI 3.1 document as indented JSON.
func Document() ([]byte, error) { return register(http.NewServeMux(), &calls{}) }

// register puts every operation on the mux and returns their description.
func register(mux *http.ServeMux, c *calls) ([]byte, error) {
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	h := humago.New(mux, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "tine", Version: "1",
				Description: "Durable disks that fork in milliseconds. Served on a unix socket to root and to the user who runs the server. " +
					"Every failure has the schema Error; decide on its kind.",
			},
			Components: &huma.Components{Schemas: registry},
		},
		Formats:                      map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{reshape},
	})
	c.registerDisks(h)
	c.registerHistory(h)
	c.registerInspection(h)
	c.registerMounts(h)
	c.registerStreams(h)
	c.registerArchives(h)
	c.registerCheck(h)
	c.registerPolicies(h)
	c.registerStores(h)
	c.registerEvents(h)
	c.registerActivity(h)
	// huma describes its own shape of errors, which reshape replaces.
	delete(registry.Map(), "ErrorModel")
	delete(registry.Map(), "ErrorDetail")
	doc, err := json.MarshalIndent(h.OpenAPI(), "", "  ")
	if err != nil {
		return nil, tine.Errorf(tine.KindInternal, "describe the API: %w", err)
	}
	return append(doc, '\n'), nil
}

// calls holds the handlers.
type calls struct{ Deps }

// call describes one operation.
type call struct {
	id, method, path, tag, summary, description string
	status                                      int
	stream                                      any    // the type of a line, for answers of JSON lines
	answer                                      any    // the type of an answer that is written by hand
	upload                                      string // the media type of a body that is read as it comes
	download                                    string // the media type of an answer that is not JSON
}

func (c call) operation(h huma.API) huma.Operation {
	registry := h.OpenAPI().Components.Schemas
	op := huma.Operation{
		OperationID: c.id, Method: c.method, Path: "/v1" + c.path, Summary: c.summary, Description: c.description,
		Tags: []string{c.tag}, DefaultStatus: c.status, MaxBodyBytes: 1 << 20,
		Responses: map[string]*huma.Response{
			"default": {
				Description: "Error",
				Content:     map[string]*huma.MediaType{"application/json": {Schema: schemaOf(registry, api.Error{})}},
			},
		},
	}
	if op.DefaultStatus == 0 {
		op.DefaultStatus = http.StatusOK
	}
	if c.stream != nil {
		op.Responses["200"] = &huma.Response{
			Description: "JSON lines; the last one is done or error",
			Content:     map[string]*huma.MediaType{"application/x-ndjson": {Schema: schemaOf(registry, c.stream)}},
		}
	}
	if c.answer != nil {
		op.Responses["200"] = &huma.Response{Description: "OK", Content: map[string]*huma.MediaType{"application/json": {Schema: schemaOf(registry, c.answer)}}}
	}
	raw := func(mediaType string) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{mediaType: {Schema: &huma.Schema{Type: "string", Format: "binary"}}}
	}
	if c.download != "" {
		op.Responses["200"] = &huma.Response{Description: "The bytes, as they are read", Content: raw(c.download)}
	}
	if c.upload != "" {
		op.RequestBody = &huma.RequestBody{Description: "The bytes, read as they come", Required: true, Content: raw(c.upload)}
	}
	return op
}

// handle registers an operation whose errors are the engine's.
func handle[I, O any](h huma.API, cs *calls, c call, fn func(context.Context, *I) (*O, error)) {
	huma.Register(h, c.operation(h), func(ctx context.Context, in *I) (*O, error) {
		ended := func(error) {}
		if cs.Watch != nil {
			ctx, ended = cs.Watch(ctx, c.id)
		}
		out, err := fn(ctx, in)
		if s, ok := any(out).(*huma.StreamResponse); ok && err == nil {
			write := s.Body
			s.Body = func(hc huma.Context) {
				defer ended(nil)
				write(hc)
			}
			return out, nil
		}
		ended(err)
		if err != nil {
			return nil, toWire(err)
		}
		return out, nil
	})
}

// By is the part of a request that says on whose behalf it is made. Like OnDisk
// it is exported only because huma looks for parameters in exported fields.
type By struct {
	Author string `header:"Tine-Author" doc:"Who asks, in their own words; percent-encoded. At most 256 bytes"`
}

// caller joins what the client declares with what the kernel says of it.
func (b By) caller(ctx context.Context) (volume.Caller, error) {
	p, ok := peerOf(ctx)
	if !ok {
		return volume.Caller{}, tine.Errorf(tine.KindAccess, "the server could not tell who asks")
	}
	author, err := url.QueryUnescape(b.Author)
	if err != nil || !utf8.ValidString(author) || len(author) > maxAuthorBytes {
		return volume.Caller{}, tine.Errorf(tine.KindInvalid, "the author is not valid text of at most %d bytes", maxAuthorBytes).
			WithHint("set a shorter --author or TINE_AUTHOR")
	}
	return volume.Caller{Tenant: tine.DefaultTenant, Author: author, Principal: p.Principal()}, nil
}

// recoverPanics answers a call that panics with an error and logs where: one
// bad call must not take every mount down.
func recoverPanics(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		defer func() {
			if p := recover(); p != nil {
				log.Error("a call panicked", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				writeError(w, tine.Errorf(tine.KindInternal, "the call failed inside the server").
					WithHint("this is a bug in tine; the server's log has the details"))
				return
			}
			log.Debug("call", "method", r.Method, "path", r.URL.Path, "took", time.Since(start).String())
		}()
		next.ServeHTTP(w, r)
	})
}
