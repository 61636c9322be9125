package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Both returns a Locker that holds each lock on two stores at once, for the time
// in which a live service moves from one to the other: it excludes the holders
// that know only the old store, and those that know only the new one. A fenced
// service moves in four steps, each rolled out everywhere before the next:
//
//	old
//	Both(old, new)               // tokens are the old store's
//	Both(new, old, TokenBase(n)) // tokens are the new store's, n above all that the old one gave
//	new, TokenBase(n)
//
// Tokens come from the first argument only. Which of the two locks is taken
// first does not depend on the order of the arguments, so that the steps do not
// deadlock each other: it is the order of the backends' names. Two Lockers of one
// kind of backend have no such order: who waits for the second lock then gives
// the first one back from time to time, and waiters are served in no order.
//
// Handles have a deadline, whatever the stores are. Where one of the two has none
// to end a dead holder's lock (Guarantees.Ends), that one keeps the name locked.
//
// The two must be Lockers of different stores: on one store, the second lock of a
// name would wait for the first for ever. A lock that one of the stores loses is
// lost. While either store is away, nothing is granted.
//
// The returned Locker's Close releases what it holds, and leaves the two open.
// Both returns ErrInvalid for a Locker that is nil, the same as the other, or
// neither made by this package nor a wrapper (Unwrap) of such a one.
func Both(tokens, other Locker, opts ...SetupOption) (Locker, error) {
	b := &both{}
	for i, l := range [...]Locker{tokens, other} {
		if isNil(l) {
			return nil, fmt.Errorf("lock.Both: %w: a nil Locker", ErrInvalid)
		}
		e := engineOf(l)
		if e == nil {
			return nil, fmt.Errorf("lock.Both: %w: a %T is not a Locker of this package, and has no Unwrap() Locker that leads to one", ErrInvalid, l)
		}
		b.sides[i] = side{Locker: l, promise: l.Guarantees(), margin: e.margin}
		b.engines[i] = e
	}
	if b.engines[0] == b.engines[1] {
		return nil, fmt.Errorf("lock.Both: %w: both are one Locker", ErrInvalid)
	}
	first, second := b.sides[0].promise, b.sides[1].promise
	b.promise = Guarantees{
		Backend: first.Backend + "+" + second.Backend,
		Fencing: first.Fencing,
		Ends:    max(first.Ends, second.Ends),
		MinTTL:  max(first.MinTTL, second.MinTTL),
		MaxTTL:  min(first.MaxTTL, second.MaxTTL),
		Extend:  first.Extend && second.Extend,

		Survives: first.Survives & second.Survives,
	}
	if b.promise.MinTTL > b.promise.MaxTTL {
		return nil, fmt.Errorf("lock.Both: %w: no TTL suits both: %s has %v to %v, %s %v to %v", ErrInvalid,
			first.Backend, first.MinTTL, first.MaxTTL, second.Backend, second.MinTTL, second.MaxTTL)
	}
	b.tie = first.Backend == second.Backend
	if first.Backend > second.Backend {
		b.start = 1
	}
	return New(b, opts...)
}

// engineOf finds the engine under wrappers; nil if there is none.
func engineOf(l Locker) *engine {
	for {
		switch u := l.(type) {
		case *engine:
			return u
		case interface{ Unwrap() Locker }:
			if l = u.Unwrap(); isNil(l) {
				return nil
			}
		default:
			return nil
		}
	}
}

// both is a Backend whose stores are Lockers.
type both struct {
	sides   [2]side // as Both's arguments; the first gives the tokens
	engines [2]*engine
	promise Guarantees
	start   int  // the side that is taken first
	tie     bool // the order is not the same for all
}

type side struct {
	Locker
	promise Guarantees
	margin  func(time.Duration) time.Duration
}

func (b *both) Guarantees() Guarantees { return b.promise }

// Close does nothing: the Lockers are the caller's.
func (b *both) Close() error { return nil }

// Margin is the greater of the two.
func (b *both) Margin(ttl time.Duration) time.Duration {
	return max(b.sides[0].margin(ttl), b.sides[1].margin(ttl))
}

// Acquire takes one lock, then the other.
func (b *both) Acquire(ctx context.Context, req Request) (Grant, error) {
	i, j := b.start, 1-b.start
	h, err := b.take(ctx, req, i)
	if err != nil {
		return Grant{}, err
	}
	second, err := b.takeSecond(ctx, req, h, j)
	if err != nil {
		giveBack(ctx, h)
		// In a tie the other may be one that holds what we want and wants what we
		// held: not both shall come back at once.
		return Grant{Retry: time.Millisecond + rand.N(max(req.TTL/8, time.Millisecond))}, err
	}
	l := &bothLease{b: b}
	l.handles[i], l.handles[j] = h, second
	ttl := min(h.TTL(), second.TTL())
	g := Grant{Lease: l, TTL: ttl, Sent: l.provenAt(ttl)}
	if b.promise.Fencing != FencingNone {
		g.Token, _ = l.handles[0].Token()
	}
	l.watch(req.Lost)
	return g, nil
}

