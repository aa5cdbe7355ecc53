package stores_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/fs/blob/servers"
	"tine.dev/tine/test/rig"
)

// lease is how long a server must not be heard of.
const lease = "2s"

var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "tine-stores-")
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, "tine")
	return out, rig.Build(context.Background(), out)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if out, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(out))
	}
	os.Exit(code)
}

// machine is a server of its own.
type machine struct {
	*rig.Rig
	t      *testing.T
	secret string // must not be seen in what it says
	client *api.Client
}

func newMachine(t *testing.T, secret string, flags ...string) *machine {
	t.Helper()
	if err := rig.Usable(); err != nil {
		t.Skip(err)
	}
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	r, err := rig.New(program, t.TempDir(), append(flags, "--store-lease", lease)...)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{r, t, secret, api.NewClient(filepath.Join(r.Dir(), "tine.sock"), "tester")}
	t.Cleanup(func() {
		m.client.Close()
		m.hushed("the log", m.log())
		if t.Failed() {
			t.Logf("the log of %s:\n%s", r.Dir(), r.LogEnd())
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func (m *machine) log() string {
	p, err := os.ReadFile(m.LogFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.t.Error(err)
	}
	return string(p)
}

// hushed wants no secret in a text.
func (m *machine) hushed(what, text string) {
	m.t.Helper()
	if m.secret != "" && strings.Contains(text, m.secret) {
		m.t.Errorf("%s holds the secret of the store: %s", what, text)
	}
}

func (m *machine) start() {
	m.t.Helper()
	if _, err := m.Start(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
}

// tine runs a command that must succeed, and returns its output.
func (m *machine) tine(args ...string) string {
	m.t.Helper()
	out, err := m.Tine(m.t.Context(), args...)
	m.hushed(strings.Join(args, " "), out)
	if err != nil {
		m.t.Fatal(err)
	}
	return out
}

// refused runs a command that must fail, and returns what it says.
func (m *machine) refused(args ...string) string {
	m.t.Helper()
	out, err := m.Tine(m.t.Context(), args...)
	m.hushed(strings.Join(args, " "), out)
	if err == nil {
		m.t.Fatalf("tine %s: %s", strings.Join(args, " "), out)
	}
	return out
}

func (m *machine) mount(disk string) string {
	m.t.Helper()
	at, err := m.Mount(m.t.Context(), disk)
	if err != nil {
		m.t.Fatal(err)
	}
	return at
}

// disk returns what the server says of a disk in its list.
func (m *machine) disk(name string) api.Disk {
	m.t.Helper()
	var list api.DiskList
	if err := json.Unmarshal([]byte(m.tine("disk", "ls", "--json")), &list); err != nil {
		m.t.Fatal(err)
	}
	for _, d := range list.Disks {
		if d.Name == name {
			return d
		}
	}
	m.t.Fatalf("there is no disk %s: %+v", name, list)
	return api.Disk{}
}

var errSeen = errors.New("seen")

// await returns when an event of the kind is there, of this run of the server.
func (m *machine) await(kind, disk string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 30*time.Second)
	defer cancel()
	_, err := m.client.Events(ctx, api.EventQuery{Follow: true}, func(l api.EventLine) error {
		if l.Event != nil && l.Event.Kind == kind && (disk == "" || l.Event.Disk == disk) {
			return errSeen
		}
		return nil
	})
	if !errors.Is(err, errSeen) {
		m.t.Fatalf("waiting for %s of %s: %v", kind, disk, err)
	}
}

// place is a store that tests can use, and its secret.
type place struct {
	name, url, secret string
}

// places makes a directory and a bucket of a real S3 server.
func places(t *testing.T) []place {
	t.Helper()
	s := servers.Versity(t)
	if err := os.Mkdir(filepath.Join(s.Dir, "bucket"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", s.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s.SecretKey)
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	return []place{
		{"directory", "file://" + t.TempDir(), ""},
		{"s3", "s3://bucket/tine?region=us-east-1&endpoint=" + s.Endpoint, s.SecretKey},
	}
}

// grow writes a tree as a checkout would be, and a large file. With sync each file is
// synced by itself, from several programs at a time.
func grow(t *testing.T, dir string, files int, sync bool) {
	t.Helper()
	random := rand.New(rand.NewPCG(7, uint64(files)))
	const seedNote = "the tree is made from the seed 7"
	t.Log(seedNote)
	work := make(chan [2]string)
	failed := make(chan error, 8)
	for range cap(failed) {
		go func() {
			var first error
			for w := range work {
				if err := write(filepath.Join(dir, w[0]), []byte(w[1]), sync); err != nil && first == nil {
					first = err
				}
			}
			failed <- first
		}()
	}
	for i := range files {
		sub := fmt.Sprintf("d%d/e%d", i%7, i%3)
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
		text := make([]byte, random.IntN(40_000))
		for k := range text {
			text[k] = byte('a' + random.IntN(8))
		}
		work <- [2]string{fmt.Sprintf("%s/f%d", sub, i), string(text)}
	}
	large := make([]byte, 20<<20)
	rand.NewChaCha8([32]byte{1}).Read(large)
	work <- [2]string{"large", string(large)}
	close(work)
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../large", filepath.Join(dir, "d0/link")); err != nil {
		t.Fatal(err)
	}
	if sync { // the link, too
		if err := write(filepath.Join(dir, "last"), nil, true); err != nil {
			t.Fatal(err)
		}
	}
}

func write(path string, p []byte, sync bool) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(p)
	if err == nil && sync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
