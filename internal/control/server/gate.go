package server

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/tine"
)

// patience is how long a call waits for a server that is starting.
const patience = 10 * time.Second

// gate stands before the API: it answers health checks at all times and lets
// calls through only while the server is ready. A call that comes while it is
// starting waits for a while, so that `tine serve & tine disk ls` works.
type gate struct {
	patience time.Duration
	state    atomic.Pointer[gateState]
}

type gateState struct {
	calls http.Handler  // nil while the server does not serve
	why   string        // "starting", "ready" or "stopping"
	left  chan struct{} // closed when the next state has come
}

const starting = "starting"

func newGate(patience time.Duration) *gate {
	g := &gate{patience: patience}
	g.set(nil, starting)
	return g
}

func (g *gate) set(calls http.Handler, why string) {
	if old := g.state.Swap(&gateState{calls, why, make(chan struct{})}); old != nil {
		close(old.left)
	}
}

// ServeHTTP answers /healthz with 200 as long as the process lives and
// /readyz with 200 while calls are served and 503 otherwise.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := g.state.Load()
	if s.why == starting && r.URL.Path != "/healthz" && r.URL.Path != "/readyz" {
		s = g.await(r, s)
	}
	switch {
	case r.URL.Path == "/healthz":
		writeJSON(w, http.StatusOK, map[string]string{"status": s.why})
	case s.calls == nil:
		writeJSON(w, http.StatusServiceUnavailable, api.Error{
			Kind: tine.KindUnavailable.String(), Message: "the server is " + s.why, Hint: "ask again in a moment",
		})
	case r.URL.Path == "/readyz":
		writeJSON(w, http.StatusOK, map[string]string{"status": s.why})
	default:
		s.calls.ServeHTTP(w, r)
	}
}

// await returns the state after s, or s itself if that lasts too long or the
// caller has gone.
func (g *gate) await(r *http.Request, s *gateState) *gateState {
	enough := time.NewTimer(g.patience)
	defer enough.Stop()
	select {
	case <-s.left:
		return g.state.Load()
	case <-enough.C:
	case <-r.Context().Done():
	}
	return s
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
