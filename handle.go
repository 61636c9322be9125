package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Handle is a lock that is held: one acquisition of one name. All its methods
// may be called from many goroutines at once, and none panics on a nil or zero
// Handle, which counts as released.
type Handle struct {
	e         *engine
	ctx       context.Context // Acquire's, for its values
	name, id  string
	owner     string
	grace     time.Duration
	maxHold   time.Duration
	minHold   time.Duration
	noRenew   bool
	wantToken bool
	token     Token

	lease Lease     // set before activate, then constant
	left  leftover  // the lease, as something to be freed
	began Instant   // of the hold
	wakes wakeup    // of the wait before it
	sched schedItem // under scheduler.mu

	mu      sync.Mutex
	state   holdState
	ttl     time.Duration
	trust   Instant       // until when it is surely ours; zero where no clock ends it
	cap     Instant       // MaxHold's end; zero for none
	entry   Instant       // until when the store may have the entry
	renewAt Instant       // when the next renewal is due
	aloft   *flight       // renewals under way
	floor   time.Duration // the least TTL of the requests without an answer, which may still arrive; 0: none
	failing bool          // the last renewal had no answer
	running int           // functions of Do under it
	ended   error         // why Context ended, if it has
	lost    *LostError
	hctx    context.Context
	cancel  context.CancelCauseFunc
}

// holdState is where a Handle is in its life:
//
//	pending → held → released
//	   │        └──→ lost
//	   └→ lost (the store took it back before Acquire returned)
type holdState uint8

const (
	pending  holdState = iota // Acquire is under way
	held                      // ours, while trust lasts
	released                  // Release has begun
	lost                      // it can no longer be promised
)

func (e *engine) newHandle(ctx context.Context, name string, s settings) *Handle {
	h := &Handle{
		e: e, ctx: ctx, name: name, id: newID(), owner: s.owner, ttl: s.ttl, grace: s.grace,
		maxHold: s.maxHold, minHold: s.minHold, noRenew: s.noRenew, wantToken: s.token,
	}
	h.sched = schedItem{h: h, index: -1}
	h.left.init(e, name)
	return h
}

// bounded reports whether a clock ends the lock: the store's, or, without
// renewal, ours.
func (h *Handle) bounded() bool { return h.e.clocked || h.noRenew }

// activate makes a granted acquisition a held lock. It fails with errRanOut if
// it was lost in the meantime.
func (h *Handle) activate(sent, now Instant, ttl time.Duration, token Token) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.token, h.ttl, h.began = token, ttl, sent
	h.entry = now.Add(ttl + h.grace) // the store may have counted from the answer
	if h.bounded() {
		h.trust = sent.Add(ttl - h.e.margin(ttl))
		if h.trust.Reached(now) {
			return errRanOut
		}
	}
	if h.state != pending {
		return errRanOut
	}
	if h.maxHold > 0 {
		h.cap = sent.Add(h.maxHold)
	}
	h.state = held
	h.left.lease, h.left.ttl = h.lease, ttl+h.grace
	if !h.noRenew {
		h.renewAt = sent.Add(ttl / 3)
	}
	h.e.sched.add(&h.sched, h.due(), now, ttl)
	if h.e.isClosing() { // it may have looked before we were there
		h.e.sched.remove(&h.sched)
		h.state = lost
		return ErrClosed
	}
	return nil
}

// errRanOut says that a grant was over before Acquire could return it.
var errRanOut = fmt.Errorf("%w: the grant ran out before its answer came", ErrUnavailable)

// abandon marks an acquisition that failed, and reports whether it may have
// left something at the store.
func (h *Handle) abandon() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = lost
	h.left.lease = h.lease
	h.left.orphan = true
	return h.lease != nil
}

// due is when the scheduler has to look at h next. h.mu is held.
func (h *Handle) due() Instant {
	d := h.renewAt
	for _, t := range [...]Instant{h.trust, h.cap} {
		if !t.IsZero() && (d.IsZero() || d.Sub(t) > 0) {
			d = t
		}
	}
	return d
}

// String returns the lock's name and state, for people.
func (h *Handle) String() string {
	if h == nil || h.e == nil {
		return "no lock"
	}
	state := "held"
	if err := h.Err(); err != nil {
		state = err.Error()
	}
	return fmt.Sprintf("lock %q on %s: %s", h.name, h.e.promise.Backend, state)
}

// Format prints String for every verb: what a Handle is made of is in use by
// other goroutines, and proves ownership.
func (h *Handle) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(h.String())) }

// Name returns the lock's name.
func (h *Handle) Name() string {
	if h == nil {
		return ""
	}
	return h.name
}

