// Command tine is the one binary that users meet: the server and the command
// line that talks to it.
//
// The commands hold no logic of their own: each reads its arguments, makes one
// call of the server's API through the package api, and prints the answer, as
// text for people or as JSON with --json. Everything that can be done here can
// be done by any program over the socket.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	// The first signal asks to stop; after it the default is back, so that a
	// second one ends the process at once.
	context.AfterFunc(ctx, stop)
	if name := filepath.Base(os.Args[0]); name == mountHelperName || name == remountHelperName {
		os.Exit(mountHelper(ctx, realEnvironment(), os.Args[1:]))
	}
	os.Exit(run(ctx, realEnvironment(), os.Args[1:]))
}
