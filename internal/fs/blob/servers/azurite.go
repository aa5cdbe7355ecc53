package servers

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Azurite's one account, as its documentation tells it.
const (
	azuriteAccount = "devstoreaccount1"
	azuriteKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Azurite starts Azurite, Azure Blob Storage in one process, without any
// container, in memory. AccessKey is the account and SecretKey its key; the
// account is the first part of the path. It ends with the test.
func Azurite(t testing.TB) Server {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Fatal("Azurite needs Node.js and npm: run .ci/setup node")
	}
	program := cached(t, "azurite-"+azuriteVersion, filepath.Join("node_modules", "azurite", "dist", "src", "blob", "main.js"), func(tmp string) {
		t.Logf("installing azurite %s: once", azuriteVersion)
		if err := os.MkdirAll(tmp, 0o755); err != nil {
			t.Fatal(err)
		}
		// No script of a package runs.
		out, err := npm(t.Context(), tmp, "install", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--omit=dev", "azurite@"+azuriteVersion)
		if err == nil {
			return
		}
		if _, unreachable := npm(t.Context(), tmp, "view", "azurite@"+azuriteVersion, "version"); unreachable != nil {
			t.Skipf("azurite is not cached and the npm registry cannot be reached: %v", unreachable)
		}
		t.Fatalf("installing azurite: %v\n%s", err, out)
	})
	s := Server{AccessKey: azuriteAccount, SecretKey: azuriteKey, Dir: t.TempDir()}
	address := launch(t, func(address string) *exec.Cmd {
		host, port := split(t, address)
		cmd := exec.Command("node", program, "--blobHost", host, "--blobPort", port, "--silent", "--skipApiVersionCheck",
			"--disableProductStyleUrl", "--inMemoryPersistence", "--disableTelemetry")
		cmd.Dir = s.Dir
		return cmd
	})
	s.Endpoint = "http://" + address
	return s
}

// npm runs npm in a folder, at the lowest priority.
func npm(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", "19", "npm", "--prefix", dir}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil && len(out) > 0 {
		err = errors.Join(err, errors.New(string(out)))
	}
	return out, err
}
