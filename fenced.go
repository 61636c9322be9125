package lock

import (
	"context"
	"fmt"
	"slices"
)

// FencedLocker takes locks of which each has a fencing token: it is for locks
// where a second holder would corrupt data. Its methods may be called from many
// goroutines at once, and do what those of its [Locker] do.
type FencedLocker struct {
	locker  Locker
	atLeast Fencing
}

// Fenced returns a FencedLocker over l, of whose tokens at least atLeast is
// promised. It returns ErrNoToken if l does not promise as much.
//
// The tokens protect nothing until the storage compares them, before it reads
// what a write depends on.
func Fenced(l Locker, atLeast Fencing) (*FencedLocker, error) {
	switch {
	case isNil(l):
		return nil, fmt.Errorf("fenced: %w: a nil Locker", ErrInvalid)
	case atLeast == FencingNone || atLeast > FencingConsensus:
		return nil, fmt.Errorf("fenced: %w: fencing level %v (have volatile, durable, consensus)", ErrInvalid, atLeast)
	}
	if g := l.Guarantees(); g.Fencing < atLeast {
		return nil, fmt.Errorf("fenced: %w", tooWeak(g, atLeast))
	}
	return &FencedLocker{l, atLeast}, nil
}

// tooWeak says that a backend does not have the fencing that is asked for, and
// which backends have.
func tooWeak(g Guarantees, atLeast Fencing) error {
	with := "etcd, zookeeper"
	if atLeast <= FencingDurable {
		with += ", postgres, file"
	}
	if atLeast <= FencingVolatile {
		with += ", redis with fencing=counter"
	}
	return fmt.Errorf("%w: %s has fencing level %v, and %v is asked for (which %s can give)", ErrNoToken, g.Backend, g.Fencing, atLeast, with)
}

// Acquire waits for the lock as [Locker].Acquire does.
func (f *FencedLocker) Acquire(ctx context.Context, name string, opts ...Option) (*FencedHandle, error) {
	if f == nil || f.locker == nil {
		return nil, noFencedLocker("acquire", name)
	}
	h, err := f.locker.Acquire(ctx, name, withToken(opts)...)
	return f.fence(ctx, "acquire", name, h, err)
}

// TryAcquire makes one attempt as [Locker].TryAcquire does.
func (f *FencedLocker) TryAcquire(ctx context.Context, name string, opts ...Option) (*FencedHandle, error) {
	if f == nil || f.locker == nil {
		return nil, noFencedLocker("try", name)
	}
	h, err := f.locker.TryAcquire(ctx, name, withToken(opts)...)
	return f.fence(ctx, "try", name, h, err)
}

// Do runs fn while it holds the lock; see the function [Do].
func (f *FencedLocker) Do(ctx context.Context, name string, fn func(ctx context.Context, h *FencedHandle) error, opts ...Option) error {
	return f.do(Do, ctx, name, fn, opts)
}

// TryDo is Do with one attempt; see the function [TryDo].
func (f *FencedLocker) TryDo(ctx context.Context, name string, fn func(ctx context.Context, h *FencedHandle) error, opts ...Option) error {
	return f.do(TryDo, ctx, name, fn, opts)
}

func (f *FencedLocker) do(
	do func(context.Context, Locker, string, func(context.Context, *Handle) error, ...Option) error,
	ctx context.Context, name string, fn func(context.Context, *FencedHandle) error, opts []Option,
) error {
	if f == nil || f.locker == nil {
		return noFencedLocker("do", name)
	}
	if fn == nil {
		return fmt.Errorf("do %.64q: %w: a nil function", name, ErrInvalid)
	}
	return do(ctx, f.locker, name, func(ctx context.Context, h *Handle) error {
		token, ok := h.Token()
		if !ok {
			return f.noToken("do", name)
		}
		return fn(ctx, &FencedHandle{h, token})
	}, withToken(opts)...)
}

// fence makes a FencedHandle of what was acquired. A Locker that promised a
// token and gave none is a wrapper that lost the option on the way.
func (f *FencedLocker) fence(ctx context.Context, op, name string, h *Handle, err error) (*FencedHandle, error) {
	if err != nil {
		return nil, err
	}
	token, ok := h.Token()
	if !ok {
		// It frees itself in the background if this cannot be confirmed.
		h.Release(ctx) //nolint:errcheck // the user is told of the cause
		return nil, f.noToken(op, name)
	}
	return &FencedHandle{h, token}, nil
}

// withToken puts the option last, where none of the caller's undoes it, and in a
// slice of its own, since the caller may share theirs.
func withToken(opts []Option) []Option {
	return slices.Concat(opts, []Option{WithToken()})
}

func (f *FencedLocker) noToken(op, name string) error {
	g := f.locker.Guarantees()
	return fmt.Errorf("%s %.64q: %w: %s promised fencing level %v but granted the lock without a token", op, name, ErrNoToken, g.Backend, g.Fencing)
}

func noFencedLocker(op, name string) error {
	return fmt.Errorf("%s %.64q: %w: a FencedLocker that Fenced did not make", op, name, ErrInvalid)
}