// Token returns the fencing token, and false if the backend has none, or gives
// one only at a cost and none was asked for (see [WithToken]).
func (h *Handle) Token() (Token, bool) {
	if h == nil || h.token <= 0 {
		return 0, false
	}
	return h.token, true
}

// TTL returns the effective time to live.
func (h *Handle) TTL() time.Duration {
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ttl
}

// Deadline returns until when the lock is ours with no further word from the
// store; renewal moves it. It is zero where no clock ends the lock. It is for
// planning: whether the lock is still ours is Err's and Context's to say.
func (h *Handle) Deadline() time.Time {
	if h == nil || h.e == nil {
		return time.Time{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.trust
	if !h.cap.IsZero() && (d.IsZero() || d.Sub(h.cap) > 0) {
		d = h.cap
	}
	if d.IsZero() {
		return time.Time{}
	}
	return d.wall()
}

// Err returns nil while the lock is surely ours, by the clocks, now. Else it
// returns ErrReleased, ErrClosed or a [*LostError].
func (h *Handle) Err() error {
	if h == nil || h.e == nil {
		return ErrReleased
	}
	return h.errAt(Now())
}

func (h *Handle) errAt(now Instant) error {
	h.mu.Lock()
	cause, over := h.overdue(now)
	err := h.ended
	h.mu.Unlock()
	if over {
		return h.lose(cause, nil)
	}
	return err
}

// overdue reports whether the clocks end the lock. h.mu is held.
func (h *Handle) overdue(now Instant) (LossCause, bool) {
	switch {
	case h.state != held:
		return 0, false
	case !h.trust.IsZero() && h.trust.Reached(now):
		return CauseExpired, true
	case !h.cap.IsZero() && h.cap.Reached(now):
		return CauseMaxHold, true
	}
	return 0, false
}

// Extend confirms now that the lock is ours, and makes ttl its time to live,
// counted from now and for later renewals. It returns ErrLost if it is ours no
// more, ErrUnavailable if the store did not say (the lock is then ours until
// Deadline), ErrInvalid for a ttl out of bounds, and ErrUnsupported for one that
// differs where the backend cannot change it.
//
// A request for a shorter TTL that had no answer, or that another goroutine sent
// at the same time, may reach the store after this one. Deadline then counts
// with the shorter TTL.
func (h *Handle) Extend(ctx context.Context, ttl time.Duration) error {
	if h == nil || h.e == nil {
		return ErrReleased
	}
	if err := h.extend(ctx, ttl); err != nil {
		return h.e.wrap("extend", h.name, err)
	}
	return nil
}

func (h *Handle) extend(ctx context.Context, ttl time.Duration) error {
	if ctx == nil {
		return fmt.Errorf("%w: a nil Context", ErrInvalid)
	}
	g := h.e.promise
	if err := (&settings{ttl: ttl, grace: h.grace}).check(g); err != nil {
		return err
	}
	if err := h.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctxError(ctx)
	}
	h.mu.Lock()
	if ttl != h.ttl {
		if !g.Extend {
			defer h.mu.Unlock()
			return fmt.Errorf("%w: %s cannot change the TTL of a held lock (it is %v)", ErrUnsupported, g.Backend, h.ttl)
		}
		h.ttl = ttl
		if h.bounded() {
			// The store may do it and the answer be lost.
			h.trust = h.trust.earlier(Now().Add(ttl - h.e.margin(ttl)))
		}
	}
	f := h.takeOff(ttl)
	h.mu.Unlock()
	var err error
	c := h.e.calls.start(action(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(ttl, time.Second))
		defer cancel()
		f.sent = Now()
		err = h.lease.Renew(ctx, ttl+h.grace)
		f.land(err)
		f.tell()
	}))
	if werr := h.e.calls.wait(ctx, c, nil, 0); werr != nil {
		return werr
	}
	if lost := h.Err(); lost != nil {
		return lost
	}
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// Release ends the lock: Context ends with cause ErrReleased, then the store is
// told. It returns nil once the store confirmed that, and again when it is
// called again; always ErrLost if the lock had been lost; and another error if
// the store did not confirm. Then the Locker goes on trying in the background,
// until the entry is gone or dead, and Release may be called again. Concurrent
// calls have one result.
//
// A ctx that has ended already does not keep the lock: it is freed all the same,
// and Release waits for the store's word for at most 100 ms.
func (h *Handle) Release(ctx context.Context) error {
	if h == nil || h.e == nil {
		return ErrReleased
	}
	if ctx == nil {
		ctx = context.Background()
	}
	if err := h.release(ctx); err != nil {
		return h.e.wrap("release", h.name, err)
	}
	return nil
}

