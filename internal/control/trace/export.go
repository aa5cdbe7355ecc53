package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

const (
	// sendTime bounds one request to the collector.
	sendTime = 10 * time.Second
	// complainEvery is the time between two complaints about a collector.
	complainEvery = time.Minute
)

// exporter sends spans to a collector. What cannot be sent is dropped: a trace
// is not worth holding anything up.
type exporter struct {
	url     string
	headers http.Header
	http    *http.Client
	log     *slog.Logger

	mu   sync.Mutex // guards told
	told time.Time  // of the last complaint
}

// The JSON form of OTLP: numbers of 64 bits are text, ids are hexadecimal.
type (
	otlpRequest struct {
		ResourceSpans []otlpResourceSpans `json:"resourceSpans"`
	}
	otlpResourceSpans struct {
		Resource   otlpResource     `json:"resource"`
		ScopeSpans []otlpScopeSpans `json:"scopeSpans"`
	}
	otlpResource struct {
		Attributes []otlpAttribute `json:"attributes"`
	}
	otlpScopeSpans struct {
		Scope otlpScope  `json:"scope"`
		Spans []otlpSpan `json:"spans"`
	}
	otlpScope struct {
		Name string `json:"name"`
	}
	otlpSpan struct {
		TraceID    string          `json:"traceId"`
		SpanID     string          `json:"spanId"`
		ParentID   string          `json:"parentSpanId,omitempty"`
		Name       string          `json:"name"`
		Kind       int             `json:"kind"`
		Start      string          `json:"startTimeUnixNano"`
		End        string          `json:"endTimeUnixNano"`
		Attributes []otlpAttribute `json:"attributes,omitempty"`
		Status     *otlpStatus     `json:"status,omitempty"`
	}
	otlpStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message,omitempty"`
	}
	otlpAttribute struct {
		Key   string            `json:"key"`
		Value map[string]string `json:"value"`
	}
)

func attributes(kvs []attribute.KeyValue) []otlpAttribute {
	var out []otlpAttribute
	for _, kv := range kvs {
		out = append(out, otlpAttribute{string(kv.Key), map[string]string{"stringValue": kv.Value.String()}})
	}
	return out
}

func encode(spans []sdk.ReadOnlySpan) otlpRequest {
	var out []otlpSpan
	for _, s := range spans {
		o := otlpSpan{
			TraceID: s.SpanContext().TraceID().String(), SpanID: s.SpanContext().SpanID().String(), Name: s.Name(), Kind: int(s.SpanKind()),
			Start: strconv.FormatInt(s.StartTime().UnixNano(), 10), End: strconv.FormatInt(s.EndTime().UnixNano(), 10), Attributes: attributes(s.Attributes()),
		}
		if s.Parent().HasSpanID() {
			o.ParentID = s.Parent().SpanID().String()
		}
		if s.Status().Description != "" {
			o.Status = &otlpStatus{Code: otlpError, Message: s.Status().Description}
		}
		out = append(out, o)
	}
	return otlpRequest{[]otlpResourceSpans{{
		Resource:   otlpResource{attributes(spans[0].Resource().Attributes())},
		ScopeSpans: []otlpScopeSpans{{otlpScope{spans[0].InstrumentationScope().Name}, out}},
	}}}
}

// otlpError is OTLP's status of a span that failed; the SDK counts otherwise.
const otlpError = 2

// ExportSpans sends spans. It complains in the log, now and then, and never
// returns an error: the SDK could only print it.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	if err := e.send(ctx, encode(spans)); err != nil {
		e.complain(err, len(spans))
	}
	return nil
}

func (e *exporter) send(ctx context.Context, r otlpRequest) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header = e.headers.Clone()
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the collector answered %s", resp.Status)
	}
	return nil
}

func (e *exporter) complain(err error, spans int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.told) < complainEvery {
		return
	}
	e.told = time.Now()
	e.log.Warn("spans could not be sent and are dropped", "collector", e.url, "spans", spans, "error", err)
}

// Shutdown lets go of connections.
func (e *exporter) Shutdown(context.Context) error {
	e.http.CloseIdleConnections()
	return nil
}
