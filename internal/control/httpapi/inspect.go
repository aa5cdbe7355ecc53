package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/tine"
)

const tagServer = "server"

func (c *calls) registerInspection(h huma.API) {
	handle(h, c, call{id: "getServer", method: http.MethodGet, path: "/server", tag: tagServer, summary: "What the server says about itself"}, c.server)
	handle(h, c, call{id: "getStats", method: http.MethodGet, path: "/stats", tag: tagServer, summary: "The engine's counters, by name",
		description: "For people and dashboards. The set of counters may change between versions."}, c.stats)
	handle(h, c, call{id: "getForest", method: http.MethodGet, path: "/forest", tag: tagHistory, summary: "Every disk and checkpoint with what it hangs on"}, c.forest)
}

func (c *calls) server(context.Context, *By) (*body[api.Server], error) { return answer(c.Server, nil) }

func (c *calls) stats(context.Context, *By) (*body[map[string]any], error) {
	b, err := json.Marshal(c.Host.Stats())
	if err != nil {
		return nil, tine.Errorf(tine.KindInternal, "encode the counters: %w", err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, tine.Errorf(tine.KindInternal, "encode the counters: %w", err)
	}
	return answer(out, nil)
}

func (c *calls) forest(ctx context.Context, in *By) (*body[api.ForestList], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	ns, err := c.Host.Forest(ctx, who)
	if err != nil {
		return nil, err
	}
	out := api.ForestList{Nodes: make([]api.ForestNode, 0, len(ns))}
	for _, n := range ns {
		out.Nodes = append(out.Nodes, api.ForestNode{Name: n.Name, Kind: n.Kind, Parent: n.Parent, Created: n.Created, Auto: n.Auto})
	}
	return answer(out, nil)
}
