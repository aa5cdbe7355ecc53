package metrics

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/tine"
)

// Registry is what a server shows. It is safe for concurrent use.
type Registry struct {
	registry *prometheus.Registry
	calls    *prometheus.HistogramVec
	failed   *prometheus.CounterVec
	running  prometheus.Gauge
	log      *slog.Logger
}

// New returns the figures of a server: of its disks, its API and its process.
// Mounts returns how many there are in each state.
func New(source Source, mounts func() map[string]int, version api.Version, log *slog.Logger) *Registry {
	r := &Registry{
		registry: prometheus.NewRegistry(), log: log,
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "tine_api_call_duration_seconds", Help: "Calls of the API.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10)}, []string{"call"}),
		failed:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tine_api_errors_total", Help: "Calls of the API that failed, by kind of error."}, []string{"call", "kind"}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{Name: "tine_api_calls_running", Help: "Calls of the API under way, streams included."}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "tine_build_info", Help: "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": version.Version, "commit": version.Commit, "go": version.Go}})
	build.Set(1)
	r.registry.MustRegister(newDisks(source, mounts), r.calls, r.failed, r.running, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Call notes the beginning of a call of the API; what it returns, its end.
func (r *Registry) Call(id string) (ended func(error)) {
	start := time.Now()
	r.running.Inc()
	return func(err error) {
		r.running.Dec()
		r.calls.WithLabelValues(id).Observe(time.Since(start).Seconds())
		if err != nil {
			r.failed.WithLabelValues(id, tine.KindOf(err).String()).Inc()
		}
	}
}

// Handler answers a scrape.
func (r *Registry) Handler() http.Handler {
	return promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelWarn), MaxRequestsInFlight: 4,
		DisableCompression: true})
}

// Serve answers scrapes on a TCP address until ctx is done: nothing but
// /metrics, to whoever can reach the address. An address without a host is on
// the loopback device. It returns when it listens, or why it cannot; the address
// is where it listens.
func (r *Registry) Serve(ctx context.Context, address string) (net.Addr, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, tine.Errorf(tine.KindInvalid, "the address %q of the metrics: %w", address, err).WithHint("write it as :9464 or 127.0.0.1:9464")
	}
	if host == "" {
		host = "127.0.0.1"
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, oserr.Wrap(err, "listen on %s for metrics", address)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", r.Handler())
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelDebug)}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	go func() {
		if err := s.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			r.log.Error("metrics are no longer served", "address", address, "error", err)
		}
	}()
	return l.Addr(), nil
}
