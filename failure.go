package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// isOver reports whether ctx has ended. A client that puts ctx's deadline on its
// connection hears of it a moment before ctx does: that is no outage.
func isOver(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// unavailable makes err ErrUnavailable, unless it is one of the package's own.
func unavailable(err error) error {
	for _, own := range [...]error{ErrUnavailable, ErrHeld, ErrNoToken, ErrInvalid, ErrUnsupported, ErrClosed} {
		if errors.Is(err, own) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// isTransient reports whether the store's error can pass by itself. A time-out
// that is not the caller's is the client library's own.
func isTransient(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrLost) || isCtxError(err)
}

func isCtxError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// ctxError is ctx's error, with its cause where that says more.
func ctxError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil { // its deadline has passed, its timer has not fired yet
		err = context.DeadlineExceeded
	}
	if cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// errNoAnswer is for a wait that ended before the store had answered.
var errNoAnswer = fmt.Errorf("%w: no answer yet", ErrUnavailable)

// withLast adds the store's last word to the error that ended a wait.
func withLast(err, last error) error {
	if last == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, last)
}
