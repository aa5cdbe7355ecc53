package stores_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tine.dev/tine/api"
	"tine.dev/tine/test/treesum"
)

func sum(t *testing.T, dir string) string {
	t.Helper()
	tree, err := treesum.Read(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return tree.Sum()
}

// TestMachineIsLost: a server is killed and its data directory is gone; one that
// has nothing but the store serves the disk as it was. The first one comes back
// with its old data directory and is told.
func TestMachineIsLost(t *testing.T) {
	for _, p := range places(t) {
		for _, durability := range []string{"local", "bucket"} {
			t.Run(p.name+"-"+durability, func(t *testing.T) { loseMachine(t, p, durability) })
		}
	}
}

func loseMachine(t *testing.T, p place, durability string) {
	t.Parallel()
	url := p.url + map[string]string{"directory": "/" + durability, "s3": ""}[p.name]
	if p.name == "directory" {
		if err := os.Mkdir(strings.TrimPrefix(url, "file://"), 0o755); err != nil {
			t.Fatal(err)
		}
	} else {
		url = strings.Replace(url, "/tine?", "/"+durability+"?", 1)
	}
	a := newMachine(t, p.secret, "--store", "s="+url)
	a.start()
	a.tine("disk", "create", "work", "--store", "s", "--durability", durability)
	at := a.mount("work")
	bucket := durability == "bucket"
	files := 300
	if bucket {
		files = 100
	}
	grow(t, at, files, bucket)
	if !bucket {
		a.tine("sync", "work", "--to-store")
	}
	want := sum(t, at)
	if err := a.Kill(); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(a.Dir(), "old")
	if err := errors.Join(os.Rename(a.Data(), old), os.Mkdir(a.Data(), 0o700)); err != nil {
		t.Fatal(err)
	}

	b := newMachine(t, p.secret, "--store", "s="+url)
	b.start()
	b.await("disk-taken-up", "work")
	if got := sum(t, b.mount("work")); got != want {
		t.Errorf("the tree is not as it was")
	}
	if d := b.disk("work"); d.Store == nil || d.Store.Durability != durability || d.Store.Name != "s" || p.name == "s3" && d.Store.Region != "us-east-1" {
		t.Errorf("%+v", d.Store)
	}
	if err := write(filepath.Join(b.At("work"), "new"), []byte("of the second machine"), true); err != nil {
		t.Error(err)
	}
	b.tine("sync", "work", "--to-store")
	for _, line := range []string{"store ls", "store ls --json", "store check s", "disk show work", "disk ls --json", "doctor", "events", "top --once --every 100ms"} {
		b.tine(strings.Fields(line)...)
	}

	if err := errors.Join(os.Remove(a.Data()), os.Rename(old, a.Data())); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.await("disk-lost", "work")
	if d := a.disk("work"); d.Store == nil || d.Store.Elsewhere == nil {
		t.Errorf("%+v", d.Store)
	}
	if out := a.refused("mount", "work", at); !strings.Contains(out, "another server has taken the disk over") {
		t.Error(out)
	}
	if out := a.refused("store", "take-up", "s"); !strings.Contains(out, "cannot be taken up") {
		t.Error(out)
	}
	if state, err := os.ReadFile(filepath.Join(b.Data(), "stores.json")); err != nil {
		t.Error(err)
	} else {
		b.hushed("stores.json", string(state))
	}
}

// TestFrozenMachine: a server that was frozen for longer than its lease has lost
// its disks. What programs write through it is refused, and its mount is taken
// away; after the other server has stopped it can have the disk back.
func TestFrozenMachine(t *testing.T) {
	url := "file://" + t.TempDir()
	a := newMachine(t, "", "--store", "s="+url)
	a.start()
	server, err := a.client.Server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a.tine("disk", "create", "work", "--store", "s", "--durability", "bucket")
	// The other one waits already. From here to the end of the freeze this process
	// must start no program: that would wait for the frozen mount to close its file.
	b := newMachine(t, "", "--store", "s="+url)
	b.start()
	if err := os.Mkdir(b.At("work"), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(a.mount("work"), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	put := func(text string) error {
		_, err := f.WriteString(text)
		return errors.Join(err, f.Sync())
	}
	if err := put("first"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(server.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn := func() error { return syscall.Kill(server.PID, syscall.SIGCONT) }
	defer goOn()
	b.await("disk-taken-up", "work")
	if _, err := b.client.Mount(t.Context(), api.NewMount{Ref: "work", Dir: b.At("work")}); err != nil {
		t.Fatal(err)
	}
	if err := write(filepath.Join(b.At("work"), "file"), []byte("second"), true); err != nil {
		t.Error(err)
	}
	if err := goOn(); err != nil {
		t.Fatal(err)
	}
	if err := put("late"); !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ESTALE) && !errors.Is(err, syscall.ENOTCONN) {
		t.Errorf("an fsync of a disk that another server has: %v", err)
	}
	a.await("disk-lost", "work")
	a.await("unmount", "work")
	if out := a.tine("mounts"); strings.Contains(out, "work") {
		t.Error(out)
	}

	ctx := t.Context()
	if err := b.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	a.tine("store", "take-up", "s")
	if got, err := os.ReadFile(filepath.Join(a.mount("work"), "file")); string(got) != "second" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := write(filepath.Join(a.At("work"), "third"), nil, true); err != nil {
		t.Error(err)
	}
}

// TestStoreIsAway: a store that does not answer keeps no server from starting and
// no program from its data; what is behind is shown, and comes when it answers.
func TestStoreIsAway(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, "", "--store", "s=file://"+dir)
	m.start()
	m.tine("disk", "create", "work", "--store", "s")
	m.tine("disk", "create", "here")
	m.mount("work")
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	took, err := m.Start(t.Context())
	if err != nil || took > 20*time.Second {
		t.Fatal(took, err)
	}
	if out := m.tine("store", "ls"); !strings.Contains(out, "waiting: ") {
		t.Error(out)
	}
	m.refused("disk", "create", "more", "--store", "s")
	m.refused("store", "check", "s")
	if out := m.tine("disk", "ls"); !strings.Contains(out, "work") {
		t.Error(out)
	}
	if err := write(filepath.Join(m.mount("here"), "file"), nil, true); err != nil {
		t.Error(err)
	}
	if err := os.Rename(dir+"-away", dir); err != nil {
		t.Fatal(err)
	}
	m.tine("store", "check", "s")
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	for { // it is asked again within seconds
		ss, err := m.client.Stores(ctx)
		if err != nil || len(ss) != 1 {
			t.Fatal(ss, err)
		}
		if ss[0].State == "ready" {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%+v", ss[0])
		case <-time.After(100 * time.Millisecond):
		}
	}
	m.tine("sync", "work", "--to-store")
	m.tine("disk", "create", "more", "--store", "s")
}

// TestWrongCredentials: what a store refuses is told without the secret.
func TestWrongCredentials(t *testing.T) {
	p := places(t)[1]
	const wrong = "WRONG0SECRET0KEY"
	file := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(file, []byte("[wrong]\naws_access_key_id = test-access\naws_secret_access_key = "+wrong+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	m := newMachine(t, wrong)
	m.start()
	m.refused("store", "add", "a", p.url, "--profile", "wrong")
	m.refused("store", "add", "a", p.url, "--profile", "none")
	m.refused("store", "add", "a", "s3://bucket?aws_secret_access_key="+"x"+p.secret)
	m.refused("store", "add", "a", p.url, "--region", "twice")
	if out := m.tine("store", "ls"); strings.Contains(out, "bucket") {
		t.Error(out)
	}
	m.tine("store", "add", "a", p.url)
	if out := m.refused("store", "add", "b", p.url); !strings.Contains(out, "known already as \"a\"") {
		t.Error(out)
	}
	m.tine("disk", "create", "work", "--store", "a")
	if out := m.refused("store", "rm", "a"); !strings.Contains(out, "work") {
		t.Error(out)
	}
	m.tine("disk", "rm", "--purge", "work")
	m.tine("store", "rm", "a")
	m.hushed("events", m.tine("events", "--json"))
	for _, secret := range []string{p.secret, wrong} {
		if strings.Contains(m.log(), secret) {
			t.Error("the log holds a secret")
		}
	}
}
