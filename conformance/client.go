package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
)

// handle is lock.Handle as the checks see it, so that the suite's own tests can
// give them one that breaks a rule of the engine.
type handle interface {
	Name() string
	Token() (lock.Token, bool)
	TTL() time.Duration
	Context() context.Context
	Join(ctx context.Context) (context.Context, context.CancelFunc)
	Err() error
	Deadline() time.Time
	Extend(ctx context.Context, ttl time.Duration) error
	Release(ctx context.Context) error
}

var _ handle = (*lock.Handle)(nil)

// seam is where the suite's own tests put engines that break a rule.
type seam struct {
	locker      func(lock.Locker) lock.Locker
	handle      func(*lock.Handle) handle
	do, tryDo   func(context.Context, lock.Locker, string, func(context.Context, *lock.Handle) error, ...lock.Option) error
	fromContext func(context.Context) (*lock.Handle, bool)
}

func (s *seam) fill() {
	if s.locker == nil {
		s.locker = func(l lock.Locker) lock.Locker { return l }
	}
	if s.handle == nil {
		s.handle = func(h *lock.Handle) handle { return h }
	}
	if s.do == nil {
		s.do = lock.Do
	}
	if s.tryDo == nil {
		s.tryDo = lock.TryDo
	}
	if s.fromContext == nil {
		s.fromContext = lock.FromContext
	}
}

// client is a Locker of its own.
type client struct {
	lock.Locker
	t *T
}

// opBound is how long an operation that has nothing to wait for may take on a
// busy machine.
const opBound = 10 * time.Second

// soon is the time in which a free lock has to reach who waits for it, and a
// holder has to hear of a loss, on a busy machine.
const soon = 2 * time.Second

// acquire calls Acquire, and holds it to "a handle or an error".
func (c *client) acquire(ctx context.Context, name string, opts ...lock.Option) (handle, error) {
	c.t.note("Acquire")
	h, err := c.Acquire(ctx, name, opts...)
	return c.either("Acquire", h, err)
}

func (c *client) either(op string, h *lock.Handle, err error) (handle, error) {
	switch {
	case err != nil && h != nil:
		c.t.fail("%s returned both a handle and the error: %w", op, err)
	case err == nil && h == nil:
		c.t.fail("%s returned neither a handle nor an error", op)
	case err != nil:
		return nil, err
	}
	return c.t.runner.subject.seam.handle(h), nil
}

// try calls TryAcquire.
func (c *client) try(name string, opts ...lock.Option) (handle, error) {
	ctx, cancel := context.WithTimeout(c.t.ctx, opBound)
	defer cancel()
	c.t.note("TryAcquire")
	h, err := c.TryAcquire(ctx, name, opts...)
	return c.either("TryAcquire", h, err)
}

// take acquires a lock that is free, or will be in time.
func (c *client) take(name string, opts ...lock.Option) handle {
	return c.takeWithin(opBound, name, opts...)
}

func (c *client) takeWithin(bound time.Duration, name string, opts ...lock.Option) handle {
	ctx, cancel := context.WithTimeout(c.t.ctx, bound)
	defer cancel()
	h, err := c.acquire(ctx, name, opts...)
	if err != nil {
		c.t.fail("acquiring within %v: %w", bound, err)
	}
	return h
}

// free releases a lock that is held.
func (c *client) free(h handle) {
	ctx, cancel := context.WithTimeout(c.t.ctx, opBound)
	defer cancel()
	c.t.note("Release")
	if err := h.Release(ctx); err != nil {
		c.t.fail("releasing a held lock: %w", err)
	}
}

// release calls Release with a bound.
func (c *client) release(h handle) error {
	ctx, cancel := context.WithTimeout(c.t.ctx, opBound)
	defer cancel()
	c.t.note("Release")
	return h.Release(ctx)
}

// extend calls Extend with a bound.
func (c *client) extend(h handle, ttl time.Duration) error {
	ctx, cancel := context.WithTimeout(c.t.ctx, opBound)
	defer cancel()
	c.t.note("Extend")
	return h.Extend(ctx, ttl)
}

// mustBeHeld fails the check unless TryAcquire says that another has the lock.
func (c *client) mustBeHeld(name, why string) {
	h, err := c.try(name)
	if err == nil {
		_ = c.release(h)
		c.t.fail("TryAcquire got the lock, although %s", why)
	}
	if !errors.Is(err, lock.ErrHeld) {
		c.t.fail("TryAcquire: %w; want ErrHeld, since %s", err, why)
	}
	if errors.Is(err, lock.ErrUnavailable) {
		c.t.fail("TryAcquire: %w is ErrHeld and ErrUnavailable at once", err)
	}
}

// mustBeHeldBy is mustBeHeld for a holder that renews its lock. If the machine
// stood still, it may have run out, and its handle knows that.
func (c *client) mustBeHeldBy(h handle, why string) {
	other, err := c.try(h.Name())
	lost := h.Err()
	switch {
	case err == nil && lost == nil:
		c.t.fail("TryAcquire got the lock, although %s: two holders", why)
	case err == nil:
		_ = c.release(other)
		c.t.fail("TryAcquire got the lock, although %s, who says: %w", why, lost)
	case !errors.Is(err, lock.ErrHeld):
		c.t.fail("TryAcquire: %w; want ErrHeld, since %s", err, why)
	case lost != nil:
		c.t.fail("the lock was lost, although %s: %w", why, lost)
	}
}

// mustBeFree takes the lock and frees it again.
func (c *client) mustBeFree(name string, within time.Duration, why string) {
	ctx, cancel := context.WithTimeout(c.t.ctx, within)
	defer cancel()
	h, err := c.acquire(ctx, name)
	if err != nil {
		c.t.fail("the lock was not to be had within %v, although %s: %w", within, why, err)
	}
	c.free(h)
}

// lossOf waits until the handle's Context has ended, and returns why.
func (t *T) lossOf(h handle, bound time.Duration, what string) error {
	t.note("%s", what)
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-h.Context().Done():
		return context.Cause(h.Context())
	case <-timer.C:
		t.fail("waited %v for %s: Context has not ended, Err says %v", bound, what, h.Err())
		return nil
	}
}

// wantLost holds a loss to what must be said of it.
func (t *T) wantLost(cause error, name string, causes ...lock.LossCause) {
	var lost *lock.LostError
	if !errors.Is(cause, lock.ErrLost) || !errors.As(cause, &lost) {
		t.fail("the cause of the loss is %v, want a *LostError", cause)
	}
	if errors.Is(cause, lock.ErrReleased) {
		t.fail("%w is ErrLost and ErrReleased at once", cause)
	}
	if lost.Name != name {
		t.fail("the LostError names %q, want %q", lost.Name, name)
	}
	for _, c := range causes {
		if lost.Cause == c {
			return
		}
	}
	if len(causes) > 0 {
		t.fail("the cause of the loss is %v (%w), want one of %v", lost.Cause, cause, causes)
	}
}

// wantIs fails the check unless err is each of the targets.
func (t *T) wantIs(what string, err error, targets ...error) {
	if err == nil {
		t.fail("%s gave no error, want %v", what, targets)
	}
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.fail("%s gave %w; want %v", what, err, fmt.Sprint(targets))
		}
	}
}

// wantIsNot fails the check if err is one of the targets.
func (t *T) wantIsNot(what string, err error, targets ...error) {
	for _, target := range targets {
		if errors.Is(err, target) {
			t.fail("%s gave %w, which must not be %v", what, err, fmt.Sprint(target))
		}
	}
}
