package crash_test

import (
	"errors"
	"runtime"
	"sync"
)

// pool runs functions side by side, a few at a time, and keeps their errors.
type pool struct {
	limit chan struct{}
	wg    sync.WaitGroup
	mu    sync.Mutex
	errs  []error
}

func newPool() *pool { return &pool{limit: make(chan struct{}, runtime.GOMAXPROCS(0))} }

// run starts fn as soon as there is room.
func (p *pool) run(fn func() error) {
	p.limit <- struct{}{}
	p.wg.Go(func() {
		defer func() { <-p.limit }()
		if err := fn(); err != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.errs = append(p.errs, err)
		}
	})
}

// maxErrors is how many failures of one recording are told.
const maxErrors = 5

var errEnough = errors.New("the rest is not tried")

// failed returns an error once there are enough of them.
func (p *pool) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.errs) >= maxErrors {
		return errEnough
	}
	return nil
}

// wait waits for all and returns their errors.
func (p *pool) wait() error {
	p.wg.Wait()
	return errors.Join(p.errs...)
}
