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
	spare   []*call // for the next, up to limit: an uncontended lock makes two
	running int
	quiet   chan struct{} // if not nil, closed when no call is running
	stopped bool
}

// task is what a call runs. late is called after run if the call was abandoned.
type task interface {
	run()
	late()
}

// action is a task of which nothing is to be done if it is late.
type action func()

func (a action) run()  { a() }
func (a action) late() {}

// call is a task on a worker. Who started it waits for its end or abandons it,
// unless nobody waits.
type call struct {
	task   task
	waited bool
	state  atomic.Int32
	done   chan struct{} // holds one value when run has ended in time; if waited
}

const (
	callRunning int32 = iota
	callDone
	callAbandoned
)

// do runs a task on a worker; nobody waits for its end.
func (w *workers) do(t task) { w.begin(t, false) }

// start runs a task on a worker; wait must follow.
func (w *workers) start(t task) *call { return w.begin(t, true) }

func (w *workers) begin(t task, waited bool) *call {
	w.mu.Lock()
	var c *call
	if n := len(w.spare); n > 0 {
		c = w.spare[n-1]
		w.spare = w.spare[:n-1]
	} else {
		c = &call{done: make(chan struct{}, 1)}
	}
	c.task, c.waited = t, waited
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
		if !w.carry(c, in) {
			return
		}
	}
}

// carry runs a call and reports whether its worker stays. What follows the task
// is deferred, since an Observer may end the goroutine.
func (w *workers) carry(c *call, in chan *call) (stay bool) {
	ended := false
	defer func() {
		inTime := c.state.CompareAndSwap(callRunning, callDone)
		if !inTime {
			c.task.late()
		}
		w.mu.Lock()
		w.running--
		if w.running == 0 && w.quiet != nil {
			close(w.quiet)
			w.quiet = nil
		}
		stay = ended && len(w.idle) < w.limit && !w.stopped
		if stay {
			w.idle = append(w.idle, in)
		}
		w.mu.Unlock()
		switch {
		case !c.waited:
			w.reuse(c)
		case inTime:
			c.done <- struct{}{}
		}
	}()
	c.task.run()
	ended = true
	return
}

// wait waits for the end of a call, which is not to be touched after it. If ctx
// or the Locker ends first, it abandons the call and says why; after ctx's end,
// the call may go on for a moment.
func (w *workers) wait(ctx context.Context, c *call, closing <-chan struct{}, moment time.Duration) error {
	var err error
	select {
	case <-c.done:
		w.reuse(c)
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
				w.reuse(c)
				return nil
			case <-t.C:
			}
		}
	}
	if c.state.CompareAndSwap(callRunning, callAbandoned) {
		return err
	}
	<-c.done
	w.reuse(c)
	return nil
}

// reuse keeps a call that has ended, and that nobody knows any more.
func (w *workers) reuse(c *call) {
	c.task = nil
	c.state.Store(callRunning)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.spare) < w.limit {
		w.spare = append(w.spare, c)
	}
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
