package trace

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// Tracer makes spans. It is safe for concurrent use. A nil Tracer makes none.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   api.Tracer
}

// Open returns the tracer that the environment asks for, nil if it asks for
// none. It understands OTEL_EXPORTER_OTLP_ENDPOINT and, for another path,
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS,
// OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER and OTEL_SDK_DISABLED. Nothing is
// dialled before there is a span.
func Open(getenv func(string) string, version string, log *slog.Logger) (*Tracer, error) {
	target := getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if base := getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); target == "" && base != "" {
		target = strings.TrimSuffix(base, "/") + "/v1/traces"
	}
	if target == "" || strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return nil, nil
	}
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, tine.Errorf(tine.KindInvalid, "the trace collector %q is not an http or https URL", target).
			WithHint("OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318")
	}
	headers := http.Header{}
	for _, pair := range strings.Split(getenv("OTEL_EXPORTER_OTLP_HEADERS"), ",") {
		if k, v, ok := strings.Cut(strings.TrimSpace(pair), "="); ok {
			if plain, err := url.PathUnescape(v); err == nil {
				headers.Set(strings.TrimSpace(k), plain)
			}
		}
	}
	service := getenv("OTEL_SERVICE_NAME")
	if service == "" {
		service = "tine"
	}
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(&exporter{url: target, headers: headers, log: log, http: &http.Client{Timeout: sendTime}}),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", service), attribute.String("service.version", version))),
	)
	return &Tracer{provider, provider.Tracer("tine.dev/tine")}, nil
}

// Close sends what is left, until ctx is done.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Parents lets calls continue the trace that their client names in the header
// traceparent.
func (t *Tracer) Parents(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Call begins the span of a call of the API; what it returns ends it.
func (t *Tracer) Call(ctx context.Context, id string) (context.Context, func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	ctx, span := t.tracer.Start(ctx, id, api.WithSpanKind(api.SpanKindServer))
	return ctx, func(err error) {
		fail(span, err)
		span.End()
	}
}

func fail(span api.Span, err error) {
	if err == nil {
		return
	}
	span.SetStatus(codes.Error, err.Error())
	span.SetAttributes(attribute.String("error.type", tine.KindOf(err).String()))
}

// Slow makes the span of a file operation that has ended.
func (t *Tracer) Slow(disk tine.DiskID, op volume.Op, start time.Time, took time.Duration, err error) {
	if t == nil {
		return
	}
	_, span := t.tracer.Start(context.Background(), "fs."+op.String(), api.WithTimestamp(start),
		api.WithAttributes(attribute.String("tine.disk_id", disk.String())))
	fail(span, err)
	span.End(api.WithTimestamp(start.Add(took)))
}
