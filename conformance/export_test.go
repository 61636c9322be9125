package conformance

import (
	"context"

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

// NewCheck makes a check that is not in the table.
func NewCheck(name string, run func(ctx context.Context) error) Check {
	return Check{Name: name, Rule: "As " + name + " says.", run: func(ctx context.Context, _ *T) error { return run(ctx) }}
}

// Perform runs a check by itself within its bound.
func Perform(ctx context.Context, s Subject, c Check) error {
	r, err := newRunner(s, Options{})
	if err != nil {
		return err
	}
	if err := r.start(ctx); err != nil {
		return err
	}
	defer r.stop()
	return r.perform(ctx, c).Err
}
