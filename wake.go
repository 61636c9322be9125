package lock

import (
	"context"
	"sync"
	"time"
)

// wakeup is where a waiting acquisition sleeps. The zero value is ready.
type wakeup struct {
	mu    sync.Mutex
	ch    chan struct{} // made by the first who needs it; holds one value
	after time.Duration // when to look again, of the wake-ups not yet seen
	set   bool
}

func (w *wakeup) channel() chan struct{} {
	if w.ch == nil {
		w.ch = make(chan struct{}, 1)
	}
	return w.ch
}

// wake is Request.Wake.
func (h *Handle) wake(after time.Duration) {
	w := &h.wakes
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.set || after < w.after {
		w.after, w.set = after, true
	}
	select {
	case w.channel() <- struct{}{}:
	default:
	}
}

// sleep returns nil when pause has passed or wake was called and its time has
// come.
func (h *Handle) sleep(ctx context.Context, pause time.Duration, closing <-chan struct{}) error {
	w := &h.wakes
	w.mu.Lock()
	ch := w.channel()
	w.mu.Unlock()
	end := time.Now().Add(pause)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-ch:
			w.mu.Lock()
			after := w.after
			w.set = false
			w.mu.Unlock()
			if after <= 0 {
				return nil
			}
			if sooner := time.Now().Add(after); sooner.Before(end) {
				end = sooner
				timer.Reset(after)
			}
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctxError(ctx)
		case <-closing:
			return ErrClosed
		}
	}
}
