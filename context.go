package lock

import "context"

// Context returns a Context with the values of Acquire's ctx, but not its
// cancellation: it ends with the lock. Its cause (see [context.Cause]) is then
// a [*LostError], ErrReleased or ErrClosed. It ends before anyone else can get
// the lock, as far as the machine runs: after a time in which the process was
// stopped or the machine suspended, Err is exact and the Context ends within
// one second, or a tenth of the TTL if that is less.
func (h *Handle) Context() context.Context {
	if h == nil || h.e == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(ErrReleased)
		return ctx
	}
	h.Err()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hctx == nil {
		h.hctx, h.cancel = context.WithCancelCause(handleContext{context.WithoutCancel(h.ctx), h})
		if h.ended != nil {
			h.cancel(h.ended)
		}
	}
	return h.hctx
}

// Join returns a Context that ends with ctx or with the lock, whichever is
// first, with the values of ctx. Its cause tells which. The CancelFunc frees
// what the Context needs, and must be called.
func (h *Handle) Join(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx == nil {
		ctx = context.Background()
	}
	hctx := h.Context()
	joined, cancel := context.WithCancelCause(handleContext{ctx, h})
	if hctx.Err() != nil {
		cancel(context.Cause(hctx))
	}
	stop := context.AfterFunc(hctx, func() { cancel(context.Cause(hctx)) })
	return joined, func() {
		stop()
		cancel(context.Canceled)
	}
}

// handleContext finds its Handle.
type handleContext struct {
	context.Context
	h *Handle
}

type handleKey struct{}

func (c handleContext) Value(key any) any {
	if key == (handleKey{}) {
		return c.h
	}
	return c.Context.Value(key)
}

// FromContext returns the innermost Handle whose Context ctx is, or descends
// from.
func FromContext(ctx context.Context) (*Handle, bool) {
	if ctx == nil {
		return nil, false
	}
	h, ok := ctx.Value(handleKey{}).(*Handle)
	return h, ok && h != nil
}
