package server

import (
	"encoding/json"
	"net/http"
	"sync/atomic"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/tine"
)

// gate stands before the API: it answers health checks at all times and lets
// calls through only while the server is ready.
type gate struct {
	state atomic.Pointer[gateState]
}

type gateState struct {
	calls http.Handler // nil while the server does not serve
	why   string       // "starting", "ready" or "stopping"
}

func newGate() *gate {
	g := &gate{}
	g.set(nil, "starting")
	return g
}

func (g *gate) set(calls http.Handler, why string) { g.state.Store(&gateState{calls, why}) }

// ServeHTTP answers /healthz with 200 as long as the process lives and
// /readyz with 200 while calls are served and 503 otherwise.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := g.state.Load()
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

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