func (h *Handle) release(ctx context.Context) error {
	now := Now()
	_ = h.errAt(now) // a lock that ran out is lost, not released
	h.mu.Lock()
	switch h.state {
	case lost:
		err := h.lost
		h.mu.Unlock()
		h.e.free(&h.left, false)
		if err == nil { // it never was held
			return ErrReleased
		}
		return err
	default:
		h.mu.Unlock()
	}
	err := h.letGo(ErrReleased, now, ctx.Done() == nil).outcome(ctx)
	if errors.Is(err, ErrLost) {
		return h.takenBefore(err)
	}
	return err
}

// letGo makes a held lock a released one, on our side, and starts to free it:
// the Context ends before the store is told. If it is not held any more, letGo
// joins or repeats the attempt to free it. For here, see free.
func (h *Handle) letGo(cause error, now Instant, here bool) *freeing {
	h.e.close.ops.Add(1) // between the scheduler and free, Close finds it here
	h.mu.Lock()
	if h.state != held {
		h.mu.Unlock()
		defer h.e.close.ops.Add(-1)
		return h.e.free(&h.left, here)
	}
	h.state = released
	h.left.trust = h.trust
	if rest := h.minHold - now.Sub(h.began); rest > 0 && (h.e.promise.Ends == EndsClock || !h.e.isClosing()) {
		h.left.keep(now.Add(rest))
	}
	h.end(cause)
	h.mu.Unlock()
	h.e.sched.remove(&h.sched)
	f := h.e.free(&h.left, here)
	h.e.close.ops.Add(-1)
	h.e.emit(h.ctx, Event{Kind: EventHold, Name: h.name, Owner: h.owner, Token: h.token, Took: now.Sub(h.began)})
	return f
}

// takenBefore records that the store had lost the lock before Release was sent.
func (h *Handle) takenBefore(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != lost {
		h.state = lost
		h.lost = lostError(h.name, CauseTaken, err)
		ev := Event{Kind: EventLost, Name: h.name, Owner: h.owner, Token: h.token, Err: h.lost}
		h.e.calls.do(action(func() { h.e.emitBehind(h.ctx, ev) }))
	}
	return h.lost
}

// end ends the Context; the first cause stays. h.mu is held.
func (h *Handle) end(cause error) {
	if h.ended == nil {
		h.ended = cause
		if h.cancel != nil {
			h.cancel(cause)
		}
	}
}

// lostByStore is Request.Lost.
func (h *Handle) lostByStore(cause LossCause, err error) { h.lose(cause, err) }

// lose makes a held lock a lost one, and returns why it is not held.
func (h *Handle) lose(cause LossCause, err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.loseLocked(cause, err)
}

func (h *Handle) loseLocked(cause LossCause, err error) error {
	switch {
	case h.state == pending:
		h.state = lost
		return ErrLost
	case h.state != held && h.ended == nil:
		return ErrReleased
	case h.state != held:
		return h.ended
	}
	h.state = lost
	h.lost = lostError(h.name, cause, err)
	h.end(h.lost)
	h.e.sched.remove(&h.sched)
	took, lost := Now().Sub(h.began), h.lost
	// On a goroutine of its own: the scheduler, and a backend's call of Lost, must
	// not wait for an Observer.
	h.e.calls.do(action(func() { h.tellLoss(cause, err, lost, took) }))
	switch {
	case cause == CauseTaken || cause == CauseSessionEnded:
		h.e.free(&h.left, false)
	case h.bounded() && (cause == CauseExpired || h.e.promise.Ends == EndsClock):
		h.left.expire(h.entry) // not before it ends by itself: work may still run
	}
	return lost
}

func (h *Handle) tellLoss(cause LossCause, err error, lost *LostError, took time.Duration) {
	h.e.setup.log.Warn("lock lost", "backend", h.e.promise.Backend, "name", h.name, "owner", h.owner, "cause", cause.String(), "err", err)
	ev := Event{Kind: EventLost, Name: h.name, Owner: h.owner, Token: h.token, Took: took, Err: lost}
	h.e.emitBehind(h.ctx, ev)
	ev.Kind = EventHold
	h.e.emitBehind(h.ctx, ev)
}

// lostError makes what the store said a LostError; one that it made itself
// keeps its cause.
func lostError(name string, cause LossCause, err error) *LostError {
	var own *LostError
	if errors.As(err, &own) {
		cause, err = own.Cause, own.Err
	}
	if err == ErrLost { //nolint:errorlint // the bare sentinel says nothing that the type does not
		err = nil
	}
	return &LostError{Name: name, Cause: cause, Err: err}
}
