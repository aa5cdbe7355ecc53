package dir_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/dir"
	"tine.dev/tine/internal/tine"
)

func store(t testing.TB, path string, opt dir.Options) *blob.Store {
	t.Helper()
	s := blob.NewStore(open(t, path, opt), blob.Options{Retry: blob.Policy{Attempts: 1}})
	t.Cleanup(func() { s.Close() })
	return s
}

func put(s *blob.Store, key blob.Key, text string, cond blob.Condition) (blob.Info, error) {
	return s.Put(context.Background(), key, bytes.NewReader([]byte(text)), cond)
}

func mustPut(t *testing.T, s *blob.Store, key blob.Key, text string) {
	t.Helper()
	if _, err := put(s, key, text, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
}

// TestAmongProcesses lets processes count together, each step a swap by
// version or a create: none may be lost.
func TestAmongProcesses(t *testing.T) {
	if path := os.Getenv("TINE_BLOB_DIR_COUNT"); path != "" {
		countTo(t, path)
		return
	}
	path := t.TempDir()
	s := store(t, path, dir.Options{})
	mustPut(t, s, "counter", "0 start")
	var procs []*exec.Cmd
	outs := make([]bytes.Buffer, processes)
	for i := range processes {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAmongProcesses$", "-test.timeout=60s")
		cmd.Env = append(os.Environ(), "TINE_BLOB_DIR_COUNT="+path)
		cmd.Stdout, cmd.Stderr = &outs[i], &outs[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		procs = append(procs, cmd)
	}
	for i, cmd := range procs {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("process %d: %v\n%s", i, err, outs[i].String())
		}
	}
	data, _, err := s.Get(t.Context(), "counter", blob.Range{}, "")
	if want := fmt.Sprintf("%d ", processes*steps); err != nil || !strings.HasPrefix(string(data), want) {
		t.Fatalf("the counter is at %q, want %q: %v", data, want, err)
	}
	for slot := range processes * steps {
		if _, err := s.Stat(t.Context(), slotKey(slot)); err != nil {
			t.Fatalf("slot %d: %v", slot, err)
		}
	}
}

const (
	processes = 4
	steps     = 25
)

func slotKey(n int) blob.Key { return blob.Key(fmt.Sprintf("slots/%04d/taken", n)) }

// countTo makes steps of the counter, and takes as many slots.
func countTo(t *testing.T, path string) {
	s := store(t, path, dir.Options{})
	for made := 0; made < steps; {
		data, info, err := s.Get(t.Context(), "counter", blob.Range{}, "")
		if err != nil {
			t.Fatal(err)
		}
		var at int
		if _, err := fmt.Sscanf(string(data), "%d", &at); err != nil {
			t.Fatal(err)
		}
		_, err = put(s, "counter", fmt.Sprintf("%d by %d", at+1, os.Getpid()), blob.Condition{Version: info.Version})
		switch {
		case err == nil:
			made++
		case tine.KindOf(err) != tine.KindConflict:
			t.Fatal(err)
		}
	}
	for slot, made := 0, 0; made < steps; slot++ {
		_, err := put(s, slotKey(slot), fmt.Sprint(os.Getpid()), blob.Condition{Absent: true})
		switch {
		case err == nil:
			made++
		case tine.KindOf(err) != tine.KindExists:
			t.Fatal(err)
		}
	}
}

// TestFoldersComeAndGo: deletes remove empty folders under writers that are
// about to use them.
func TestFoldersComeAndGo(t *testing.T) {
	path := t.TempDir()
	done := make(chan error, 2)
	for i := range 2 {
		s := store(t, path, dir.Options{})
		go func() {
			for n := range 50 {
				key := blob.Key(fmt.Sprintf("a/b/c/%d", i))
				if _, err := put(s, key, "x", blob.Condition{Absent: n%2 == 0}); err != nil {
					done <- err
					return
				}
				if err := s.Delete(context.Background(), key); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(path); err != nil || len(left) != 1 {
		t.Errorf("%d entries are left in the directory, want the store's own: %v", len(left), err)
	}
}

// TestDirectoryGone: without its directory a store is not reachable; its
// objects are not "not found".
func TestDirectoryGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	if _, err := dir.Open(path, dir.Options{}); tine.KindOf(err) != tine.KindUnavailable || tine.HintOf(err) == "" {
		t.Errorf("a directory that is not there: %v", err)
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Open(path, dir.Options{ReadOnly: true}); tine.KindOf(err) != tine.KindUnavailable {
		t.Errorf("an empty directory for reading: %v", err)
	}
	s := store(t, path, dir.Options{})
	mustPut(t, s, "k", "text")
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for what, call := range map[string]func() error{
		"get":    func() error { _, _, err := s.Get(ctx, "k", blob.Range{}, ""); return err },
		"stat":   func() error { _, err := s.Stat(ctx, "k"); return err },
		"list":   func() error { _, err := s.List(ctx, blob.ListOptions{}); return err },
		"put":    func() error { _, err := put(s, "l", "x", blob.Condition{}); return err },
		"create": func() error { _, err := put(s, "l", "x", blob.Condition{Absent: true}); return err },
		"swap":   func() error { _, err := put(s, "k", "x", blob.Condition{Version: "v"}); return err },
		"delete": func() error { return s.Delete(ctx, "k") },
	} {
		if err := call(); tine.KindOf(err) != tine.KindUnavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestReadOnly(t *testing.T) {
	path := t.TempDir()
	mustPut(t, store(t, path, dir.Options{}), "k", "text")
	s := store(t, path, dir.Options{ReadOnly: true})
	if data, _, err := s.Get(t.Context(), "k", blob.Range{}, ""); err != nil || string(data) != "text" {
		t.Errorf("%q, %v", data, err)
	}
	for what, call := range map[string]func() error{
		"put":    func() error { _, err := put(s, "k", "x", blob.Condition{}); return err },
		"delete": func() error { return s.Delete(t.Context(), "k") },
		"copy":   func() error { _, err := s.Copy(t.Context(), "k", "l"); return err },
		"sweep":  func() error { _, err := s.Sweep(t.Context(), time.Now()); return err },
	} {
		if err := call(); tine.KindOf(err) != tine.KindReadOnly || blob.MayHaveHappened(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestDamage: any change of a file is seen by a Get of the whole object.
func TestDamage(t *testing.T) {
	path := t.TempDir()
	s := store(t, path, dir.Options{})
	const text = "the text of the object"
	file := filepath.Join(path, "k")
	mustPut(t, s, "k", text)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, bad []byte) {
		if err := os.WriteFile(file, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		data, _, err := s.Get(t.Context(), "k", blob.Range{}, "")
		if k := tine.KindOf(err); data != nil || k != tine.KindCorrupt && k != tine.KindVersion {
			t.Errorf("%s: %q, %v", what, data, err)
		}
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		check(fmt.Sprintf("byte %d of %d flipped", i, len(good)), bad)
		check(fmt.Sprintf("cut at %d", i), good[:i])
	}
	check("longer", append([]byte("x"), good...))
	check("no object", []byte(strings.Repeat("another file ", 20)))
}

// TestForeignFiles: what is not an object is not listed as one.
func TestForeignFiles(t *testing.T) {
	path := t.TempDir()
	s := store(t, path, dir.Options{})
	mustPut(t, s, "a/k", "text")
	for _, name := range []string{"lost+found", "a/%zz", "a/.hidden", "a/%41", "a/b\xff"} {
		if err := os.MkdirAll(filepath.Join(path, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(path, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	page, err := s.List(t.Context(), blob.ListOptions{})
	if err != nil || len(page.Objects) != 1 || page.Objects[0].Key != "a/k" {
		t.Errorf("%+v, %v", page, err)
	}
	page, err = s.List(t.Context(), blob.ListOptions{Delimiter: "/"})
	if err != nil || len(page.Prefixes) != 1 || page.Prefixes[0] != "a/" {
		t.Errorf("%+v, %v", page, err)
	}
}

// TestLockIsGivenUp: who waits for a lock that another process holds gives up
// when its context ends.
func TestLockIsGivenUp(t *testing.T) {
	path := t.TempDir()
	s := store(t, path, dir.Options{})
	mustPut(t, s, "k", "text")
	locks, err := filepath.Glob(filepath.Join(path, ".tine/locks/*"))
	if err != nil || len(locks) != 1 {
		t.Fatalf("%q, %v", locks, err)
	}
	f, err := os.OpenFile(locks[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Delete(ctx, "k"); tine.KindOf(err) != tine.KindInterrupted {
		t.Errorf("delete under another's lock: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "k"); err != nil {
		t.Error(err)
	}
}