// take takes the lock of one side, and says to the engine that it is held before
// it waits.
func (b *both) take(ctx context.Context, req Request, i int) (*Handle, error) {
	s := b.sides[i]
	opts := []Option{TTL(req.TTL), NoRenew(), Owner(req.Owner)}
	if i == 0 && req.Token {
		opts = append(opts, WithToken())
	}
	h, err := s.TryAcquire(ctx, req.Name, opts...)
	if err != nil && req.Wait && errors.Is(err, ErrHeld) && ctx.Err() == nil {
		req.Held(heldOf(err))
		h, err = s.Acquire(ctx, req.Name, opts...)
	}
	return h, b.plain(i, err)
}

// takeSecond takes the second lock, and confirms the first while it waits.
func (b *both) takeSecond(ctx context.Context, req Request, first *Handle, i int) (*Handle, error) {
	if !req.Wait {
		return b.take(ctx, req, i)
	}
	caller := ctx
	ctx, cancel := first.Join(ctx)
	defer cancel()
	if b.tie {
		patience := req.TTL/4 + rand.N(max(req.TTL/4, time.Millisecond))
		timer := time.AfterFunc(patience, cancel)
		defer timer.Stop()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.keep(ctx, first, b.sides[1-i], req.TTL)
	}()
	h, err := b.take(ctx, req, i)
	over := ctx.Err() != nil && caller.Err() == nil
	cancel()
	<-done // it ends within the engine's 100 ms
	if over && err != nil && !errors.Is(err, ErrHeld) {
		// Not the caller's ctx ended: it shall be tried again.
		err = fmt.Errorf("%w: the lock on %s was given back or lost before %s answered", ErrUnavailable,
			b.sides[1-i].promise.Backend, b.sides[i].promise.Backend)
	}
	return h, err
}

// keep confirms a lock until ctx ends, which it does with the lock.
func (b *both) keep(ctx context.Context, h *Handle, s side, ttl time.Duration) {
	tick := time.NewTicker(ttl / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = s.confirm(ctx, h, ttl) // if it fails, the lock is ours until its deadline, which ends ctx
		}
	}
}

// confirm asks the side's store whether h is still held.
func (s side) confirm(ctx context.Context, h *Handle, ttl time.Duration) error {
	if !s.promise.Extend {
		ttl = h.TTL()
	}
	return h.Extend(ctx, ttl)
}

// giveBack releases the first lock if the second could not be had. What its
// Locker cannot do at once, that does in the background.
func giveBack(ctx context.Context, h *Handle) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = h.Release(ctx)
}

// plain is an inner Locker's error with the backend's name alone before it: the
// outer engine says the rest.
func (b *both) plain(i int, err error) error {
	if err == nil {
		return nil
	}
	if held := heldOf(err); held != nil {
		return held
	}
	var op *opError
	if errors.As(err, &op) {
		err = op.err
	}
	return fmt.Errorf("%s: %w", b.sides[i].promise.Backend, err)
}

// heldOf returns a copy of the HeldError within err, or nil.
func heldOf(err error) *HeldError {
	var held *HeldError
	if !errors.As(err, &held) {
		return nil
	}
	c := *held
	return &c
}

// bothLease is a lock held on both stores.
type bothLease struct {
	b       *both
	handles [2]*Handle // as sides
	stop    [2]func() bool
}

// provenAt is when a request for a lock of time to live ttl was sent, had it led
// to the trust that the weaker of the two handles has.
func (l *bothLease) provenAt(ttl time.Duration) Instant {
	trust := l.handles[0].trusted().earlier(l.handles[1].trusted())
	return trust.Add(l.b.Margin(ttl) - ttl)
}

// trusted is until when the lock is ours with no further word from the store.
func (h *Handle) trusted() Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.trust
}

// watch tells the engine when either store took its lock away.
func (l *bothLease) watch(lost func(LossCause, error)) {
	for i, h := range l.handles {
		ctx := h.Context()
		l.stop[i] = context.AfterFunc(ctx, func() {
			cause, err := CauseTaken, context.Cause(ctx)
			var le *LostError
			if errors.As(err, &le) {
				cause, err = le.Cause, le.Err
			}
			if err == nil {
				err = errors.New("no more is known")
			}
			lost(cause, fmt.Errorf("on %s: %w", l.b.sides[i].promise.Backend, err))
		})
	}
}

// each does something with both locks at once.
func (l *bothLease) each(do func(i int, h *Handle) error) (errs [2]error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		errs[1] = l.b.plain(1, do(1, l.handles[1]))
	}()
	errs[0] = l.b.plain(0, do(0, l.handles[0]))
	<-done
	return errs
}

// Renew confirms both locks.
func (l *bothLease) Renew(ctx context.Context, ttl time.Duration) error {
	errs := l.each(func(i int, h *Handle) error { return l.b.sides[i].confirm(ctx, h, ttl) })
	for _, err := range errs {
		if errors.Is(err, ErrLost) {
			return err
		}
	}
	return first(errs)
}

// Release frees both locks.
func (l *bothLease) Release(ctx context.Context) error {
	for _, stop := range l.stop {
		stop()
	}
	errs := l.each(func(_ int, h *Handle) error { return h.Release(ctx) })
	for _, err := range errs {
		if err != nil && !errors.Is(err, ErrLost) {
			return err // not known of one: it has to be tried again
		}
	}
	return first(errs)
}

func first(errs [2]error) error {
	if errs[0] != nil {
		return errs[0]
	}
	return errs[1]
}
