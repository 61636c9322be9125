package lock

import (
	"context"
	"errors"
	"fmt"
)

// Do runs fn while it holds the lock, and releases it when fn has returned,
// panicked or called [runtime.Goexit]. It waits for the lock as Acquire does.
//
// fn's ctx ends with ctx or with the lock, and has the values of ctx; see
// [context.Cause] for which. Do returns fn's error as it is. If fn returned nil
// although the lock was lost under it, Do returns ErrLost. That the store did
// not confirm a release is no error of Do: it goes on in the background, and the
// Locker logs and observes it.
func Do(ctx context.Context, l Locker, name string, fn func(ctx context.Context, h *Handle) error, opts ...Option) error {
	if err := checkDo(l, fn); err != nil {
		return fmt.Errorf("do %.64q: %w", name, err)
	}
	h, err := l.Acquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	return h.do(ctx, fn)
}

// TryDo is Do with one attempt: ErrHeld at once if another holds the lock.
func TryDo(ctx context.Context, l Locker, name string, fn func(ctx context.Context, h *Handle) error, opts ...Option) error {
	if err := checkDo(l, fn); err != nil {
		return fmt.Errorf("do %.64q: %w", name, err)
	}
	h, err := l.TryAcquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	return h.do(ctx, fn)
}

func checkDo(l Locker, fn func(context.Context, *Handle) error) error {
	switch {
	case isNil(l):
		return fmt.Errorf("%w: a nil Locker", ErrInvalid)
	case fn == nil:
		return fmt.Errorf("%w: a nil function", ErrInvalid)
	}
	return nil
}

func (h *Handle) do(ctx context.Context, fn func(context.Context, *Handle) error) (err error) {
	if h == nil || h.e == nil {
		return fmt.Errorf("%w: the Locker returned no Handle", ErrInvalid)
	}
	h.mu.Lock()
	h.running++
	h.mu.Unlock()
	joined, cancel := h.Join(ctx)
	returned := false
	defer func() {
		cancel()
		h.mu.Lock()
		h.running--
		h.mu.Unlock()
		released := h.Release(ctx)
		if returned && err == nil && errors.Is(released, ErrLost) {
			err = released
		}
	}()
	if err := h.Err(); err != nil {
		returned = true
		return h.e.wrap("do", h.name, err)
	}
	err = fn(joined, h)
	returned = true
	return err
}
