package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/stores"
	"tine.dev/tine/internal/fs/volume"
)

const tagStores = "stores"

type (
	newStore struct {
		By
		Body api.NewStore
	}
	OnStore struct {
		By
		Store string `path:"store"`
	}
)

func (c *calls) registerStores(h huma.API) {
	const store = "/stores/{store}"
	handle(h, c, call{id: "addStore", method: http.MethodPost, path: "/stores", tag: tagStores, summary: "Make an object store known",
		description: "The store is tried first: it must keep conditional writes. The server remembers it. Credentials come from the server's environment, or from a named profile.",
		status:      http.StatusCreated}, c.addStore)
	handle(h, c, call{id: "listStores", method: http.MethodGet, path: "/stores", tag: tagStores, summary: "List the stores"}, c.listStores)
	handle(h, c, call{id: "checkStore", method: http.MethodPost, path: store + "/check", tag: tagStores, summary: "Try what is done with a store",
		description: "Writes, reads, lists and deletes small objects of its own. What does not work is in the answer."}, c.checkStore)
	handle(h, c, call{id: "removeStore", method: http.MethodDelete, path: store, tag: tagStores, summary: "Forget a store",
		description: "Refused while disks live in it. What is in it stays.", status: http.StatusNoContent}, c.removeStore)
	handle(h, c, call{id: "takeUp", method: http.MethodPost, path: store + "/take-up", tag: tagStores, summary: "Serve the disks that lie in a store",
		description: "Takes up each tree of the store that is not served here, unless another server lives that has it; also those that this server had and lost, " +
			"of which it then gives up what it had not yet stored."}, c.takeUp)
}

func wireOf(err error) *api.Error {
	if err == nil {
		return nil
	}
	return &toWire(err).body
}

func store(s stores.Store) api.Store {
	out := api.Store{Name: s.Name, URL: s.URL, Region: s.Region, State: "ready", Error: wireOf(s.Failed), Disks: s.Disks, Lost: s.Lost,
		Backlog: s.Backlog, TakeUp: s.TakeUp, Left: takings(s.Waiting)}
	if !s.ID.IsZero() {
		out.ID = s.ID.String()
	}
	switch {
	case !s.Ready:
		out.State = "waiting"
	case s.Failed != nil:
		out.State = "failing"
	}
	if s.Failed != nil {
		out.Since = moment(s.Since)
	}
	return out
}

func takings(ts []volume.TakenUp) []api.TreeTaking {
	out := make([]api.TreeTaking, 0, len(ts))
	for _, t := range ts {
		x := api.TreeTaking{Tree: t.Tree.String(), Disks: t.Disks, Error: wireOf(t.Err)}
		if x.Disks == nil {
			x.Disks = []string{}
		}
		out = append(out, x)
	}
	return out
}

func diskStore(d volume.DiskInfo) *api.DiskStore {
	s := d.Store
	if s == nil {
		return nil
	}
	out := &api.DiskStore{Name: s.Name, ID: s.ID.String(), Region: s.Region, Durability: d.Durable.String(), Backlog: s.Backlog,
		Error: wireOf(s.Failed), Elsewhere: wireOf(s.Lost)}
	if s.Failed != nil {
		out.Since = moment(s.Since)
	}
	return out
}

func (c *calls) addStore(ctx context.Context, in *newStore) (*body[api.Store], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	b := in.Body
	s, err := c.Stores.Add(ctx, stores.Spec{Name: b.Name, URL: b.URL, Region: b.Region, Profile: b.Profile, Endpoint: b.Endpoint, CAFile: b.CAFile})
	if err != nil {
		return nil, err
	}
	c.note(who, "store-add", "", s.Name)
	return answer(store(s), nil)
}

func (c *calls) listStores(context.Context, *By) (*body[api.StoreList], error) {
	all := c.Stores.List()
	out := api.StoreList{Stores: make([]api.Store, 0, len(all))}
	for _, s := range all {
		out.Stores = append(out.Stores, store(s))
	}
	return answer(out, nil)
}

func (c *calls) checkStore(ctx context.Context, in *OnStore) (*body[api.StoreCheck], error) {
	found, err := c.Stores.Check(ctx, in.Store)
	if err != nil {
		return nil, err
	}
	out := api.StoreCheck{Store: in.Store, Steps: make([]api.StoreStep, 0, len(found.Steps))}
	for _, s := range found.Steps {
		out.Steps = append(out.Steps, api.StoreStep{Name: s.Name, Milli: float64(s.Took.Microseconds()) / 1e3, Error: wireOf(s.Err)})
	}
	if found.Clock {
		ahead := found.Ahead.Seconds()
		out.Clock = &ahead
	}
	return answer(out, nil)
}

func (c *calls) removeStore(ctx context.Context, in *OnStore) (*nothing, error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.Stores.Remove(in.Store); err != nil {
		return nil, err
	}
	c.note(who, "store-remove", "", in.Store)
	return nil, nil
}

func (c *calls) takeUp(ctx context.Context, in *OnStore) (*body[api.TakeUpList], error) {
	took, err := c.Stores.TakeUp(ctx, in.Store)
	if err != nil {
		return nil, err
	}
	return answer(api.TakeUpList{Trees: takings(took)}, nil)
}
