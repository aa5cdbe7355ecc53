package stores

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"

	"time"
	"tine.dev/tine/internal/control/statefile"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// Options set up a Manager.
type Options struct {
	Data  string          // the data directory
	Given []Spec          // stores of the command line and the configuration
	Open  volume.OpenBlob // makes no request; nil: there are no stores here
	Log   *slog.Logger
	Lease time.Duration // of the stores' servers, which paces the asking for trees
	// Took, if set, is told of trees that were taken up, with no lock held.
	Took func(store string, t volume.TakenUp)
}

// Manager is the stores of one server. Its methods may be called concurrently,
// but for Serve, which comes first.
type Manager struct {
	o    Options
	host *volume.Host

	adding sync.Mutex // held while a store is added or removed; before mu

	mu      sync.Mutex
	records []*record
	waiting map[string][]volume.TakenUp // by store: trees that could not be taken up
}

// Open reads what is known of the stores of a data directory, and adds those
// that are given. Nothing is asked of a store.
// Errors: KindCorrupt, KindVersion of the file; KindInvalid for a store that is
// given with a wrong name or URL.
func Open(o Options) (*Manager, error) {
	rs, err := readRecords(o.Data)
	if err != nil {
		return nil, err
	}
	m := &Manager{o: o, waiting: map[string][]volume.TakenUp{}}
	for _, r := range rs {
		m.records = append(m.records, &r)
	}
	for _, g := range o.Given {
		if err := m.give(g); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// give takes a store of the configuration over.
func (m *Manager) give(g Spec) error {
	if err := tine.CheckName("store", g.Name); err != nil {
		return err
	}
	u, err := g.url()
	if err != nil {
		return err
	}
	b, err := m.open(context.Background(), u)
	switch {
	case err == nil:
		_ = b.Close()
	case tine.KindOf(err) == tine.KindInvalid || tine.KindOf(err) == tine.KindUnsupported:
		return tine.Errorf(tine.KindOf(err), "store %s: %w", g.Name, err)
	}
	r := m.find(g.Name)
	switch {
	case r == nil:
		m.records = append(m.records, &record{Name: g.Name, URL: u})
	case r.URL != u:
		r.URL, r.Doubtful = u, r.ID != ""
	}
	return nil
}

// closer is what the manager needs of an opened store.
type closer interface{ Close() error }

func (m *Manager) open(ctx context.Context, u string) (closer, error) {
	if m.o.Open == nil {
		return nil, errNoDrivers
	}
	b, err := m.o.Open(ctx, u)
	if err != nil {
		return nil, err
	}
	return b, nil
}

var errNoDrivers = tine.Errorf(tine.KindUnsupported, "this server has no drivers of stores")

// find returns the record of a store, nil if there is none; m.mu is held, or
// nobody else knows the manager.
func (m *Manager) find(name string) *record {
	for _, r := range m.records {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// saveLocked writes the records.
func (m *Manager) saveLocked() error {
	f := recordsFile{Format: recordsFormat}
	for _, r := range m.records {
		f.Stores = append(f.Stores, *r)
	}
	return statefile.Write(filepath.Join(m.o.Data, fileName), f)
}

// Stores returns what the host that is about to be opened is to know.
func (m *Manager) Stores() []volume.Store {
	var out []volume.Store
	for _, r := range m.records {
		s := m.store(r.Name, r.URL, r.Doubtful)
		if r.ID != "" && s.ID.Parse(r.ID) != nil {
			m.o.Log.Error("the id of a store cannot be read; it is asked anew", "store", r.Name)
		}
		out = append(out, s)
	}
	return out
}

func (m *Manager) store(name, u string, doubtful bool) volume.Store {
	return volume.Store{Name: name, Doubtful: doubtful, Open: m.o.Open, URL: u, Known: func(id tine.StoreID) error { return m.known(name, u, id) }}
}

// known notes what a store has said of itself.
func (m *Manager) known(name, u string, id tine.StoreID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.find(name)
	if r == nil {
		r = &record{Name: name}
		m.records = append(m.records, r)
	}
	if r.URL == u && r.ID == id.String() && !r.Doubtful {
		return nil
	}
	r.URL, r.ID, r.Doubtful = u, id.String(), false
	return m.saveLocked()
}

// Serve gives the manager the opened host. If that has no disk, what lies in the
// stores that were given is to be taken up.
func (m *Manager) Serve(ctx context.Context, host *volume.Host, who volume.Caller) error {
	m.host = host
	empty := len(m.o.Given) > 0
	for _, deleted := range []bool{false, true} {
		ds, err := host.Disks(ctx, who, deleted)
		if err != nil {
			m.o.Log.Warn("the disks cannot be listed; nothing is taken up by itself", "error", err)
		}
		empty = empty && err == nil && len(ds) == 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range m.o.Given {
		if r := m.find(g.Name); empty {
			r.TakeUp = true
		}
	}
	if len(m.records) == 0 {
		return nil
	}
	return m.saveLocked()
}

// Store is a store and how it is.
type Store struct {
	volume.StoreInfo
	URL     string
	TakeUp  bool             // its trees are being taken up
	Waiting []volume.TakenUp // those that were not, at the last attempt
}

// List returns the stores, in the order in which they became known.
func (m *Manager) List() []Store {
	var out []Store
	for _, i := range m.host.Stores() {
		out = append(out, m.describe(i))
	}
	return out
}

func (m *Manager) describe(i volume.StoreInfo) Store {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Store{StoreInfo: i, Waiting: slices.Clone(m.waiting[i.Name])}
	if r := m.find(i.Name); r != nil {
		s.URL, s.TakeUp = r.URL, r.TakeUp
	}
	return s
}

// Add makes a store known, after trying it. It is remembered when Add returns.
// Errors: those of volume.Host.AddStore.
func (m *Manager) Add(ctx context.Context, g Spec) (Store, error) {
	u, err := g.url()
	if err != nil {
		return Store{}, err
	}
	if m.o.Open == nil {
		return Store{}, errNoDrivers
	}
	m.adding.Lock()
	defer m.adding.Unlock()
	m.mu.Lock()
	taken := m.find(g.Name) != nil
	m.mu.Unlock()
	i, err := m.host.AddStore(ctx, m.store(g.Name, u, false))
	if err != nil {
		if !taken {
			m.drop(g.Name)
		}
		return Store{}, err
	}
	return m.describe(i), nil
}

// drop forgets a record.
func (m *Manager) drop(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.find(name) == nil {
		return
	}
	m.records = slices.DeleteFunc(m.records, func(r *record) bool { return r.Name == name })
	delete(m.waiting, name)
	if err := m.saveLocked(); err != nil {
		m.o.Log.Error("a store could not be forgotten; it comes back at the next start", "store", name, "error", err)
	}
}

// Remove forgets a store. What is in it stays.
// Errors: those of volume.Host.RemoveStore.
func (m *Manager) Remove(name string) error {
	m.adding.Lock()
	defer m.adding.Unlock()
	if err := m.host.RemoveStore(name); err != nil {
		return err
	}
	m.drop(name)
	return nil
}

// Check tries what is done with a store.
// Errors: KindNotFound.
func (m *Manager) Check(ctx context.Context, name string) (volume.StoreCheck, error) {
	return m.host.CheckStore(ctx, name)
}
