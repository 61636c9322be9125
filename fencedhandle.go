package lock

import (
	"context"
	"time"
)

// FencedHandle is a held lock with its fencing token. A nil one answers as a nil
// [Handle] does: a deferred Release before the look at Acquire's error does no
// harm.
type FencedHandle struct {
	*Handle
	token Token
}

// Token returns the token to write with. One of a FencedHandle that no
// FencedLocker made is 0, which the storage's side refuses.
func (h *FencedHandle) Token() Token {
	if h == nil {
		return 0
	}
	return h.token
}

// The methods of Handle, which Go would look for behind a nil pointer.

// Name does what [Handle.Name] does.
func (h *FencedHandle) Name() string { return h.plain().Name() }

// TTL does what [Handle.TTL] does.
func (h *FencedHandle) TTL() time.Duration { return h.plain().TTL() }

// Deadline does what [Handle.Deadline] does.
func (h *FencedHandle) Deadline() time.Time { return h.plain().Deadline() }

// Err does what [Handle.Err] does.
func (h *FencedHandle) Err() error { return h.plain().Err() }

// Context does what [Handle.Context] does.
func (h *FencedHandle) Context() context.Context { return h.plain().Context() }

// Join does what [Handle.Join] does.
func (h *FencedHandle) Join(ctx context.Context) (context.Context, context.CancelFunc) {
	return h.plain().Join(ctx)
}

// Extend does what [Handle.Extend] does.
func (h *FencedHandle) Extend(ctx context.Context, ttl time.Duration) error {
	return h.plain().Extend(ctx, ttl)
}

// Release does what [Handle.Release] does.
func (h *FencedHandle) Release(ctx context.Context) error { return h.plain().Release(ctx) }

// String does what [Handle.String] does.
func (h *FencedHandle) String() string { return h.plain().String() }

func (h *FencedHandle) plain() *Handle {
	if h == nil {
		return nil
	}
	return h.Handle
}
