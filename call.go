package lock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// idleWorkers is how many goroutines a Locker keeps for its next calls, so that
// a call need not grow a new stack each time.
const idleWorkers = 16

// workers run the calls to the backend, so that a caller can leave one that
// does not obey its ctx.
type workers struct {
	mu      sync.Mutex
	limit   int
	idle    []chan *call
	running int
	quiet   chan struct{} // if not nil, closed when no call is running
	stopped bool
}

// call is a function that runs on a worker. Who started it either waits for its
// end or abandons it.
type call struct {
	run   func()
	late  func() // runs after run if the call was abandoned
	state atomic.Int32
	done  chan struct{} // holds one value when run has ended in time
}

const (
	callRunning int32 = iota
	callDone
	callAbandoned
)

// do starts run on a worker. late may be nil.
func (w *workers) do(run, late func()) *call {
	c := &call{run: run, late: late, done: make(chan struct{}, 1)}
	w.mu.Lock()
	w.running++
	var worker chan *call
	if n := len(w.idle); n > 0 {
		worker = w.idle[n-1]
		w.idle = w.idle[:n-1]
	}
	w.mu.Unlock()
	if worker == nil {
		worker = make(chan *call, 1)
		go w.work(worker)
	}
	worker <- c
	return c
}

func (w *workers) work(in chan *call) {
	for c := range in {
		c.run()
		if !c.state.CompareAndSwap(callRunning, callDone) && c.late != nil {
			c.late()
		}
		w.mu.Lock()
		w.running--
		if w.running == 0 && w.quiet != nil {
			close(w.quiet)
			w.quiet = nil
		}
		stay := len(w.idle) < w.limit && !w.stopped
		if stay {
			w.idle = append(w.idle, in)
		}
		w.mu.Unlock()
		if c.state.Load() == callDone {
			c.done <- struct{}{}
		}
		if !stay {
			return
		}
	}
}

// wait waits for the call's end. If ctx or the Locker ends first, it abandons
// the call and says why; after ctx's end, the call may go on for a moment.
func (c *call) wait(ctx context.Context, closing <-chan struct{}, moment time.Duration) error {
	var err error
	select {
	case <-c.done:
		return nil
	case <-closing:
		err = ErrClosed
	case <-ctx.Done():
		err = ctxError(ctx)
		if moment > 0 {
			t := time.NewTimer(moment)
			defer t.Stop()
			select {
			case <-c.done:
				return nil
			case <-t.C:
			}
		}
	}
	if c.state.CompareAndSwap(callRunning, callAbandoned) {
		return err
	}
	<-c.done
	return nil
}

// drained is closed when no call is running.
func (w *workers) drained() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == 0 {
		c := make(chan struct{})
		close(c)
		return c
	}
	if w.quiet == nil {
		w.quiet = make(chan struct{})
	}
	return w.quiet
}

// stop ends the idle workers; calls that are still running end theirs.
func (w *workers) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	for _, in := range w.idle {
		close(in)
	}
	w.idle = nil
}

func (w *workers) none() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running == 0
}
