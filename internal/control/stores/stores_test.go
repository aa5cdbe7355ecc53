package stores

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/mem"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

var me = volume.Caller{Tenant: tine.DefaultTenant, Principal: "uid:0"}

// world is where stores lie: by URL.
type world map[string]*blob.Store

func (w world) open(_ context.Context, url string) (*blob.Store, error) {
	if b := w[url]; b != nil {
		return b, nil
	}
	return nil, tine.Errorf(tine.KindUnavailable, "nobody answers")
}

// serve runs a manager and its host until the function that it returns.
func serve(t *testing.T, data string, w world, given ...Spec) (*Manager, func()) {
	t.Helper()
	m, err := Open(Options{Data: data, Given: given, Open: w.open, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	h, err := volume.Open(t.Context(), volume.Options{Dir: data, Stores: m.Stores()})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Serve(t.Context(), h, me); err != nil {
		t.Fatal(err)
	}
	return m, func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

func store() *blob.Store { return blob.NewStore(mem.New(mem.Options{}), blob.Options{}) }

// TestRemembered: a store is known again without being given, by its id; under
// another URL it is believed only if it says the same.
func TestRemembered(t *testing.T) {
	data := t.TempDir()
	one, two := store(), store()
	w := world{"mem://one": one, "mem://two": two}
	m, stop := serve(t, data, w)
	s, err := m.Add(t.Context(), Spec{Name: "a", URL: "mem://one"})
	if err != nil || !s.Ready || s.ID.IsZero() {
		t.Fatal(s, err)
	}
	if _, err := m.Add(t.Context(), Spec{Name: "b", URL: "mem://none"}); tine.KindOf(err) != tine.KindUnavailable {
		t.Error(err)
	}
	if _, err := m.host.CreateDiskIn(t.Context(), me, "work", volume.NewDisk{Store: "a"}); err != nil {
		t.Fatal(err)
	}
	stop()

	m, stop = serve(t, data, w)
	if got := m.List(); len(got) != 1 || got[0].ID != s.ID || got[0].Disks != 1 || got[0].URL != "mem://one" {
		t.Errorf("%+v", got)
	}
	stop()

	delete(w, "mem://one") // it does not answer: its disks are listed all the same
	m, stop = serve(t, data, w)
	if got := m.List(); len(got) != 1 || got[0].Ready || got[0].ID != s.ID || got[0].Failed == nil {
		t.Errorf("%+v", got)
	}
	if ds, err := m.host.Disks(t.Context(), me, false); err != nil || len(ds) != 1 || ds[0].Failed == nil || ds[0].Store.Name != "a" {
		t.Errorf("%+v, %v", ds, err)
	}
	stop()

	m, stop = serve(t, data, w, Spec{Name: "a", URL: "mem://two"}) // another store
	if _, err := m.host.CreateDiskIn(t.Context(), me, "more", volume.NewDisk{Store: "a"}); tine.KindOf(err) != tine.KindUnavailable {
		t.Errorf("a store of another id is used: %v", err)
	}
	stop()

	w["mem://moved"] = one
	m, stop = serve(t, data, w, Spec{Name: "a", URL: "mem://moved"})
	defer stop()
	if d, err := m.host.Disk(t.Context(), me, "work"); err != nil || d.Store.Failed != nil {
		t.Errorf("%+v, %v", d, err)
	}
	if err := m.Remove("a"); tine.KindOf(err) != tine.KindBusy {
		t.Errorf("a store with a disk is forgotten: %v", err)
	}
}

// TestTakesUpWhenEmpty: only a server without disks takes up by itself, and not
// after it has done so.
func TestTakesUpWhenEmpty(t *testing.T) {
	w := world{"mem://one": store()}
	first, stop := serve(t, t.TempDir(), w)
	if _, err := first.Add(t.Context(), Spec{Name: "a", URL: "mem://one"}); err != nil {
		t.Fatal(err)
	}
	if _, err := first.host.CreateDiskIn(t.Context(), me, "work", volume.NewDisk{Store: "a", Durable: volume.DurableBucket}); err != nil {
		t.Fatal(err)
	}
	stop() // it says so, which leaves its trees to others at once

	data := t.TempDir()
	m, stop := serve(t, data, w, Spec{Name: "a", URL: "mem://one"})
	if got := m.List(); !got[0].TakeUp {
		t.Errorf("%+v", got)
	}
	m.Run(t.Context())
	d, err := m.host.Disk(t.Context(), me, "work")
	if err != nil || d.Durable != volume.DurableBucket {
		t.Errorf("%+v, %v", d, err)
	}
	if got := m.List(); got[0].TakeUp {
		t.Errorf("it goes on: %+v", got)
	}
	stop()
	m, stop = serve(t, data, w, Spec{Name: "a", URL: "mem://one"})
	defer stop()
	if got := m.List(); got[0].TakeUp {
		t.Errorf("a server with disks takes up by itself: %+v", got)
	}
}

func TestURLs(t *testing.T) {
	for want, s := range map[string]Spec{
		"s3://b/p":          {URL: "s3://b/p"},
		"s3://b/p?region=r": {URL: "s3://b/p", Region: "r"},
		"s3://b?ca=%2Fa%2Fb&endpoint=https%3A%2F%2Fh%3A1&profile=p&region=r": {URL: "s3://b?region=r", Endpoint: "https://h:1", Profile: "p", CAFile: "/a/b"},
	} {
		if got, err := s.url(); got != want || err != nil {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	for _, s := range []Spec{{URL: "s3://b?region=hush", Region: "r"}, {URL: "s3://hush", CAFile: "a"}} {
		if _, err := s.url(); tine.KindOf(err) != tine.KindInvalid || strings.Contains(err.Error(), "hush") {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

func TestDamagedFile(t *testing.T) {
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, fileName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Data: data}); tine.KindOf(err) != tine.KindCorrupt {
		t.Error(err)
	}
}
