package api

import (
	"context"
	"io"
	"sync"
)

// source is the body of an upload. Reading it ends with the request, also while
// what it is read from gives nothing, such as a terminal: net/http gives a request
// up only when the read of its body is back. Nothing is read before the server
// wants it.
type source struct {
	from  io.Reader
	begin sync.Once
	r     *io.PipeReader
	w     *io.PipeWriter

	mu  sync.Mutex
	err error // of reading from
}

func newSource(from io.Reader) *source {
	r, w := io.Pipe()
	return &source{from: from, r: r, w: w}
}

// Read reads what has come.
func (s *source) Read(p []byte) (int, error) {
	s.begin.Do(func() {
		go func() {
			_, err := io.CopyBuffer(s.w, readerFunc(s.read), make([]byte, 128<<10))
			_ = s.w.CloseWithError(err) // nil is the end
		}()
	})
	return s.r.Read(p)
}

func (s *source) read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	if err != nil && err != io.EOF {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = err
	}
	return n, err
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Close ends it.
func (s *source) Close() error { return s.r.Close() }

// endWith ends it when the request's context does.
func (s *source) endWith(ctx context.Context) {
	context.AfterFunc(ctx, func() { _ = s.r.CloseWithError(context.Cause(ctx)) })
}

// blame returns the error of what was read from, if there was one: it is why the
// call failed with err.
func (s *source) blame(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	return err
}
