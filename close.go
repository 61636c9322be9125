package lock

import (
	"fmt"
	"sync/atomic"
	"time"
)

// closeTimeout bounds Close; the backend's own Close has the last tenth of it,
// or more.
const closeTimeout = 5 * time.Second

// closer counts what Close waits for.
type closer struct {
	begun atomic.Bool
	ops   atomic.Int64 // calls of Acquire and TryAcquire under way
	frees atomic.Int64 // attempts under way to free what Close waits for
}

func (e *engine) isClosing() bool { return e.close.begun.Load() }

func (e *engine) Close() error {
	if e.close.begun.Swap(true) {
		return fmt.Errorf("close %s: %w", e.promise.Backend, ErrClosed)
	}
	e.end()
	began := time.Now()
	_, leftovers, _ := e.sched.all()
	for _, l := range leftovers {
		if l.letGo() {
			e.sched.remove(&l.sched)
		} else {
			e.free(l, false)
		}
	}
	left := e.drain(began.Add(closeTimeout * 9 / 10))
	e.sched.stop()
	e.calls.stop()

	done := make(chan error, 1)
	go func() { done <- e.backend.Close() }()
	timeout := time.NewTimer(closeTimeout - time.Since(began))
	defer timeout.Stop()
	var err error
	select {
	case err = <-done:
		if err != nil {
			err = unavailable(err)
		}
	case <-timeout.C:
		err = fmt.Errorf("%w: the client did not close within %v", ErrUnavailable, closeTimeout)
	}
	if err == nil && left > 0 {
		err = fmt.Errorf("%w: %d locks were not freed within %v: those end when nobody renews them", ErrUnavailable, left, closeTimeout)
	}
	if err != nil {
		return fmt.Errorf("close %s: %w", e.promise.Backend, err)
	}
	return nil
}

// drain closes down what is held, waits until nothing is held, left over or
// under way, and returns how many locks are not freed by the deadline.
func (e *engine) drain(deadline time.Time) int {
	timeout := time.NewTimer(time.Until(deadline))
	defer timeout.Stop()
	pause := time.Millisecond
	for {
		handles, _, _ := e.sched.all()
		for _, h := range handles {
			h.closeDown()
		}
		over := false
		select {
		case <-e.calls.drained():
		case <-timeout.C:
			over = true
		}
		handles, leftovers, inHand := e.sched.all()
		n := len(handles) + inHand + int(e.close.frees.Load())
		for _, l := range leftovers {
			if l.lasts() {
				n++
			}
		}
		if over || n == 0 && e.close.ops.Load() == 0 && e.calls.none() {
			return n
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, 20*time.Millisecond)
		case <-timeout.C:
			return n
		}
	}
}

// closeDown ends the Context and starts the release, unless a function of Do
// runs under the lock: Do releases when that has returned.
func (h *Handle) closeDown() {
	h.mu.Lock()
	if h.state != held {
		h.mu.Unlock()
		return
	}
	h.end(ErrClosed)
	busy := h.running > 0
	h.mu.Unlock()
	if !busy {
		h.letGo(ErrClosed, Now(), false)
	}
}
