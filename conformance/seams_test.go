package conformance_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/conformance"
)

// Engines that break a rule. They are made over the right one.

// flawedHandle is a handle of such an engine.
type flawedHandle struct {
	*lock.Handle
	flaw     string
	mu       sync.Mutex
	released atomic.Bool
	extended atomic.Int64
}

func handlesThat(flaw string) conformance.Seam {
	return conformance.Seam{Handle: func(h *lock.Handle) conformance.Handle {
		f := &flawedHandle{Handle: h, flaw: flaw}
		if flaw == "frees at MaxHold" && h != nil {
			hctx := h.Context()
			context.AfterFunc(hctx, func() {
				var lost *lock.LostError
				if errors.As(context.Cause(hctx), &lost) && lost.Cause == lock.CauseMaxHold {
					_ = h.Release(context.Background())
				}
			})
		}
		return f
	}}
}

func (h *flawedHandle) Release(ctx context.Context) error {
	switch h.flaw {
	case "releases once":
		if h.released.Swap(true) {
			return errors.New("released already")
		}
	case "obeys an ended ctx in Release":
		if ctx.Err() != nil {
			return ctx.Err()
		}
	case "blocks after Release":
		h.mu.Lock()
		h.released.Store(true)
		h.mu.Unlock()
	}
	err := h.Handle.Release(ctx)
	switch h.flaw {
	case "tells no loss":
		if errors.Is(err, lock.ErrLost) {
			return nil
		}
	case "calls a release a loss":
		h.released.Store(err == nil)
	}
	return err
}

func (h *flawedHandle) Extend(ctx context.Context, ttl time.Duration) error {
	h.mu.Lock()
	if h.flaw == "blocks after Release" && h.released.Load() {
		<-over
	}
	h.mu.Unlock()
	h.extended.Add(1)
	err := h.Handle.Extend(ctx, ttl)
	if h.flaw == "tells no loss" && errors.Is(err, lock.ErrLost) {
		return nil
	}
	return err
}

func (h *flawedHandle) Err() error {
	if h.flaw == "calls a release a loss" && h.released.Load() {
		return &lock.LostError{Name: h.Name()}
	}
	return h.Handle.Err()
}

func (h *flawedHandle) Token() (lock.Token, bool) {
	token, ok := h.Handle.Token()
	switch h.flaw {
	case "gives a new token at each Extend":
		token += lock.Token(h.extended.Load())
	case "cuts tokens to 32 bits":
		token &= 1<<32 - 1
	}
	return token, ok
}

func (h *flawedHandle) Name() string {
	if h.flaw == "cannot be zero" && h.Handle.Name() == "" {
		panic("a handle without a name")
	}
	return h.Handle.Name()
}

func (h *flawedHandle) Context() context.Context {
	hctx := h.Handle.Context()
	if h.flaw != "has a Context without values" {
		return hctx
	}
	bare, cancel := context.WithCancelCause(context.Background())
	context.AfterFunc(hctx, func() { cancel(context.Cause(hctx)) })
	return bare
}

// flawedLocker is a Locker of such an engine.
type flawedLocker struct {
	lock.Locker
	flaw string
	mu   sync.Mutex
}

func lockersThat(flaw string) conformance.Seam {
	return conformance.Seam{Locker: func(l lock.Locker) lock.Locker { return &flawedLocker{Locker: l, flaw: flaw} }}
}

func (l *flawedLocker) Acquire(ctx context.Context, name string, opts ...lock.Option) (*lock.Handle, error) {
	return l.enter(ctx, l.Locker.Acquire, name, opts)
}

func (l *flawedLocker) TryAcquire(ctx context.Context, name string, opts ...lock.Option) (*lock.Handle, error) {
	if l.flaw == "waits in TryAcquire" {
		ctx, cancel := context.WithTimeout(ctx, 150*time.Millisecond)
		defer cancel()
		return l.enter(ctx, l.Locker.Acquire, name, opts)
	}
	return l.enter(ctx, l.Locker.TryAcquire, name, opts)
}

func (l *flawedLocker) enter(ctx context.Context, take func(context.Context, string, ...lock.Option) (*lock.Handle, error), name string, opts []lock.Option) (*lock.Handle, error) {
	switch l.flaw {
	case "ignores ctx":
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
	case "takes any name":
		if name == "" {
			name = "default"
		}
		name = name[:min(len(name), lock.MaxNameLen)]
	}
	h, err := take(ctx, name, opts...)
	switch {
	case l.flaw == "ignores bad options" && (errors.Is(err, lock.ErrInvalid) || errors.Is(err, lock.ErrNoToken)):
		return take(ctx, name)
	case l.flaw == "ties the hold to Acquire's ctx" && err == nil:
		context.AfterFunc(ctx, func() { _ = h.Release(context.Background()) })
	}
	return h, err
}

func (l *flawedLocker) Close() error {
	switch l.flaw {
	case "does not close":
		return nil
	case "closes slowly":
		time.Sleep(9500 * time.Millisecond)
	}
	return l.Locker.Close()
}

// do is a Do with a flaw.
func do(flaw string) conformance.Seam {
	return conformance.Seam{Do: func(ctx context.Context, l lock.Locker, name string, fn func(context.Context, *lock.Handle) error, opts ...lock.Option) error {
		if fn == nil || l == nil {
			return lock.ErrInvalid
		}
		h, err := l.Acquire(ctx, name, opts...)
		if err != nil {
			return err
		}
		fctx, cancel := h.Join(ctx)
		defer cancel()
		if flaw == "frees when ctx ends" {
			context.AfterFunc(ctx, func() { _ = h.Release(context.Background()) })
		}
		err = fn(fctx, h)
		released := h.Release(ctx)
		if err == nil && flaw != "tells no loss" {
			err = released
		}
		return err
	}}
}
