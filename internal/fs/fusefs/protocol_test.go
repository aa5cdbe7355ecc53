package fusefs_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/fs/fusefs"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// The mounts that the tests use are served by a child. A process that uses a
// mount that it serves itself waits for itself: for ever if it is killed at
// the wrong moment, and in a page fault even without.

// order is a line that a test sends to its server, and answer what comes back.
type order struct {
	Do      string // mount, remount, unmount, force, wait, checkpoint, rollback, quota, guard, lock
	Ref     string // of a mount
	Name    string // of a checkpoint
	Bytes   int64  // of a quota
	Dir     string
	Options options
}

type answer struct {
	Kind     string // of the error
	Error    string // "" for none
	Features fusefs.Features
}

// options are those of fusefs.Options that the tests use.
type options struct {
	ReadOnly, CacheNone, Writeback, IDMapped, AllowOther, AllowSUID, AllowDev, NoExec bool
	Disable                                                                           fusefs.Features
}

// server is a child that has a host with one disk.
type server struct {
	*child
	t testing.TB
}

const diskName = "disk"

func startServer(t testing.TB) *server {
	t.Helper()
	return awaitServer(t, startHelper(t, "serve", t.TempDir()))
}

func awaitServer(t testing.TB, c *child) *server {
	t.Helper()
	s := &server{c, t}
	s.line()
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			s.finish() // unmounts and closes cleanly, or fails the test
		}
	})
	return s
}

// try sends an order and returns the error that the server answers with.
func (s *server) try(o order) (answer, error) {
	s.t.Helper()
	check(s.t, json.NewEncoder(s.stdin).Encode(o))
	var a answer
	check(s.t, json.Unmarshal([]byte(s.line()), &a))
	if a.Error == "" {
		return a, nil
	}
	return a, tine.Errorf(tine.ParseKind(a.Kind), "%s", a.Error)
}

func (s *server) do(o order) answer {
	s.t.Helper()
	a, err := s.try(o)
	check(s.t, err)
	return a
}

// endsWithin waits for the end of a server that was killed.
func (s *server) endsWithin(limit time.Duration) bool {
	ended := make(chan struct{})
	go func() {
		s.cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return true
	case <-time.After(limit):
		return false
	}
}

// mount mounts DISK[@CHECKPOINT] on a new directory, until the server ends.
func (s *server) mount(ref string, o options) string {
	s.t.Helper()
	dir := filepath.Join(s.t.TempDir(), "mnt")
	check(s.t, os.Mkdir(dir, 0o755))
	s.do(order{Do: "mount", Ref: ref, Dir: dir, Options: o})
	return dir
}

func (s *server) checkpoint(name string) {
	s.t.Helper()
	s.do(order{Do: "checkpoint", Name: name})
}

// helperServe is the server; args are the directory of the host.
func helperServe(args []string) error {
	ctx := context.Background()
	owner := volume.Cred{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	h, err := volume.Open(ctx, volume.Options{Dir: args[0], Owner: owner})
	if err != nil {
		return err
	}
	caller := volume.Caller{Tenant: tine.DefaultTenant, Author: "test", Principal: "test"}
	if _, err := h.CreateDisk(ctx, caller, diskName); err != nil {
		return err
	}
	b := &backend{h, caller, make(map[string]*fusefs.Mount)}
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var o order
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			return err
		}
		a, err := b.obey(ctx, o)
		if err != nil {
			a.Kind, a.Error = tine.KindOf(err).String(), err.Error()
		}
		line, _ := json.Marshal(a)
		fmt.Println(string(line))
	}
	return b.close(ctx)
}

type backend struct {
	host   *volume.Host
	caller volume.Caller
	mounts map[string]*fusefs.Mount
}

func (b *backend) obey(ctx context.Context, o order) (a answer, err error) {
	switch o.Do {
	case "mount":
		var m *fusefs.Mount
		if m, err = b.mount(ctx, o); err == nil {
			a.Features = m.Features()
			b.mounts[o.Dir] = m
		}
	case "remount":
		err = b.mounts[o.Dir].Remount(ctx, fusefs.Options{
			ReadOnly: o.Options.ReadOnly, AllowSUID: o.Options.AllowSUID, AllowDev: o.Options.AllowDev, NoExec: o.Options.NoExec,
		})
	case "unmount":
		err = b.mounts[o.Dir].Unmount(ctx)
	case "force":
		err = b.mounts[o.Dir].ForceUnmount(ctx)
	case "wait":
		<-b.mounts[o.Dir].Done()
	case "checkpoint":
		_, err = b.host.Checkpoint(ctx, b.caller, diskName, o.Name, "", volume.WaitRunnable)
	case "rollback":
		_, err = b.host.Rollback(ctx, b.caller, diskName, o.Name)
	case "quota":
		_, err = b.host.SetQuota(ctx, b.caller, diskName, &o.Bytes, nil)
	case "guard":
		cmd := exec.Command("/proc/self/exe", strconv.Itoa(os.Getpid()))
		cmd.Env = append(os.Environ(), helperEnv+"=guard")
		err = cmd.Start()
	case "lock":
		err = lockOwnMount(o.Dir)
	default:
		err = fmt.Errorf("order %q", o.Do)
	}
	return a, err
}

// lockOwnMount waits for a lock that another process holds on a mount of this
// one: a request to oneself that only the other can end.
func lockOwnMount(dir string) error {
	fd, err := unix.Open(dir+"/f", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	go unix.FcntlFlock(uintptr(fd), unix.F_SETLKW, wholeFile(unix.F_WRLCK))
	return nil
}

// helperGuard guards the process that args name.
func helperGuard(args []string) error {
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	return fusefs.Guard(pid)
}

func (b *backend) mount(ctx context.Context, o order) (*fusefs.Mount, error) {
	ref, err := volume.ParseRef(o.Ref)
	if err != nil {
		return nil, err
	}
	return fusefs.New(ctx, fusefs.Options{
		Dir: o.Dir,
		Attach: func(ctx context.Context, a volume.AttachOptions) (*volume.Session, error) {
			return b.host.Attach(ctx, b.caller, ref, a)
		},
		ReadOnly: o.Options.ReadOnly, CacheNone: o.Options.CacheNone, Writeback: o.Options.Writeback,
		IDMapped: o.Options.IDMapped, AllowOther: o.Options.AllowOther, AllowSUID: o.Options.AllowSUID, AllowDev: o.Options.AllowDev,
		NoExec: o.Options.NoExec, Disable: o.Options.Disable,
	})
}

// close unmounts what is still mounted; that a clean unmount succeeds is part
// of every test.
func (b *backend) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var errs []error
	for dir, m := range b.mounts {
		if err := m.Unmount(ctx); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", dir, err), m.ForceUnmount(ctx))
		}
	}
	return errors.Join(append(errs, b.host.Close(ctx))...)
}

func wantKind(t testing.TB, err error, want tine.ErrorKind) {
	t.Helper()
	if err == nil || tine.KindOf(err) != want {
		t.Fatalf("error %v, want one of kind %v", err, want)
	}
}

func wantMention(t testing.TB, err error, what string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), what) {
		t.Errorf("the error does not mention %s: %v", what, err)
	}
}
