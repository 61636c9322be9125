package lock

import (
	"context"
	"sync"
	"sync/atomic"
)

// turns lets one goroutine of a Locker contend for a name at a time, in the
// order in which they came; a lock is never passed on without the store. An
// attempt of TryAcquire does not queue: those that come while one is under way
// share one that is sent after them.
type turns struct {
	mu    sync.Mutex
	names map[string]*turn
	spare *turn // the last that nobody uses any more, for the next name
}

// turn is the local queue of a name. It exists while somebody uses it.
type turn struct {
	users  int             // under turns.mu, as waiting, busy and trying
	busy   bool            // somebody contends
	queue  []chan struct{} // the others, first come first; a closed channel is its owner's turn
	trying *attempt

	held atomic.Pointer[HeldError] // what the store last said
}

// attempt is one of TryAcquire. Its result is set before done is closed.
type attempt struct {
	done   chan struct{}
	handle *Handle
	err    error
}

func (ts *turns) use(name string) *turn {
	t := ts.names[name]
	if t == nil {
		if t, ts.spare = ts.spare, nil; t == nil {
			t = new(turn)
		}
		ts.names[name] = t
	}
	t.users++
	return t
}

func (ts *turns) drop(name string, t *turn) {
	if t.users--; t.users == 0 {
		delete(ts.names, name)
		t.held.Store(nil)
		ts.spare = t
	}
}

// enter waits for the caller's turn to contend for name. Unless it returns an
// error, leave must follow.
func (ts *turns) enter(ctx context.Context, name string, closing <-chan struct{}) (*turn, error) {
	ts.mu.Lock()
	t := ts.use(name)
	if !t.busy {
		t.busy = true
		ts.mu.Unlock()
		return t, nil
	}
	mine := make(chan struct{})
	t.queue = append(t.queue, mine)
	ts.mu.Unlock()
	var err error
	select {
	case <-mine:
		return t, nil
	case <-ctx.Done():
		err = ctxError(ctx)
		if held := t.held.Load(); held != nil {
			err = withLast(err, held)
		} else {
			err = withLast(err, errNoAnswer)
		}
	case <-closing:
		err = ErrClosed
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for i, c := range t.queue {
		if c == mine {
			t.queue = append(t.queue[:i], t.queue[i+1:]...)
			ts.drop(name, t)
			return nil, err
		}
	}
	ts.pass(t) // the turn came at the same moment
	ts.drop(name, t)
	return nil, err
}

// leave ends the caller's turn, with a lock or, if h is nil, without one.
func (ts *turns) leave(name string, t *turn, h *Handle) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if h != nil && len(t.queue) > 0 {
		t.held.Store(&HeldError{Name: name, Owner: h.owner})
	}
	ts.pass(t)
	ts.drop(name, t)
}

func (ts *turns) pass(t *turn) {
	if len(t.queue) == 0 {
		t.busy = false
		return
	}
	close(t.queue[0])
	t.queue[0] = nil
	t.queue = t.queue[1:]
}

// joinTry returns the attempt that is under way, or a new one which the caller
// must lead and end with endTry.
func (ts *turns) joinTry(name string) (a *attempt, leads bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t := ts.names[name]; t != nil && t.trying != nil {
		return t.trying, false
	}
	t := ts.use(name)
	t.trying = &attempt{done: make(chan struct{})}
	return t.trying, true
}

func (ts *turns) endTry(name string, a *attempt) {
	ts.mu.Lock()
	t := ts.names[name]
	t.trying = nil
	ts.drop(name, t)
	ts.mu.Unlock()
	close(a.done)
}
