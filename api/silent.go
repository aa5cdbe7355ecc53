package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// A call may take long for good reasons: a check reads a whole disk. So no call
// has a time limit. But a server that is stopped, or that a device holds up,
// still has its socket, on which the kernel takes connections that nobody
// answers; a call would wait for ever. Therefore, while a call lasts, the server
// is asked now and then, on a connection of its own, whether it lives. That needs
// no lock of the server's, so one that does not answer in time answers nothing.
const (
	askEvery    = 5 * time.Second
	askPatience = 5 * time.Second
)

// silentHint says what to do about such a server; it takes its process id twice.
const silentHint = "what it was asked it may still do when it goes on; see what it waits for with `cat /proc/%d/status` and in its log; `tine umount --force DIR` takes a mount away without it, " +
	"and after `kill -9 %d` a new server opens at the last durable state"

// IsSilent reports whether a call was given up because the server lives but
// answers nothing.
func IsSilent(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.silent
}

// watch returns a context for a call that ends, with an *Error as its cause, when
// the server turns out to be silent. The call must call end when it is over.
func (c *Client) watch(ctx context.Context) (watched context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		next := time.NewTicker(c.askEvery)
		defer next.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-next.C:
			}
			if err := c.ask(ctx); err != nil {
				cancel(err)
				return
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// ask asks the server whether it lives. Only silence is an error: any answer will
// do, and if the connection breaks the call itself will say so.
func (c *Client) ask(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	pid := 0
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := dialServer(ctx, c.socket)
		if err == nil {
			if cred, cerr := peer(conn); cerr == nil {
				pid = int(cred.Pid)
			}
		}
		return conn, err
	}
	t := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	defer t.CloseIdleConnections()
	req, err := http.NewRequestWithContext(limited, http.MethodGet, "http://tine/healthz", nil)
	if err != nil {
		return nil
	}
	resp, err := t.RoundTrip(req)
	if err == nil {
		closeBody(resp)
		return nil
	}
	if limited.Err() == nil || ctx.Err() != nil {
		return nil
	}
	return silence(c.socket, pid)
}

// silence says what is known of a process that does not answer.
func silence(socket string, pid int) *Error {
	e := &Error{Kind: kindUnavailable, silent: true, Message: "the server at " + socket + " takes connections but does not answer",
		Hint: "see in its log what it waits for; `tine umount --force DIR` takes a mount away without it"}
	if pid <= 0 {
		return e
	}
	e.Message = fmt.Sprintf("the server at %s, process %d, takes connections but does not answer", socket, pid)
	e.Hint = fmt.Sprintf(silentHint, pid, pid)
	if stopped(pid) {
		e.Message += ": it is stopped"
		e.Hint = fmt.Sprintf("let it go on with `kill -CONT %d`; ", pid) + e.Hint
	}
	return e
}

// stopped reports whether a process has been stopped by a signal.
func stopped(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The state follows the name, which is in parentheses and may hold anything.
	_, rest, _ := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
	return strings.HasPrefix(rest, "T") || strings.HasPrefix(rest, "t")
}

// watchedBody is the answer of a call that is watched until it is closed.
type watchedBody struct {
	io.ReadCloser
	ctx context.Context
	end func()
}

// Read returns the reason if the call was given up.
func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		if e := (*Error)(nil); errors.As(context.Cause(b.ctx), &e) {
			err = e
		}
	}
	return n, err
}

// Close ends the watch.
func (b *watchedBody) Close() error {
	b.end()
	return b.ReadCloser.Close()
}
