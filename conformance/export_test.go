package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/interlock-go/lock"
)

// Handle is lock.Handle as the checks see it.
type Handle = handle

// Seam puts engines that break a rule under the checks.
type Seam struct {
	Locker      func(lock.Locker) lock.Locker
	Handle      func(*lock.Handle) Handle
	Do          func(context.Context, lock.Locker, string, func(context.Context, *lock.Handle) error, ...lock.Option) error
	FromContext func(context.Context) (*lock.Handle, bool)
}

// With returns the Subject with the seam.
func (s Subject) With(x Seam) Subject {
	s.seam = seam{locker: x.Locker, handle: x.Handle, do: x.Do, tryDo: x.Do, fromContext: x.FromContext}
	return s
}

// Alone reports whether a check measures, and so has to run by itself.
func (c Check) Alone() bool { return c.phase == alone }

// PerformWithin runs the check of that name by itself with another bound.
func PerformWithin(ctx context.Context, s Subject, name string, bound time.Duration) error {
	r, err := newRunner(s, Options{})
	if err != nil {
		return err
	}
	if err := r.start(ctx); err != nil {
		return err
	}
	for _, c := range checks {
		if c.Name == name {
			c.bound = bound
			return errors.Join(r.perform(ctx, c).Err, r.stop())
		}
	}
	return errors.New("no such check")
}
