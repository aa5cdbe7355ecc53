package posix

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/fusefs"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// serverEnv makes the test binary a server of one mount: it names the variant.
// The program itself offers fewer choices than the mount has.
const serverEnv = "TINE_POSIX_SERVER"

// variants are the mounts of the long form.
var variants = map[string]fusefs.Options{
	// Without what makes requests fewer. What programs would miss stays.
	"features-off": {Disable: fusefs.AllFeatures &^ (fusefs.Locks | fusefs.CreationTime | fusefs.ACLs)},
	"cache-none":   {CacheNone: true},
	"write-back":   {Writeback: true},
	"id-mapped":    {IDMapped: true},
	"suid-dev":     {AllowSUID: true, AllowDev: true},
}

// serveVariant serves until its standard input ends. Its arguments are the
// data directory and the directory to mount on.
func serveVariant() {
	if err := serveMount(os.Args[1], os.Args[2], variants[os.Getenv(serverEnv)]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serveMount(data, dir string, o fusefs.Options) error {
	ctx := context.Background()
	me := volume.Caller{Tenant: tine.DefaultTenant, Author: "posix"}
	h, err := volume.Open(ctx, volume.Options{Dir: data})
	if err != nil {
		return err
	}
	if _, err := h.CreateDisk(ctx, me, "work"); err != nil {
		return errors.Join(err, h.Close(ctx))
	}
	o.Dir = dir
	o.Attach = func(ctx context.Context, a volume.AttachOptions) (*volume.Session, error) {
		return h.Attach(ctx, me, volume.Ref{Disk: "work"}, a)
	}
	m, err := fusefs.New(ctx, o)
	if err != nil {
		return errors.Join(err, h.Close(ctx))
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return errors.Join(err, m.ForceUnmount(ctx), h.Close(ctx))
}

// TestVariants runs the suite on the mounts of the long form.
func TestVariants(t *testing.T) {
	if !*long {
		t.Skip("the long form: see -long")
	}
	for name := range variants {
		t.Run(name, func(t *testing.T) {
			dir := suiteDir(t, serveFor(t, name), "suite")
			examine(t, place{dir, dir, name})
		})
	}
}

// serveFor mounts a variant, served by a process of its own, until the end of
// the test.
func serveFor(t *testing.T, variant string) string {
	t.Helper()
	needRoot(t)
	if r := fusefs.Probe(); r.Err != nil {
		t.Skipf("needs to mount: %v", r.Err)
	}
	base := t.TempDir()
	if err := os.Chmod(filepath.Dir(base), 0o755); err != nil {
		t.Fatal(err)
	}
	mnt := filepath.Join(base, "mnt")
	if err := os.Mkdir(mnt, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, filepath.Join(base, "data"), mnt)
	cmd.Env = append(os.Environ(), serverEnv+"="+variant)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server of the variant: %v", err)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if strings.TrimSpace(line) != "ready" {
		t.Fatalf("the server of the variant says %q, %v", line, err)
	}
	return mnt
}
