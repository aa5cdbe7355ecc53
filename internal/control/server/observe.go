package server

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/buildinfo"
	"tine.dev/tine/internal/control/events"
	"tine.dev/tine/internal/control/keeper"
	"tine.dev/tine/internal/control/metrics"
	"tine.dev/tine/internal/control/policy"
	"tine.dev/tine/internal/control/trace"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// watchers are the parts of a server that look on: events, metrics, traces, and
// the policies, which act on what they see.
type watchers struct {
	events   *events.Log
	faults   *events.Faults
	policies *policy.Manager
	metrics  *metrics.Registry
	tracer   *trace.Tracer
	stop     context.CancelFunc // of what runs beside the calls
	running  sync.WaitGroup
}

// caller is on whose behalf the server looks at disks.
func caller() volume.Caller {
	return volume.Caller{Tenant: tine.DefaultTenant, Principal: "server"}
}

// newWatchers makes what must be there before the disks are opened, so that
// what their recovery reports is not missed. Log becomes one whose errors are
// events.
func (s *server) newWatchers() error {
	w := &s.watch
	w.events = events.New(time.Now)
	w.faults = events.NewFaults(w.events, func(id tine.DiskID) string {
		d, err := s.host.DiskByID(context.Background(), caller(), id)
		if err != nil {
			return ""
		}
		return d.Name
	})
	s.Log = slog.New(w.faults.Handler(s.Log.Handler()))
	var err error
	w.tracer, err = trace.Open(s.getenv(), buildinfo.Read().Version, s.Log)
	return err
}

func (s *server) getenv() func(string) string {
	if s.Getenv != nil {
		return s.Getenv
	}
	return os.Getenv
}

// openWatchers makes what looks at the opened disks.
func (s *server) openWatchers() error {
	w := &s.watch
	var err error
	w.policies, err = policy.Open(policy.Options{Host: s.host, Clock: policy.SystemClock{}, Log: s.Log, Done: s.policyDid})
	if err != nil {
		return err
	}
	w.metrics = metrics.New(s.host, s.mountStates, buildinfo.Read(), s.Log)
	s.host.Observe(observers{w.faults, w.tracer}, s.Config.SlowOp)
	return nil
}

// observers tells the faults of what failed, and the tracer of what was slow.
type observers struct {
	*events.Faults
	tracer *trace.Tracer
}

// Slow makes a span.
func (o observers) Slow(disk tine.DiskID, op volume.Op, start time.Time, took time.Duration, err error) {
	o.tracer.Slow(disk, op, start, took, err)
}

// run starts what runs beside the calls.
func (s *server) runWatchers() error {
	w := &s.watch
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	w.running.Go(func() { w.faults.Run(ctx) })
	w.running.Go(func() { w.policies.Run(ctx) })
	w.running.Go(func() { s.stores.Run(ctx) })
	if s.Config.Metrics == "" {
		return nil
	}
	addr, err := w.metrics.Serve(ctx, s.Config.Metrics)
	if err != nil {
		return err
	}
	s.Log.Info("metrics are served", "url", "http://"+addr.String()+"/metrics")
	return nil
}

// stopWatchers ends what runs beside the calls and waits for it.
func (s *server) stopWatchers() {
	if s.watch.stop != nil {
		s.watch.stop()
		s.watch.running.Wait()
	}
}

// closeTracer sends what is left, for a moment.
func (s *server) closeTracer() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := s.watch.tracer.Close(ctx); err != nil {
		s.Log.Warn("some spans were not sent", "error", err)
	}
}

// watchCall is told of every call of the API.
func (s *server) watchCall(ctx context.Context, id string) (context.Context, func(error)) {
	counted := s.watch.metrics.Call(id)
	ctx, traced := s.watch.tracer.Call(ctx, id)
	return ctx, func(err error) {
		counted(err)
		traced(err)
	}
}

// mountStates counts the recorded mounts.
func (s *server) mountStates() map[string]int {
	n := map[string]int{string(keeper.StateMounted): 0, string(keeper.StateUnmounting): 0, string(keeper.StateDown): 0, string(keeper.StateFailed): 0}
	for _, m := range s.keeper.List() {
		n[string(m.State)]++
	}
	return n
}

// policyDid notes what a policy has done.
func (s *server) policyDid(d policy.Deed) {
	e := api.Event{Kind: d.Kind, Disk: d.Disk, DiskID: d.ID.String(), Detail: d.Detail, Author: "tine", Caller: policy.Principal}
	if d.Err != nil {
		e.Error = &api.Error{Kind: tine.KindOf(d.Err).String(), Message: d.Err.Error(), Hint: tine.HintOf(d.Err)}
	}
	s.watch.events.Add(e)
	if d.Kind == "disk-expire" {
		if err := s.keeper.Removed(d.Disk); err != nil {
			s.Log.Warn("could not forget the mounts of a disk that is gone", "disk", d.Disk, "error", err)
		}
	}
}

// mountChanged notes what has become of a mount; a disk whose time is over may
// go now.
func (s *server) mountChanged(c keeper.Change) {
	e := api.Event{Kind: string(c.Kind), Disk: c.Disk, Detail: c.Dir, Author: c.Author, Caller: c.Principal}
	if c.Checkpoint != "" {
		e.Detail += " (" + c.Ref().String() + ")"
	}
	s.watch.events.Add(e)
	if c.Kind != keeper.Mounting {
		s.watch.policies.Wake()
	}
}
