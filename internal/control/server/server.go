package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/buildinfo"
	"tine.dev/tine/internal/control/config"
	"tine.dev/tine/internal/control/exporter"
	"tine.dev/tine/internal/control/httpapi"
	"tine.dev/tine/internal/control/importer"
	"tine.dev/tine/internal/control/keeper"
	"tine.dev/tine/internal/control/stores"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// Options is what a server is given besides its configuration.
type Options struct {
	Config config.Config
	Log    *slog.Logger
	// NotifySocket is the value of NOTIFY_SOCKET; empty without a service
	// manager.
	NotifySocket string
	// Mounter makes mounts of the opened disks; nil for the kernel's.
	Mounter func(*volume.Host) keeper.Mounter
	// Guard, if set, starts what outlives the server to clear up its mounts. It
	// is called before the first mount.
	Guard func(data string) error
	// OpenStore makes an object store of a URL; nil: there are none.
	OpenStore volume.OpenBlob
	// Getenv reads the environment in which tracing is configured; nil for the
	// process's own.
	Getenv func(string) string
	// Ready, if set, is called once calls are served.
	Ready func()
}

// server is one run.
type server struct {
	Options
	gate      *gate
	http      *http.Server
	host      *volume.Host
	keeper    *keeper.Keeper
	importer  *importer.Importer
	exporter  *exporter.Exporter
	stores    *stores.Manager
	restored  chan struct{}   // closed when the mounts of the last run are back
	quit      context.Context // ends when the server stops
	leave     context.CancelFunc
	parting   sync.WaitGroup // mounts of lost disks being taken away
	started   time.Time
	restoring time.Duration // how long the mounts took to come back
	watch     watchers
}

// Run serves until ctx is done, then stops in order and returns nil. An error
// means that the server could not start, or that stopping lost something.
func Run(ctx context.Context, o Options) error {
	if o.Config.MemoryLimit > 0 {
		debug.SetMemoryLimit(o.Config.MemoryLimit)
	}
	lock, err := lockData(o.Config.Data, o.Config.Socket)
	if err != nil {
		return err
	}
	defer lock.Release()
	l, err := listen(o.Config.Socket, o.Config.Data)
	if err != nil {
		return err
	}
	defer l.release()

	s := &server{Options: o, gate: newGate(patience), started: time.Now()}
	s.http = &http.Server{
		Handler:           httpapi.OnlyPeers(uint32(os.Geteuid()), s.gate),
		ConnContext:       httpapi.WithPeer,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
	}
	s.newParting()
	if err := s.newWatchers(); err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(l) }()

	if err := s.open(ctx); err != nil {
		if s.host == nil && tine.KindOf(err) == tine.KindInvalid {
			lock.withdraw()
		}
		return errors.Join(err, s.stop())
	}
	if ctx.Err() == nil {
		s.ready()
	}
	select {
	case <-ctx.Done():
	case err = <-served:
		// Only a broken listener ends here.
		err = tine.Errorf(tine.KindIO, "the socket broke: %w", err)
	}
	return errors.Join(err, s.stop())
}

// open opens the disks and brings back what the last run had.
func (s *server) open(ctx context.Context) error {
	c := s.Config
	if err := s.openStores(); err != nil {
		return err
	}
	host, err := volume.Open(ctx, s.volumeOptions())
	if err != nil {
		return err
	}
	s.host = host
	if err := s.stores.Serve(ctx, host, caller()); err != nil {
		return err
	}
	if s.importer, err = importer.Open(host, c.Data, s.Log); err != nil {
		return err
	}
	s.importer.CleanUp(ctx)
	if s.exporter, err = exporter.Open(host, c.Data, s.Log); err != nil {
		return err
	}
	s.exporter.CleanUp(ctx)
	mounter := keeper.Fuse(host, c.Socket+".mounts", s.Log)
	if s.Mounter != nil {
		mounter = s.Mounter(host)
	}
	if s.keeper, err = keeper.Open(c.Data, mounter, s.Log); err != nil {
		return err
	}
	if err := s.openWatchers(); err != nil {
		return err
	}
	s.keeper.Observe(s.mountChanged)
	if s.Guard != nil {
		if err := s.Guard(s.Config.Data); err != nil {
			s.Log.Warn("no guard: should this server be killed, programs may hang on its mounts until the next start", "error", err)
		}
	}
	s.watch.events.Add(api.Event{Kind: "server-start", Detail: "version " + buildinfo.Read().Version})
	began := time.Now()
	s.keeper.Restore(ctx)
	s.restoring = time.Since(began)
	close(s.restored)
	return s.runWatchers()
}

// ready lets calls through and says so.
func (s *server) ready() {
	version := buildinfo.Read()
	calls, err := httpapi.New(httpapi.Deps{
		Host: s.host, Keeper: s.keeper, Importer: s.importer, Exporter: s.exporter, Log: s.Log,
		Policies: s.watch.policies, Stores: s.stores, Events: s.watch.events, Metrics: s.watch.metrics.Handler(), Watch: s.watchCall,
		Server: api.Server{
			Version: version, PID: os.Getpid(), UID: os.Geteuid(), Data: s.Config.Data, Socket: s.Config.Socket, Started: s.started,
		},
	})
	if err != nil {
		s.Log.Error("the API cannot be served", "error", err)
		return
	}
	s.gate.set(s.watch.tracer.Parents(calls), "ready")
	s.Log.Info("ready", "version", version.Version, "data", s.Config.Data, "socket", s.Config.Socket,
		"mounts", len(s.keeper.List()), "mounting", s.restoring.Round(time.Millisecond).String(), "took", time.Since(s.started).Round(time.Millisecond).String())
	s.notify("READY=1")
	if s.Ready != nil {
		s.Ready()
	}
}

func (s *server) notify(state string) {
	if err := notifySystemd(s.NotifySocket, state); err != nil {
		s.Log.Warn("the service manager was not told", "state", state, "error", err)
	}
}

// stop undoes open, also where that failed half way.
func (s *server) stop() error {
	start := time.Now()
	s.notify("STOPPING=1")
	s.gate.set(nil, "stopping")
	s.watch.events.Add(api.Event{Kind: "server-stop"})
	s.watch.events.Close() // those who follow end, so that their calls do
	if s.importer != nil {
		s.importer.Stop()
	}
	if s.exporter != nil {
		s.exporter.Stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.Config.StopTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		s.Log.Warn("some calls did not end in time and are cut off", "error", err)
		_ = s.http.Close()
	}
	s.part()
	s.stopWatchers()
	defer s.closeTracer()
	var errs []error
	if s.keeper != nil {
		ctx, cancel := context.WithTimeout(context.Background(), s.Config.StopTimeout)
		defer cancel()
		errs = append(errs, s.keeper.Close(ctx))
	}
	if s.host != nil {
		// Without a limit: cutting this short would lose what was written.
		errs = append(errs, s.host.Close(context.Background()))
	}
	err := errors.Join(errs...)
	if err == nil {
		s.Log.Info("stopped", "took", time.Since(start).Round(time.Millisecond).String())
	}
	return err
}
