package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// maxLineBytes bounds one line of a streamed answer: a path may be long.
const maxLineBytes = 4 << 20

// Client calls one server over its unix socket. It is safe for concurrent use.
type Client struct {
	socket   string
	author   string
	askEvery time.Duration // how often the server is asked whether it lives, while a call lasts
	http     *http.Client
}

// NewClient returns a client for the server that listens on the socket.
// Author is declared as the maker of what the calls make; it may be empty.
// Nothing is dialled before the first call.
func NewClient(socket, author string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return dialServer(ctx, socket) }
	return &Client{
		socket:   socket,
		author:   author,
		askEvery: askEvery,
		http: &http.Client{
			// A server that is starting lets an upload wait for some seconds
			// before it answers.
			Transport: &http.Transport{DialContext: dial, DisableCompression: true, ExpectContinueTimeout: time.Minute},
			// The API never redirects; a redirect is a name that the path swallowed.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Close releases idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// dialServer connects and makes sure that the listener is the caller's own
// server or root's: in a shared directory anybody could listen.
func dialServer(ctx context.Context, socket string) (net.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	uid, err := PeerUID(conn)
	if err == nil && uid != 0 && uid != uint32(os.Getuid()) && os.Getuid() != 0 {
		err = &Error{Kind: kindAccess, Message: fmt.Sprintf("the server at %s runs as uid %d, which is neither root nor you", socket, uid),
			Hint: "name your own server's socket with --socket or TINE_SOCKET"}
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// PeerUID asks the kernel which user made the other end of a unix connection.
func PeerUID(conn net.Conn) (uint32, error) {
	cred, err := peer(conn)
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}

// peer returns what the kernel says of the other end of a unix connection.
func peer(conn net.Conn) (*syscall.Ucred, error) {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.New("not a unix connection")
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *syscall.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, credErr
}

// path joins segments of a URL path. Names that a path would swallow, and
// text that JSON would change on the way, are refused here.
func path(segments ...string) (string, error) {
	var b strings.Builder
	b.WriteString("/v1")
	for _, s := range segments {
		if s == "" {
			return "", &Error{Kind: kindInvalid, Message: "the name is empty"}
		}
		if s == "." || s == ".." || !utf8.ValidString(s) {
			return "", &Error{Kind: kindInvalid, Message: fmt.Sprintf("the name %q is not allowed: use letters, digits, '.', '_' and '-', starting with a letter, a digit or '_'", s)}
		}
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String(), nil
}

// send makes the request and returns the answer of a successful call. The
// caller closes its body. Every error is an *Error.
func (c *Client) send(ctx context.Context, method string, query url.Values, body any, segments ...string) (*http.Response, error) {
	var r io.Reader
	h := http.Header{}
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, &Error{Kind: kindInternal, Message: "encode the request: " + err.Error()}
		}
		if replaced(b) {
			return nil, &Error{Kind: kindInvalid, Message: "a name, path or text of the request is not UTF-8", Hint: "give it in UTF-8; for a directory, mount or import another one"}
		}
		r = bytes.NewReader(b)
		h.Set("Content-Type", "application/json")
	}
	return c.sendBody(ctx, method, query, r, h, segments...)
}

// replaced reports whether bytes that are no UTF-8 were lost in the JSON: it
// shows them, and nothing else, as the escape of U+FFFD. The server would act
// on another path than the one that was meant.
func replaced(b []byte) bool {
	for i := 0; i+5 < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		if string(b[i+1:i+6]) == "ufffd" {
			return true
		}
		i++ // the escaped byte is not the start of another escape
	}
	return false
}

// sendBody is send with a body of any kind.
func (c *Client) sendBody(ctx context.Context, method string, query url.Values, body io.Reader, h http.Header, segments ...string) (*http.Response, error) {
	p, err := path(segments...)
	if err != nil {
		return nil, err
	}
	u := url.URL{Scheme: "http", Host: "tine", RawQuery: query.Encode()}
	ctx, end := c.watch(ctx)
	if s, ok := body.(*source); ok {
		s.endWith(ctx)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.Scheme+"://"+u.Host+p+"?"+u.RawQuery, body)
	if err != nil {
		end()
		return nil, &Error{Kind: kindInvalid, Message: err.Error()}
	}
	req.Header = h
	if c.author != "" {
		req.Header.Set("Tine-Author", url.QueryEscape(c.author))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		defer end()
		return nil, c.transportError(ctx, err)
	}
	resp.Body = &watchedBody{resp.Body, ctx, end}
	if resp.StatusCode/100 != 2 {
		defer closeBody(resp)
		return nil, readError(resp)
	}
	return resp, nil
}

func closeBody(resp *http.Response) { _ = resp.Body.Close() }

// call makes a request whose answer is one JSON document.
func call[T any](ctx context.Context, c *Client, method string, query url.Values, body any, segments ...string) (T, error) {
	var out T
	resp, err := c.send(ctx, method, query, body, segments...)
	if err != nil {
		return out, err
	}
	defer closeBody(resp)
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return out, c.cutOff(ctx, err)
	}
	return out, nil
}

// do makes a request that is answered without a body.
func (c *Client) do(ctx context.Context, method string, query url.Values, segments ...string) error {
	resp, err := c.send(ctx, method, query, nil, segments...)
	if err != nil {
		return err
	}
	closeBody(resp)
	return nil
}

// lines reads a streamed answer and gives every line to fn, which reports
// whether it was the last.
func (c *Client) lines(ctx context.Context, resp *http.Response, fn func([]byte) (done bool, err error)) error {
	defer closeBody(resp)
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(make([]byte, 0, 64<<10), maxLineBytes)
	for sc.Scan() {
		done, err := fn(sc.Bytes())
		if done || err != nil {
			return err
		}
	}
	err := sc.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return c.cutOff(ctx, err)
}

func (c *Client) cutOff(ctx context.Context, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if ctx.Err() != nil {
		return &Error{Kind: kindInterrupted, Message: "interrupted"}
	}
	return &Error{Kind: kindUnavailable, Message: "the server's answer was cut off: " + err.Error(),
		Hint: "see the server's log; ask again when it is ready"}
}

// readError turns a failed answer into an *Error.
func readError(resp *http.Response) error {
	// Not to the end of the answer: that of an upload which is refused comes
	// before the server has given up waiting for the rest of it.
	e := &Error{}
	if json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(e) == nil && e.Kind != "" {
		return e
	}
	return &Error{Kind: kindInternal, Message: fmt.Sprintf("the server answered %s with something that is not an error of tine", resp.Status),
		Hint: "is the socket really tine's? see `tine doctor`"}
}

// transportError says why the server was not reached and what to do.
func (c *Client) transportError(ctx context.Context, err error) error {
	var e *Error
	switch {
	case errors.As(err, &e), errors.As(context.Cause(ctx), &e):
		return e
	case ctx.Err() != nil:
		return &Error{Kind: kindInterrupted, Message: "interrupted"}
	case errors.Is(err, fs.ErrPermission):
		return &Error{Kind: kindAccess, Message: "no permission to use the socket " + c.socket,
			Hint: "run the command as root or as the user that runs the server"}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return &Error{Kind: kindUnavailable, Message: "no server listens on " + c.socket,
			Hint: "start one with `tine serve`, or name its socket with --socket or TINE_SOCKET"}
	case errors.Is(err, syscall.EINVAL) && len(c.socket) > 107:
		return &Error{Kind: kindInvalid, Message: fmt.Sprintf("the socket path has %d bytes; the kernel allows 107", len(c.socket)),
			Hint: "choose a shorter path"}
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return &Error{Kind: kindUnavailable, Message: fmt.Sprintf("cannot connect to %s: %v", c.socket, op.Err),
			Hint: "name the server's socket with --socket or TINE_SOCKET"}
	}
	return &Error{Kind: kindUnavailable, Message: "the connection to the server broke: " + err.Error(),
		Hint: "see the server's log; ask again when it is ready"}
}
